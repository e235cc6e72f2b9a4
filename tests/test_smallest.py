"""Smallest rule sets, against all sets that there are."""

from __future__ import annotations

import random
from collections import Counter
from itertools import combinations, product

import pytest
from test_optimum import outputs, random_rules, rule

from alta import UNDEFINED, Constraint, Rule
from alta.analysis.rule_sets import minimal_rules, removable


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
        return any(a not in (b, c) for a, b, c in zip(after, data, restricted(one.output), strict=True))

    def restricted(output):
        return [{**assignment, output: all_[output]} for assignment, all_ in zip(data, before, strict=True)]

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
    names = "abcdef"
    rules = [rule("x", 0, 1, x=0, **{name: generator.randrange(2) for name in names})]
    two = rule("x", 0, generator.choice((1, 2)), x=0, **{name: generator.randrange(2) for name in names})
    rules += [two] if exclude(two, rules[0]) else []
    data = []
    for one in rules:
        fires = {c.variable: c.value for c in one.antecedent}
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
    for seed in range(1500):
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
    print(seen)
