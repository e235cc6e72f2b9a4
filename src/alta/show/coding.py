"""A run as the explorer's page reads it: plain data, each layer as what differs from the layer before.

Attention writes outputs of heads and nothing else; the MLP empties these and sets the other variables. So a layer is
one row of cells: the outputs as its attention leaves them, and the other variables as its MLP does. A cell is a number:
it counts the pairs of a value and a slice of the residual stream that its variable has had. The first cell of an output
is NULL.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from fractions import Fraction
from typing import Any, NamedTuple, assert_never

from alta.compiler.layout import Layout
from alta.interpreter.run import select
from alta.interpreter.trace import State, Trace
from alta.language.program import Head, Program
from alta.language.rules import Rule
from alta.language.variables import (
    NULL,
    UNDEFINED,
    Cell,
    Constant,
    FromPosition,
    FromToken,
    Numerical,
    Output,
    Variable,
    declared,
    format_value,
)
from alta.model.weights import Array


@dataclass(frozen=True)
class Residual:
    """The residual stream at the start and after each sub-layer, and where each variable lives in it."""

    streams: Sequence[Array]  # each (position, dim)
    layout: Layout


def encode_trace(trace: Trace, attended: State | None, residual: Residual | None) -> dict[str, Any]:
    """The trace as nested lists and dictionaries. `attended` is the state after one attention more, in a run that could
    not go on from there."""
    program = trace.program
    states = [state for _, state in trace.states] + ([] if attended is None else [attended])
    streams = [None] * len(states) if residual is None else residual.streams
    moments = list(map(_Moment, states, streams))
    names = sorted(declared(program.variables), key=program.heads.__contains__)
    columns = [_Column(program.variables[name], residual) for name in names]
    variables = {name: number for number, name in enumerate(names)}
    rules, selections = _Rules(variables), _Selections(program)
    start = row = _row(columns, moments[0], moments[0])
    read = [0] * (len(program.heads) * len(trace.inputs))
    layers: list[list[int]] = []
    reads: list[list[int]] = []
    for number in range(1, len(moments), 2):
        settled = moments[number + 1] if number + 1 < len(moments) else moments[number - 1]
        before, row = row, _row(columns, moments[number], settled)
        layers.append(_changes(before, row))
        before, read = read, selections.of(states[number - 1])
        reads.append(_changes(before, read))
    return {
        "inputs": list(map(str, trace.inputs)),
        "states": len(states),
        "variables": [column.data() for column in columns],
        "heads": [_head_data(program, head, variables) for head in program.heads.values()],
        "output": variables[program.output],
        "halt": None if program.halt is None else [variables[program.halt.variable], format_value(program.halt.value)],
        "causal": program.causal,
        "start": start,
        "layers": layers,
        "fired": [rules.fired(layer.fired) for layer in trace.layers],
        "rules": rules.data,
        "reads": reads,
        "selections": selections.data,
    }


class _Moment(NamedTuple):
    state: State
    stream: Array | None  # (position, dim)


class _Column:
    """A variable, and the cells that it has had."""

    def __init__(self, variable: Variable, residual: Residual | None) -> None:
        self.variable = variable
        self.slice = None if residual is None else residual.layout.slices[variable.name]
        self._values: dict[Cell, int] = {}
        self._cells: dict[tuple[int, bytes], int] = {}
        self._data: list[list[float]] = []
        if variable.is_output:
            self.cell(NULL, None)

    def cell(self, value: Cell, vector: Array | None) -> int:
        """The number of this cell. What stands for a value is always the same, but for a mean, which is rounded, and
        for UNDEFINED, which is any mixture."""
        number = self._values.setdefault(value, len(self._values))
        mixed = vector is not None and (value is UNDEFINED or isinstance(value, Fraction))
        key = number, vector.tobytes() if mixed and vector is not None else b""
        if key not in self._cells:
            self._cells[key] = len(self._cells)
            self._data.append([number, *([] if vector is None else _entries(vector))])
        return self._cells[key]

    def data(self) -> dict[str, Any]:
        variable = self.variable
        return {
            "name": variable.name,
            "domain": str(variable.domain),
            "start": _start_data(variable),
            "values": list(map(format_value, self._values)),
            "cells": self._data,
            "slice": None if self.slice is None else [self.slice.start, self.slice.stop - self.slice.start],
            "numerical": isinstance(variable.domain, Numerical),
        }


class _Rules:
    """The rules that have fired, in the order in which they first did."""

    def __init__(self, variables: Mapping[str, int]) -> None:
        self.data: list[dict[str, Any]] = []
        self._variables = variables
        self._numbers: dict[int, int] = {}

    def fired(self, fired: Sequence[Iterable[Rule]]) -> list[int]:
        """Where rules fired in one layer: how many positions further than the last, and which. Resets are left out,
        since every output is reset in every layer."""
        found: list[int] = []
        last = 0
        for position, rules in enumerate(fired):
            for rule in rules:
                if not rule.is_reset:
                    found += position - last, self._number(rule)
                    last = position
        return found

    def _number(self, rule: Rule) -> int:
        if id(rule) not in self._numbers:
            self._numbers[id(rule)] = len(self.data)
            constraints = [[self._variables[c.variable], format_value(c.value)] for c in rule.antecedent]
            update = {"set": self._variables[rule.output], "to": format_value(rule.new)}
            self.data.append({**update, "if": constraints})
        return self._numbers[id(rule)]


class _Selections:
    """What heads read: each different list of positions once, as the first and last of every stretch."""

    def __init__(self, program: Program) -> None:
        self.data: list[list[int]] = []
        self._program = program
        self._numbers: dict[tuple[int, ...], int] = {}
        self._number([])

    def of(self, state: State) -> list[int]:
        """The number of what each head reads at each position."""
        heads = self._program.heads.values()
        return [self._number(read) for head in heads for read in select(self._program, head, state)]

    def _number(self, read: list[int]) -> int:
        key = tuple(read)
        if key not in self._numbers:
            self._numbers[key] = len(self.data)
            self.data.append(_stretches(read))
        return self._numbers[key]


def _row(columns: Sequence[_Column], attended: _Moment, settled: _Moment) -> list[int]:
    cells: list[list[int]] = []  # (variable, position)
    for column in columns:
        name = column.variable.name
        state, stream = attended if column.variable.is_output else settled
        vectors = [None] * len(state) if stream is None else stream[:, column.slice]
        cells.append([column.cell(values[name], vector) for values, vector in zip(state, vectors, strict=True)])
    return [cell for row in cells for cell in row]


def _changes(before: Sequence[int], after: Sequence[int]) -> list[int]:
    """How many places further than the last change, and what is there now, again and again."""
    found: list[int] = []
    last = 0
    for place, (old, new) in enumerate(zip(before, after, strict=True)):
        if old != new:
            found += place - last, new
            last = place
    return found


def _entries(vector: Array) -> list[float]:
    """The dimensions that are not zero, each with its number, as short as it can be written."""
    return [item for place, number in enumerate(vector) if number != 0 for item in (place, float(str(number)))]


def _stretches(numbers: Sequence[int]) -> list[int]:
    found: list[int] = []
    for number in numbers:
        if found and found[-1] == number - 1:
            found[-1] = number
        else:
            found += number, number
    return found


def _head_data(program: Program, head: Head, variables: Mapping[str, int]) -> dict[str, Any]:
    """The variables of a head; alta's own, which are the same everywhere, have no number."""
    return {
        "output": variables[head.name],
        "query": variables.get(head.query),
        "key": variables.get(head.key),
        "value": variables[head.value],
        "relative": head.relative_positions,
        "mean": isinstance(program.variables[head.name].domain, Numerical),
    }


def _start_data(variable: Variable) -> str:
    match variable.start:
        case FromToken():
            return "token"
        case FromPosition():
            return "position"
        case Constant():
            return "constant"
        case Output():
            return "head"
        case _:
            assert_never(variable.start)
