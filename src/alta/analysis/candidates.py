"""What the data asks of rule sets that are made of parts of given rules, so that they do the same.

A candidate is made of some of the rules, and of some constraints of each, always with that on the output's old value.
Its rules exclude each other, change on the data what the given rules change there, and read no UNDEFINED that these do
not read. Example by example:

- Where no rule fires for an output, each rule that is kept keeps a constraint that fails.
- Where one fires, it is kept, or else an *heir*, another rule for the same update, has lost all that fails there. What
  is kept besides does not fire, since the rules exclude each other.
- Of two rules that are kept for one output, each keeps its constraint on a variable on which they disagree.

What all candidates keep settles most of this. What is left is small, and falls into parts that do not touch.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property
from itertools import accumulate, combinations
from typing import Any, NamedTuple, TypeAlias

import numpy as np
from numpy.typing import NDArray

from alta.analysis.examples import Bools, Table
from alta.language.rules import Constraint, Rule

Bits: TypeAlias = int
"""A set, of rules or of constraints."""

Size: TypeAlias = tuple[int, int]
"""Rules and constraints, in the order in which they count."""


class Need(NamedTuple):
    """If all these rules are kept, then so are all constraints of one of the options."""

    rules: Bits
    options: tuple[Bits, ...]


class Heir(NamedTuple):
    """A rule that does what another one does on some example, once it has lost the constraints that fail there."""

    rule: int
    fails: Bits


Cases: TypeAlias = tuple[tuple[Heir, ...], ...]
"""The heirs of a rule, for each kind of example on which it fires."""


@dataclass(frozen=True)
class Part:
    """Rules that depend on each other, and on no others. Bits for constraints go over those of all its rules."""

    numbers: tuple[int, ...]  # of the rules, among all that were given
    constraints: tuple[Bits, ...]  # [rule]
    taken: Bits  # the constraints that stay in any case, if their rules do
    needs: tuple[Need, ...]
    heirs: tuple[Cases | None, ...]  # [rule]; None if it stays

    def size(self, kept: Bits, taken: Bits) -> Size:
        """The rules, and those of the constraints that belong to them."""
        own = union(constraints for rule, constraints in enumerate(self.constraints) if kept >> rule & 1)
        return kept.bit_count(), (taken & own).bit_count()

    def can_lose(self, rule: int, fails: Bits) -> bool:
        """Whether what the data asks of a rule by itself can be met without these constraints."""
        return all(clause & ~fails for clause in self._clauses[rule])

    @cached_property
    def least(self) -> list[int]:
        """[rule]: constraints that it keeps in any case, counted where clauses have nothing in common."""
        found = []
        for rule, clauses in enumerate(self._clauses):
            counted, number = 0, self.size(1 << rule, self.taken)[1]
            for clause in sorted(clauses, key=int.bit_count):
                if not clause & counted:
                    counted |= clause
                    number += 1
            found.append(number)
        return found

    @cached_property
    def _clauses(self) -> list[list[Bits]]:
        found: list[list[Bits]] = [[] for _ in self.numbers]
        for need in self.needs:
            if need.rules.bit_count() == 1:
                found[need.rules.bit_length() - 1].append(union(need.options))
        return found

    def find(self, rules: Sequence[Rule], left: Mapping[int, Rule]) -> tuple[Bits, Bits]:
        """What is kept of the rules by a candidate that is given as rules, by number."""
        kept = taken = 0
        for place, (number, constraints) in enumerate(zip(self.numbers, self.constraints, strict=True)):
            if number in left:
                kept |= 1 << place
                pairs = zip(rules[number].antecedent, bits(constraints), strict=True)
                taken |= union(bit for constraint, bit in pairs if constraint in left[number].antecedent)
        return kept, taken

    def build(self, rules: Sequence[Rule], kept: Bits, taken: Bits) -> Iterator[tuple[int, Rule]]:
        """The rules that are kept, with the constraints that are, by number."""
        for place, (number, constraints) in enumerate(zip(self.numbers, self.constraints, strict=True)):
            if kept >> place & 1:
                rule = rules[number]
                left = zip(rule.antecedent, bits(constraints), strict=True)
                yield number, Rule(rule.output, rule.old, rule.new, tuple(c for c, bit in left if bit & taken))


def parts(rules: Sequence[Rule], table: Table) -> Iterator[Part]:
    """What is asked of candidates, in parts. Rules for different outputs, or for different old values, never touch."""
    groups: defaultdict[tuple[str, Any], list[int]] = defaultdict(list)
    for number, rule in enumerate(rules):
        groups[rule.output, rule.old].append(number)
    for numbers in groups.values():
        yield from _split(numbers, [rules[number] for number in numbers], table)


class _Judged(NamedTuple):
    """A rule, and what is the case with it on each kind of example. Constraints count from 0 for each rule."""

    rule: Rule
    fails: NDArray[Any]  # (kind): the constraints that fail
    opens: NDArray[Any]  # (kind): those on a variable that is UNDEFINED
    fires: Bools  # (kind)


def _judged(rules: Sequence[Rule], table: Table) -> list[_Judged]:
    """The rules for one output and one old value, on the examples on which that value does not settle what they do."""
    own = Constraint(rules[0].output, rules[0].old)
    constraints = {constraint for rule in rules for constraint in rule.antecedent}
    kinds = table.kinds(constraints, table.holds(own) | table.is_open(own))
    holds = {constraint: table.holds(constraint)[kinds] for constraint in constraints}
    opens = {constraint: table.is_open(constraint)[kinds] for constraint in constraints}
    found = []
    for rule in rules:
        fail, open_ = (np.zeros(len(kinds), np.int64 if len(rule.antecedent) < 63 else object) for _ in range(2))
        for place, constraint in enumerate(rule.antecedent):
            fail[~holds[constraint] & ~opens[constraint]] |= 1 << place
            open_[opens[constraint]] |= 1 << place
        found.append(_Judged(rule, fail, open_, (fail | open_) == 0))
    return found


def _split(numbers: Sequence[int], rules: Sequence[Rule], table: Table) -> Iterator[Part]:
    judged = _judged(rules, table)
    movable = set(range(len(rules)))
    while True:  # the fewer rules can be dropped, the more is asked of those that are left
        clauses = _clauses(judged, movable)
        heirs = {rule: _heirs(rule, judged, clauses) for rule in movable}
        if all(all(cases) for cases in heirs.values()):
            break
        movable = {rule for rule, cases in heirs.items() if all(cases)}
    useful = [rule for rule, one in enumerate(judged) if one.fires.any()]
    useful = sorted({*useful, *(heir.rule for cases in heirs.values() for case in cases for heir in case)})
    taken = [union(clause for clause in each if clause.bit_count() == 1) for each in clauses]
    pairs = _open_pairs({rule: rules[rule] for rule in useful}, taken)
    links = [*pairs, *((rule, heir.rule) for rule, cases in heirs.items() for case in cases for heir in case)]
    for members in _components(useful, links):
        place = {rule: index for index, rule in enumerate(members)}
        lengths = [len(rules[rule].antecedent) for rule in members]
        offset = dict(zip(members, accumulate(lengths, initial=0), strict=False))
        needs = [
            Need(1 << place[rule], tuple(bit << offset[rule] for bit in bits(clause)))
            for rule in members
            for clause in clauses[rule]
            if clause.bit_count() > 1
        ]
        needs += [
            Need(1 << place[one] | 1 << place[other], tuple(a << offset[one] | b << offset[other] for a, b in options))
            for (one, other), options in pairs.items()
            if one in place
        ]
        yield Part(
            tuple(numbers[rule] for rule in members),
            tuple(((1 << len(rules[rule].antecedent)) - 1) << offset[rule] for rule in members),
            union(taken[rule] << offset[rule] for rule in members),
            tuple(needs),
            tuple(
                tuple(tuple(Heir(place[one], fails << offset[one]) for one, fails in case) for case in heirs[rule])
                if rule in heirs
                else None
                for rule in members
            ),
        )


def _clauses(judged: Sequence[_Judged], movable: Iterable[int]) -> list[list[Bits]]:
    """For each rule sets of constraints, of each of which one stays; none contains another."""
    moving: dict[Any, Bools] = {}
    for rule in movable:
        new = judged[rule].rule.new
        moving[new] = moving.get(new, np.zeros_like(judged[rule].fires)) | judged[rule].fires
    found = []
    for one in judged:
        own = union(1 << place for place, c in enumerate(one.rule.antecedent) if c.variable == one.rule.output)
        asked = ~one.fires if one.rule.new not in moving else ~one.fires & ~moving[one.rule.new]
        clauses = {own, *one.fails[asked].tolist()}
        for read in set(one.opens[~one.fires & (one.fails == 0)].tolist()):
            clauses.update(bits(read))  # what it reads already, it goes on to read
        least: list[Bits] = []
        for clause in sorted(clauses - {0}, key=int.bit_count):
            if not any(other & ~clause == 0 for other in least):
                least.append(clause)
        found.append(least)
    return found


def _heirs(rule: int, judged: Sequence[_Judged], clauses: Sequence[Sequence[Bits]]) -> list[tuple[Heir, ...]]:
    """For each kind of example on which a rule fires, those that could fire in its place."""
    here = judged[rule].fires
    peers = [other for other, one in enumerate(judged) if other != rule and one.rule.new == judged[rule].rule.new]
    if not peers:
        return [()] if here.any() else []
    able: dict[Heir, bool] = {}
    found = []
    for fails in set(zip(*((judged[peer].fails | judged[peer].opens)[here].tolist() for peer in peers), strict=True)):
        case = [Heir(peer, lost) for peer, lost in zip(peers, fails, strict=True)]
        for heir in case:
            if heir not in able:
                able[heir] = all(clause & ~heir.fails for clause in clauses[heir.rule])
        found.append(tuple(heir for heir in case if able[heir]))
    return found


def _open_pairs(rules: Mapping[int, Rule], taken: Sequence[Bits]) -> dict[tuple[int, int], list[tuple[Bits, Bits]]]:
    """The pairs of rules that do not exclude each other by what they keep anyway, each with the pairs of constraints by
    which they could."""
    places = {
        number: {c.variable: (c.value, 1 << place) for place, c in enumerate(rule.antecedent)}
        for number, rule in rules.items()
    }
    found = {}
    for (one, first), (other, second) in combinations(places.items(), 2):
        options = [
            (bit, second[name][1])
            for name, (value, bit) in first.items()
            if name in second and second[name][0] != value
        ]
        if not any(bit & taken[one] and against & taken[other] for bit, against in options):
            found[one, other] = options
    return found


def _components(members: Iterable[int], links: Iterable[tuple[int, int]]) -> list[list[int]]:
    parent = {one: one for one in members}

    def root(one: int) -> int:
        while parent[one] != one:
            parent[one] = one = parent[parent[one]]
        return one

    for one, other in links:
        parent[root(one)] = root(other)
    found: defaultdict[int, list[int]] = defaultdict(list)
    for one in parent:
        found[root(one)].append(one)
    return list(found.values())


def bits(mask: Bits) -> list[Bits]:
    """The members, each by itself."""
    found = []
    while mask:
        found.append(mask & -mask)
        mask &= mask - 1
    return found


def union(masks: Iterable[Bits]) -> Bits:
    """What is in any of them."""
    found = 0
    for mask in masks:
        found |= mask
    return found
