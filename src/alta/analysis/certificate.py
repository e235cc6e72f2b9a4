"""That weights do what a program's rules say, shown from the weights as they are.

The argument is an induction over sub-layers: if the residual stream encodes a state exactly, so it does after the next
sub-layer. `certify` checks every step of it for all inputs at once. Since each part of a model is a sum over variables,
the largest and smallest of what a unit can receive is found variable by variable, without enumerating states.

Of the compiler this shares the layout and the encoding; how weights are made, it does not look at.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from itertools import pairwise
from typing import Any, NamedTuple, NoReturn, TypeAlias

import numpy as np
from numpy.typing import NDArray

from alta.analysis.means import displacement, holdings, longest_selection, rounding_of_mean, spans
from alta.compiler.compile import encode
from alta.compiler.encoding import Encoding
from alta.compiler.layout import width
from alta.compiler.precision import Precision, precision_of
from alta.displayed import Displayed
from alta.errors import VerificationError
from alta.language.program import Head, Program
from alta.language.record import from_data
from alta.language.rules import Rule
from alta.language.variables import Categorical, Constant, FromPosition, FromToken, Numerical, Output, Value
from alta.language.variables import format_value as shown
from alta.model.weights import Head as HeadWeights
from alta.model.weights import Layer, Linear, Sparse, Weights

Matrix: TypeAlias = NDArray[np.floating[Any]]

BLOCK = 2048
"""Units of the MLP that are looked at together, so that memory stays bounded."""


@dataclass(frozen=True, repr=False)
class Certificate(Displayed):
    """What has been shown of a model, and under which conditions it holds.

    >>> certificate = alta.verify(model)
    >>> certificate.rules, certificate.units, certificate.max_length
    (7, 7, None)
    """

    dtype: str
    max_length: int | None
    layers: int | None  # None where the layers are shared, so that any number of them may run
    rules: int
    units: int
    heads: int
    slack: float  # how far a rule's unit stays from being neither on nor off, at the least
    inputs: int = 0  # that were also run side by side

    def __repr__(self) -> str:
        length = "any length" if self.max_length is None else f"up to {self.max_length:,} tokens"
        return f"<certificate: exact in {self.dtype} on inputs of {length}; {self.rules:,} rules, {self.heads} heads>"

    def __str__(self) -> str:
        length = "any length" if self.max_length is None else f"up to {self.max_length:,} tokens"
        depth = "" if self.layers is None else f", for up to {self.layers} layers"
        lines = [
            f"certified: the model does what its program does, on every input of {length} that meets no trap{depth},",
            f"in {self.dtype}{' and wider formats' if self.dtype != 'float64' else ''}",
            f"  {self.rules:,} rules in {self.units:,} units, {self.heads} heads; slack {self.slack:.3f}",
        ]
        if self.inputs:
            lines.append(f"  and side by side on {self.inputs:,} inputs: the same state after every sub-layer")
        return "\n".join(lines)


def certify(weights: Weights) -> Certificate:
    """A certificate for the weights, or VerificationError, which says what is wrong with them."""
    return Checker(weights).check()


class _Passed(NamedTuple):
    """A unit that passes a dimension on: times `scale`, and nowhere on its way times more than `peak`."""

    place: int
    scale: float
    peak: float


class _Ends(NamedTuple):
    """For each bucket, the least and the largest number that stands for it, rounding included, and whether any does."""

    low: Matrix
    high: Matrix
    exists: NDArray[np.bool_]


class _Read(NamedTuple):
    """What the units that the rules' layer reads stand for."""

    features: Mapping[str, Matrix]  # of each variable, for each value: (unit, value)
    owner: NDArray[np.intp]  # (unit): the index of the variable that it depends on
    peaks: Matrix  # (unit): the most that it can be where that variable is UNDEFINED
    passed: Mapping[int, _Passed]
    opaque: NDArray[np.bool_]  # (unit): no function of values, such as a number that is passed on


class Checker:
    """Checks one set of weights, part by part."""

    def __init__(self, weights: Weights) -> None:
        self.weights = weights
        self.program: Program = from_data(weights.program)
        self.precision: Precision = precision_of(weights.dtype)
        self.encoding: Encoding = encode(self.program, self.precision)
        self.layout = self.encoding.layout
        self.variables = list(self.program.variables)
        read = {c.variable for rule in self.program.rules.core for c in rule.antecedent}
        self.ends = {
            name: self._ends(name)
            for name, variable in self.program.variables.items()
            if isinstance(variable.domain, Numerical) and variable.domain.values and name in read
        }
        self.values = {name: self._values(name) for name in self.variables}
        self.tables: dict[str, Matrix] = {  # (value, dim)
            name: np.array([self._vector(name, value) for value in values]).reshape(-1, self.layout.dim)
            for name, values in self.values.items()
        }
        self.rules = {
            (self._antecedent(rule), rule.output): rule
            for rule in self.program.rules.core
            if all(c.value in self.values[c.variable] for c in rule.antecedent)
        }
        self.owner = np.concatenate(
            [np.full(width(v.domain), i) for i, v in enumerate(self.program.variables.values())]
        )
        self.tolerance = 1e-3 if self.precision.bits > 10 else 0.05  # by which mixtures may exceed 1

    def check(self) -> Certificate:
        """The whole argument."""
        self._check_frame()
        self._check_embeddings()
        slack = min(self._check_layer(layer) for layer in self.weights.distinct)
        self._check_output()
        self._check_halting()
        return Certificate(
            dtype=self.weights.dtype,
            max_length=self.weights.max_length,
            layers=None if self.weights.shared else len(self.weights.layers),
            rules=len(self.program.rules),
            units=self.weights.layers[0].mlp[-1].weight.shape[1],
            heads=len(self.weights.layers[0].heads),
            slack=slack,
        )

    def _values(self, name: str) -> list[Value]:
        """What a variable can hold. Of the buckets of a mean, those that some mean is snapped to."""
        variable = self.program.variables[name]
        if name in self.ends:
            buckets: list[Value] = list(variable.domain.values)
            return [buckets[index] for index in np.flatnonzero(self.ends[name].exists)]
        return list(variable.domain.values) or ([] if variable.is_output else [*holdings(self.program, name)])

    def _vector(self, name: str, value: Value) -> Matrix:
        vector = np.zeros(self.layout.dim)
        for place, number in self.encoding.entries(name, value).items():
            vector[place] = number
        return vector

    def _antecedent(self, rule: Rule) -> frozenset[tuple[str, Value]]:
        """What decides whether a rule fires: a variable with one value does not."""
        return frozenset((c.variable, c.value) for c in rule.antecedent if len(self.values[c.variable]) > 1)

    def _check_frame(self) -> None:
        weights, program = self.weights, self.program
        _require(weights.activation in ("clipped", "relu"), f"there is no activation {weights.activation!r}")
        _require(len(weights.layers) == 1 if weights.shared else bool(weights.layers), "the layers do not add up")
        _require(weights.dim == self.layout.dim, "the residual stream does not have the program's width")
        _require(weights.vocabulary == program.tokens, "the vocabulary is not the program's")
        _require(weights.causal == program.causal, "the causal mask is not the program's")
        _require(
            program.positions is None or (weights.max_length is not None and weights.max_length <= program.positions),
            "the longest input is not stated",
        )
        matrices: list[tuple[str, Sparse | None]] = [("token embeddings", weights.tokens)]
        matrices += [("position embeddings", weights.positions), ("output", weights.output), ("halting", weights.halt)]
        for layer in weights.distinct:
            for head in layer.heads:
                parts = (head.query, head.key, head.value, head.output)
                matrices += [(f"head {head.name!r}", part) for part in parts]
                _require(head.bias is None or bool(np.isfinite(head.bias).all()), "relative biases are not finite")
            matrices += [("MLP", linear.weight) for linear in layer.mlp]
            _require(all(bool(np.isfinite(linear.bias).all()) for linear in layer.mlp), "MLP biases are not finite")
        for what, matrix in matrices:
            if matrix is None:
                continue
            _require(bool(np.isfinite(matrix.values).all()), f"{what}: there are weights that are not finite")
            places = matrix.rows.astype(np.int64) * matrix.shape[1] + matrix.columns
            _require(len(np.unique(places)) == len(places), f"{what}: two weights are in one place")

    # Embeddings

    def _check_embeddings(self) -> None:
        tokens = self.weights.tokens.dense()
        positions = None if self.weights.positions is None else self.weights.positions.dense()
        _require(tokens.shape[0] == len(self.program.tokens), "there is not one embedding for each token")
        from_position = any(isinstance(v.start, FromPosition) for v in self.program.variables.values())
        _require(from_position == (positions is not None), "position embeddings are there without use, or missing")
        if positions is not None:
            _require(positions.shape[0] == self.program.positions, "there is not one embedding for each position")
        for name, variable in self.program.variables.items():
            part = self.layout.slices[name]
            zero = np.zeros(part.stop - part.start)
            by_token: list[Matrix] = [zero] * len(tokens)
            by_position: list[Matrix] = [zero] * (0 if positions is None else len(positions))
            match variable.start:
                case FromToken(table):
                    by_token = [self._vector(name, value)[part] for value in table]
                case FromPosition(table):
                    by_position = [self._vector(name, value)[part] for value in table]
                case Constant(value):
                    by_token = [self._vector(name, value)[part]] * len(tokens)
                case Output():
                    pass
            for token, wanted in enumerate(by_token):
                if not np.array_equal(tokens[token, part], wanted):
                    _refuse(
                        f"the embedding of token {self.program.tokens[token]!r} does not start {name!r} where it should"
                    )
            for position, wanted in enumerate(by_position):
                assert positions is not None
                if not np.array_equal(positions[position, part], wanted):
                    _refuse(f"the embedding of position {position} does not start {name!r} where it should")

    def _check_layer(self, layer: Layer) -> float:
        names = [head.name for head in layer.heads]
        _require(names == list(self.program.heads), "the heads are not the program's")
        for head in layer.heads:
            self._check_head(self.program.heads[head.name], head)
        return self._check_mlp(layer.mlp)

    # Attention

    def _check_head(self, head: Head, weights: HeadWeights) -> None:
        which = f"head {head.name!r}"
        moved = weights.output.dense() @ weights.value.dense()
        wanted = np.zeros_like(moved)
        read = self.layout.slices[head.value]
        written = self.layout.slices[head.name].start
        for row in range(read.stop - read.start):
            wanted[written + row, read.start + row] = 1.0
        carried = np.array_equal(moved, wanted) and _one_each(weights.value) and _one_each(weights.output)
        _require(carried, f"{which} does not carry {head.value!r} to its output as it is")
        scores = weights.query.dense().T @ weights.key.dense()  # (own dim, other dim)
        query, key = self.layout.slices[head.query], self.layout.slices[head.key]
        inside = scores[query, key].copy()
        scores[query, key] = 0
        _require(not scores.any(), f"{which} matches on other variables than its query and key")
        by_key = self.tables[head.query][:, query] @ inside  # (query value, key value): the score of a pair
        keys = range(key.stop - key.start)
        matches = [[k in q if isinstance(q, frozenset) else k == q for k in keys] for q in self.values[head.query]]
        near, far = self._biases(head, weights, which)
        for row, matched in zip(by_key, np.array(matches), strict=True):
            if not matched.any():
                continue
            hits, misses = row[matched], row[~matched]
            sizes = np.abs(row).max() + np.abs([*near, *far]).max(initial=0)
            rounding = (4 * float(self.precision.rounding) + len(keys) * 2.0**-self.precision.sum_bits) * sizes
            below = [misses.max() + near.max()] if misses.size else []
            below += [row.max() + far.max()] if far.size else []
            gap = hits.min() + near.min() - max(below, default=-np.inf)
            _require(gap > self.precision.vanishing + rounding, f"{which} lets positions leak that do not match")
            if isinstance(self.program.variables[head.value].domain, Numerical):
                equal = hits.min() == hits.max() and near.min() == near.max()
                _require(bool(equal), f"{which} does not weigh the positions that it reads alike")

    def _biases(self, head: Head, weights: HeadWeights, which: str) -> tuple[Matrix, Matrix]:
        """The biases of positions within reach, and of those beyond."""
        if head.relative_positions is None:
            _require(weights.bias is None, f"{which} has relative biases, but reads at any distance")
            return np.zeros(1), np.zeros(0)
        if weights.bias is None:
            _refuse(f"{which} has no relative biases")
        reach = len(weights.bias) // 2
        enough = len(weights.bias) % 2 == 1 and reach > max(map(abs, head.relative_positions))
        _require(enough, f"{which} has too few relative biases")
        within = np.zeros(len(weights.bias), bool)
        within[[reach + offset for offset in head.relative_positions]] = True
        return weights.bias[within], weights.bias[~within]

    # The MLP

    def _check_mlp(self, mlp: tuple[Linear, ...]) -> float:
        paired = self.weights.activation == "relu"
        _require(len(mlp) in (2, 4), "the MLP has neither two layers nor four")
        _check_shapes(mlp, self.layout.dim)
        *first, hidden, last = _folded(mlp) if paired else mlp
        _require(not last.bias.any(), "the last layer of the MLP has a bias")
        read = self._second(first[0], first[1], paired) if first else self._residual()
        reset: dict[int, list[_Passed]] = {}
        remaining = dict.fromkeys(self.rules.values(), 1)
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
                slack = min(slack, self._check_units(block, read, remaining, paired))
        missing = next((rule for rule, count in remaining.items() if count), None)
        _require(missing is None, f"no unit makes the update {missing}")
        peaked = len(mlp) > 2
        self._check_resets(reset, peaked)
        return slack

    def _residual(self) -> _Read:
        """Where the rules' layer reads the residual stream itself."""
        numerical = np.array([isinstance(v.domain, Numerical) for v in self.program.variables.values()])[self.owner]
        features = {
            name: table.T
            for name, table in self.tables.items()
            if not isinstance(self.program.variables[name].domain, Numerical)
        }
        passed = {place: _Passed(place, 1.0, 1.0) for place in range(self.layout.dim)}
        return _Read(features, self.owner, np.ones(self.layout.dim), passed, numerical)

    def _second(self, first: Linear, second: Linear, paired: bool) -> _Read:
        """Where the rules' layer reads the second of two layers."""
        a, b = first.weight.by_row(), second.weight.by_row()
        owner = [self._owner(columns, "a unit of the first layer") for columns, _ in a]
        on: dict[int, tuple[Matrix, float]] = {}  # for each unit: what it is for each value, and how far it reaches
        for name in self.variables:
            mine = [unit for unit, index in enumerate(owner) if index == self.variables.index(name)]
            on |= self._first(name, {unit: (*a[unit], float(first.bias[unit])) for unit in mine}, paired)
        features = {name: np.zeros((len(b), len(values))) for name, values in self.values.items()}
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
            _require(len(owners) == 1 or (not owners and bias <= 0), "a unit of the second layer mixes variables")
            if not owners:
                continue
            index = owners.pop()
            if index is None:
                _refuse("a unit of the first layer depends on nothing")
            name = self.variables[index]
            depends_on[unit] = index
            value, large = np.full(len(self.values[name]), bias), np.zeros(len(self.values[name]))
            for column, factor in zip(columns, factors, strict=True):
                state, reach = on[int(column)]
                value = value + factor * state
                large = large + abs(factor) * reach * (state != 0)
            if np.isnan(value).any() or not len(value):
                opaque[unit] = True
                continue
            if paired:  # then steps that are on are only almost 1, so nothing may hang on it
                error = 16 * float(self.precision.rounding) * large
                exact = self._sums_exactly([*factors, bias]) or not value.any()
                _require(exact, f"a unit of the second layer on {name!r} does not sum without rounding")
                _require(bool(((value + error <= 0) | (error == 0)).all()), f"a step on {name!r} is rounded away")
            features[name][unit] = np.clip(value, 0, 1)
            if name in self.ends and name in self.program.heads:
                steps = [(factor, a[c][1][0], first.bias[c]) for c, factor in zip(columns, factors, strict=True)]
                peaks[unit] = self._peak(name, np.array(steps).reshape(-1, 3), bias)
        return _Read(features, depends_on, peaks, passed, opaque)

    def _peak(self, name: str, steps: Matrix, bias: float) -> float:
        """The most that a unit of the second layer can be for any number between the values of a head, be it a mean of
        them or a mixture: it is piecewise linear, so that is at a corner."""
        factors, scales, biases = steps.T
        values = holdings(self.program, self.program.heads[name].value)
        corners = np.concatenate([values, -biases / scales, (1 - biases) / scales])
        x = np.clip(corners, values[0], values[-1])
        states = np.clip(scales * x[:, None] + biases, 0, 1)
        sizes = np.abs(scales) * max(map(abs, values)) + np.abs(biases) + 1
        error = 16 * float(self.precision.rounding) * float(np.abs(factors) @ sizes)
        return float(np.clip((states @ factors + bias).max() + error, 0, 1))

    def _first(
        self, name: str, units: Mapping[int, tuple[NDArray[np.integer[Any]], Matrix, float]], paired: bool
    ) -> dict[int, tuple[Matrix, float]]:
        """What units of the first layer are for each value of a variable: nan where that is not known. For steps on
        numbers, also how large they get."""
        found: dict[int, tuple[Matrix, float]] = {}
        if not isinstance(self.program.variables[name].domain, Numerical):
            for unit, (columns, factors, bias) in units.items():
                if paired:
                    exact = self._sums_exactly([*factors, bias]) or (len(factors) == 1 and bias == 0)
                    _require(exact, f"a unit of the first layer on {name!r} does not sum without rounding")
                found[unit] = np.clip(self.tables[name][:, columns] @ factors + bias, 0, 1), 0.0
            return found
        for unit, (_, factors, bias) in units.items():
            if name not in self.ends:
                found[unit] = np.full(len(self.values[name]), np.nan), 0.0
                continue
            low, high = (end[self.ends[name].exists] for end in self.ends[name][:2])
            scale = float(factors[0])
            one, other = scale * low + bias, scale * high + bias
            least, most = np.minimum(one, other), np.maximum(one, other)
            size = abs(scale) * np.maximum(np.abs(low), np.abs(high))
            blur = self._blur(scale, bias, size) + 2.0**-50 * (size + abs(bias))
            rounding = float(self.precision.rounding)
            value = np.full(len(low), np.nan)
            value[(least - np.abs(least) * rounding - blur >= 1)] = 1
            value[(most + np.abs(most) * rounding + blur <= 0)] = 0
            found[unit] = value, abs(bias) + 1 + float(size.max(initial=0))
        return found

    def _blur(self, scale: float, bias: float, size: Matrix) -> Matrix:
        """How much rounding a step's weights and their product can bring, before the sum itself is rounded."""
        rounding = float(self.precision.rounding)
        found = np.zeros_like(size)
        if abs(np.frexp(scale)[0]) != 0.5:
            found = found + 2 * rounding * size
        if _rounded(bias, self.precision.bits) != bias:
            found = found + rounding * abs(bias)
        return found

    def _ends(self, name: str) -> _Ends:
        domain = self.program.variables[name].domain
        assert isinstance(domain, Numerical)
        if name not in self.program.heads:
            numbers = np.array([self.encoding.number(name, value) for value in domain.values])
            return _Ends(numbers, numbers, np.ones(len(numbers), bool))
        head = self.program.heads[name]
        found = spans(self.program, name, self.weights.max_length)
        most = longest_selection(self.program, head, self.weights.max_length)
        if found is None or most is None:
            _refuse(f"head {name!r} takes means over inputs of any length")
        values = holdings(self.program, head.value)
        shift = displacement(self.encoding, head.value)
        low, high = np.zeros(len(found)), np.zeros(len(found))
        for bucket, span in enumerate(found):
            if span is not None:
                errors = [rounding_of_mean(values, x, most, self.precision.rounding) + shift for x in span]
                low[bucket] = np.nextafter(float(span[0] - errors[0]), -np.inf)
                high[bucket] = np.nextafter(float(span[1] + errors[1]), np.inf)
        return _Ends(low, high, np.array([span is not None for span in found]))

    def _sums_exactly(self, numbers: Sequence[float]) -> bool:
        return bool(_sums_exactly(np.array([numbers]), self.precision.bits)[0])

    def _owner(self, places: NDArray[np.integer[Any]], what: str) -> int | None:
        owners = set(self.owner[places].tolist())
        _require(len(owners) <= 1, f"{what} mixes variables")
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
        name = self.variables[self.owner[place]]
        if place != places[0] or name not in self.program.heads:
            return False
        scale *= float(row[features[0]])
        exact = scale * update[place] == -1 and abs(np.frexp(scale)[0]) == 0.5
        _require(bool(exact), f"unit {unit} does not reset {name!r} exactly")
        reset.setdefault(place, []).append(_Passed(place, scale, max(peak, abs(scale))))
        return True

    def _check_resets(self, reset: Mapping[int, Sequence[_Passed]], peaked: bool) -> None:
        for name, head in self.program.heads.items():
            part = self.layout.slices[name]
            for place in range(part.start, part.stop):
                units = reset.get(place, ())
                scales = sorted(unit.scale for unit in units)
                peak = max((unit.peak if peaked else abs(unit.scale) for unit in units), default=0.0)
                if isinstance(self.program.variables[name].domain, Categorical):
                    fits = len(scales) == 1 and scales[0] > 0 and peak <= 0.5
                else:
                    largest = max(map(abs, holdings(self.program, head.value)), default=0.0)
                    fits = len(scales) == 2 and scales[0] == -scales[1] and peak * largest <= 0.5
                _require(fits, f"{name!r} is not reset once, and exactly")

    def _check_units(self, units: _Units, read: _Read, remaining: dict[Rule, int], paired: bool) -> float:
        """That each unit is 1 where the antecedent of a rule holds, 0 elsewhere, and makes that rule's update. Returns
        the least slack."""
        _require(not units.rows[:, read.opaque].any(), "a unit reads a number that is not one-hot")
        exact = _sums_exactly(np.column_stack([units.rows, units.biases]), self.precision.bits)
        _require(not paired or bool(exact.all()), "a unit does not have weights that sum without rounding")
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
            if self.program.variables[name].is_output:  # UNDEFINED is a mixture, which can bring this and no more
                mine = (units.rows * read.peaks)[:, read.owner == self.variables.index(name)]
                blind = wanted[name] | ~mine.any(axis=1)
                _require(not paired or bool(blind.all()), f"a unit that {name!r} does not decide reads it")
                exact &= blind
                above, low = np.maximum(mine, 0).sum(axis=1), np.minimum(mine, 0).sum(axis=1)
                blur += above * self.tolerance
            sizes += np.abs(part).max(axis=1)
            if part.shape[1] > 1:
                others = part.copy()
                others[np.arange(len(part)), chosen[name]] = -np.inf
                failing = np.where(wanted[name], np.maximum(failing, others.max(axis=1) - above), failing)
            least += np.where(wanted[name], highest[name], low)
            most += above
        rounding = (2.0**-self.precision.bits + 2.0**-self.precision.sum_bits * (len(parts) + 1)) * sizes
        alive = np.flatnonzero(most + blur + rounding > 0)
        if not len(alive):
            return float("inf")
        self._match(units, alive, wanted, chosen, remaining)
        on, off = least - np.where(exact, 0, blur + rounding) - 1, -(most + failing + blur + rounding)
        for slack, what in ((on, "on"), (off, "off")):
            worst = alive[slack[alive].argmin()]
            _require(slack[worst] >= 0, f"unit {units.numbers[worst]} is not fully {what} where it should be")
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
                antecedents[index].append((name, self.values[name][int(chosen[name][index])]))
        for index, antecedent in antecedents.items():
            unit = int(units.numbers[index])
            places = np.flatnonzero(units.updates[index])
            output = self.variables[self._owner(places, f"the update of unit {unit}") or 0]
            rule = self.rules.get((frozenset(antecedent), output))
            if rule is None:
                where = ", ".join(sorted(f"{name}={shown(value)}" for name, value in antecedent))
                _refuse(f"unit {unit} sets {output!r} where {where or 'it runs'}, but no rule does")
            old, new = (self.values[output].index(value) for value in (rule.old, rule.new))  # type: ignore[arg-type]
            expected = self.tables[output][new] - self.tables[output][old]
            right = np.array_equal(units.updates[index], expected)
            _require(right, f"unit {unit} does not change {output!r} as its rule does: {rule}")
            remaining[rule] -= 1
            _require(remaining[rule] >= 0, f"two units make the same update: {rule}")

    # Read-outs

    def _check_output(self) -> None:
        matrix = self.weights.output.dense()
        name = self.program.output
        wrong = f"the output projection does not read {name!r}"
        rest_low, rest_high = np.zeros(len(matrix)), np.zeros(len(matrix))
        pairs_low = np.zeros((len(matrix), len(matrix)))
        own = self.tables[name] @ matrix.T  # (value, logit)
        for other, table in self.tables.items():
            if other != name and not self.program.variables[other].is_output:
                logits = table @ matrix.T
                rest_low += logits.min(axis=0)
                rest_high += logits.max(axis=0)
                pairs_low += (logits[:, :, None] - logits[:, None, :]).min(axis=0)
        if isinstance(self.program.variables[name].domain, Categorical):
            _require(self.weights.output_values is None and len(matrix) == len(own), wrong)
            for value, logits in enumerate(own):
                ahead = logits[value] - logits + pairs_low[value]
                _require(bool((np.delete(ahead, value) > 1e-2).all()), wrong)
            return
        numbers = [float(value) for value in self.values[name]]  # type: ignore[arg-type]
        _require(len(matrix) == 1 and self.weights.output_values is not None, wrong)
        listed = sorted(self.weights.output_values or ())
        _require(set(holdings(self.program, name)) <= set(listed), wrong)
        gaps = [high - low for low, high in pairwise(listed)] or [1.0]
        for number, logits in zip(numbers, own, strict=True):
            if number in listed:
                low, high = logits[0] + rest_low[0] - number, logits[0] + rest_high[0] - number
                _require(max(abs(low), abs(high)) < min(gaps) / 3, wrong)

    def _check_halting(self) -> None:
        halt = self.program.halt
        _require((halt is None) == (self.weights.halt is None), "there is a halting read-out too many or too few")
        if halt is None or self.weights.halt is None:
            return
        row = self.weights.halt.dense()[0]
        low = high = 0.0
        for name, table in self.tables.items():
            if name != halt.variable and not self.program.variables[name].is_output:
                found = table @ row
                low, high = low + float(found.min()), high + float(found.max())
        for value, score in zip(self.values[halt.variable], self.tables[halt.variable] @ row, strict=True):
            right = score + low > 0.51 if value == halt.value else score + high < 0.49
            _require(bool(right), f"the halting read-out does not tell whether {halt.variable!r} is {halt.value}")


class _Units(NamedTuple):
    """Some units of the rules' layer."""

    numbers: NDArray[np.intp]
    rows: Matrix  # (unit, feature)
    biases: Matrix
    updates: Matrix  # (unit, dim)


def _require(holds: bool, otherwise: str) -> None:
    if not holds:
        _refuse(otherwise)


def _refuse(why: str) -> NoReturn:
    raise VerificationError(why)


def _sums_exactly(rows: Matrix, bits: int) -> NDArray[np.bool_]:
    """For each row, whether the sum of any of its numbers is exact: small multiples of a fraction of 1."""
    found = np.zeros(len(rows), bool)
    for fraction in (1, 2, 4, 8):
        scaled = rows * fraction
        found |= (scaled == np.round(scaled)).all(axis=1) & (np.abs(scaled).sum(axis=1) <= 2.0**bits)
    return found


def _one_each(matrix: Sparse) -> bool:
    """Whether no row and no column has two entries."""
    return all(len(np.unique(places)) == len(places) for places in (matrix.rows, matrix.columns))


def _check_shapes(mlp: Sequence[Linear], dim: int) -> None:
    inputs = dim
    for linear in mlp:
        fits = linear.weight.shape[1] == inputs and linear.bias.shape == (linear.weight.shape[0],)
        _require(fits, "the layers of the MLP do not fit together")
        inputs = linear.weight.shape[0]
    _require(inputs == dim, "the layers of the MLP do not fit together")


def _folded(mlp: Sequence[Linear]) -> tuple[Linear, ...]:
    """Pairs of plain ReLUs as one clipped unit each."""
    found: list[Linear] = []
    broken = "two plain ReLUs do not make one that is clipped"
    for number, linear in enumerate(mlp):
        weight, bias = linear.weight, linear.bias
        if number:
            _require(weight.shape[1] % 2 == 0, broken)
            half = weight.shape[1] // 2
            turned = weight.turned()
            one, other = turned.part(0, half).turned(), turned.part(half, 2 * half).turned()
            _require(_same(one, other.scaled(-1.0)), broken)
            weight = one
        if number < len(mlp) - 1:
            _require(weight.shape[0] % 2 == 0, broken)
            half = weight.shape[0] // 2
            one, other = weight.part(0, half), weight.part(half, 2 * half)
            _require(_same(one, other) and np.array_equal(bias[half:], bias[:half] - 1.0), broken)
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
