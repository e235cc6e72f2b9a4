"""Compiled models against the interpreter, which knows nothing of them."""

from __future__ import annotations

import os
import random

import numpy as np
import pytest
import random_programs

from alta import (
    CompileError,
    EndlessError,
    TrapError,
    UndefinedError,
    compile,
    halt_spec,
    numeric_var,
    program_spec,
    qkv,
    run,
    v_relative,
    var,
)
from alta.analysis.agreement import compare
from alta.programs import BUNDLED, addition, parity, scan, sort, subleq

PROGRAMS = int(os.environ.get("ALTA_RANDOM_MODELS", "2000"))
CHUNK = 250


@pytest.fixture(scope="module")
def models():
    return {name: compile(bundled.build(), max_length=300) for name, bundled in BUNDLED.items()}


def agree(model, program, inputs, max_layers=None):
    """The same outputs, layers and halting, in float32 and in float64."""
    expected = run(program, inputs, max_layers)
    for dtype in ("float32", "float64"):
        found = model.astype(dtype).run(inputs, max_layers)
        assert (found.outputs, found.layers, found.halted) == (expected.outputs, expected.layers, expected.halted)


def check(models, name, inputs, max_layers=None):
    agree(models[name], BUNDLED[name].build(), inputs, max_layers)


def test_parity(models):
    generator = random.Random(0)
    for n in (0, 1, 2, 3, 5, 12, 40):
        bits = [generator.randrange(2) for _ in range(n)]
        check(models, "parity-absolute", bits)
        for name, layers in (("parity-relative", None), ("parity-sum", 1), ("parity-count", 2)):
            check(models, name, parity.encode(bits), layers)


def test_every_count_of_ones_up_to_200_in_float32(models):
    for ones in range(201):
        for zeros in (0, 7):
            result = models["parity-sum"].run(parity.encode([1] * ones + [0] * zeros), 1)
            assert parity.decode(result.outputs) == ones % 2


def test_addition(models):
    generator = random.Random(0)
    for digits in (1, 2, 3, 8, 20, 50):
        a, b = (generator.randrange(10**digits) for _ in range(2))
        result = models["addition"].run(addition.encode(a, b))
        assert addition.decode(result.outputs) == a + b
        assert result.layers == max(len(str(a)), len(str(b))) + 2
    assert addition.decode(models["addition"].run(addition.encode(int("9" * 50), 1)).outputs) == 10**50


def test_sort(models):
    generator = random.Random(0)
    for length in (0, 1, 2, 9, 32):
        numbers = generator.sample(range(32), length)
        assert sort.decode(models["sort-unique"].run(sort.encode(numbers)).outputs) == sorted(numbers)


def test_subleq(models):
    program = BUNDLED["subleq"].build()
    generator = random.Random(3)
    halted = 0
    while halted < 15:
        size = generator.randint(3, 17)
        memory = subleq.encode([generator.choice((-1, *range(size))) for _ in range(size)])
        try:
            run(program, memory)
        except (TrapError, UndefinedError, EndlessError):
            continue
        agree(models["subleq"], program, memory)
        halted += 1


@pytest.mark.parametrize("command", ["jump", "turn left and walk", "run around right thrice after jump twice"])
def test_scan(models, command):
    check(models, "scan", scan.encode(command))
    check(models, "scan-parser", scan.encode_parser(command))


def test_decoders_step_by_step(models):
    for name in ("parity-scratchpad", "addition-decoder"):
        bundled = BUNDLED[name]
        program = bundled.build()
        inputs = [*bundled.encode(bundled.example)]
        for _ in range(4):
            agree(models[name], program, inputs)
            inputs.append(program.tokens[run(program, inputs).outputs[-1]])


@pytest.mark.parametrize("name", BUNDLED)
def test_the_residual_stream_holds_the_state_after_every_sub_layer(models, name):
    bundled = BUNDLED[name]
    compare(models[name], bundled.encode(bundled.example), max_layers=bundled.max_layers)


@pytest.mark.parametrize("first", range(0, PROGRAMS, CHUNK))
def test_random_programs(first):
    """What the interpreter runs without a trap, the model runs with the same state after every sub-layer."""
    refused = compared = 0
    for seed in range(first, first + CHUNK):
        generator = random.Random(seed)
        program = random_programs.program(seed)
        try:
            model = compile(program, max_length=8)
        except CompileError as error:
            assert "too close to tell apart" in str(error)
            refused += 1
            continue
        for _ in range(3):
            inputs = random_programs.inputs(generator, program)
            try:
                run(program, inputs, max_layers=6)
            except (TrapError, UndefinedError):
                continue
            compare(model, inputs, max_layers=6)
            compared += 1
    assert compared > CHUNK / 2
    assert refused < CHUNK / 10


def test_models_of_categorical_programs_have_two_mlp_layers_and_others_four(models):
    layers = {name: len(model.weights.layers[0].mlp) for name, model in models.items()}
    four = {"parity-sum", "parity-count", "sort-unique"}
    assert layers == {name: 4 if name in four else 2 for name in BUNDLED}


def test_position_embeddings_only_where_a_variable_starts_from_the_position(models):
    with_positions = {name for name, model in models.items() if model.weights.positions is not None}
    assert with_positions == {"parity-absolute", "sort-unique", "subleq"}


def test_numbers_that_the_mlp_sets_do_not_drift():
    """0.1, 0.7 and 1/3 are no binary fractions; after 2,000 updates the residual stream holds them as at the start."""
    values = (0.1, 1 / 3, 0.7)

    def mlp(z):
        z["n"] = {values[0]: values[1], values[1]: values[2], values[2]: values[0]}[z["n"]]

    program = program_spec(
        variables={"n": numeric_var(values, default=0.1)}, heads={}, ffn_fn=mlp, output_name="n", input_range=1
    )
    for dtype in ("float32", "float64"):
        model = compile(program).astype(dtype)
        result = model.run([0], 2001, residual=True)
        assert result.outputs == (0.1,)
        assert np.array_equal(result.residual[0], result.residual[-1])


def test_an_undefined_mixture_leaves_nothing_behind():
    """Every third layer all positions agree on what an undefined head would read, and its weights sum to about 1."""
    program = program_spec(
        variables={"a": var(3, default=1), "one": var(2, default=1), "k": var(2), "b": var(3)},
        heads={"h": qkv("one", "k", "a"), "g": v_relative("a", -5)},
        ffn_fn=lambda z: z.__setitem__("b", 1) if z["a"] == 2 and z["h"] == 1 else None,
        output_name="b",
        input_range=1,
    )
    result = compile(program).run([0] * 7, 300, residual=True)
    assert all(np.array_equal(state, result.residual[0]) for state in result.residual[2::2])


def means(values, buckets):
    def mlp(z):
        z["a"] = buckets.index(z["mean"])

    return program_spec(
        variables={"n": numeric_var(values, input_init_fn=values.__getitem__), "one": var(1), "a": var(len(buckets))},
        heads={"mean": qkv("one", "one", "n", output_spec=numeric_var(buckets))},
        ffn_fn=mlp,
        output_name="a",
        input_range=len(values),
    )


def test_ties_between_buckets_go_to_the_lower():
    program = means((0.0, 1.0), (0.0, 0.5, 1.0))
    model = compile(program, max_length=8)
    for ones in range(9):
        for zeros in range(9 - ones):
            if ones + zeros:
                agree(model, program, [1] * ones + [0] * zeros, 1)
    assert model.run([1, 0, 0, 0], 1).outputs == (0,) * 4  # a quarter lies midway between 0 and 0.5


@pytest.mark.parametrize("values", [(0.0, 1.0), (-1.0, 3.0), (0.0, 1.0, 2.0), (2.0, 5.0, 6.0), (-3.0, 0.5, 0.75)])
def test_all_means_of_short_inputs(values):
    from itertools import combinations_with_replacement

    buckets = tuple(values[0] + (values[-1] - values[0]) * k / 7 for k in range(8))
    program = means(values, buckets)
    model = compile(program, max_length=6)
    for n in range(1, 7):
        for inputs in combinations_with_replacement(range(len(values)), n):
            agree(model, program, inputs, 1)


def test_wider_formats_compile_what_float32_cannot_hold():
    program = parity.by_sum(4000)
    model = compile(program, max_length=4001, dtype="float64").astype("float64")
    for ones in (0, 1, 1999, 4000):
        assert parity.decode(model.run(parity.encode([1] * ones), 1).outputs) == ones % 2


def test_an_empty_input(models):
    result = models["parity-relative"].run([])
    assert (result.outputs, result.layers, result.halted) == ((), 0, True)


def test_halting_before_the_first_layer():
    program = program_spec(
        variables={"a": var(2, default=1)},
        heads={},
        ffn_fn=lambda z: None,
        output_name="a",
        input_range=1,
        halt=halt_spec("a", 1),
    )
    assert compile(program).run([0, 0]).layers == 0
