"""Functions of variables as tables: what an expression is for each joint value of the few variables it depends on."""

from __future__ import annotations

import math
import numbers
from collections.abc import Callable, Mapping
from fractions import Fraction
from typing import Any, TypeAlias

from alta.errors import AltaError, listing
from alta.language.variables import OutsideDomainError, Value, Variable

Names: TypeAlias = tuple[str, ...]  # in the order of the program's variables
Key: TypeAlias = tuple[object, ...]  # tells outcomes apart: 1, 1.0 and True are three
Mask: TypeAlias = int  # bit i stands for the i-th joint value, the last variable running fastest

MAX_WORK = 1 << 24
"""Joint values in all tables together."""

SHOWN = (numbers.Number, frozenset, type(None))
"""Outcomes of operators that stay symbolic. For others, a list or a string, say, the arguments are settled first."""

CONSTANT = (int, float, bool, complex, str, bytes, type(None), Fraction)
"""Plain arguments that cannot change, so that the outcome of an operator on them can be kept."""


class Refusal(BaseException):
    """The function cannot be lowered. No Exception, so that an `except` in the function does not swallow it."""


class Impossible(BaseException):
    """The path contradicts itself: no assignment takes it."""


class Raised:
    """An outcome: the operation raises."""

    __slots__ = ("error",)

    def __init__(self, error: Exception) -> None:
        self.error = error


def identity(outcome: object) -> Key:
    """What makes two outcomes the same."""
    if isinstance(outcome, Raised):
        kind = type(outcome.error)
        return Raised, kind, "" if kind is OutsideDomainError else str(outcome.error)
    if isinstance(outcome, float):
        return float, outcome.hex()  # tells 0.0 from -0.0, but not nan from nan
    return type(outcome), outcome


class Expression:
    """A function of some variables: its outcome for each of their joint values."""

    def __init__(self, names: Names, table: list[Any]) -> None:
        self.names = names
        self.table = table
        self.raises = any(isinstance(outcome, Raised) for outcome in table)
        self.shown = all(isinstance(outcome, (*SHOWN, Raised)) for outcome in table)
        self._outcomes: dict[Key, tuple[Any, Mask]] | None = None

    @property
    def outcomes(self) -> dict[Key, tuple[Any, Mask]]:
        """Each outcome, with the joint values that lead to it."""
        if self._outcomes is None:
            values: dict[Key, Any] = {}
            digits: dict[Key, bytearray] = {}
            last = len(self.table) - 1
            for index, outcome in enumerate(self.table):
                key = identity(outcome)
                if key not in values:
                    values[key], digits[key] = outcome, bytearray(b"0" * (last + 1))
                digits[key][last - index] = ord("1")
            self._outcomes = {key: (value, int(bytes(digits[key]), 2)) for key, value in values.items()}
        return self._outcomes

    def errors(self) -> list[Raised | None]:
        """The table with only the errors left."""
        return [outcome if isinstance(outcome, Raised) else None for outcome in self.table]

    def equals(self, other: Expression) -> bool:
        """Whether both are the same function, however they came about."""
        if self is other:
            return True
        return self.names == other.names and list(map(identity, self.table)) == list(map(identity, other.table))


class Space:
    """The variables of a program and the expressions over them, which all paths share."""

    def __init__(self, variables: Mapping[str, Variable]) -> None:
        self.variables = variables
        self.values: dict[str, tuple[Value, ...]] = {name: v.domain.values for name, v in variables.items()}
        self._rank = {name: rank for rank, name in enumerate(self.values)}
        self.work = 0
        self._made: dict[Key, tuple[Expression, object]] = {}
        self._lifted: dict[tuple[Names, Mask, Names], Mask] = {}
        self._slices: dict[tuple[Names, str], list[Mask]] = {}

    def size(self, names: Names) -> int:
        """How many joint values the variables have."""
        return math.prod(len(self.values[name]) for name in names)

    def full(self, names: Names) -> Mask:
        """All joint values."""
        return (1 << self.size(names)) - 1

    def union(self, groups: list[Names]) -> Names:
        """All the names, in order."""
        return tuple(sorted({name for group in groups for name in group}, key=self._rank.__getitem__))

    def read(self, name: str) -> Expression:
        """The variable itself."""
        return self._make(("read", name), None, lambda: Expression((name,), list(self.values[name])))

    def apply(self, operation: Callable[..., Any], arguments: tuple[object, ...]) -> Expression:
        """The operation on expressions and plain values."""
        if not all(isinstance(a, Expression) or type(a) in CONSTANT for a in arguments):
            return self._tabulate(operation, arguments)
        key: Key = (operation, *((Expression, id(a)) if isinstance(a, Expression) else identity(a) for a in arguments))
        return self._make(key, arguments, lambda: self._tabulate(operation, arguments))

    def guard(self, expression: Expression) -> Expression:
        """What the expression raises, or None."""
        key = "guard", id(expression)
        return self._make(key, expression, lambda: Expression(expression.names, [*expression.errors()]))

    def restrict(self, expression: Expression, fixed: Mapping[str, int]) -> Expression:
        """The expression where the variables in `fixed` have the values with those indices."""
        fixed = {name: fixed[name] for name in expression.names if name in fixed}
        if not fixed:
            return expression
        names = tuple(name for name in expression.names if name not in fixed)
        mask = self.full(expression.names)
        for name, index in fixed.items():
            mask &= self.slices(expression.names, name)[index]
        key = "restrict", id(expression), mask
        return self._make(key, expression, lambda: self._restricted(expression, names, mask))

    def _restricted(self, expression: Expression, names: Names, mask: Mask) -> Expression:
        self._count(len(expression.table), expression.names)
        return Expression(names, [expression.table[index] for index in bits(mask)])

    def lift(self, part: Names, mask: Mask, whole: Names) -> Mask:
        """The joint values of `whole` whose part is in the mask."""
        if part == whole:
            return mask
        key = part, mask, whole
        if key not in self._lifted:
            bits = "".join("1" if mask >> index & 1 else "0" for index in reversed(self.indices(part, whole)))
            self._lifted[key] = int(bits, 2)
        return self._lifted[key]

    def slices(self, names: Names, name: str) -> list[Mask]:
        """For each value of `name`, the joint values of `names` that have it."""
        key = names, name
        if key not in self._slices:
            self._slices[key] = [self.lift((name,), 1 << value, names) for value in range(len(self.values[name]))]
        return self._slices[key]

    def indices(self, part: Names, whole: Names) -> list[int]:
        """For each joint value of `whole`, the index of its part."""
        strides = dict.fromkeys(whole, 0)
        stride = 1
        for name in reversed(part):
            strides[name] = stride
            stride *= len(self.values[name])
        indices = [0]
        for name in whole:
            steps = [value * strides[name] for value in range(len(self.values[name]))]
            indices = [index + step for index in indices for step in steps]
        return indices

    def _make(self, key: Key, keep: object, make: Callable[[], Expression]) -> Expression:
        if key not in self._made:
            self._made[key] = make(), keep  # what the key names by id is kept, so that the id stays its own
        return self._made[key][0]

    def _tabulate(self, operation: Callable[..., Any], arguments: tuple[object, ...]) -> Expression:
        names = self.union([a.names for a in arguments if isinstance(a, Expression)])
        size = self.size(names)
        self._count(size, names)
        columns = [
            [a.table[index] for index in self.indices(a.names, names)] if isinstance(a, Expression) else [a] * size
            for a in arguments
        ]
        return Expression(names, [_outcome(operation, row) for row in zip(*columns, strict=True)])

    def _count(self, size: int, names: Names) -> None:
        self.work += size
        if self.work > MAX_WORK:
            raise Refusal(
                f"the MLP function combines too many variables: tables of more than {MAX_WORK:,} joint values, the "
                f"last of {listing(map(repr, names))}. Test variables one by one, or write the rules with MLPBuilder"
            )


def _outcome(operation: Callable[..., Any], row: tuple[Any, ...]) -> Any:
    for item in row:
        if isinstance(item, Raised):
            return item
    try:
        return operation(*row)
    except AltaError:
        raise
    except Exception as error:
        return Raised(error)


def bits(mask: Mask) -> list[int]:
    """The joint values that a mask holds."""
    return [index for index, digit in enumerate(reversed(f"{mask:b}")) if digit == "1"]
