"""Where each variable lives in the residual stream."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import assert_never

from alta.language.program import Program
from alta.language.variables import Categorical, Domain, Numerical, SetOf


@dataclass(frozen=True)
class Layout:
    """A slice of the residual stream for each variable."""

    slices: Mapping[str, slice]
    dim: int

    def place(self, name: str, index: int = 0) -> int:
        """A dimension of a variable: for a categorical variable or a set, that of a value or member."""
        return int(self.slices[name].start) + index

    def __str__(self) -> str:
        return "\n".join(f"{part.start:6}..{part.stop - 1:<6} {name}" for name, part in self.slices.items())


def lay_out(program: Program) -> Layout:
    """One after another: a dimension for each value of a categorical variable and each possible member of a set, and
    one for a numerical variable."""
    slices, start = {}, 0
    for name, variable in program.variables.items():
        stop = start + width(variable.domain)
        slices[name] = slice(start, stop)
        start = stop
    return Layout(slices, start)


def width(domain: Domain) -> int:
    """The dimensions that a variable takes."""
    match domain:
        case Categorical(size) | SetOf(size, _):
            return size
        case Numerical():
            return 1
        case _:
            assert_never(domain)
