"""What a number format can hold, and how numbers are placed in it so that sums of them are exact."""

from __future__ import annotations

import math
from collections.abc import Iterable
from dataclasses import dataclass
from fractions import Fraction

from alta.errors import CompileError


@dataclass(frozen=True, slots=True)
class Precision:
    """A floating-point format: its name, the bits of its significand, and how negative an exponent exp survives."""

    name: str
    bits: int
    vanishing: float  # exp(-x) is 0 for every x above this

    @property
    def rounding(self) -> Fraction:
        """The largest relative error of one operation."""
        return Fraction(1, 2**self.bits)


PRECISIONS = {
    precision.name: precision
    for precision in (
        Precision("float64", 53, 745.2),
        Precision("float32", 24, 104.0),
        Precision("bfloat16", 8, 104.0),
    )
}


def precision_of(name: str) -> Precision:
    """The format of that name."""
    if name not in PRECISIONS:
        raise CompileError(f"there is no number format {name!r}; formats: {', '.join(PRECISIONS)}")
    return PRECISIONS[name]


@dataclass(frozen=True, slots=True)
class Grid:
    """Multiples of a power of two, `2 ** exponent`: sums and differences of a few of them are exact."""

    exponent: int

    def place(self, value: float) -> float:
        """The nearest multiple."""
        return math.ldexp(round(Fraction(value) / Fraction(2) ** self.exponent), self.exponent)


def grid_for(values: Iterable[float], precision: Precision) -> Grid:
    """Fine enough to leave no more than two bits unused, for carries."""
    largest = max((abs(value) for value in values), default=0.0)
    _, exponent = math.frexp(largest or 1.0)
    return Grid(exponent - (precision.bits - 2))
