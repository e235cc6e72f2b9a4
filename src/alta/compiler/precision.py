"""What a number format can hold, and how numbers are placed in it so that sums of them are exact."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass
from fractions import Fraction

from alta.errors import CompileError


@dataclass(frozen=True, slots=True)
class Precision:
    """A floating-point format: its name, the bits of its significand, its largest exponent, and when exp vanishes."""

    name: str
    bits: int
    sum_bits: int  # of partial sums within a matrix product: all hardware adds up bfloat16 in float32
    exponent: int  # 2 ** exponent and its inverse are normal numbers
    vanishing: float  # exp(-x) is 0 for every x above this

    @property
    def rounding(self) -> Fraction:
        """The largest relative error of one operation."""
        return Fraction(1, 2**self.bits)


PRECISIONS = {
    precision.name: precision
    for precision in (
        Precision("float64", 53, 53, 1022, 745.2),
        Precision("float32", 24, 24, 126, 104.0),
        Precision("bfloat16", 8, 24, 126, 104.0),
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


def grid_for(name: str, values: Sequence[float], precision: Precision) -> Grid:
    """Fine enough to leave no more than two bits unused, for carries."""
    largest = max(map(abs, values), default=0.0)
    _, exponent = math.frexp(largest or 1.0)
    room = precision.exponent - precision.bits - 8  # for scales that tell buckets apart
    if abs(exponent) > room:
        raise CompileError(
            f"{name!r} holds {largest:g}, which is too {'large' if exponent > 0 else 'small'} to compute with in "
            f"{precision.name}; scale its values, or use a wider dtype"
        )
    return Grid(exponent - (precision.bits - 2))
