"""The meaning of a program, clause by clause. Expected values are worked out by hand."""

from __future__ import annotations

import pickle
from fractions import Fraction

import pytest

from alta import (
    NULL,
    UNDEFINED,
    EndlessError,
    InputError,
    TrapError,
    UndefinedError,
    generate,
    halt_spec,
    numeric_var,
    program_spec,
    qkv,
    run,
    set_var,
    v_relative,
    var,
)
from alta.language.variables import Numerical
from alta.programs import BUNDLED, parity


def nothing(z):
    pass


def program(variables, heads=None, function=nothing, output="a", **changes):
    arguments = {"variables": variables, "heads": heads or {}, "ffn_fn": function, "output_name": output}
    return program_spec(**{**arguments, "input_range": 4, **changes})


TOKEN = {"input_init_fn": lambda token: token}


def attended(program, inputs):
    """The state after the first attention."""
    return run(program, inputs, max_layers=1).trace.layers[0].attention


def test_variables_start_from_the_token_the_position_or_a_constant():
    variables = {
        "a": var(4, **TOKEN),
        "p": var(9, position_init_fn=lambda i: 8 - i),
        "c": var(3, default=2),
        "flag": var(2, input_init_fn=lambda token: token > 1),
        "n": numeric_var((0, 0.5), default=0.5),
        "s": set_var(2, [{0}, {1}], input_init_fn=lambda token: {token % 2}),
    }
    start = run(program(variables, position_range=9), [3, 0], max_layers=0).trace.start
    assert dict(start[0]) == {"a": 3, "p": 8, "c": 2, "flag": 1, "n": 0.5, "s": frozenset({1})}
    assert dict(start[1]) == {"a": 0, "p": 7, "c": 2, "flag": 0, "n": 0.5, "s": frozenset({0})}
    assert type(start[0]["flag"]) is int


def test_start_functions_are_called_once_for_each_token_when_the_program_is_built():
    calls = []
    built = program({"a": var(4, input_init_fn=lambda token: calls.append(token) or token)})
    run(built, [1, 1, 2], max_layers=1)
    assert calls == [0, 1, 2, 3]


def test_a_categorical_head_reads_exactly_one_position():
    heads = {"h": qkv("q", "k", "v")}
    variables = {"q": var(4, default=2), "k": var(4, **TOKEN), "v": var(4, input_init_fn=lambda t: 3 - t), "a": var(4)}
    assert [a["h"] for a in attended(program(variables, heads), [0, 2, 1])] == [1, 1, 1]
    assert [a["h"] for a in attended(program(variables, heads), [0, 2, 2])] == [UNDEFINED] * 3
    assert [a["h"] for a in attended(program(variables, heads), [0, 1])] == [UNDEFINED] * 2


def test_the_query_is_the_readers_and_the_key_the_others():
    """A program in which the two differ at every position: position i reads where key[j] == query[i]."""
    variables = {
        "q": var(4, input_init_fn=lambda token: (1, 2, 0, 3)[token]),
        "k": var(4, **TOKEN),
        "v": var(4, **TOKEN),
        "a": var(4),
    }
    assert [a["h"] for a in attended(program(variables, {"h": qkv("q", "k", "v")}), [0, 1, 2])] == [1, 2, 0]


def test_a_set_query_reads_every_member():
    variables = {
        "s": set_var(4, [{0, 1}, {2, 3}, set()], input_init_fn=lambda t: ({0, 1}, set(), {2, 3}, {0, 1})[t]),
        "k": var(4, **TOKEN),
        "n": numeric_var((0, 1, 2, 3), **TOKEN),
        "a": var(4),
    }
    found = [a["h"] for a in attended(program(variables, {"h": qkv("s", "k", "n")}), [0, 1, 2, 3, 3])]
    assert found == [Fraction(1, 2), UNDEFINED, Fraction(8, 3), Fraction(1, 2), Fraction(1, 2)]


def test_relative_positions_are_of_the_other_minus_the_own():
    variables = {"a": var(4, **TOKEN)}
    heads = {"left": v_relative("a", -1), "right2": v_relative("a", 2), "self": v_relative("a", 0)}
    state = attended(program(variables, heads), [1, 2, 3])
    assert [a["left"] for a in state] == [UNDEFINED, 1, 2]
    assert [a["right2"] for a in state] == [3, UNDEFINED, UNDEFINED]
    assert [a["self"] for a in state] == [1, 2, 3]


def test_relative_positions_select_among_the_matches():
    variables = {"k": var(2, input_init_fn=lambda t: t > 1), "one": var(2, default=1), "a": var(4, **TOKEN)}
    heads = {"h": qkv("one", "k", "a", relative_positions=(-1, 1))}
    assert [a["h"] for a in attended(program(variables, heads), [3, 1, 0, 2])] == [UNDEFINED, 3, 2, UNDEFINED]


def test_causal_programs_see_nothing_to_the_right():
    variables = {"k": var(2, input_init_fn=lambda t: t == 3), "one": var(2, default=1), "a": var(4, **TOKEN)}
    heads = {"h": qkv("one", "k", "a"), "near": qkv("a", "a", "a", relative_positions=(-1, 1))}
    state = attended(program(variables, heads, causal=True), [2, 3, 3, 3])
    assert [a["h"] for a in state] == [UNDEFINED, 3, UNDEFINED, UNDEFINED]
    assert [a["near"] for a in state] == [UNDEFINED, UNDEFINED, 3, 3]


def test_heads_run_in_parallel_on_the_state_before():
    """Both heads read what the MLP of the last layer left, whatever their order."""

    def swap(z):
        z["a"], z["b"] = z["x"], z["y"]

    variables = {"a": var(4, **TOKEN), "b": var(4, default=3)}
    heads = {"x": v_relative("b", 0), "y": v_relative("a", 0)}
    assert run(program(variables, heads, swap), [1], max_layers=1).outputs == (3,)
    assert run(program(variables, heads, swap), [1], max_layers=2).outputs == (1,)


def test_attention_outputs_are_null_before_attention_and_after_the_mlp():
    trace = run(program({"a": var(4, **TOKEN)}, {"h": v_relative("a", -1)}), [1, 2], max_layers=2).trace
    assert [a["h"] for a in trace.start] == [NULL, NULL]
    assert [a["h"] for layer in trace.layers for a in layer.mlp] == [NULL] * 4
    assert trace.layers[1].attention[1]["h"] == 1


def test_a_function_reads_what_it_has_written():
    def function(z):
        z["a"] = 1
        z["b"] = z["a"] + 1

    assert run(program({"a": var(4), "b": var(4)}, None, function, "b"), [0], max_layers=1).outputs == (2,)


@pytest.mark.parametrize(
    ("value", "bucket"),
    [
        (0.5, 0.0), (0.5000001, 1.0), (1.5, 1.0), (-7, 0.0), (99, 4.0), (2.5, 1.0), (2.51, 4.0),
        (Fraction(1, 2) + Fraction(1, 10**30), 1.0), (Fraction(5, 2), 1.0), (4.0, 4.0),
    ],
)  # fmt: skip
def test_a_value_snaps_to_the_nearest_bucket_and_a_tie_to_the_lower(value, bucket):
    assert Numerical((0, 1, 4)).snap(value) == bucket


def test_the_middle_between_two_floats_is_exact():
    """The mean of two floats that lie beside each other is no float; rounding it would decide the tie."""
    low = 1 / 3
    high = 0.33333333333333337
    variables = {
        "n": numeric_var((low, high), input_init_fn=lambda t: high if t else low),
        "one": var(1),
        "a": var(2),
    }

    def function(z):
        z["a"] = z["mean"] == high

    built = program(variables, {"mean": qkv("one", "one", "n")}, function)
    assert run(built, [0, 1], max_layers=1).outputs == (0, 0)
    assert run(built, [0, 1, 1], max_layers=1).outputs == (1, 1, 1)


def test_sums_do_not_depend_on_the_order():
    """Added up as floats, 0.1 ten times is less than 1."""
    values = (0.1, 1.0)
    variables = {"n": numeric_var(values, input_init_fn=lambda t: values[t > 0]), "one": var(1), "a": var(4)}
    mean = attended(program(variables, {"mean": qkv("one", "one", "n")}), [0] * 10 + [1])[0]["mean"]
    assert mean == (10 * Fraction(0.1) + 1) / 11


def test_undefined_matters_only_where_it_is_read():
    def function(z):
        if z["first"] == 0:
            z["a"] = z["left"]

    variables = {"a": var(4, **TOKEN), "first": var(2, position_init_fn=lambda i: i == 0)}
    built = program(variables, {"left": v_relative("a", -1)}, function, position_range=5)
    assert run(built, [3, 2, 1], max_layers=1).outputs == (3, 3, 2)
    careless = program(
        variables, {"left": v_relative("a", -1)}, lambda z: z.__setitem__("a", z["left"]), position_range=5
    )
    with pytest.raises(UndefinedError) as caught:
        run(careless, [3, 2], max_layers=1)
    assert (caught.value.layer, caught.value.position, caught.value.variable) == (1, 0, "left")


def test_a_trap_stops_the_run_where_it_is_reached():
    built = program({"a": var(4, **TOKEN)}, None, lambda z: z.__setitem__("a", z["a"] + 1))
    assert run(built, [0, 1], max_layers=2).outputs == (2, 3)
    with pytest.raises(TrapError, match="layer 3, position 1: the MLP traps where a=3") as caught:
        run(built, [0, 1], max_layers=3)
    assert (caught.value.layer, caught.value.position, caught.value.variable) == (3, 1, "a")
    assert str(pickle.loads(pickle.dumps(caught.value))) == str(caught.value)


def test_halting_is_tested_before_every_layer_the_first_included():
    built = program({"a": var(4, **TOKEN)}, None, lambda z: z.__setitem__("a", z["a"] - 1), halt=halt_spec("a", 1))
    assert (run(built, [1, 1]).layers, run(built, [3, 3]).layers) == (0, 2)
    assert run(built, [1]).halted


def test_max_layers_runs_at_most_so_many():
    built = program({"a": var(4, **TOKEN)}, None, lambda z: z.__setitem__("a", z["a"] - 1), halt=halt_spec("a", 0))
    for k in range(4):
        result = run(built, [2], max_layers=k)
        assert (result.layers, result.halted) == (min(k, 2), k >= 2)
        assert len(result.trace.layers) == min(k, 2)


def test_a_sequence_halts_when_every_position_has_the_value():
    built = program(
        {"a": var(4, **TOKEN)}, None, lambda z: z.__setitem__("a", max(z["a"] - 1, 0)), halt=halt_spec("a", 0)
    )
    assert run(built, [0, 3, 1]).layers == 3


def test_neither_halting_nor_max_layers_is_an_error():
    with pytest.raises(InputError, match="max_layers"):
        run(program({"a": var(4)}), [1])


def test_an_empty_input_gives_an_empty_output_after_no_layer():
    result = run(program({"a": var(4)}), [], max_layers=3)
    assert (result.outputs, result.layers, result.halted) == ((), 0, True)
    assert run(parity.absolute(), []).layers == 0


@pytest.mark.parametrize("period", [1, 2, 3, 7])
def test_a_run_that_would_never_halt_is_stopped(period):
    built = program({"a": var(9)}, None, lambda z: z.__setitem__("a", (z["a"] + 1) % period), halt=halt_spec("a", 8))
    with pytest.raises(EndlessError) as caught:
        run(built, [0])
    assert caught.value.layer <= 4 * period
    assert run(built, [0], max_layers=50).layers == 50


def test_traces_of_two_runs_are_apart():
    built = parity.relative()
    first = run(built, parity.encode([1, 0, 1])).trace
    second = run(built, parity.encode([1])).trace
    assert (len(first.layers), len(second.layers)) == (3, 1)
    assert first.layers[0].fired is not second.layers[0].fired


def test_rules_fired_are_those_whose_antecedent_holds():
    layer = run(parity.relative(), parity.encode([1, 1])).trace.layers[0]
    assert [str(rule) for rule in layer.fired[1]] == [
        "done=0 ∧ done_left=1 ⟹ done := 1",
        "parity_left=0 ⟹ parity_left := ∅",
        "done_left=1 ⟹ done_left := ∅",
    ]
    assert layer.fired[0] == ()  # both outputs are UNDEFINED at START, and nothing is to be reset


def test_the_output_may_be_numerical():
    built = program({"n": numeric_var((0, 0.5), default=0.5)}, output="n")
    assert run(built, [1, 1], max_layers=1).outputs == (0.5, 0.5)


def test_sets_may_be_written():
    def function(z):
        z["s"] = {0, 1} if z["s"] == {0} else {0}

    variables = {"s": set_var(2, [{0}, {0, 1}], default={0}), "k": var(2, **TOKEN), "a": var(2)}
    trace = run(program(variables, None, function, input_range=2), [0, 1], max_layers=2).trace
    assert [layer.mlp[0]["s"] for layer in trace.layers] == [{0, 1}, {0}]


def test_generation_starts_afresh_from_the_tokens():
    """Writes how many tokens there are, counted with a mean, so each step depends on all before."""
    variables = {"n": numeric_var((0, 1), position_init_fn=lambda i: i == 0), "one": var(1), "a": var(6)}

    def function(z):
        z["a"] = round(1 / z["share"])

    built = program(
        variables,
        {"share": qkv("one", "one", "n", output_spec=numeric_var([1 / k for k in (5, 4, 3, 2, 1)]))},
        function,
        causal=True,
        input_range=6,
        position_range=5,
    )
    result = generate(built, [0, 0], max_layers=1)
    assert result.tokens == (2, 3, 4, 5)
    assert not result.stopped
    assert generate(built, [0], stop=3, max_layers=1).tokens == (1, 2, 3)
    assert generate(built, [0], max_tokens=2, max_layers=1).tokens == (1, 2)


@pytest.mark.parametrize("name", BUNDLED)
def test_programs_pickle_as_data(name):
    bundled = BUNDLED[name]
    built = bundled.build()
    copy = pickle.loads(pickle.dumps(built))
    assert copy == built.lowered()
    assert pickle.loads(pickle.dumps(copy)) == copy
    if not built.causal:
        inputs = bundled.encode(bundled.example)
        assert run(copy, inputs, bundled.max_layers).outputs == run(built, inputs, bundled.max_layers).outputs
