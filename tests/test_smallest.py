"""Smallest rule sets, against all sets that there are."""

from __future__ import annotations

import random
from collections import Counter
from dataclasses import replace
from itertools import combinations, product

import pytest
from test_optimum import outputs, random_rules, rule

from alta import UNDEFINED, Constraint, InputError, Rule, coverage, minimal, run_batch
from alta.analysis import smallest
from alta.analysis.rule_sets import minimal_rules, removable
from alta.programs import BUNDLED, addition, parity


def weakened(one):
    """Every version of a rule with some of its constraints, always with that on the old value."""
    own = Constraint(one.output, one.old)
    rest = [constraint for constraint in one.antecedent if constraint != own]
    for number in range(len(rest) + 1):
        for chosen in combinations(rest, number):
            yield Rule(one.output, one.old, one.new, (own, *chosen))


def reads(one, assignment):
    """The constraints on UNDEFINED that a rule reads."""
    unknown = {c for c in one.antecedent if assignment[c.variable] is UNDEFINED}
    known = all(assignment[c.variable] == c.value for c in one.antecedent if c not in unknown)
    return unknown if known else set()


def reads_alike(wider, one, data):
    """Whether a rule reads only what it reads anyway, and that still."""
    return all(reads(wider, assignment) == reads(one, assignment) for assignment in data)


def exclude(one, other):
    values = {c.variable: c.value for c in other.antecedent}
    return one.output != other.output or any(values.get(c.variable, c.value) != c.value for c in one.antecedent)


def size(rules):
    return len(rules), sum(len(one.antecedent) for one in rules)


def brute_force_smallest(rules, data):
    """The size of the smallest of all sets of parts of the rules that do the same on the data."""
    before = [outputs(rules, assignment) for assignment in data]

    def harms(one):
        """Whether a rule changes by itself what is not changed so."""
        after = [outputs((one,), assignment) for assignment in data]
        return any(a != d and a[one.output] != b[one.output] for a, d, b in zip(after, data, before, strict=True))

    def sizes(chosen, rest):
        if not rest:
            if before == [outputs(chosen, assignment) for assignment in data]:
                yield size(chosen)
            return
        yield from sizes(chosen, rest[1:])
        for version in versions[rest[0]]:
            if all(exclude(version, other) for other in chosen):
                yield from sizes((*chosen, version), rest[1:])

    versions = {one: [w for w in weakened(one) if reads_alike(w, one, data) and not harms(w)] for one in rules}
    return min(sizes((), rules))


def dense_rules(generator):
    """Rules that change one variable from one value, so that they all have to do with each other."""
    names = "abcd"[: generator.randint(2, 4)]
    rules = []
    for _ in range(12):
        chosen = [name for name in names if generator.random() < 0.7]
        one = rule("x", 0, generator.choice((1, 1, 1, 2)), x=0, **{name: generator.randrange(2) for name in chosen})
        if len(rules) < 4 and all(exclude(one, other) for other in rules):
            rules.append(one)
    every = [dict(zip(names, values, strict=True), x=0) for values in product((0, 1), repeat=len(names))]
    return tuple(rules), generator.sample(every, generator.randint(1, len(every)))


def long_rules(generator):
    """A few rules of many constraints, and data that misses them by few."""
    names = "abcde"
    rules, data = [], []
    for _ in range(generator.randint(1, 3)):
        chosen = {name: generator.randrange(2) for name in names if generator.random() < 0.9}
        one = rule("x", 0, generator.choice((1, 2, 3)), x=0, **chosen)
        rules += [one] if all(exclude(one, other) for other in rules) else []
    for one in rules:
        fires = {name: generator.randrange(2) for name in names} | {c.variable: c.value for c in one.antecedent}
        for _ in range(generator.randint(1, 7)):
            flipped = generator.sample(names, generator.randint(0, 3))
            data.append({name: 1 - value if name in flipped else value for name, value in fires.items()})
    return tuple(rules), data


def with_undefined(generator, rules, data):
    """The data with some values lost, but not of outputs; most of it such that the rules do not read what is lost."""
    free = sorted({c.variable for one in rules for c in one.antecedent} - {one.output for one in rules})
    spoilt = [{n: UNDEFINED if n in free and generator.random() < 0.4 else v for n, v in a.items()} for a in data]
    return [a for a in spoilt if generator.random() < 0.1 or not any(reads(one, a) for one in rules)]


@pytest.mark.parametrize("undefined", [False, True])
@pytest.mark.parametrize("make", [random_rules, dense_rules, long_rules])
def test_nothing_is_smaller(make, undefined):
    seen = Counter()
    for seed in range(600):
        generator = random.Random(seed)
        rules, data = make(generator)
        if undefined:
            data = with_undefined(generator, rules, data)
        orders = minimal_rules(rules, data, search=5)
        found = minimal_rules(rules, data, smallest=True)
        assert found.is_smallest
        assert found.after == brute_force_smallest(rules, data)
        assert found.after <= orders.after
        assert removable(found.rules, data) == []
        for assignment in data:
            assert outputs(found.rules.core, assignment) == outputs(rules, assignment)
            assert not any(reads(one, assignment) for one in found.rules.core) or any(
                reads(one, assignment) for one in rules
            )
        seen["fewer rules"] += found.after[0] < orders.after[0]
        seen["fewer constraints"] += found.after[0] == orders.after[0] and found.after < orders.after
        seen["undefined"] += any(value is UNDEFINED for assignment in data for value in assignment.values())
    assert seen["undefined"] > 150 if undefined else seen["fewer rules"] > 5


def assignments(*values):
    return [dict(zip("abcd", map(int, digits), strict=True)) for digits in values]


def test_a_rule_takes_over_from_others():
    rules = (rule("a", 0, 1, a=0, b=0), rule("a", 0, 1, a=0, b=1, c=0), rule("a", 0, 1, a=0, b=1, c=1, d=1))
    data = assignments("0000", "0100", "0110", "0111")
    found = minimal_rules(rules, data, smallest=True)
    assert found.rules.core == (rule("a", 0, 1, a=0, c=0), rule("a", 0, 1, a=0, c=1, d=1))
    assert minimal_rules(rules, data, search=20).after == (3, 9)
    found = minimal_rules(rules, data[:2], smallest=True)
    assert found.after == (1, 1)


def test_a_rule_that_never_fires_takes_over():
    rules = (rule("d", 1, 0, a=2, b=0, d=1), rule("d", 1, 0, b=1, c=1, d=1))
    data = assignments("2101", "2011")
    assert minimal_rules(rules, data, search=20).rules.core == (rule("d", 1, 0, b=0, d=1),)
    data += assignments("1001")
    assert minimal_rules(rules, data, search=20).after == (1, 3)
    found = minimal_rules(rules, data, smallest=True)
    assert found.rules.core == (rule("d", 1, 0, c=1, d=1),)


def test_two_rules_may_exclude_each_other_by_one_constraint_more_or_by_two():
    """Where the bound counted the dearer way, too much was left."""
    left = {"010101": 2, "011-10": 4, "110011": 4, "-01-01": 4, "010110": 4}
    rules = [
        rule(
            "x", 0, new, x=0, **{name: int(digit) for name, digit in zip("abcdef", digits, strict=True) if digit != "-"}
        )
        for digits, new in left.items()
    ]
    text = "010101 111001 010010 000111 110101 011111 011010 110011 101101 010110 100010 010111"
    data = [{"x": 0, **dict(zip("abcdef", map(int, digits), strict=True))} for digits in text.split()]
    found = minimal_rules(rules, data, smallest=True)
    assert found.is_smallest
    assert found.after == brute_force_smallest(rules, data) == (5, 20)


def tree_rules(generator, count):
    """The leaves of a tree of decisions, some with more constraints than they need."""
    names = [f"v{number}" for number in range(count)]

    def grow(path, free, depth):
        if depth == 0:
            yield {**path, **{name: generator.randrange(2) for name in free if generator.random() < 0.4}}
            return
        name = generator.choice(free)
        for value in (0, 1):
            yield from grow({**path, name: value}, [other for other in free if other != name], depth - 1)

    rules = [rule("x", 0, generator.randint(1, 3), x=0, **leaf) for leaf in grow({}, names, 4)]
    draw = lambda fixed: {"x": 0, **{name: generator.randrange(2) for name in names}, **fixed}  # noqa: E731
    near = [draw({c.variable: c.value for c in one.antecedent}) for one in rules for _ in range(2)]
    return tuple(rules), near + [draw({}) for _ in range(300)]


def test_a_search_that_ends_at_its_limit_tells_a_bound(monkeypatch):
    """The work is counted; bounds are compared with what the whole search finds."""
    settled, settle, seen = [], smallest._settle, Counter()
    monkeypatch.setattr(smallest, "_settle", lambda *given: settled.append(given) or settle(*given))
    for seed in range(60):
        generator = random.Random(seed)
        rules, data = dense_rules(generator) if seed % 2 else tree_rules(generator, 11)
        best = minimal_rules(rules, data, smallest=True)
        assert best.is_smallest
        bounds = []
        for limit in (0, 1, 5, 20):
            settled.clear()
            found = minimal_rules(rules, data, smallest=True, limit=limit)
            assert len(settled) <= limit + len(rules) + 10  # a start for each part, and the branches of the last node
            assert found.bound <= best.after <= found.after
            assert removable(found.rules, data) == []
            for assignment in data:
                assert outputs(found.rules.core, assignment) == outputs(rules, assignment)
            bounds.append(found.bound)
            seen[found.is_smallest] += 1
            assert str(found).count("ended at its limit") == (not found.is_smallest)
        assert bounds == sorted(bounds)
    assert min(seen.values()) > 20


def test_smallest_parity_and_addition():
    bits = [list(bits) for n in range(1, 7) for bits in product((0, 1), repeat=n)]
    program = parity.relative()
    data = [assignment for assignment, _ in coverage(program, map(parity.encode, bits), mlp_inputs=True).mlp_inputs]
    assert minimal_rules(program.rules, data, smallest=True).after == (3, 10)
    program = BUNDLED["addition"].build()
    sums = [addition.encode(a, b) for a in range(0, 1000, 37) for b in range(0, 1000, 41)]
    data = [assignment for assignment, _ in coverage(program, sums, mlp_inputs=True).mlp_inputs]
    found, orders = (minimal_rules(program.rules, data, smallest=wanted) for wanted in (True, False))
    assert found.is_smallest
    assert found.after < orders.after
    assert removable(found.rules, data) == []
    small = replace(minimal(program, sums).program, mlp=found.rules)
    for one, other in zip(run_batch(small, sums), run_batch(program, sums), strict=True):
        assert (one.outputs, one.layers, one.error) == (other.outputs, other.layers, None)


MISTAKES = [
    ({"limit": -1}, "limit is how many decisions to take, 0 or more; got -1"),
    ({"limit": True}, "limit is how many decisions to take, 0 or more; got True"),
]


@pytest.mark.parametrize(("given", "message"), MISTAKES)
def test_mistakes(given, message):
    with pytest.raises(InputError, match=message):
        minimal_rules((), [], smallest=True, **given)
