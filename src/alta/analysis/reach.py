"""Which values each variable may come to hold, and so what of a program can ever matter.

Each variable is looked at by itself, so the sets are larger than the truth: a value that is not among them is never
held, on any input, while one that is among them may or may not be.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import assert_never

from alta.language.program import Head, Program
from alta.language.rules import Rule, Trap
from alta.language.variables import Constant, FromPosition, FromToken, Numerical, Output, Value, Variable


def held(program: Program) -> Mapping[str, frozenset[Value]]:
    """The values that each variable may come to hold, as the MLP sees them."""
    found = {name: set(_starts(variable)) for name, variable in program.variables.items()}
    waiting = list(program.rules.core)
    while True:
        for head in program.heads.values():
            found[head.name] |= _outputs(program, head, found)
        able = [rule for rule in waiting if possible(rule, found)]
        if not able:
            return {name: frozenset(values) for name, values in found.items()}
        waiting = [rule for rule in waiting if not possible(rule, found)]
        for rule in able:
            found[rule.output].add(rule.new)  # type: ignore[arg-type]


def possible(entry: Rule | Trap, values: Mapping[str, set[Value] | frozenset[Value]]) -> bool:
    """Whether each of the antecedent's constraints may hold."""
    return all(constraint.value in values[constraint.variable] for constraint in entry.antecedent)


def needed(program: Program) -> set[str]:
    """The variables that the output, halting and traps depend on."""
    reads: dict[str, set[str]] = {name: set() for name in program.variables}
    for rule in program.rules.core:
        reads[rule.output].update(constraint.variable for constraint in rule.antecedent)
    for head in program.heads.values():
        reads[head.name] = {head.query, head.key, head.value}
    found: set[str] = set()
    waiting = [program.output, *(constraint.variable for trap in program.rules.traps for constraint in trap.antecedent)]
    if program.halt is not None:
        waiting.append(program.halt.variable)
    while waiting:
        name = waiting.pop()
        if name not in found:
            found.add(name)
            waiting += reads[name]
    return found


def matches(head: Head, values: Mapping[str, frozenset[Value]]) -> bool:
    """Whether the head may ever read a position: some key is what some query asks for."""
    return bool(_asked(values[head.query]) & values[head.key])


def _starts(variable: Variable) -> Iterable[Value]:
    match variable.start:
        case FromToken(table) | FromPosition(table):
            return table
        case Constant(value):
            return (value,)
        case Output():
            return ()
        case _:
            assert_never(variable.start)


def _asked(queries: Iterable[Value]) -> set[Value]:
    return {key for query in queries for key in (query if isinstance(query, frozenset) else (query,))}


def _outputs(program: Program, head: Head, found: Mapping[str, set[Value]]) -> set[Value]:
    """What a head may write: one of the values, or a mean of some of them, which lies between the least and the
    greatest."""
    values = found[head.value]
    if not values or not _asked(found[head.query]) & found[head.key]:
        return set()
    domain = program.variables[head.name].domain
    if not isinstance(domain, Numerical):
        return values
    if not domain.values:
        return set()
    numbers = [float(value) for value in values]  # type: ignore[arg-type]
    least, greatest = domain.snap(min(numbers)), domain.snap(max(numbers))
    return {value for value in domain.values if least <= value <= greatest}
