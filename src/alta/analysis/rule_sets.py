"""Minimal rule sets: those in which, for some data, no rule and no constraint can go (the paper's Appendix B).

A rule can go if no output on the data changes, which means that it never fires: a rule that fires changes something. A
constraint can go if no output changes, and if the rules still exclude each other, as every rule set has to. The
constraint on the output's old value stays: it is part of the update. Where a head's output is UNDEFINED, a constraint
on it does not hold, but no rule may come to read it.

Minimal sets are not unique. Which one is found depends on the order in which constraints are tried; `smallest` searches
for one that nothing is smaller than.
"""

from __future__ import annotations

import random
from collections import defaultdict
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from alta.analysis.candidates import Size
from alta.analysis.examples import Table
from alta.analysis.smallest import smallest_rules
from alta.errors import InputError
from alta.language.rules import Constraint, Rule, RuleSet


@dataclass(frozen=True)
class MinimalRules:
    """A minimal rule set, and how it came about."""

    rules: RuleSet
    before: Size
    order: str | None  # in which constraints were tried; None where a smallest set was sought
    bound: Size | None = None  # what any set that does the same has at least, if a smallest one was sought

    @property
    def after(self) -> Size:
        """Rules and constraints that are left."""
        return _size(self.rules.core)

    @property
    def is_smallest(self) -> bool:
        """Whether it is proved that no set that does the same has fewer rules, or as many and fewer constraints."""
        return self.bound == self.after

    def __str__(self) -> str:
        (rules, constraints), (fewer, less) = self.before, self.after
        left = f"{fewer:,} of {rules:,} rules, {less:,} of {constraints:,} constraints are left; "
        if self.bound is None:
            return (
                f"{left}constraints were tried {self.order}; other orders may leave others, since minimal sets are not "
                "unique"
            )
        if self.is_smallest:
            return f"{left}no smaller set does the same on the data"
        least, lower = self.bound
        return (
            f"{left}the search for a smaller set ended at its limit; any that does the same has {least:,} rules or "
            f"more, and with {least:,} rules {lower:,} constraints or more"
        )


def minimal_rules(
    rules: RuleSet | Sequence[Rule],
    data: Iterable[Mapping[str, Any]],
    *,
    seed: int | None = None,
    search: int = 0,
    smallest: bool = False,
    limit: int = 50_000,
) -> MinimalRules:
    """Drops rules and constraints, one after another, until none can go.

    Rules are gone through in their order, and the constraints of each in the order of their variables' names; with a
    `seed`, both in random order. With `search`, so many random orders are tried too, and the set with the fewest rules
    and constraints is kept.

    With `smallest`, an exact search goes on from there, to a set with the fewest rules, and of these the fewest
    constraints. It also drops rules that fire, where others for the same update, with fewer constraints, do what these
    do on the data. After `limit` decisions it ends, with the smallest set that it knows, and a bound.

    >>> seen = alta.coverage(program, [["START", "1", "0"]], mlp_inputs=True).mlp_inputs
    >>> for rule in alta.minimal_rules(program.rules, [one for one, _ in seen]).rules.core:
    ...     print(rule)
    done=0 ∧ done_left=1 ∧ parity=0 ⟹ parity := 1
    done=0 ∧ done_left=1 ⟹ done := 1
    """
    core = tuple(rules.core if isinstance(rules, RuleSet) else rules)
    for name, number, what in (("search", search, "orders to try"), ("limit", limit, "decisions to take")):
        if isinstance(number, bool) or not isinstance(number, int) or number < 0:
            raise InputError(f"{name} is how many {what}, 0 or more; got {number!r}")
    table = Table(core, data)
    used = {number: rule for number, rule in enumerate(core) if table.fires(rule.antecedent).any()}
    first = 0 if seed is None else seed + 1
    orders = [seed, *range(first, first + search)]
    known = [_reduced([*used.values()], table, None if one is None else random.Random(one)) for one in orders]
    if smallest:
        left, bound = smallest_rules(core, table, [dict(zip(used, left, strict=True)) for left in known], limit)
        return MinimalRules(RuleSet(tuple(left)), _size(core), None, bound)
    order, left = min(zip(orders, known, strict=True), key=lambda found: _size(found[1]))
    name = "in the order of rules, then of variables" if order is None else f"in random order, with seed {order}"
    return MinimalRules(RuleSet(tuple(left)), _size(core), name)


def removable(
    rules: RuleSet | Sequence[Rule], data: Iterable[Mapping[str, Any]]
) -> list[tuple[Rule, Constraint | None]]:
    """The rules, and the constraints of rules, that could go. Nothing, if the set is minimal."""
    core = tuple(rules.core if isinstance(rules, RuleSet) else rules)
    table = Table(core, data)
    found: list[tuple[Rule, Constraint | None]] = []
    for rule in core:
        if not table.fires(rule.antecedent).any():
            found.append((rule, None))
        rivals = [other for other in core if other.output == rule.output and other is not rule]
        found += [
            (rule, constraint)
            for constraint in rule.antecedent
            if constraint.variable != rule.output and _can_go(rule, constraint, rivals, table)
        ]
    return found


def _reduced(rules: Sequence[Rule], table: Table, generator: random.Random | None) -> list[Rule]:
    """One pass is enough: what cannot go now cannot go later, when rules are only wider."""
    left = list(rules)
    numbers = list(range(len(left)))
    if generator is not None:
        generator.shuffle(numbers)
    by_output: defaultdict[str, list[int]] = defaultdict(list)
    for number, rule in enumerate(left):
        by_output[rule.output].append(number)
    for number in numbers:
        constraints = [c for c in left[number].antecedent if c.variable != left[number].output]
        if generator is not None:
            generator.shuffle(constraints)
        rivals = [left[other] for other in by_output[left[number].output] if other != number]
        for constraint in constraints:
            rule = left[number]
            if _can_go(rule, constraint, rivals, table):
                left[number] = Rule(rule.output, rule.old, rule.new, _without(rule, constraint))
    return left


def _can_go(rule: Rule, constraint: Constraint, rivals: Sequence[Rule], table: Table) -> bool:
    rest = _without(rule, constraint)
    if (table.reaches(rest) & ~table.holds(constraint)).any():
        return False  # it would fire, or read UNDEFINED, where it does not now
    wanted = {other.variable: other.value for other in rest}
    return all(any(wanted.get(c.variable, c.value) != c.value for c in rival.antecedent) for rival in rivals)


def _without(rule: Rule, constraint: Constraint) -> tuple[Constraint, ...]:
    return tuple(other for other in rule.antecedent if other != constraint)


def _size(rules: Sequence[Rule]) -> Size:
    return len(rules), sum(len(rule.antecedent) for rule in rules)
