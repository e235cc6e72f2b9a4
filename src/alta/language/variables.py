"""Variables: their kinds, their domains, where they start, and the two values that are no value."""

from __future__ import annotations

import enum
import math
import operator
from bisect import bisect_left
from collections.abc import Iterable, Set
from dataclasses import dataclass, field
from fractions import Fraction
from itertools import pairwise
from typing import Final, Literal, TypeAlias

from alta.errors import ProgramError


class Missing(enum.Enum):
    """What an attention output holds when it holds no value.

    >>> alta.NULL, alta.UNDEFINED
    (NULL, UNDEFINED)
    >>> after_attention, after_mlp = alta.run(program, ["START", "1"]).trace.states[1:]
    >>> after_attention[1][0]["done_left"], after_mlp[1][0]["done_left"]
    (UNDEFINED, NULL)
    """

    NULL = "∅"
    UNDEFINED = "?"

    def __repr__(self) -> str:
        return self.name

    __str__ = __repr__


NULL: Final = Missing.NULL
"""The deliberate empty value of an attention output: before the first attention, and after every MLP."""

UNDEFINED: Final = Missing.UNDEFINED
"""An attention output that has no meaning. Reading it is an error."""

Value: TypeAlias = int | float | Fraction | frozenset[int]
"""What a variable holds: an int, a float, a frozenset, or, for the mean that a head has taken, a Fraction."""

Cell: TypeAlias = Value | Literal[Missing.NULL, Missing.UNDEFINED]
"""What an assignment holds for a variable."""


class OutsideDomainError(Exception):
    """A value that is not in a domain; the message says what was allowed, and `variable` whose domain it is."""

    variable: str | None = None


@dataclass(frozen=True, slots=True)
class Categorical:
    """The integers 0..size-1."""

    size: int

    def __post_init__(self) -> None:
        if isinstance(self.size, bool) or not isinstance(self.size, int) or self.size < 1:
            raise ProgramError(f"the range of a variable is a whole number of values, 1 or more; got {self.size!r}")

    @property
    def values(self) -> tuple[int, ...]:
        return tuple(range(self.size))

    def admit(self, value: object) -> int:
        """The value as a member of the domain; a bool counts as an int."""
        try:
            number = operator.index(value)  # type: ignore[arg-type]
        except TypeError:
            raise OutsideDomainError(f"{value!r} is no integer; allowed are {self}") from None
        if not 0 <= number < self.size:
            raise OutsideDomainError(f"{number} is outside {self}")
        return number

    def __str__(self) -> str:
        return f"0..{self.size - 1}"


@dataclass(frozen=True, slots=True)
class Numerical:
    """A float. What the MLP sees of it is the nearest of `values`, its buckets.

    `values` may be empty for a variable that the MLP neither reads nor sets.
    """

    values: tuple[float, ...] = ()
    _edges: tuple[Fraction, ...] = field(init=False, repr=False, compare=False)

    def __post_init__(self) -> None:
        values = tuple(_bucket(value) for value in _as_tuple(self.values, "the buckets of a numerical variable"))
        for low, high in pairwise(values):
            if low == high:
                raise ProgramError(f"bucket {low!r} is listed twice; list each bucket once, in ascending order")
            if low > high:
                raise ProgramError(f"buckets are listed in ascending order; {high!r} comes after {low!r}")
        object.__setattr__(self, "values", values)
        edges = tuple((Fraction(low) + Fraction(high)) / 2 for low, high in pairwise(values))
        object.__setattr__(self, "_edges", edges)

    def admit(self, value: object) -> float:
        """The value as a member of the domain: one of the buckets, or any finite float if there are none."""
        try:
            number = _number(value)
        except TypeError:
            raise OutsideDomainError(f"{value!r} is no number; allowed are {self}") from None
        place = bisect_left(self.values, number)
        if self.values[place : place + 1] != (number,) if self.values else not math.isfinite(number):
            raise OutsideDomainError(f"{number!r} is not among {self}")
        return number

    def snap(self, value: float | Fraction) -> float:
        """The nearest bucket; a tie goes to the lower. Exact: no rounding decides."""
        return self.values[bisect_left(self._edges, Fraction(value))]

    def __str__(self) -> str:
        if not self.values:
            return "the finite floats"
        if len(self.values) <= 8:
            return "the buckets " + ", ".join(f"{value:g}" for value in self.values)
        return f"the {len(self.values)} buckets {self.values[0]:g}..{self.values[-1]:g}"


@dataclass(frozen=True, slots=True)
class SetOf:
    """One of a declared tuple of sets of the integers 0..size-1."""

    size: int
    values: tuple[frozenset[int], ...]

    def __post_init__(self) -> None:
        members = Categorical(self.size)
        sets: list[frozenset[int]] = []
        for candidate in _as_tuple(self.values, "the values of a set variable"):
            try:
                sets.append(frozenset(members.admit(item) for item in candidate))  # type: ignore[attr-defined]
            except TypeError:
                raise ProgramError(f"each value of a set variable is a set of integers; got {candidate!r}") from None
            except OutsideDomainError as error:
                raise ProgramError(f"a value of the set variable has a member out of range: {error}") from None
        if not sets:
            raise ProgramError("a set variable needs at least one set in `values`")
        if len(set(sets)) < len(sets):
            twice = next(item for item in sets if sets.count(item) > 1)
            raise ProgramError(f"the set {format_value(twice)} is listed twice in `values`")
        object.__setattr__(self, "values", tuple(sets))

    def admit(self, value: object) -> frozenset[int]:
        """The value as a member of the domain."""
        if not isinstance(value, Set):
            raise OutsideDomainError(f"{value!r} is no set; allowed are {self}")
        candidate = frozenset(value)
        if candidate not in self.values:
            raise OutsideDomainError(f"{format_value(candidate)} is not among {self}")
        return frozenset(int(item) for item in candidate)

    def __str__(self) -> str:
        if len(self.values) <= 6:
            return "the sets " + ", ".join(map(format_value, self.values))
        return f"the {len(self.values)} declared sets"


Domain: TypeAlias = Categorical | Numerical | SetOf


@dataclass(frozen=True, slots=True)
class FromToken:
    """A variable that starts from the token: `table[i]` is its value for the i-th token of the program."""

    table: tuple[Value, ...]


@dataclass(frozen=True, slots=True)
class FromPosition:
    """A variable that starts from the position: `table[i]` is its value at position i."""

    table: tuple[Value, ...]


@dataclass(frozen=True, slots=True)
class Constant:
    """A variable that starts at the same value everywhere."""

    value: Value


@dataclass(frozen=True, slots=True)
class Output:
    """A variable that a head writes; it starts as NULL, and is NULL again after every MLP."""


Start: TypeAlias = FromToken | FromPosition | Constant | Output


@dataclass(frozen=True, slots=True, repr=False)
class Variable:
    """A named part of an assignment.

    >>> print(*program.variables)
    parity done _always parity_left done_left
    >>> program.variables["parity"].domain
    Categorical(size=2)
    >>> program.variables["parity"].start  # for each token: 0, 1, START
    FromToken(table=(0, 1, 0))
    """

    name: str
    domain: Domain
    start: Start

    def __repr__(self) -> str:
        return f"<variable {self.name!r}: {self.domain}>"

    @property
    def is_output(self) -> bool:
        """Whether a head writes it.

        >>> [name for name, variable in program.variables.items() if variable.is_output]
        ['parity_left', 'done_left']
        """
        return isinstance(self.start, Output)

    def admit(self, value: object) -> Value:
        """The value as a member of the domain.

        >>> program.variables["parity"].admit(True)
        1
        """
        try:
            return self.domain.admit(value)
        except OutsideDomainError as error:
            escape = OutsideDomainError(f"{self.name!r} is set out of its domain: {error}")
            escape.variable = self.name
            raise escape from None

    def snap(self, value: Value) -> Value:
        """What the MLP sees of the value.

        >>> parity.by_sum(2).variables["share"].snap(0.4)  # of the buckets 1/3, 1/2 and 1
        0.3333333333333333
        """
        if isinstance(self.domain, Numerical):
            assert not isinstance(value, frozenset)
            return self.domain.snap(value)
        return value


def declared(names: Iterable[str]) -> list[str]:
    """Without alta's own variables, which begin with an underscore."""
    return [name for name in names if not name.startswith("_")]


def format_value(value: Cell) -> str:
    """The value as people read it: 3, 0.5, 1/3, {0, 2}, ∅."""
    if isinstance(value, Missing):
        return value.value
    if isinstance(value, frozenset):
        return "{" + ", ".join(map(str, sorted(value))) + "}"
    if isinstance(value, float):
        return f"{value:.6g}"
    return str(value)


def _as_tuple(values: object, what: str) -> tuple[object, ...]:
    if isinstance(values, str) or not isinstance(values, Iterable):
        raise ProgramError(f"{what} are a tuple; got {values!r}")
    return tuple(values)


def _bucket(value: object) -> float:
    try:
        number = _number(value)
    except TypeError:
        raise ProgramError(f"a bucket is a number; got {value!r}") from None
    if not math.isfinite(number):
        raise ProgramError(f"a bucket is a finite number; got {number!r}")
    return number


def _number(value: object) -> float:
    """The value as a float; TypeError for what is none, a text of digits included."""
    if isinstance(value, str | bytes):
        raise TypeError
    try:
        return float(value) + 0.0  # type: ignore[arg-type]  # + 0.0 makes -0.0 the 0.0 that it equals
    except (ValueError, OverflowError):
        raise TypeError from None
