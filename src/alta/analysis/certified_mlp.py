"""That an MLP does what a program's rules say: each of its units that is ever on makes the update of one rule, and is
on exactly where the rule fires.

A unit is a sum over variables, so the most and the least that it receives is found variable by variable.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

from alta.analysis.ground import Ground, Matrix, refuse, require
from alta.analysis.means import holdings
from alta.errors import amount
from alta.language.rules import Rule
from alta.language.variables import Categorical, Numerical, Value
from alta.language.variables import format_value as shown
from alta.model.weights import Linear, Sparse

BLOCK = 2048
"""Units of the MLP that are looked at together, so that memory stays bounded."""


class _Passed(NamedTuple):
    """A unit that passes a dimension on: times `scale`, and nowhere on its way times more than `peak`."""

    place: int
    scale: float
    peak: float


class _Read(NamedTuple):
    """What the units that the rules' layer reads stand for."""

    features: Mapping[str, Matrix]  # of each variable, for each value: (unit, value)
    owner: NDArray[np.intp]  # (unit): the index of the variable that it depends on
    peaks: Matrix  # (unit): the most that it can be where that variable is UNDEFINED
    passed: Mapping[int, _Passed]
    opaque: NDArray[np.bool_]  # (unit): no function of values, such as a number that is passed on


class _Units(NamedTuple):
    """Some units of the rules' layer."""

    numbers: NDArray[np.intp]
    rows: Matrix  # (unit, feature)
    biases: Matrix
    updates: Matrix  # (unit, dim)


class MlpCheck:
    """Checks the MLP of a layer."""

    def __init__(self, ground: Ground) -> None:
        self.ground = ground
        self.paired = ground.weights.activation == "relu"  # then two plain units make one that is clipped

    def check(self, mlp: tuple[Linear, ...]) -> float:
        """The least slack of its units."""
        layers = amount(len(mlp), "layer")
        require(len(mlp) in (2, 4), f"the MLP has {layers}; one that alta has compiled has two or four")
        _check_shapes(mlp, self.ground.layout.dim)
        *first, hidden, last = _folded(mlp) if self.paired else mlp
        require(not last.bias.any(), "the last layer of the MLP has a bias")
        read = self._second(first[0], first[1]) if first else self._residual()
        reset: dict[int, list[_Passed]] = {}
        remaining = dict.fromkeys(self.ground.rules.values(), 1)
        slack = float("inf")
        turned = last.weight.turned()  # (unit, dim)
        for start in range(0, hidden.weight.shape[0], BLOCK):
            rows, updates = (matrix.part(start, start + BLOCK).dense() for matrix in (hidden.weight, turned))
            biases = hidden.bias[start : start + BLOCK]
            idle: NDArray[np.bool_] = np.asarray(~updates.any(axis=1))
            for unit in np.flatnonzero(~idle).tolist():
                if self._is_reset(start + unit, rows[unit], float(biases[unit]), updates[unit], read.passed, reset):
                    idle[unit] = True
            units = np.flatnonzero(~idle)
            if len(units):
                block = _Units(start + units, rows[units], biases[units], updates[units])
                slack = min(slack, self._check_units(block, read, remaining))
        missing = next((rule for rule, count in remaining.items() if count), None)
        require(missing is None, f"no unit makes the update {missing}")
        peaked = len(mlp) > 2
        self._check_resets(reset, peaked)
        return slack

    def _residual(self) -> _Read:
        """Where the rules' layer reads the residual stream itself."""
        numerical = np.array([isinstance(v.domain, Numerical) for v in self.ground.program.variables.values()])[
            self.ground.owner
        ]
        features = {
            name: table.T
            for name, table in self.ground.tables.items()
            if not isinstance(self.ground.program.variables[name].domain, Numerical)
        }
        passed = {place: _Passed(place, 1.0, 1.0) for place in range(self.ground.layout.dim)}
        return _Read(features, self.ground.owner, np.ones(self.ground.layout.dim), passed, numerical)

    def _second(self, first: Linear, second: Linear) -> _Read:
        """Where the rules' layer reads the second of two layers."""
        a, b = first.weight.by_row(), second.weight.by_row()
        owner = [self._owner(columns, "a unit of the first layer") for columns, _ in a]
        on: dict[int, tuple[Matrix, float]] = {}  # for each unit: what it is for each value, and how far it reaches
        for name in self.ground.variables:
            mine = [unit for unit, index in enumerate(owner) if index == self.ground.variables.index(name)]
            on |= self._first(name, {unit: (*a[unit], float(first.bias[unit])) for unit in mine})
        features = {name: np.zeros((len(b), len(values))) for name, values in self.ground.values.items()}
        depends_on, peaks = np.full(len(b), -1), np.ones(len(b))
        passed: dict[int, _Passed] = {}
        opaque = np.zeros(len(b), bool)
        for unit, (columns, factors) in enumerate(b):
            bias = float(second.bias[unit])
            if len(columns) == 1 and len(a[columns[0]][0]) == 1 and first.bias[columns[0]] == bias == 0:
                place, scale = int(a[columns[0]][0][0]), float(a[columns[0]][1][0])
                through = scale * float(factors[0])
                passed[unit] = _Passed(place, through, max(abs(scale), abs(through)))
            owners = {owner[column] for column in columns}
            require(len(owners) == 1 or (not owners and bias <= 0), "a unit of the second layer mixes variables")
            if not owners:
                continue
            index = owners.pop()
            if index is None:
                refuse("a unit of the first layer depends on nothing")
            name = self.ground.variables[index]
            depends_on[unit] = index
            value, large = np.full(len(self.ground.values[name]), bias), np.zeros(len(self.ground.values[name]))
            for column, factor in zip(columns, factors, strict=True):
                state, reach = on[int(column)]
                value = value + factor * state
                large = large + abs(factor) * reach * (state != 0)
            if np.isnan(value).any() or not len(value):
                opaque[unit] = True
                continue
            if self.paired:  # then steps that are on are only almost 1, so nothing may hang on it
                error = 16 * float(self.ground.precision.rounding) * large
                exact = self._sums_exactly([*factors, bias]) or not value.any()
                require(exact, f"a unit of the second layer on {name!r} does not sum without rounding")
                require(bool(((value + error <= 0) | (error == 0)).all()), f"a step on {name!r} is rounded away")
            features[name][unit] = np.clip(value, 0, 1)
            if name in self.ground.ends and name in self.ground.program.heads:
                steps = [(factor, a[c][1][0], first.bias[c]) for c, factor in zip(columns, factors, strict=True)]
                peaks[unit] = self._peak(name, np.array(steps).reshape(-1, 3), bias)
        return _Read(features, depends_on, peaks, passed, opaque)

    def _peak(self, name: str, steps: Matrix, bias: float) -> float:
        """The most that a unit of the second layer can be for any number between the values of a head, be it a mean of
        them or a mixture: it is piecewise linear, so that is at a corner."""
        factors, scales, biases = steps.T
        values = holdings(self.ground.program, self.ground.program.heads[name].value)
        corners = np.concatenate([values, -biases / scales, (1 - biases) / scales])
        x = np.clip(corners, values[0], values[-1])
        states = np.clip(scales * x[:, None] + biases, 0, 1)
        sizes = np.abs(scales) * max(map(abs, values)) + np.abs(biases) + 1
        error = 16 * float(self.ground.precision.rounding) * float(np.abs(factors) @ sizes)
        return float(np.clip((states @ factors + bias).max() + error, 0, 1))

    def _first(
        self, name: str, units: Mapping[int, tuple[NDArray[np.integer[Any]], Matrix, float]]
    ) -> dict[int, tuple[Matrix, float]]:
        """What units of the first layer are for each value of a variable: nan where that is not known. For steps on
        numbers, also how large they get."""
        found: dict[int, tuple[Matrix, float]] = {}
        if not isinstance(self.ground.program.variables[name].domain, Numerical):
            for unit, (columns, factors, bias) in units.items():
                if self.paired:
                    exact = self._sums_exactly([*factors, bias]) or (len(factors) == 1 and bias == 0)
                    require(exact, f"a unit of the first layer on {name!r} does not sum without rounding")
                found[unit] = np.clip(self.ground.tables[name][:, columns] @ factors + bias, 0, 1), 0.0
            return found
        for unit, (_, factors, bias) in units.items():
            if name not in self.ground.ends:
                found[unit] = np.full(len(self.ground.values[name]), np.nan), 0.0
                continue
            low, high = (end[self.ground.ends[name].exists] for end in self.ground.ends[name][:2])
            scale = float(factors[0])
            one, other = scale * low + bias, scale * high + bias
            least, most = np.minimum(one, other), np.maximum(one, other)
            size = abs(scale) * np.maximum(np.abs(low), np.abs(high))
            blur = self._blur(scale, bias, size) + 2.0**-50 * (size + abs(bias))
            rounding = float(self.ground.precision.rounding)
            value = np.full(len(low), np.nan)
            value[(least - np.abs(least) * rounding - blur >= 1)] = 1
            value[(most + np.abs(most) * rounding + blur <= 0)] = 0
            found[unit] = value, abs(bias) + 1 + float(size.max(initial=0))
        return found

    def _blur(self, scale: float, bias: float, size: Matrix) -> Matrix:
        """How much rounding a step's weights and their product can bring, before the sum itself is rounded."""
        rounding = float(self.ground.precision.rounding)
        found = np.zeros_like(size)
        if abs(np.frexp(scale)[0]) != 0.5:
            found = found + 2 * rounding * size
        if _rounded(bias, self.ground.precision.bits) != bias:
            found = found + rounding * abs(bias)
        return found

    def _sums_exactly(self, numbers: Sequence[float]) -> bool:
        return bool(_sums_exactly(np.array([numbers]), self.ground.precision.bits)[0])

    def _owner(self, places: NDArray[np.integer[Any]], what: str) -> int | None:
        owners = set(self.ground.owner[places].tolist())
        require(len(owners) <= 1, f"{what} mixes variables")
        return owners.pop() if owners else None

    def _is_reset(
        self,
        unit: int,
        row: Matrix,
        bias: float,
        update: Matrix,
        passed: Mapping[int, _Passed],
        reset: dict[int, list[_Passed]],
    ) -> bool:
        """Whether the unit takes some of an attention output away from it, without rounding."""
        features, places = np.flatnonzero(row), np.flatnonzero(update)
        if len(features) != 1 or len(places) != 1 or bias != 0 or int(features[0]) not in passed:
            return False
        place, scale, peak = passed[int(features[0])]
        name = self.ground.variables[self.ground.owner[place]]
        if place != places[0] or name not in self.ground.program.heads:
            return False
        scale *= float(row[features[0]])
        exact = scale * update[place] == -1 and abs(np.frexp(scale)[0]) == 0.5
        require(bool(exact), f"unit {unit} does not reset {name!r} exactly")
        reset.setdefault(place, []).append(_Passed(place, scale, max(peak, abs(scale))))
        return True

    def _check_resets(self, reset: Mapping[int, Sequence[_Passed]], peaked: bool) -> None:
        for name, head in self.ground.program.heads.items():
            part = self.ground.layout.slices[name]
            for place in range(part.start, part.stop):
                units = reset.get(place, ())
                scales = sorted(unit.scale for unit in units)
                peak = max((unit.peak if peaked else abs(unit.scale) for unit in units), default=0.0)
                if isinstance(self.ground.program.variables[name].domain, Categorical):
                    fits = len(scales) == 1 and scales[0] > 0 and peak <= 0.5
                else:
                    largest = max(map(abs, holdings(self.ground.program, head.value)), default=0.0)
                    fits = len(scales) == 2 and scales[0] == -scales[1] and peak * largest <= 0.5
                require(fits, f"{name!r} is not reset once, and exactly")

    def _check_units(self, units: _Units, read: _Read, remaining: dict[Rule, int]) -> float:
        """That each unit is 1 where the antecedent of a rule holds, 0 elsewhere, and makes that rule's update. Returns
        the least slack."""
        require(not units.rows[:, read.opaque].any(), "a unit reads a number that is not one-hot")
        exact = _sums_exactly(np.column_stack([units.rows, units.biases]), self.ground.precision.bits)
        require(not self.paired or bool(exact.all()), "a unit does not have weights that sum without rounding")
        parts = {name: units.rows @ table for name, table in read.features.items() if table.shape[1]}  # (unit, value)
        highest = {name: part.max(axis=1) for name, part in parts.items()}
        largest = np.max(list(highest.values()), axis=0, initial=0.0)
        wanted = {
            name: (highest[name] > largest / 2) & (highest[name] > part.min(axis=1)) for name, part in parts.items()
        }
        chosen = {name: part.argmax(axis=1) for name, part in parts.items()}
        least, most, sizes = units.biases.copy(), units.biases.copy(), np.abs(units.biases)
        failing, blur = np.full(len(least), -np.inf), np.zeros(len(least))
        for name, part in parts.items():
            above, low = highest[name], part.min(axis=1)
            if self.ground.program.variables[
                name
            ].is_output:  # UNDEFINED is a mixture, which can bring this and no more
                mine = (units.rows * read.peaks)[:, read.owner == self.ground.variables.index(name)]
                blind = wanted[name] | ~mine.any(axis=1)
                require(not self.paired or bool(blind.all()), f"a unit that {name!r} does not decide reads it")
                exact &= blind
                above, low = np.maximum(mine, 0).sum(axis=1), np.minimum(mine, 0).sum(axis=1)
                blur += above * self.ground.tolerance
            sizes += np.abs(part).max(axis=1)
            if part.shape[1] > 1:
                others = part.copy()
                others[np.arange(len(part)), chosen[name]] = -np.inf
                failing = np.where(wanted[name], np.maximum(failing, others.max(axis=1) - above), failing)
            least += np.where(wanted[name], highest[name], low)
            most += above
        rounding = (2.0**-self.ground.precision.bits + 2.0**-self.ground.precision.sum_bits * (len(parts) + 1)) * sizes
        alive = np.flatnonzero(most + blur + rounding > 0)
        if not len(alive):
            return float("inf")
        self._match(units, alive, wanted, chosen, remaining)
        on, off = least - np.where(exact, 0, blur + rounding) - 1, -(most + failing + blur + rounding)
        for slack, what in ((on, "on"), (off, "off")):
            worst = alive[slack[alive].argmin()]
            require(slack[worst] >= 0, f"unit {units.numbers[worst]} is not fully {what} where it should be")
        return float(min(on[alive].min(), off[alive].min()))

    def _match(
        self,
        units: _Units,
        alive: NDArray[np.intp],
        wanted: Mapping[str, NDArray[np.bool_]],
        chosen: Mapping[str, NDArray[np.intp]],
        remaining: dict[Rule, int],
    ) -> None:
        """That each unit which is ever on has the antecedent and makes the update of one rule, no two of the same."""
        antecedents: dict[int, list[tuple[str, Value]]] = {index: [] for index in alive.tolist()}
        for name, mine in wanted.items():
            for index in alive[mine[alive]].tolist():
                antecedents[index].append((name, self.ground.values[name][int(chosen[name][index])]))
        for index, antecedent in antecedents.items():
            unit = int(units.numbers[index])
            places = np.flatnonzero(units.updates[index])
            output = self.ground.variables[self._owner(places, f"the update of unit {unit}") or 0]
            rule = self.ground.rules.get((frozenset(antecedent), output))
            if rule is None:
                where = ", ".join(sorted(f"{name}={shown(value)}" for name, value in antecedent))
                refuse(f"unit {unit} sets {output!r} where {where or 'it runs'}, but no rule does")
            old, new = (self.ground.values[output].index(value) for value in (rule.old, rule.new))  # type: ignore[arg-type]
            expected = self.ground.tables[output][new] - self.ground.tables[output][old]
            right = np.array_equal(units.updates[index], expected)
            require(right, f"unit {unit} does not change {output!r} as its rule does: {rule}")
            remaining[rule] -= 1
            require(remaining[rule] >= 0, f"two units make the same update: {rule}")


def _sums_exactly(rows: Matrix, bits: int) -> NDArray[np.bool_]:
    """For each row, whether the sum of any of its numbers is exact: small multiples of a fraction of 1."""
    found = np.zeros(len(rows), bool)
    for fraction in (1, 2, 4, 8):
        scaled = rows * fraction
        found |= (scaled == np.round(scaled)).all(axis=1) & (np.abs(scaled).sum(axis=1) <= 2.0**bits)
    return found


def _check_shapes(mlp: Sequence[Linear], dim: int) -> None:
    inputs = dim
    for linear in mlp:
        fits = linear.weight.shape[1] == inputs and linear.bias.shape == (linear.weight.shape[0],)
        require(fits, "the layers of the MLP do not fit together")
        inputs = linear.weight.shape[0]
    require(inputs == dim, "the layers of the MLP do not fit together")


def _folded(mlp: Sequence[Linear]) -> tuple[Linear, ...]:
    """Pairs of plain ReLUs as one clipped unit each."""
    found: list[Linear] = []
    broken = "two plain ReLUs do not make one that is clipped"
    for number, linear in enumerate(mlp):
        weight, bias = linear.weight, linear.bias
        if number:
            require(weight.shape[1] % 2 == 0, broken)
            half = weight.shape[1] // 2
            turned = weight.turned()
            one, other = turned.part(0, half).turned(), turned.part(half, 2 * half).turned()
            require(_same(one, other.scaled(-1.0)), broken)
            weight = one
        if number < len(mlp) - 1:
            require(weight.shape[0] % 2 == 0, broken)
            half = weight.shape[0] // 2
            one, other = weight.part(0, half), weight.part(half, 2 * half)
            require(_same(one, other) and np.array_equal(bias[half:], bias[:half] - 1.0), broken)
            weight, bias = one, bias[:half]
        found.append(Linear(weight, bias))
    return tuple(found)


def _same(one: Sparse, other: Sparse) -> bool:
    a, b = one.turned(), other.turned()  # which puts the entries in order
    return all(np.array_equal(x, y) for x, y in ((a.rows, b.rows), (a.columns, b.columns), (a.values, b.values)))


def _rounded(number: float, bits: int) -> float:
    """The number in a format with so many bits."""
    fraction, exponent = np.frexp(number)
    return float(np.ldexp(np.round(np.ldexp(fraction, bits)), int(exponent) - bits))
