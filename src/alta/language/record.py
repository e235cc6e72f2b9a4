"""A program as plain data, and back: what JSON can hold, and no code."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, assert_never

from alta.errors import ProgramError
from alta.language.program import Halt, Head, Program
from alta.language.rules import Constraint, Rule, RuleSet, Trap
from alta.language.variables import (
    Categorical,
    Constant,
    Domain,
    FromPosition,
    FromToken,
    Numerical,
    Output,
    SetOf,
    Start,
    Value,
    Variable,
)

VERSION = 1

Data = dict[str, Any]


def to_data(program: Program) -> Data:
    """The program, lowered, as nested lists and dictionaries."""
    names = list(program.variables)
    index = {name: i for i, name in enumerate(names)}
    values = {name: {value: i for i, value in enumerate(v.domain.values)} for name, v in program.variables.items()}

    def pairs(entry: Rule | Trap) -> list[int]:
        return [number for c in entry.antecedent for number in (index[c.variable], values[c.variable][c.value])]

    return {
        "version": VERSION,
        "tokens": list(program.tokens),
        "positions": program.positions,
        "causal": program.causal,
        "output": program.output,
        "halt": None if program.halt is None else [program.halt.variable, program.halt.value],
        "variables": [
            {"name": v.name, "domain": _domain_data(v.domain), "start": _start_data(v.start)}
            for v in program.variables.values()
        ],
        "heads": [
            [head.name, head.query, head.key, head.value, head.relative_positions] for head in program.heads.values()
        ],
        # A rule is [output, old, new, (variable, value)...], each a number: values are counted within their domain.
        "rules": [
            [index[r.output], values[r.output][r.old], values[r.output][_set(r)], *pairs(r)] for r in program.rules.core
        ],
        "traps": [[trap.reason, trap.variable, *pairs(trap)] for trap in program.rules.traps],
    }


def from_data(data: Mapping[str, Any]) -> Program:
    """The program that `to_data` has written."""
    if data.get("version") != VERSION:
        raise ProgramError(f"this program was saved in format {data.get('version')!r}; this alta reads {VERSION}")
    variables = {
        entry["name"]: Variable(entry["name"], domain := _domain(entry["domain"]), _start(entry["start"], domain))
        for entry in data["variables"]
    }
    names = list(variables)
    constraints: dict[tuple[int, int], Constraint] = {}

    def value(variable: int, number: int) -> Value:
        return variables[names[variable]].domain.values[number]

    def antecedent(numbers: list[int]) -> tuple[Constraint, ...]:
        pairs = zip(numbers[::2], numbers[1::2], strict=True)
        return tuple(constraints.setdefault(pair, Constraint(names[pair[0]], value(*pair))) for pair in pairs)

    core = tuple(
        Rule(names[output], value(output, old), value(output, new), antecedent(rest))
        for output, old, new, *rest in data["rules"]
    )
    traps = tuple(Trap(antecedent(rest), reason, variable) for reason, variable, *rest in data["traps"])
    return Program(
        variables=variables,
        heads={
            name: Head(name, query, key, read, None if near is None else tuple(near))
            for name, query, key, read, near in data["heads"]
        },
        mlp=RuleSet(core, (), traps),
        output=data["output"],
        tokens=tuple(data["tokens"]),
        positions=data["positions"],
        halt=None if data["halt"] is None else Halt(*data["halt"]),
        causal=data["causal"],
    )


def _set(rule: Rule) -> Value:
    assert not rule.is_reset
    return rule.new  # type: ignore[return-value]


def _domain_data(domain: Domain) -> Data:
    match domain:
        case Categorical(size):
            return {"kind": "categorical", "size": size}
        case Numerical(values):
            return {"kind": "numerical", "values": list(values)}
        case SetOf(size, sets):
            return {"kind": "set", "size": size, "values": [sorted(value) for value in sets]}
        case _:
            assert_never(domain)


def _domain(data: Data) -> Domain:
    match data["kind"]:
        case "categorical":
            return Categorical(data["size"])
        case "numerical":
            return Numerical(tuple(data["values"]))
        case "set":
            return SetOf(data["size"], tuple(frozenset(value) for value in data["values"]))
        case kind:
            raise ProgramError(f"there is no kind of variable {kind!r}")


def _start_data(start: Start) -> Data:
    match start:
        case FromToken(table):
            return {"from": "token", "values": list(map(_value_data, table))}
        case FromPosition(table):
            return {"from": "position", "values": list(map(_value_data, table))}
        case Constant(value):
            return {"from": "constant", "values": [_value_data(value)]}
        case Output():
            return {"from": "head", "values": []}
        case _:
            assert_never(start)


def _start(data: Data, domain: Domain) -> Start:
    values = tuple(domain.admit(frozenset(v) if isinstance(v, list) else v) for v in data["values"])
    match data["from"]:
        case "token":
            return FromToken(values)
        case "position":
            return FromPosition(values)
        case "constant":
            return Constant(values[0])
        case "head":
            return Output()
        case source:
            raise ProgramError(f"no variable starts from a {source!r}")


def _value_data(value: Value) -> Any:
    return sorted(value) if isinstance(value, frozenset) else value
