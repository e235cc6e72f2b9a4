"""That a model does what its program does, shown from its weights as they are.

The argument is an induction over sub-layers: if the residual stream encodes a state exactly, so it does after the next
sub-layer. `verify` checks every step of it for all inputs at once. Since each part of a model is a sum over variables,
the largest and smallest of what a unit can receive is found variable by variable, without enumerating states.

Of the compiler this shares the layout, the encoding and the bounds on rounding; how weights are made, it does not look
at.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from fractions import Fraction
from itertools import pairwise
from typing import Any, NamedTuple, TypeAlias

import numpy as np
from numpy.typing import NDArray

from alta.compiler.compile import encode
from alta.compiler.encoding import Encoding
from alta.compiler.layout import width
from alta.compiler.precision import Precision, precision_of
from alta.compiler.thresholds import around, held, mean_error, most_selected
from alta.errors import VerificationError
from alta.interpreter.run import run
from alta.interpreter.trace import Assignment
from alta.language.program import Head, Program, Token
from alta.language.record import from_data
from alta.language.rules import Rule
from alta.language.variables import (
    NULL,
    UNDEFINED,
    Categorical,
    Constant,
    FromPosition,
    FromToken,
    Numerical,
    Output,
    Value,
    format_value,
)
from alta.model.forward import Model
from alta.model.weights import Head as HeadWeights
from alta.model.weights import Linear, Weights

Row: TypeAlias = NDArray[np.floating[Any]]


@dataclass(frozen=True)
class Certificate:
    """What has been shown of a model, and under which conditions it holds."""

    dtype: str
    max_length: int | None
    rules: int
    units: int
    heads: int
    smallest_slack: float  # of a rule's unit: how far it is from being neither on nor off
    inputs: int = 0  # that were also run side by side

    def __str__(self) -> str:
        length = "any length" if self.max_length is None else f"up to {self.max_length} tokens"
        lines = [
            f"certified: the model does what its program does, on every input of {length} that meets no trap,",
            f"in {self.dtype} and wider formats",
            f"  {self.rules:,} rules in {self.units:,} units, {self.heads} heads; slack {self.smallest_slack:g}",
        ]
        if self.inputs:
            lines.append(f"  and side by side on {self.inputs:,} inputs: the same state after every sub-layer")
        return "\n".join(lines)


def verify(
    model: Model, inputs: Iterable[Sequence[Token]] | None = None, *, max_layers: int | None = None
) -> Certificate:
    """A certificate that the model agrees with its program, or VerificationError, which says where it does not.

    With `inputs`, interpreter and model are also run side by side on each of them.
    """
    checker = _Checker(model.weights)
    certificate = checker.check()
    count = 0
    for given in inputs or ():
        compare(model, given, max_layers=max_layers)
        count += 1
    return Certificate(**{**vars(certificate), "inputs": count})


def compare(model: Model, inputs: Sequence[Token], *, max_layers: int | None = None) -> None:
    """Runs interpreter and model side by side; VerificationError names the first difference."""
    checker = _Checker(model.weights)
    expected = run(checker.program, inputs, max_layers)
    found = model.run(inputs, max_layers, residual=True)
    encoding = checker.encoding
    for (name, state), residual in zip(expected.trace.states, found.residual, strict=False):
        for position, assignment in enumerate(state):
            _compare_position(encoding, assignment, residual[position], name, position)
    if (expected.layers, expected.halted) != (found.layers, found.halted):
        raise VerificationError(
            f"on {list(inputs)!r} the program runs {expected.layers} layers, halted: {expected.halted}; "
            f"the model {found.layers}, halted: {found.halted}"
        )
    if expected.outputs != found.outputs:
        raise VerificationError(f"on {list(inputs)!r} the program gives {expected.outputs}, the model {found.outputs}")


def _compare_position(encoding: Encoding, assignment: Assignment, vector: Row, after: str, position: int) -> None:
    for name, value in assignment.items():
        if value is UNDEFINED:
            continue
        part = vector[encoding.layout.slices[name]]
        expected = np.zeros(len(part))
        start = encoding.layout.slices[name].start
        if value is not NULL:
            for place, number in encoding.entries(name, value).items():
                expected[place - start] = number
        largest = max(1.0, float(np.abs(expected).max()))
        if np.abs(part - expected).max() > 1e-4 * largest:
            raise VerificationError(
                f"after {after}, position {position}: {name!r} is {format_value(value)} in the program, but the model "
                f"has {np.array2string(part, precision=4, threshold=12)}"
            )


class _Passed(NamedTuple):
    """A unit that passes a dimension on: times `scale`, and nowhere on its way times more than `peak`."""

    place: int
    scale: float
    peak: float


class _Checker:
    """Checks one set of weights, part by part."""

    def __init__(self, weights: Weights) -> None:
        self.weights = weights
        self.program: Program = from_data(weights.program)
        self.precision: Precision = precision_of(weights.dtype)
        self.encoding: Encoding = encode(self.program, self.precision)
        self.layout = self.encoding.layout
        self.rules = {
            (frozenset((c.variable, c.value) for c in rule.antecedent), rule.output): rule
            for rule in self.program.rules.core
        }
        self.tolerance = 1e-3 if self.precision.bits > 10 else 0.05  # by which mixtures may exceed 1
        self.tables: dict[str, dict[Value, Row]] = {
            name: {value: self._vector(name, value) for value in variable.domain.values or held(self.program, name)}
            for name, variable in self.program.variables.items()
            if not variable.is_output or variable.domain.values
        }
        self.owner = np.concatenate(
            [np.full(width(v.domain), i) for i, v in enumerate(self.program.variables.values())]
        )

    def check(self) -> Certificate:
        """The whole argument."""
        self._require(self.weights.dim == self.layout.dim, "the residual stream does not have the program's width")
        self._require(self.weights.vocabulary == self.program.tokens, "the vocabulary is not the program's")
        self._require(self.weights.causal == self.program.causal, "the causal mask is not the program's")
        lengths = [n for n in (self.program.positions, self.weights.max_length) if n is not None]
        self._require(
            self.program.positions is None or self.weights.max_length == min(lengths), "the longest input is not stated"
        )
        self._check_finite()
        self._check_embeddings()
        self._require(
            [head.name for head in self.weights.heads] == list(self.program.heads), "the heads are not the program's"
        )
        for head in self.weights.heads:
            self._check_head(self.program.heads[head.name], head)
        slack = self._check_mlp()
        self._check_output()
        self._check_halting()
        return Certificate(
            dtype=self.weights.dtype,
            max_length=self.weights.max_length,
            rules=len(self.program.rules),
            units=self.weights.mlp[-1].weight.shape[1],
            heads=len(self.weights.heads),
            smallest_slack=slack,
        )

    def _require(self, holds: bool, otherwise: str) -> None:
        if not holds:
            raise VerificationError(otherwise)

    def _vector(self, name: str, value: Value) -> Row:
        vector = np.zeros(self.layout.dim)
        for place, number in self.encoding.entries(name, value).items():
            vector[place] = number
        return vector

    def _check_finite(self) -> None:
        for linear in self.weights.mlp:
            finite = np.isfinite(linear.weight.values).all() and np.isfinite(linear.bias).all()
            self._require(bool(finite), "the MLP has weights that are not finite")

    # Embeddings

    def _check_embeddings(self) -> None:
        tokens = self.weights.tokens.dense()
        positions = None if self.weights.positions is None else self.weights.positions.dense()
        self._require(tokens.shape[0] == len(self.program.tokens), "there is not one embedding for each token")
        from_position = any(isinstance(v.start, FromPosition) for v in self.program.variables.values())
        self._require(from_position == (positions is not None), "position embeddings are there without use, or missing")
        if positions is not None:
            self._require(positions.shape[0] == self.program.positions, "there is not one embedding for each position")
        for name, variable in self.program.variables.items():
            part = self.layout.slices[name]
            zero = np.zeros(part.stop - part.start)
            by_token: list[Row] = [zero] * len(tokens)
            by_position: list[Row] = [zero] * (0 if positions is None else len(positions))
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
                self._require(
                    np.array_equal(tokens[token, part], wanted),
                    f"the embedding of token {self.program.tokens[token]!r} does not start {name!r} where it should",
                )
            for position, wanted in enumerate(by_position):
                assert positions is not None
                self._require(
                    np.array_equal(positions[position, part], wanted),
                    f"the embedding of position {position} does not start {name!r} where it should",
                )

    # Attention

    def _check_head(self, head: Head, weights: HeadWeights) -> None:
        which = f"head {head.name!r}"
        moved = weights.output.dense() @ weights.value.dense()
        wanted = np.zeros_like(moved)
        read = self.layout.slices[head.value]
        written = self.layout.slices[head.name].start
        for row in range(read.stop - read.start):
            wanted[written + row, read.start + row] = 1.0
        self._require(np.array_equal(moved, wanted), f"{which} does not carry {head.value!r} to its output as it is")
        scores = weights.query.dense().T @ weights.key.dense()  # (own dim, other dim)
        query, key = self.layout.slices[head.query], self.layout.slices[head.key]
        inside = scores[query, key].copy()
        scores[query, key] = 0
        self._require(not scores.any(), f"{which} matches on other variables than its query and key")
        queries = np.array([self._vector(head.query, value)[query] for value in self._values(head.query)])
        by_key = queries @ inside  # (query value, key value): the score of a pair
        matches = np.array([[k in q if isinstance(q, frozenset) else k == q for k in range(key.stop - key.start)]
                            for q in self._values(head.query)])  # fmt: skip
        near, far = self._biases(head, weights, which)
        gap = self.precision.vanishing
        for row, matched in zip(by_key, matches, strict=True):
            if not matched.any():
                continue
            hits, misses = row[matched], row[~matched]
            rounding = float(self.precision.rounding) * 8 * (np.abs(row).max() + np.abs([*near, *far]).max(initial=0))
            lowest = hits.min() + near.min()
            below = [misses.max() + near.max()] if misses.size else []
            below += [row.max() + far.max()] if far.size else []
            self._require(
                not below or lowest - max(below) > gap + rounding, f"{which} lets positions leak that do not match"
            )
            if isinstance(self.program.variables[head.value].domain, Numerical):
                equal = hits.min() == hits.max() and near.min() == near.max()
                self._require(bool(equal), f"{which} does not weigh the positions that it reads alike")

    def _biases(self, head: Head, weights: HeadWeights, which: str) -> tuple[Row, Row]:
        """The biases of positions within reach, and of those beyond."""
        if head.relative_positions is None:
            self._require(weights.bias is None, f"{which} has relative biases, but reads at any distance")
            return np.zeros(1), np.zeros(0)
        self._require(weights.bias is not None, f"{which} has no relative biases")
        assert weights.bias is not None
        reach = len(weights.bias) // 2
        self._require(
            len(weights.bias) % 2 == 1 and reach > max(map(abs, head.relative_positions)),
            f"{which} has too few relative biases",
        )
        places = [reach + offset for offset in head.relative_positions]
        within = np.zeros(len(weights.bias), bool)
        within[places] = True
        return weights.bias[within], weights.bias[~within]

    def _values(self, name: str) -> list[Value]:
        return list(self.program.variables[name].domain.values)

    # The MLP

    def _check_mlp(self) -> float:
        *first, hidden, last = self.weights.mlp
        self._require(len(first) in (0, 2), "the MLP has neither two layers nor four")
        self._require(not last.bias.any(), "the last layer of the MLP has a bias")
        updates = last.weight.dense().T  # (unit, dim)
        rows = hidden.weight.dense()  # (unit, feature)
        if first:
            features, linear, opaque = self._features(first[0], first[1])
        else:
            features = {
                name: np.array(list(table.values())).T
                for name, table in self.tables.items()
                if not isinstance(self.program.variables[name].domain, Numerical)
            }
            linear = {place: _Passed(place, 1.0, 1.0) for place in range(self.layout.dim)}
            numerical = [isinstance(v.domain, Numerical) for v in self.program.variables.values()]
            opaque = np.array(numerical)[self.owner]
        remaining = Counter(self.program.rules.core)
        contributions = {name: rows @ table for name, table in features.items()}  # (unit, value)
        reset: dict[int, list[_Passed]] = {}
        slack = float("inf")
        for unit in range(len(rows)):
            if not updates[unit].any():
                continue
            if self._is_reset(unit, rows[unit], float(hidden.bias[unit]), updates[unit], linear, reset):
                continue
            self._require(not rows[unit, opaque].any(), f"unit {unit} reads a number that is not one-hot")
            parts = {name: table[unit] for name, table in contributions.items() if table.shape[1]}
            rule = self._rule_of(unit, parts, updates[unit])
            slack = min(slack, self._check_unit(unit, rule, parts, float(hidden.bias[unit])))
            self._check_update(unit, rule, updates[unit])
            remaining[rule] -= 1
            self._require(remaining[rule] >= 0, f"two units make the same update: {rule}")
        missing = next((rule for rule, count in remaining.items() if count), None)
        self._require(missing is None, f"no unit makes the update {missing}")
        self._check_resets(reset)
        return slack

    def _features(self, first: Linear, second: Linear) -> tuple[dict[str, Row], dict[int, _Passed], NDArray[np.bool_]]:
        """For each variable, what the second layer's units are for each of its values; the units that only pass a
        dimension on; and those that are no function of a value."""
        a, b = first.weight.dense(), second.weight.dense()
        owner = [self._owner(np.flatnonzero(row), "a unit of the first layer") for row in a]
        features: dict[str, Row] = {
            name: np.zeros((len(b), len(self._values(name)))) if variable.domain.values else np.zeros((len(b), 0))
            for name, variable in self.program.variables.items()
        }
        names = list(self.program.variables)
        linear: dict[int, _Passed] = {}
        steps: dict[str, Row] = {}
        raw = self._raw(a, first.bias, owner)
        opaque = np.asarray((b[:, raw] != 0).any(axis=1))
        for unit, row in enumerate(b):
            used = np.flatnonzero(row)
            places = np.flatnonzero(a[used[0]]) if len(used) == 1 else np.zeros(0, np.intp)
            if len(places) == 1 and first.bias[used[0]] == 0 and second.bias[unit] == 0:
                scale = float(a[used[0], places[0]])
                passed = scale * float(row[used[0]])
                linear[unit] = _Passed(int(places[0]), passed, max(abs(scale), abs(passed)))
            owners = {owner[u] for u in used} - {None}
            self._require(len(owners) <= 1, "a unit of the second layer mixes variables")
            if not owners:
                continue
            name = names[owners.pop() or 0]
            if name not in steps:
                mine = np.array([index == names.index(name) for index in owner])
                steps[name] = self._first_layer(name, a, first.bias, np.flatnonzero(mine & ~raw))
            features[name][unit] = np.clip(row @ steps[name] + second.bias[unit], 0, 1)
        constant = [u for u, o in enumerate(owner) if o is None]
        self._require(not b[:, constant].any(), "a unit of the first layer depends on nothing")
        for unit, row in enumerate(b):
            self._require(bool(row.any()) or second.bias[unit] <= 0, "a unit of the second layer depends on nothing")
        return features, linear, opaque

    def _raw(self, a: Row, bias: Row, owner: Sequence[int | None]) -> NDArray[np.bool_]:
        """Which units of the first layer pass a number on as it is, or see one that has no buckets."""
        names = list(self.program.variables)
        found = np.zeros(len(a), bool)
        for unit, index in enumerate(owner):
            if index is not None and isinstance(domain := self.program.variables[names[index]].domain, Numerical):
                found[unit] = not domain.values or (bias[unit] == 0 and np.abs(a[unit]).max() <= 1)
        return found

    def _owner(self, places: NDArray[np.intp], what: str) -> int | None:
        owners = set(self.owner[places].tolist())
        self._require(len(owners) <= 1, f"{what} mixes variables")
        return owners.pop() if owners else None

    def _first_layer(self, name: str, a: Row, bias: Row, units: NDArray[np.intp]) -> Row:
        """What the first layer's units are for each value of a variable. (unit, value)"""
        values = self._values(name)
        found = np.zeros((len(a), len(values)))
        if not isinstance(self.program.variables[name].domain, Numerical):
            for index, value in enumerate(values):
                found[units, index] = np.clip(a[units] @ self._vector(name, value) + bias[units], 0, 1)
            return found
        place = self.layout.place(name)
        spans = self._spans(name)
        raw = self._raw(
            a, bias, [list(self.program.variables).index(name) if u in set(units) else None for u in range(len(a))]
        )
        for unit in units:
            if raw[unit]:
                continue
            scale, offset = Fraction(float(a[unit, place])), Fraction(float(bias[unit]))
            for index, span in enumerate(spans):
                if span is None:
                    continue
                ends = sorted(scale * x + offset for x in span)
                blur = 4 * self.precision.rounding * (abs(scale) * max(map(abs, span)) + abs(offset))
                self._require(
                    ends[0] - blur >= 1 or ends[1] + blur <= 0,
                    f"a step on {name!r} is neither 0 nor 1 near bucket {values[index]}",
                )
                found[unit, index] = float(ends[0] - blur >= 1)
        return found

    def _spans(self, name: str) -> list[tuple[Fraction, Fraction] | None]:
        """For each bucket, the least and the largest number that stands for it, rounding included."""
        domain = self.program.variables[name].domain
        assert isinstance(domain, Numerical)
        if name not in self.program.heads:
            return [(Fraction(n), Fraction(n)) for n in (self.encoding.number(name, value) for value in domain.values)]
        head = self.program.heads[name]
        values = [Fraction(value) for value in held(self.program, head.value)]
        most = most_selected(self.program, head, self.weights.max_length)
        shift = max(abs(Fraction(self.encoding.number(head.value, float(value))) - value) for value in values)
        edges = [(Fraction(low) + Fraction(high)) / 2 for low, high in pairwise(domain.values)]
        near = [around(edge, values, most) for edge in edges]
        lows: list[Fraction | None] = [min(values), *(above for _, above in near)]
        highs: list[Fraction | None] = [*(below for below, _ in near), max(values)]
        found: list[tuple[Fraction, Fraction] | None] = []
        for low, high in zip(lows, highs, strict=True):
            if low is None or high is None or low > high:  # no mean is nearest to this bucket
                found.append(None)
                continue
            error = shift + max(
                mean_error([float(v) for v in values], abs(x), most, self.precision) for x in (low, high)
            )
            found.append((low - error, high + error))
        return found

    def _is_reset(
        self,
        unit: int,
        row: Row,
        bias: float,
        update: Row,
        linear: Mapping[int, _Passed],
        reset: dict[int, list[_Passed]],
    ) -> bool:
        """Whether the unit takes some of an attention output away from it, without rounding."""
        features, places = np.flatnonzero(row), np.flatnonzero(update)
        if len(features) != 1 or len(places) != 1 or bias != 0 or int(features[0]) not in linear:
            return False
        place, scale, peak = linear[int(features[0])]
        name = list(self.program.variables)[self.owner[place]]
        if place != places[0] or name not in self.program.heads:
            return False
        scale *= float(row[features[0]])
        exact = scale * update[place] == -1 and abs(np.frexp(scale)[0]) == 0.5
        self._require(bool(exact), f"unit {unit} does not reset {name!r} exactly")
        reset.setdefault(place, []).append(
            _Passed(place, scale, max(peak if len(self.weights.mlp) > 2 else 0.0, abs(scale)))
        )
        return True

    def _check_resets(self, reset: Mapping[int, Sequence[_Passed]]) -> None:
        for name, head in self.program.heads.items():
            domain = self.program.variables[name].domain
            part = self.layout.slices[name]
            for place in range(part.start, part.stop):
                units = reset.get(place, ())
                scales = sorted(unit.scale for unit in units)
                peak = max((unit.peak for unit in units), default=0.0)
                if isinstance(domain, Categorical):
                    fits = len(scales) == 1 and scales[0] > 0 and peak <= 0.5
                else:
                    largest = max(map(abs, held(self.program, head.value)), default=0.0)
                    fits = len(scales) == 2 and scales[0] == -scales[1] and peak * largest <= 0.5
                self._require(fits, f"{name!r} is not reset once, and exactly")

    def _rule_of(self, unit: int, parts: Mapping[str, Row], update: Row) -> Rule:
        """The rule that has the antecedent and the output of a unit."""
        output = list(self.program.variables)[self._owner(np.flatnonzero(update), f"the update of unit {unit}") or 0]
        largest = max((float(part.max()) for part in parts.values()), default=0.0)
        antecedent = frozenset(
            (name, self._values(name)[int(part.argmax())])
            for name, part in parts.items()
            if part.max() > largest / 2 and (len(part) == 1 or part.max() > part.min())
        )
        rule = self.rules.get((antecedent, output))
        if rule is None:
            where = ", ".join(sorted(f"{name}={format_value(value)}" for name, value in antecedent))
            raise VerificationError(f"unit {unit} sets {output!r} where {where}, but no rule does")
        return rule

    def _check_unit(self, unit: int, rule: Rule, parts: Mapping[str, Row], bias: float) -> float:
        """That the unit is 1 where the rule's antecedent holds, and 0 elsewhere. Returns the slack."""
        wanted = {c.variable: c.value for c in rule.antecedent}
        least = most = bias
        sizes = abs(bias)
        failing = float("-inf")
        blur = 0.0
        for name, part in parts.items():
            variable = self.program.variables[name]
            above = float(part.max())
            if variable.is_output:  # an UNDEFINED output is a mixture, and counts for no more than this
                total = float(part[part > 0].sum()) if isinstance(variable.domain, Numerical) else max(above, 0.0)
                blur += total * self.tolerance
                above = max(above, total)
            sizes += float(np.abs(part).max())
            if name in wanted:
                index = self._values(name).index(wanted[name])
                others = np.delete(part, index)
                least += float(part[index])
                if others.size:
                    failing = max(failing, float(others.max()) - above)
            else:
                least += float(part.min() if not variable.is_output else min(part.min(), 0.0, -abs(part).max() * 2))
            most += above
        blur += float(self.precision.rounding) * sizes * (len(parts) + 1)
        on, off = least - blur - 1, -(most + failing + blur)
        self._require(on >= 0, f"unit {unit} is not fully on where it should be: {rule}")
        self._require(off >= 0, f"unit {unit} is not fully off where it should be: {rule}")
        return min(on, off)

    def _check_update(self, unit: int, rule: Rule, update: Row) -> None:
        assert rule.new is not NULL
        old, new = self._vector(rule.output, rule.old), self._vector(rule.output, rule.new)
        for place in np.flatnonzero((old != 0) | (new != 0) | (update != 0)):
            exact = Fraction(old[place]) + Fraction(float(update[place])) == Fraction(new[place])
            self._require(exact, f"unit {unit} does not change {rule.output!r} as its rule does: {rule}")

    # Read-outs

    def _check_output(self) -> None:
        matrix = self.weights.output.dense()
        name = self.program.output
        domain = self.program.variables[name].domain
        own = {value: matrix @ self._vector(name, value) for value in domain.values}
        rest_low, rest_high = np.zeros(len(matrix)), np.zeros(len(matrix))
        pairs_low = np.zeros((len(matrix), len(matrix)))
        for other, table in self.tables.items():
            if other != name and not self.program.variables[other].is_output:
                logits = np.array([matrix @ vector for vector in table.values()])  # (value, logit)
                rest_low += logits.min(axis=0)
                rest_high += logits.max(axis=0)
                pairs_low += (logits[:, :, None] - logits[:, None, :]).min(axis=0)
        wrong = f"the output projection does not read {name!r}"
        if isinstance(domain, Categorical):
            self._require(self.weights.output_values is None and len(matrix) == domain.size, wrong)
            for value, logits in own.items():
                assert isinstance(value, int)
                ahead = logits[value] - logits + pairs_low[value]
                self._require(bool((np.delete(ahead, value) > 1e-2).all()), wrong)
            return
        self._require(self.weights.output_values == domain.values and len(matrix) == 1, wrong)
        assert isinstance(domain, Numerical)
        gaps = [high - low for low, high in pairwise(domain.values)] or [1.0]
        for number, logits in zip(domain.values, own.values(), strict=True):
            assert isinstance(number, float)
            low, high = logits[0] + rest_low[0] - number, logits[0] + rest_high[0] - number
            self._require(max(abs(low), abs(high)) < min(gaps) / 3, wrong)

    def _check_halting(self) -> None:
        halt = self.program.halt
        self._require((halt is None) == (self.weights.halt is None), "there is a halting read-out too many or too few")
        if halt is None or self.weights.halt is None:
            return
        row = self.weights.halt.dense()[0]
        low = high = 0.0
        for name, table in self.tables.items():
            if name != halt.variable and not self.program.variables[name].is_output:
                found = [float(row @ vector) for vector in table.values()]
                low, high = low + min(found), high + max(found)
        for value, vector in self.tables[halt.variable].items():
            score = float(row @ vector)
            right = score + low > 0.51 if value == halt.value else score + high < 0.49
            self._require(right, f"the halting read-out does not tell whether {halt.variable!r} is {halt.value}")
