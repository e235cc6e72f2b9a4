"""The rules as an MLP of clipped ReLUs, or of plain ones.

Two layers do the work: a unit for each rule, which is 1 where its antecedent holds, and its update. Where rules read
numbers or sets, two layers come before, which turn these into one-hot.

A rule with N constraints has weights of 2 and a bias of 3/2 - 2 N, so that it is 1 from 1/4 below N and 0 up to 1/4
above N - 1. The paper's weights of 1 and bias of 1 - N compute the same on exact inputs; the slack absorbs the
rounding of attention outputs that are UNDEFINED. Resets are linear instead: a unit takes half of a dimension (or, for a
number, a power of two that brings it below 1), and twice that is subtracted, which leaves exactly 0.

A clipped unit is the difference of two plain ones, `relu(x) - relu(x - 1)`. Where x is large, rounding makes that not
quite 1. Only steps on numbers get large, so a bucket is what lies in neither of two steps, which are 0 there.
"""

from __future__ import annotations

import math
from collections.abc import Iterable, Mapping
from dataclasses import dataclass

import numpy as np

from alta.compiler.encoding import Encoding
from alta.compiler.precision import Precision
from alta.compiler.thresholds import held, thresholds
from alta.errors import CompileError
from alta.language.program import Program
from alta.language.rules import Rule
from alta.language.variables import Categorical, Numerical, SetOf, Value
from alta.model.weights import Linear, Sparse

Row = dict[int, float]


@dataclass
class Rows:
    """A layer in the making."""

    inputs: int
    rows: list[Row]
    biases: list[float]

    @staticmethod
    def on(inputs: int) -> Rows:
        """An empty layer."""
        return Rows(inputs, [], [])

    def add(self, row: Row, bias: float = 0.0) -> int:
        """Adds a unit."""
        self.rows.append(row)
        self.biases.append(bias)
        return len(self.rows) - 1

    def linear(self) -> Linear:
        """The layer."""
        entries = {(i, column): value for i, row in enumerate(self.rows) for column, value in row.items() if value}
        return Linear(Sparse.of((len(self.rows), self.inputs), entries), np.array(self.biases, np.float64))


def compile_mlp(
    encoding: Encoding, precision: Precision, max_length: int | None, activation: str
) -> tuple[Linear, ...]:
    """The layers, the last of them without an activation."""
    match activation:
        case "clipped":
            return _clipped(encoding, precision, max_length)
        case "relu":
            _check_reach(encoding, precision, max_length)
            return _paired(_clipped(encoding, precision, max_length))
        case _:
            raise CompileError(f"there is no activation {activation!r}; activations: clipped, relu")


def _clipped(encoding: Encoding, precision: Precision, max_length: int | None) -> tuple[Linear, ...]:
    program = encoding.program
    resets = list(_resets(encoding))
    names = _read(program)
    if all(isinstance(program.variables[name].domain, Categorical) for name in names):
        places: dict[tuple[str, Value], int] = {}
        for name in names:
            values = enumerate(_values(program, name))
            places |= {(name, value): encoding.layout.place(name, index) for index, value in values}
        return _rule_layers(encoding, places, encoding.layout.dim, [row for row, _ in resets], resets, precision)
    first = Rows.on(encoding.layout.dim)
    second_rows: list[tuple[Row, float]] = []
    features: dict[tuple[str, Value], int] = {}
    for name in names:
        match program.variables[name].domain:
            case Categorical(size):
                units = [first.add({encoding.layout.place(name, value): 1.0}) for value in range(size)]
                hot: list[tuple[Row, float]] = [({unit: 1.0}, 0.0) for unit in units]
            case SetOf(size, _):
                units = [first.add({encoding.layout.place(name, member): 1.0}) for member in range(size)]
                hot = [_is_set(units, value) for value in program.variables[name].domain.values]  # type: ignore[arg-type]
            case Numerical():
                hot = _buckets(encoding, name, first, precision, max_length)
        for value, (row, bias) in zip(_values(program, name), hot, strict=True):
            features[name, value] = len(second_rows)
            second_rows.append((row, bias))
    passed = [first.add(row) for row, _ in resets]
    second = Rows.on(len(first.rows))
    for row, bias in second_rows:
        second.add(row, bias)
    passed = [second.add({unit: 1.0}) for unit in passed]
    third, fourth = _rule_layers(encoding, features, len(second.rows), [{u: 1.0} for u in passed], resets, precision)
    return first.linear(), second.linear(), third, fourth


def _read(program: Program) -> list[str]:
    """The variables that rules read. What can only have one value tells nothing."""
    found = {c.variable for rule in program.rules.core for c in rule.antecedent}
    return [name for name in program.variables if name in found and len(_values(program, name)) > 1]


def _values(program: Program, name: str) -> tuple[Value, ...]:
    return program.variables[name].domain.values


def _buckets(
    encoding: Encoding, name: str, first: Rows, precision: Precision, max_length: int | None
) -> list[tuple[Row, float]]:
    """A bucket is where neither the step below it is on, which is 1 under it, nor that above, which is 1 over it."""
    place = encoding.layout.place(name)
    found = thresholds(encoding, name, precision, max_length)
    under = [first.add({place: -step.scale}, step.scale * step.at + 0.5) for step in found]
    over = [first.add({place: step.scale}, 0.5 - step.scale * step.at) for step in found]
    rows: list[Row] = [{} for _ in range(len(found) + 1)]
    for index in range(len(found)):
        rows[index][over[index]] = -2.0
        rows[index + 1][under[index]] = -2.0
    return [(row, 1.0) for row in rows]


def _check_reach(encoding: Encoding, precision: Precision, max_length: int | None) -> None:
    """Refuses steps so large that the difference of two of them, which should be 1, is rounded to less than 3/4."""
    for name in _read(encoding.program):
        if not isinstance(encoding.program.variables[name].domain, Numerical):
            continue
        reach = max(step.reach for step in thresholds(encoding, name, precision, max_length))
        if reach > 2 ** (precision.bits - 5):
            raise CompileError(
                f"the steps that tell the buckets of {name!r} apart reach {reach:.3g}, where {precision.name} rounds "
                "away the difference of two plain ReLUs; use activation='clipped', or a wider dtype"
            )


def _paired(layers: tuple[Linear, ...]) -> tuple[Linear, ...]:
    """Each clipped unit as the difference of two plain ones, that with all the biases one lower second."""
    found: list[Linear] = []
    for number, layer in enumerate(layers):
        weight, bias = layer.weight, layer.bias
        if number:
            weight = weight.beside(weight.scaled(-1.0))
        if number < len(layers) - 1:
            weight, bias = weight.above(weight), np.concatenate([bias, bias - 1.0])
        found.append(Linear(weight, bias))
    return tuple(found)


def _is_set(units: list[int], members: frozenset[int]) -> tuple[Row, float]:
    row = {unit: 2.0 if member in members else -2.0 for member, unit in enumerate(units)}
    return row, 1.5 - 2.0 * len(members)


def _rule_layers(
    encoding: Encoding,
    features: Mapping[tuple[str, Value], int],
    inputs: int,
    reset_rows: list[Row],
    resets: list[tuple[Row, Row]],
    precision: Precision,
) -> tuple[Linear, Linear]:
    hidden = Rows.on(inputs)
    updates: dict[tuple[int, int], float] = {}
    for rule in encoding.program.rules.core:
        antecedent = [(c.variable, c.value) for c in rule.antecedent if (c.variable, c.value) in features]
        constraints = len(antecedent)
        if 2 * constraints > 2 ** (precision.bits - 1):
            raise CompileError(f"a rule with {constraints} constraints does not fit {precision.name}: {rule}")
        row = {features[constraint]: 2.0 for constraint in antecedent}
        unit = hidden.add(row, 1.5 - 2.0 * constraints)
        updates |= {(place, unit): change for place, change in _update(encoding, rule).items()}
    for row, (_, undo) in zip(reset_rows, resets, strict=True):
        unit = hidden.add(row)
        updates |= {(place, unit): value for place, value in undo.items()}
    shape = (encoding.layout.dim, len(hidden.rows))
    return hidden.linear(), Linear(Sparse.of(shape, updates), np.zeros(encoding.layout.dim))


def _update(encoding: Encoding, rule: Rule) -> Row:
    old, new = (encoding.entries(rule.output, value) for value in (rule.old, rule.new))  # type: ignore[arg-type]
    changes = {place: new.get(place, 0.0) - old.get(place, 0.0) for place in {*old, *new}}
    return {place: change for place, change in changes.items() if change}


def _resets(encoding: Encoding) -> Iterable[tuple[Row, Row]]:
    """For each unit that resets: what it takes of the residual stream, and what it gives back."""
    program = encoding.program
    for name in program.heads:
        domain = program.variables[name].domain
        place = encoding.layout.place(name)
        if isinstance(domain, Categorical):
            for value in domain.values:
                yield {place + value: 0.5}, {place + value: -2.0}
        else:
            scale = _power_above(program, name)
            yield {place: 1 / scale}, {place: -scale}
            yield {place: -1 / scale}, {place: scale}


def _power_above(program: Program, name: str) -> float:
    """A power of two at least twice as large as every mean that the head can give."""
    largest = max((abs(value) for value in held(program, program.heads[name].value)), default=0.0)
    return math.ldexp(1.0, math.frexp(largest or 1.0)[1] + 1)
