"""Assignments as vectors, and back. This is the only place that knows how."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from fractions import Fraction
from typing import assert_never

import numpy as np

from alta.compiler.layout import Layout
from alta.compiler.precision import Grid
from alta.language.program import Program
from alta.language.variables import NULL, Categorical, Cell, Numerical, SetOf, Value
from alta.model.weights import Array


@dataclass(frozen=True)
class Encoding:
    """A categorical value is one-hot, a set is multi-hot, a number stands for itself, and NULL is all zeros."""

    program: Program
    layout: Layout
    grids: Mapping[str, Grid]  # for each numerical variable

    def entries(self, name: str, value: Value) -> dict[int, float]:
        """The dimensions that are not zero."""
        match self.program.variables[name].domain:
            case Categorical():
                assert isinstance(value, int)
                return {self.layout.place(name, value): 1.0}
            case SetOf():
                assert isinstance(value, frozenset)
                return {self.layout.place(name, member): 1.0 for member in value}
            case Numerical():
                assert not isinstance(value, frozenset)
                return {self.layout.place(name): self.number(name, value)}
            case domain:
                assert_never(domain)

    def number(self, name: str, value: float | Fraction) -> float:
        """What stands for a number."""
        return self.grids[name].place(float(value))

    def vector(self, assignment: Mapping[str, Cell]) -> Array:
        """The assignment, all of it."""
        found = np.zeros(self.layout.dim)
        for name, value in assignment.items():
            if value is NULL:
                continue
            for place, number in self.entries(name, value).items():  # type: ignore[arg-type]
                found[place] = number
        return found
