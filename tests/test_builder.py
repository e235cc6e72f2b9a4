"""MLPBuilder: rules written with loops, and no constraint that outlives its loop."""

from __future__ import annotations

import itertools

import pytest

from alta import MLPBuilder, RuleError, numeric_var, program_spec, qkv, run, set_var, v_relative, var
from alta.programs import parity

VARIABLES = {"a": var(3), "b": var(2), "n": numeric_var((0, 0.5)), "s": set_var(3, [{0}, {1, 2}], default={0})}
HEADS = {"left": v_relative("b", -1)}


def builder() -> MLPBuilder:
    return MLPBuilder(VARIABLES, HEADS)


def antecedents(x: MLPBuilder) -> list[dict[str, object]]:
    return [{c.variable: c.value for c in rule.antecedent} for rule in x.rules]


def test_set_takes_its_antecedent_from_the_loops():
    x = builder()
    for a in x.get("a"):
        if a == 2:
            for left, n in x.get("left", "n"):
                if (left, n) == (1, 0.5):
                    x.set("b", 1)
    assert antecedents(x) == [{"a": 2, "left": 1, "n": 0.5, "b": 0}]


def test_set_makes_a_rule_for_each_old_value():
    x = builder()
    x.set("a", 1)
    assert antecedents(x) == [{"a": 0}, {"a": 2}]


def test_nested_get_of_one_variable_keeps_its_value():
    x = builder()
    seen = [(outer, inner) for outer in x.get("a") for inner in x.get("a")]
    assert seen == [(0, 0), (1, 1), (2, 2)]


def test_sets_and_buckets_are_values():
    x = builder()
    assert [value for value in x.get("s")] == [frozenset({0}), frozenset({1, 2})]  # noqa: C416
    assert [value for value in x.get("n")] == [0.0, 0.5]  # noqa: C416


def test_break_ends_a_constraint():
    x = builder()
    for _ in x.get("a"):
        break
    x.set("b", 1)
    assert antecedents(x) == [{"b": 0}]


def test_break_ends_a_constraint_where_the_iterable_is_kept():
    x = builder()
    values = x.get("a")
    for _ in values:
        break
    x.set("b", 1)
    assert antecedents(x) == [{"b": 0}]


def test_break_out_of_several_variables():
    x = builder()
    for _ in x.get("a", "left"):
        for _ in x.get("n"):
            break
        break
    x.set("b", 1)
    assert antecedents(x) == [{"b": 0}]


def test_an_exception_ends_a_constraint():
    x = builder()
    with pytest.raises(ZeroDivisionError):
        for a in x.get("a"):
            1 // a
    x.set("b", 1)
    assert antecedents(x) == [{"b": 0}]


def test_return_ends_a_constraint():
    x = builder()

    def first():
        for a in x.get("a"):
            return a
        return None

    first()
    x.set("b", 1)
    assert antecedents(x) == [{"b": 0}]


def test_get_is_for_loops_only():
    with pytest.raises(TypeError, match="not an iterator"):
        next(builder().get("a"))


def test_a_generator_left_half_way_is_refused_and_forgotten_once_closed():
    x = builder()

    def helper():
        yield from x.get("a")

    values = helper()
    next(values)
    with pytest.raises(RuleError, match="left half-way"):
        x.set("b", 1)
    values.close()
    x.set("b", 1)
    assert antecedents(x) == [{"b": 0}]


@pytest.mark.parametrize(
    "take",
    [
        lambda x: sorted(x.get("a")),
        lambda x: list(itertools.product(x.get("a"), x.get("b"))),
        lambda x: [*x.get("a")],
        lambda x: next(iter(x.get("a"))),
    ],
)
def test_values_taken_outside_of_a_loop_would_be_no_constraints(take):
    with pytest.raises(RuleError, match="taken outside of a for loop"):
        take(builder())


def test_enumerate_and_zip_keep_constraints():
    x = builder()
    for index, _ in enumerate(x.get("a")):
        if index == 1:
            x.set("b", 1)
    assert antecedents(x) == [{"a": 1, "b": 0}]


def test_a_value_outside_the_domain_is_a_trap():
    x = builder()
    for a in x.get("a"):
        x.set("a", a + 1)
    assert [(rule.old, rule.new) for rule in x.rules] == [(0, 1), (1, 2)]
    (trap,) = x.rules.traps
    assert [(c.variable, c.value) for c in trap.antecedent] == [("a", 2)]
    assert "3 is outside 0..2" in trap.reason


def test_parity_by_rules_is_parity_by_function():
    variables = {"parity": var(2, input_init_fn=lambda t: t == 1), "done": var(2, input_init_fn=lambda t: t == 2)}
    heads = {"parity_left": v_relative("parity", -1), "done_left": v_relative("done", -1)}
    x = MLPBuilder(variables, heads)
    for done in x.get("done"):
        if done:
            continue
        for done_left in x.get("done_left"):
            if done_left:
                x.set("done", 1)
                for left, own in x.get("parity_left", "parity"):
                    x.set("parity", left ^ own)
    program = program_spec(variables=variables, heads=heads, rules=x.rules, output_name="parity", input_range=3)
    assert {(r.output, r.old, r.new, frozenset(r.antecedent)) for r in program.rules} == {
        (r.output, r.old, r.new, frozenset(r.antecedent)) for r in parity.relative().rules
    }
    assert run(program, [2, 1, 0, 1], max_layers=3).outputs == (0, 1, 1, 0)


def test_head_outputs_may_have_a_type_of_their_own():
    heads = {"mean": qkv("a", "a", "n", output_spec=numeric_var((0, 0.25)))}
    assert [value for value in MLPBuilder(VARIABLES, heads).get("mean")] == [0.0, 0.25]  # noqa: C416
