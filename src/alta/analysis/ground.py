"""What a certificate stands on: a model's program, and what its variables can hold, as the residual stream has it."""

from __future__ import annotations

from typing import Any, NamedTuple, NoReturn, TypeAlias

import numpy as np
from numpy.typing import NDArray

from alta.analysis.means import displacement, holdings, longest_selection, rounding_of_mean, spans
from alta.compiler.compile import encode
from alta.compiler.encoding import Encoding
from alta.compiler.layout import width
from alta.compiler.precision import Precision, precision_of
from alta.errors import VerificationError
from alta.language.program import Program
from alta.language.record import from_data
from alta.language.rules import Rule
from alta.language.variables import Numerical, Value
from alta.model.weights import Weights

Matrix: TypeAlias = NDArray[np.floating[Any]]


class Ends(NamedTuple):
    """For each bucket, the least and the largest number that stands for it, rounding included, and whether any does."""

    low: Matrix
    high: Matrix
    exists: NDArray[np.bool_]


class Ground:
    """What is known of a model before its weights are looked at."""

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
            name: np.array([self.vector(name, value) for value in values]).reshape(-1, self.layout.dim)
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

    def _values(self, name: str) -> list[Value]:
        """What a variable can hold. Of the buckets of a mean, those that some mean is snapped to."""
        variable = self.program.variables[name]
        if name in self.ends:
            buckets: list[Value] = list(variable.domain.values)
            return [buckets[index] for index in np.flatnonzero(self.ends[name].exists)]
        return list(variable.domain.values) or ([] if variable.is_output else [*holdings(self.program, name)])

    def vector(self, name: str, value: Value) -> Matrix:
        """A variable's value in the residual stream."""
        vector = np.zeros(self.layout.dim)
        for place, number in self.encoding.entries(name, value).items():
            vector[place] = number
        return vector

    def _antecedent(self, rule: Rule) -> frozenset[tuple[str, Value]]:
        """What decides whether a rule fires: a variable with one value does not."""
        return frozenset((c.variable, c.value) for c in rule.antecedent if len(self.values[c.variable]) > 1)

    def _ends(self, name: str) -> Ends:
        domain = self.program.variables[name].domain
        assert isinstance(domain, Numerical)
        if name not in self.program.heads:
            numbers = np.array([self.encoding.number(name, value) for value in domain.values])
            return Ends(numbers, numbers, np.ones(len(numbers), bool))
        head = self.program.heads[name]
        found = spans(self.program, name, self.weights.max_length)
        most = longest_selection(self.program, head, self.weights.max_length)
        if found is None or most is None:
            refuse(f"head {name!r} takes means over inputs of any length")
        values = holdings(self.program, head.value)
        shift = displacement(self.encoding, head.value)
        low, high = np.zeros(len(found)), np.zeros(len(found))
        for bucket, span in enumerate(found):
            if span is not None:
                errors = [rounding_of_mean(values, x, most, self.precision.rounding) + shift for x in span]
                low[bucket] = np.nextafter(float(span[0] - errors[0]), -np.inf)
                high[bucket] = np.nextafter(float(span[1] + errors[1]), np.inf)
        return Ends(low, high, np.array([span is not None for span in found]))


def require(holds: bool, otherwise: str) -> None:
    """Goes on where something holds; otherwise refuses the certificate."""
    if not holds:
        refuse(otherwise)


def refuse(why: str) -> NoReturn:
    """There is no certificate."""
    raise VerificationError(why)
