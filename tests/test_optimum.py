"""Minimal rule sets by brute force, and the theorems on them by finite differences."""

from __future__ import annotations

import random
from collections import Counter
from itertools import product

import numpy as np
import pytest
import random_programs

from alta import Constraint, ExecutionError, InputError, Rule, RuleSet, coverage, run
from alta.analysis.optimum import compile_rules, dimensions, encode, loss, optimum
from alta.analysis.rule_sets import minimal_rules, removable
from alta.errors import RuleError
from alta.language.variables import UNDEFINED, Numerical
from alta.programs import addition, parity


def rule(output, old, new, **antecedent):
    return Rule(output, old, new, tuple(Constraint(name, value) for name, value in antecedent.items()))


def random_rules(generator: random.Random) -> tuple[tuple[Rule, ...], list[dict[str, int]]]:
    """A few rules that exclude each other, and some assignments."""
    names = "abcd"[: generator.randint(1, 4)]
    sizes = {name: generator.choice((2, 2, 3)) for name in names}
    rules: list[Rule] = []
    for _ in range(generator.randint(1, 5)):
        output = generator.choice(names)
        antecedent = {output: generator.randrange(sizes[output])}
        for name in names:
            if name != output and generator.random() < 0.6:
                antecedent[name] = generator.randrange(sizes[name])
        new = generator.choice([value for value in range(sizes[output]) if value != antecedent[output]])
        try:
            RuleSet((*rules, rule(output, antecedent[output], new, **antecedent)))
        except RuleError:
            continue
        rules.append(rule(output, antecedent[output], new, **antecedent))
    every = [dict(zip(names, values, strict=True)) for values in product(*(range(sizes[name]) for name in names))]
    return tuple(rules), generator.sample(every, generator.randint(1, len(every)))


def outputs(rules, assignment):
    """What the rules make of an assignment, plainly; None where two change one variable."""
    after, changed = dict(assignment), set()
    for one in rules:
        if all(assignment[c.variable] == c.value for c in one.antecedent):
            if one.output in changed:
                return None
            changed.add(one.output)
            after[one.output] = one.new
    return after


def smaller(rules, *, allow_conflicts):
    """Every set with one rule, or one constraint but that on the old value, removed."""
    for number, one in enumerate(rules):
        yield one, None, (*rules[:number], *rules[number + 1 :])
        for constraint in one.antecedent:
            if constraint.variable != one.output:
                rest = tuple(other for other in one.antecedent if other != constraint)
                changed = (*rules[:number], Rule(one.output, one.old, one.new, rest), *rules[number + 1 :])
                if not allow_conflicts:
                    try:
                        RuleSet(changed)
                    except RuleError:
                        continue
                yield one, constraint, changed


def brute_force_removable(rules, data, *, allow_conflicts=False):
    before = [outputs(rules, assignment) for assignment in data]
    return [
        (one, constraint)
        for one, constraint, less in smaller(rules, allow_conflicts=allow_conflicts)
        if [outputs(less, assignment) for assignment in data] == before
    ]


def test_what_can_go_is_what_changes_nothing():
    seen = Counter()
    for seed in range(1500):
        rules, data = random_rules(random.Random(seed))
        expected = brute_force_removable(rules, data)
        assert Counter(removable(rules, data)) == Counter(expected)
        seen[bool(expected)] += 1
    assert min(seen.values()) > 50


def test_minimal_sets_are_minimal_and_change_nothing():
    for seed in range(1000):
        rules, data = random_rules(random.Random(seed))
        for search in (0, 3):
            found = minimal_rules(rules, data, search=search).rules
            assert brute_force_removable(found.core, data) == []
            for assignment in data:
                assert outputs(found.core, assignment) == outputs(rules, assignment)


def test_minimal_sets_are_not_unique_and_a_search_finds_smaller_ones():
    found = Counter()
    for seed in range(400):
        rules, data = random_rules(random.Random(seed))
        first, best = minimal_rules(rules, data), minimal_rules(rules, data, search=12)
        assert best.after <= first.after
        sets = {minimal_rules(rules, data, seed=seed).rules.core for seed in range(5)} | {first.rules.core}
        found["several"] += len(sets) > 1
    assert found["several"] > 0
    rules = (rule("a", 0, 1, a=0, b=1, c=1, d=1),)
    data = [dict(zip("abcd", values, strict=True)) for values in ((0, 1, 1, 1), (0, 0, 0, 1), (0, 0, 1, 0))]
    assert minimal_rules(rules, data).rules.core == (rule("a", 0, 1, a=0, c=1, d=1),)
    assert minimal_rules(rules, data, search=10).rules.core == (rule("a", 0, 1, a=0, b=1),)


def numeric(rules, data, alpha, regularizer, step=1e-6):
    """Left and right derivatives by finite differences."""
    dims = dimensions(rules, data)
    mlp, z = compile_rules(rules, dims), encode(data, dims)
    targets = mlp.outputs(z)
    here = loss(mlp, z, targets, alpha, regularizer)
    found = []
    for part in (mlp.w1, mlp.b1, mlp.w2):
        sides = np.zeros((2, *part.shape))
        for place in np.ndindex(part.shape):
            for side, move in enumerate((-step, step)):
                kept = part[place]
                part[place] = kept + move
                sides[(side, *place)] = (loss(mlp, z, targets, alpha, regularizer) - here) / move
                part[place] = kept
        found.append(sides)
    return found


@pytest.mark.parametrize("regularizer", ["l1", "l2"])
def test_derivatives_are_those_of_finite_differences(regularizer):
    for seed in range(60):
        rules, data = random_rules(random.Random(seed))
        if not rules:
            continue
        alpha = random.Random(seed).choice((0.1, 0.5, 0.9))
        found = optimum(rules, data, alpha, regularizer=regularizer).derivatives
        for exact, close in zip((found.w1, found.b1, found.w2), numeric(rules, data, alpha, regularizer), strict=True):
            np.testing.assert_allclose(np.array(exact), close, atol=1e-5)


def is_optimum_by_steps(rules, data, alpha, regularizer):
    """Whether the loss grows for every small step of every parameter."""
    dims = dimensions(rules, data)
    mlp, z = compile_rules(rules, dims), encode(data, dims)
    targets = mlp.outputs(z)
    here = loss(mlp, z, targets, alpha, regularizer)
    for part in (mlp.w1, mlp.b1, mlp.w2):
        for place in np.ndindex(part.shape):
            for move in (-1e-3, 1e-3):
                kept = part[place]
                part[place] = kept + move
                grown = loss(mlp, z, targets, alpha, regularizer) - here
                part[place] = kept
                if grown <= 1e-9:
                    return False
    return True


@pytest.mark.parametrize("regularizer", ["l1", "l2"])
def test_an_optimum_is_where_no_step_helps(regularizer):
    seen = Counter()
    for seed in range(250):
        rules, data = random_rules(random.Random(seed))
        alpha = 0.4 if regularizer == "l1" else 0.1  # the remark asks for less than 1 / 6 with four constraints
        expected = is_optimum_by_steps(rules, data, alpha, regularizer)
        assert optimum(rules, data, alpha, regularizer=regularizer).is_optimum == expected
        seen[expected] += 1
    assert min(seen.values()) > 20


@pytest.mark.parametrize("alpha", [0.01, 0.3, 0.99])
def test_what_is_optimal(alpha):
    """Every rule fires, and every rule of two constraints or more is missed by exactly one of them, somewhere."""
    for seed in range(2000):
        rules, data = random_rules(random.Random(seed))
        met = [[sum(a[c.variable] == c.value for c in one.antecedent) for a in data] for one in rules]
        pinned = all(
            len(one.antecedent) in counts and (len(one.antecedent) == 1 or len(one.antecedent) - 1 in counts)
            for one, counts in zip(rules, met, strict=True)
        )
        assert optimum(rules, data, alpha).is_optimum == pinned


@pytest.mark.parametrize("alpha", [0.01, 0.3, 0.99])
def test_minimal_implies_optimal_if_removing_may_conflict(alpha):
    """The second theorem, in the reading in which it holds."""
    minimal = 0
    for seed in range(6000):
        rules, data = random_rules(random.Random(seed))
        if not brute_force_removable(rules, data, allow_conflicts=True):
            assert optimum(rules, data, alpha).is_optimum
            minimal += bool(rules)
    assert minimal > 100


def test_the_first_theorem_fails():
    """The smallest case there is: nothing tells that b matters, but all parameters of the rule are pinned down. A rule
    of one constraint has none to lose, and a single example cannot be both a hit and a near miss."""
    rules = (rule("a", 0, 1, a=0, b=1),)
    data = [{"a": 0, "b": 1}, {"a": 1, "b": 1}]
    assert removable(rules, data) == [(rules[0], Constraint("b", 1))]
    assert brute_force_removable(rules, data, allow_conflicts=True) == [(rules[0], Constraint("b", 1))]
    assert optimum(rules, data, 0.5).is_optimum
    assert is_optimum_by_steps(rules, data, 0.5, "l1")


def test_the_second_theorem_fails_where_rules_have_to_exclude_each_other():
    """No constraint can go without a conflict, so the set is minimal, but no example misses the first rule by one."""
    rules = (
        rule("a", 0, 1, a=0, b=0, c=0),
        rule("a", 0, 1, a=0, b=1, d=0),
        rule("a", 0, 1, a=0, c=1, d=1),
    )
    RuleSet(rules)
    data = [{"a": 0, "b": 0, "c": 0, "d": 0}, {"a": 0, "b": 1, "c": 1, "d": 0}, {"a": 0, "b": 1, "c": 1, "d": 1}]
    assert removable(rules, data) == brute_force_removable(rules, data) == []
    found = optimum(rules, data, 0.5)
    assert not found.is_optimum
    assert not is_optimum_by_steps(rules, data, 0.5, "l1")
    assert found.near.tolist()[0] == 0
    assert {(failing.parameter, failing.rule) for failing in found.failing} == {("b1", rules[0])}


def test_mlp_inputs_are_those_of_plain_runs():
    for seed in range(120):
        generator = random.Random(seed)
        program = random_programs.program(seed)
        batch = [random_programs.inputs(generator, program) for _ in range(6)]
        expected: Counter = Counter()
        for given in batch:
            try:
                result = run(program, given, 4)
            except ExecutionError:
                continue
            for layer in result.trace.layers:
                for assignment in layer.attention:
                    expected[tuple(what_the_mlp_sees(program, assignment).items())] += 1
        found = {
            tuple(what_the_mlp_sees(program, assignment).items()): count
            for assignment, count in coverage(program, batch, 4, mlp_inputs=True).mlp_inputs
        }
        assert found == expected


def what_the_mlp_sees(program, assignment):
    return {
        name: value
        if value is UNDEFINED or not isinstance(program.variables[name].domain, Numerical)
        else UNDEFINED
        if not program.variables[name].domain.values and name in program.heads
        else program.variables[name].snap(value)
        if name in program.heads
        else value
        for name, value in assignment.items()
    }


def test_minimal_rules_of_programs_run_as_before():
    """On the inputs that they were made from."""
    from dataclasses import replace

    from alta import run_batch

    program = addition.addition()
    batch = [addition.encode(a, b) for a in range(0, 60, 3) for b in range(0, 200, 7)]
    data = [assignment for assignment, _ in coverage(program, batch, mlp_inputs=True).mlp_inputs]
    found = minimal_rules(program.rules, data)
    assert found.after < found.before
    assert removable(found.rules, data) == []
    small = replace(program, mlp=found.rules)
    for one, other in zip(run_batch(program, batch), run_batch(small, batch), strict=True):
        assert (one.outputs, one.layers) == (other.outputs, other.layers)


def test_undefined_holds_no_value():
    rules = (rule("a", 0, 1, a=0, b=1),)
    data = [{"a": 0, "b": 1}, {"a": 0, "b": UNDEFINED}]
    assert optimum(rules, data).near.tolist() == [1]
    assert optimum(rules, data).is_optimum


def test_what_can_go_from_parity():
    program = parity.relative()
    batch = [parity.encode([n >> bit & 1 for bit in range(4)]) for n in range(16)]
    data = [assignment for assignment, _ in coverage(program, batch, mlp_inputs=True).mlp_inputs]
    assert len(removable(program.rules, data)) == len(minimal_removals(program, data))


def minimal_removals(program, data):
    """The brute force, where UNDEFINED may not be read."""
    found = []
    for one in program.rules.core:
        for constraint in one.antecedent:
            if constraint.variable == one.output:
                continue
            rest = [c for c in one.antecedent if c != constraint]
            wider = Rule(one.output, one.old, one.new, tuple(rest))
            others = [other for other in program.rules.core if other != one]
            try:
                less = RuleSet((wider, *others))
            except RuleError:
                continue
            found += [constraint] * all(
                not (match := less.match(a)).undefined
                and {r.output: r.new for r in match.rules}
                == {r.output: r.new for r in RuleSet((one, *others)).match(a).rules}
                for a in data
            )
    return found


def changes(rules, assignment):
    return {one.output: one.new for one in rules.match(assignment).rules}


MISTAKES = [
    (lambda: optimum((rule("a", 0, 1, a=0),), [{"a": 0}], 0), "alpha is a positive number; got 0"),
    (lambda: optimum((), [], regularizer="l3"), "there is no regularizer 'l3'; regularizers: l1, l2"),
    (lambda: optimum((), [{"a": 0.5}]), "for categorical variables; 'a' has the value 0.5"),
    (lambda: minimal_rules((), [], search=-1), "search is how many orders to try, 0 or more; got -1"),
]


@pytest.mark.parametrize(("mistake", "message"), MISTAKES, ids=[message[:30] for _, message in MISTAKES])
def test_mistakes(mistake, message):
    with pytest.raises(InputError, match=message):
        mistake()
