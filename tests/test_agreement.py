"""Certificates: every bundled program gets one, and no damage to the weights that shows goes unnoticed."""

from __future__ import annotations

import random
from concurrent.futures import ProcessPoolExecutor
from dataclasses import replace

import numpy as np
import pytest
import random_programs

from alta import CompileError, VerificationError, compile, run, verify
from alta.analysis.agreement import compare
from alta.errors import AltaError, EndlessError, InputError
from alta.model.forward import Model
from alta.model.products import product
from alta.model.weights import Sparse, Weights
from alta.programs import BUNDLED, addition, parity, sort


@pytest.mark.parametrize("name", BUNDLED)
def test_every_bundled_program_gets_a_certificate(name):
    bundled = BUNDLED[name]
    program = bundled.build()
    certificate = verify(
        compile(program, max_length=300), [bundled.encode(bundled.example)], max_layers=bundled.max_layers
    )
    assert certificate.rules == len(program.rules)
    assert certificate.inputs == 1
    assert certificate.slack > 0.4


def test_random_programs_get_certificates():
    for seed in range(400):
        program = random_programs.program(seed)
        try:
            model = compile(program, max_length=8)
        except CompileError:
            continue
        verify(model)


def arrays(weights: Weights) -> list[tuple[str, tuple[str | int, ...]]]:
    """Every matrix and bias, with the way to it."""
    found: list[tuple[str, tuple[str | int, ...]]] = [("sparse", ("tokens",)), ("sparse", ("output",))]
    found += [("sparse", (name,)) for name in ("positions", "halt") if getattr(weights, name) is not None]
    for number, layer in enumerate(weights.layers):
        for i, head in enumerate(layer.heads):
            found += [("sparse", ("layers", number, "heads", i, part)) for part in ("query", "key", "value", "output")]
            if head.bias is not None:
                found.append(("dense", ("layers", number, "heads", i, "bias")))
        for i in range(len(layer.mlp)):
            found += [
                ("sparse", ("layers", number, "mlp", i, "weight")),
                ("dense", ("layers", number, "mlp", i, "bias")),
            ]
    return found


def at(thing, way):
    for step in way:
        thing = thing[step] if isinstance(step, int) else getattr(thing, step)
    return thing


def test_products_are_those_of_the_full_matrix():
    """Selections, matrices of almost only zeros (some rows empty), and dense ones with few units on."""
    generator = np.random.default_rng(0)
    for height, width, entries in ((5, 9, 5), (400, 500, 300), (40, 50, 300), (3, 4, 0), (600, 600, 1)):
        full = np.zeros((height, width))
        places = generator.choice(height * width, entries, replace=False)
        full.ravel()[places] = generator.integers(1, 9, entries)
        if entries == height:
            full[:] = 0
            full[np.arange(height), generator.choice(width, height)] = 2.0
        x = generator.integers(0, 5, (7, width)).astype(float)
        x[:, generator.random(width) < 0.9] = 0
        for given in (x, x + 1, x[:0]):
            found = product(Sparse.from_dense(full), np.dtype(np.float64))(given)
            np.testing.assert_array_equal(found, given @ full.T)


def put(thing, way, value):
    if not way:
        return value
    step, *rest = way
    if isinstance(step, int):
        changed = list(thing)
        changed[step] = put(thing[step], rest, value)
        return tuple(changed)
    return replace(thing, **{step: put(getattr(thing, step), rest, value)})


Damage = tuple[str, tuple[str | int, ...], int, str]


def damages(weights: Weights) -> list[Damage]:
    """Each weight changed by 0.01, zeroed, or moved by one index: which, and what."""
    found = []
    for kind, way in arrays(weights):
        array = at(weights, way)
        number = len(array.values) if isinstance(array, Sparse) else len(array)
        found += [(kind, way, index, what) for index in range(number) for what in ("more", "zero", "moved")]
    return found


def damaged(weights: Weights, damage: Damage) -> Weights | None:
    """The weights with the damage done; None where it changes nothing, or would put two weights in one place."""
    kind, way, index, what = damage
    array = at(weights, way)
    numbers = array.values if isinstance(array, Sparse) else array
    changed = numbers.copy()
    if what == "more":
        changed[index] += 0.01
    elif what == "zero":
        changed[index] = 0
    elif kind == "dense":
        changed[[index - 1, index]] = changed[[index, index - 1]]
    if isinstance(array, Sparse):
        columns = array.columns.copy()
        if what == "moved":
            columns[index] = (columns[index] + 1) % array.shape[1]
            if ((array.rows == array.rows[index]) & (array.columns == columns[index])).any():
                return None
        return put(weights, way, replace(array, columns=columns, values=changed))
    return None if np.array_equal(changed, array) else put(weights, way, changed)


def shows(weights: Weights, inputs, max_layers) -> bool:
    """Whether the damage alters a decoded state, the outputs, or the layers, on some input."""
    try:
        for given in inputs:
            compare(Model(weights), given, max_layers=max_layers)
    except (VerificationError, EndlessError, InputError):
        return True
    return False


def survey(program, inputs, max_layers, sample, **options):
    """The damages that show and were accepted, and how many that do not show were refused."""
    weights = compile(program, **options).weights
    every = damages(weights)
    if sample:
        every = random.Random(0).sample(every, min(sample, len(every)))
    missed, strict, harmful, total = [], 0, 0, 0
    for damage in every:
        worse = damaged(weights, damage)
        if worse is None:
            continue
        total += 1
        try:
            verify(Model(worse))
            accepted = True
        except AltaError:
            accepted = False
        if shows(worse, inputs, max_layers):
            harmful += 1
            if accepted:
                missed.append(damage)
        elif not accepted:
            strict += 1
    return missed, strict, harmful, total


FIVE = {
    "parity-relative": (parity.relative, [parity.encode([1, 0, 1, 1]), parity.encode([0, 1])], None, {}),
    "parity-absolute": (lambda: parity.absolute(5), [[1, 0, 1, 1, 0], [0, 1, 1]], None, {}),
    "parity-sum": (
        lambda: parity.by_sum(5),
        [parity.encode(b) for b in ([1, 0, 1], [], [1] * 5)],
        1,
        {"max_length": 6},
    ),
    "sort-unique": (
        lambda: sort.sort_unique(4, 5),
        [sort.encode(n, 4) for n in ([2, 0, 3], [1], [3, 2, 1, 0])],
        None,
        {},
    ),
    "addition": (addition.addition, [addition.encode(95, 7), addition.encode(8, 16)], None, {}),
}


@pytest.mark.parametrize("name", FIVE)
def test_no_damage_that_shows_is_certified(name):
    build, inputs, max_layers, options = FIVE[name]
    missed, strict, harmful, total = survey(build(), inputs, max_layers, 120, **options)
    assert missed == []
    assert harmful > 5
    print(f"{name}: {total} damages, {harmful} show, {strict} refused without showing")


@pytest.mark.slow
@pytest.mark.parametrize("name", FIVE)
def test_no_damage_that_shows_is_certified_in_full(name, capsys):
    build, inputs, max_layers, options = FIVE[name]
    sample = 2000 if name == "addition" else 0
    missed, strict, harmful, total = survey(build(), inputs, max_layers, sample, **options)
    assert missed == []
    with capsys.disabled():
        print(f"\n{name}: {total} damages, {harmful} show and are refused, {strict} refused without showing")


def test_a_unit_that_reads_a_raw_number_is_refused():
    """Its value is no bucket, so what the unit does is not known from the buckets."""
    weights = compile(parity.by_sum(5), max_length=6).weights
    hidden = weights.layers[0].mlp[2]
    passing = hidden.weight.columns[-1]  # the reset's unit, which passes the number on
    dense = hidden.weight.dense()
    dense[0, passing] = 0.25
    with pytest.raises(VerificationError, match="reads a number that is not one-hot"):
        verify(Model(put(weights, ("layers", 0, "mlp", 2, "weight"), Sparse.from_dense(dense))))


def test_inputs_are_spread_over_workers():
    batch = [parity.encode([n >> bit & 1 for bit in range(6)]) for n in range(60)]
    with ProcessPoolExecutor(2) as executor:
        assert verify(compile(parity.relative()), batch, executor=executor).inputs == 60
        wrong = compile(parity.relative())
        wrong.weights.output.columns[:] = wrong.weights.output.columns[::-1].copy()
        with pytest.raises(VerificationError):
            verify(wrong, batch, executor=executor)


def test_the_first_difference_is_named():
    weights = compile(parity.relative()).weights
    left, done = weights.layers[0].heads
    swapped = put(weights, ("layers", 0, "heads", 0), replace(left, value=done.value))
    with pytest.raises(VerificationError, match="after attention 1, position 1: 'parity_left' is 0 in the program"):
        compare(Model(swapped), parity.encode([1, 1]))
    with pytest.raises(VerificationError, match="head 'parity_left' does not carry 'parity' to its output as it is"):
        verify(Model(swapped))


def test_a_model_of_another_program_is_refused():
    model = compile(parity.relative())
    other = compile(parity.by_sum(3), max_length=4)
    with pytest.raises(VerificationError):
        verify(Model(replace(model.weights, program=other.weights.program)))


def test_verifying_leaves_the_model_as_it_was():
    model = compile(parity.relative())
    before = model.run(parity.encode([1, 0, 1])).outputs
    verify(model, [parity.encode([1, 1])])
    assert (
        model.run(parity.encode([1, 0, 1])).outputs
        == before
        == run(parity.relative(), parity.encode([1, 0, 1])).outputs
    )
