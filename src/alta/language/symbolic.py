"""Runs a Python function on symbols, once for each path that it can take, without enumerating assignments.

A read returns a `Symbol`: a function of some variables, kept as its table over their domains. Operators combine tables.
Only where Python itself demands a plain value (a truth value, an index, a hash, a string) does the run fork, into as
many paths as there are outcomes. What a path has learned is kept as bit masks over joint values, so that an outcome
that contradicts it is not explored.
"""

from __future__ import annotations

import builtins
import math
import numbers
import operator
import os
import random
import sys
import threading
import traceback
from collections import Counter
from collections.abc import Callable, Iterator, Mapping, MutableMapping
from contextlib import contextmanager
from dataclasses import dataclass
from fractions import Fraction
from itertools import combinations
from pathlib import Path as FilePath
from typing import Any, NamedTuple, TypeAlias, TypeVar

from alta.errors import AltaError, LoweringError, listing
from alta.language.variables import OutsideDomainError, Value, Variable, declared

Names: TypeAlias = tuple[str, ...]  # in the order of the program's variables
Key: TypeAlias = tuple[object, ...]  # tells outcomes apart: 1, 1.0 and True are three
Mask: TypeAlias = int  # bit i stands for the i-th joint value, the last variable running fastest
Knowledge: TypeAlias = dict[Names, Mask]  # for groups of variables, the joint values that are still possible

MAX_TABLE = 1 << 17
"""Joint values in one table. An operation on more of them first splits a variable."""

FEW = 4
"""Outcomes of an expression that was never settled, each of which is tried on plain values."""

RERUNS = 32
"""Times that the first path is run again on plain values; the n-th, a n-th of it, but at least once."""

MAX_WORK = 1 << 24
"""Joint values in all tables together."""

SHOWN = (numbers.Number, frozenset, type(None))
"""Outcomes of operators that stay symbolic. For others, a list or a string, say, the arguments are settled first."""

CONSTANT = (int, float, bool, complex, str, bytes, type(None), Fraction)
"""Plain arguments that cannot change, so that the outcome of an operator on them can be kept."""

R = TypeVar("R")


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
        return Expression(names, [expression.table[index] for index in _bits(mask)])

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


class Fork:
    """A place where paths part: the possible outcomes of one expression, and what was known before."""

    def __init__(self, expression: Expression, known: Knowledge, outcomes: list[tuple[Any, Mask]]) -> None:
        self.expression = expression
        self.known = known
        self.outcomes = outcomes
        self.taken = 0
        self.learned: dict[int, Knowledge] = {}  # for outcomes that have been taken


class Path:
    """One run of the function: what it has learned, and its forks so far. The first of them repeat an earlier run."""

    def __init__(self, space: Space, forks: list[Fork], census: Census) -> None:
        self.space = space
        self.known: Knowledge = {}
        self.forks = forks
        self.passed = 0
        self.unsettled: dict[int, Expression] = {}  # made on this path, and not asked for its plain value
        self._census = census

    def settle(self, expression: Expression) -> Any:
        """The expression's outcome on this path. Forks if there are several."""
        self.unsettled.pop(id(expression), None)
        if self.passed < len(self.forks) and self.forks[self.passed].expression is expression:
            return self._pass()
        possible = self.possible(expression.names)
        outcomes = [(outcome, mask & possible) for outcome, mask in expression.outcomes.values() if mask & possible]
        if len(outcomes) > 1 and self._entangled(expression.names):
            outcomes = [o for o in outcomes if self.sample(random.Random(0), (expression.names, o[1])) is not None]
        if not outcomes:
            raise Impossible
        if len(outcomes) == 1:
            return outcomes[0][0]
        if self.passed == len(self.forks):
            fork = Fork(expression, self.known, outcomes)
            self._census.count(fork)
            self.forks.append(fork)
        elif not self.forks[self.passed].expression.equals(expression):
            raise Refusal(NOT_DETERMINISTIC)
        return self._pass()

    def _pass(self) -> Any:
        fork = self.forks[self.passed]
        self.passed += 1
        outcome, mask = fork.outcomes[fork.taken]
        if fork.taken not in fork.learned:
            fork.learned[fork.taken] = self._learn(fork.expression.names, mask)
        self.known = fork.learned[fork.taken]
        return outcome

    def possible(self, names: Names) -> Mask:
        """The joint values that do not contradict what the path has learned of them."""
        mask = self.space.full(names)
        for part in _parts(names) if len(names) <= 4 else self.known:
            if part in self.known and all(name in names for name in part):
                mask &= self.space.lift(part, self.known[part], names)
        return mask

    def _learn(self, names: Names, mask: Mask) -> Knowledge:
        """What is known after an outcome: its joint values, and what follows for single variables and other groups."""
        known = dict(self.known)
        known[names] = mask
        changed = set(names)
        while changed:
            groups = [part for part in known if len(part) > 1 and not changed.isdisjoint(part)]
            if len(names) == 1 and not groups:
                break
            changed = set()
            for part in groups:
                mask = known[part]
                for name in part:
                    if (name,) in known:
                        mask &= self.space.lift((name,), known[name,], part)
                known[part] = mask
                for name in part:
                    slices = enumerate(self.space.slices(part, name))
                    seen = sum(1 << value for value, joint in slices if joint & mask)
                    if seen != known.get((name,), self.space.full((name,))):
                        known[name,] = seen
                        changed.add(name)
        return known

    def _entangled(self, names: Names) -> bool:
        """Whether groups of variables overlap in a way that masks of each do not settle."""
        groups = [part for part in self.known if len(part) > 1]
        return len(groups) > 1 and any(
            not set(part).isdisjoint(names) and not set(part).issubset(names) for part in groups
        )

    def apply(self, operation: Callable[..., Any], *arguments: object) -> Any:
        """The operation on symbols and plain values: a symbol, or a plain value where only one is left."""
        terms = [a.expression_on(self) if isinstance(a, Symbol) else a for a in arguments]
        while self.space.size(names := self._names(terms)) > MAX_TABLE:
            loose = [name for name in names if self._fixed(name) is None]
            if loose:
                self.settle(self.space.read(min(loose, key=lambda name: self.possible((name,)).bit_count())))
            fixed = {name: index for name in names if (index := self._fixed(name)) is not None}
            terms = [self.space.restrict(term, fixed) if isinstance(term, Expression) else term for term in terms]
        if not names:
            return operation(*(term.table[0] if isinstance(term, Expression) else term for term in terms))
        expression = self.space.apply(operation, tuple(terms))
        if not expression.shown:
            return operation(*(self.settle(term) if isinstance(term, Expression) else term for term in terms))
        if expression.raises:
            raised = self.settle(self.space.guard(expression))
            if raised is not None:
                if isinstance(raised.error, OutsideDomainError):
                    raise EscapeError(raised.error, expression)
                raise raised.error.with_traceback(None)
        return self.present(expression)

    def present(self, expression: Expression) -> Any:
        """The expression as the function sees it."""
        if all(self._fixed(name) is not None for name in expression.names):
            return self.settle(expression)
        self.unsettled[id(expression)] = expression
        return Symbol(self, expression)

    def _names(self, terms: list[object]) -> Names:
        return self.space.union([term.names for term in terms if isinstance(term, Expression)])

    def _fixed(self, name: str) -> int | None:
        """The index of the variable's value, if only one is left."""
        mask = self.known.get((name,), self.space.full((name,)))
        return mask.bit_length() - 1 if mask.bit_count() == 1 else None

    def sample(self, generator: random.Random, wanted: tuple[Names, Mask] | None = None) -> dict[str, Value] | None:
        """An assignment that takes this path (and has one of the joint values that are wanted), or None if there is
        none."""
        known = self.known
        if wanted is not None:
            names, mask = wanted
            known = {**known, names: known.get(names, mask) & mask}
        chosen = self._solve(known, sorted(known, key=len, reverse=True), {}, generator)
        if chosen is None:
            return None
        return {
            name: options[chosen[name]] if name in chosen else generator.choice(options)
            for name, options in self.space.values.items()
            if options
        }

    def _solve(
        self, known: Knowledge, groups: list[Names], chosen: dict[str, int], generator: random.Random
    ) -> dict[str, int] | None:
        """Chooses values for one group after another, and goes back where none is left."""
        if not groups:
            return chosen
        names, *rest = groups
        mask = known[names]
        for name in names:
            if name in chosen:
                mask &= self.space.slices(names, name)[chosen[name]]
            elif (name,) in known:
                mask &= self.space.lift((name,), known[name,], names)
        while mask:
            bit = 1 << generator.choice(_bits(mask))
            mask &= ~bit
            values = {
                name: next(i for i, part in enumerate(self.space.slices(names, name)) if part & bit) for name in names
            }
            found = self._solve(known, rest, {**chosen, **values}, generator)
            if found is not None:
                return found
        return None


def _parts(names: Names) -> Iterator[Names]:
    """All groups of some of the names."""
    return (part for size in range(1, len(names) + 1) for part in combinations(names, size))


def _bits(mask: Mask) -> list[int]:
    return [index for index, digit in enumerate(reversed(f"{mask:b}")) if digit == "1"]


NOT_DETERMINISTIC = (
    "the MLP function is not deterministic, or looks at more of its values than operators show (their type, say): "
    "a second run on the same values went another way; it must not use random numbers, the time or state that changes"
)


class Census:
    """Counts paths, and knows where they come from."""

    def __init__(self, max_paths: int) -> None:
        self.paths = 1
        self.ends = 1
        self._max_paths = max_paths
        self._sources: Counter[tuple[str, Names, int]] = Counter()

    def count(self, fork: Fork) -> None:
        """Takes a new fork into account."""
        ways = len(fork.outcomes)
        self.paths += ways - 1
        self._sources[_place_in_function(), fork.expression.names, ways] += ways - 1
        if self.paths > self._max_paths:
            sources = "; ".join(
                f"{place}: {listing(map(repr, names))} split over {ways} values, {count + 1} paths"
                for (place, names, ways), count in self._sources.most_common(3)
            )
            raise Refusal(
                f"the MLP function takes more than {self._max_paths:,} paths. Most come from {sources}. Compare with "
                "operators instead of looking values up, test what decides most first, write the rules with "
                "MLPBuilder, or raise max_paths"
            )


def _place_in_function() -> str:
    frame = sys._getframe(1)
    while frame.f_code.co_filename == __file__ and frame.f_back is not None:
        frame = frame.f_back
    return f"line {frame.f_lineno} of {FilePath(frame.f_code.co_filename).name}"


class Symbol:
    """Stands for a value inside the function. Operators make new symbols; a demand for a plain value forks."""

    __array_ufunc__ = None  # NumPy scalars leave operators to this class
    __slots__ = ("_expression", "_path")

    def __init__(self, path: Path, expression: Expression) -> None:
        self._path = path
        self._expression = expression

    def expression_on(self, path: Path) -> object:
        """The expression, for use on a path. A symbol kept from an earlier path is good only if it was settled."""
        if path is self._path:
            return self._expression
        possible = self._path.possible(self._expression.names)
        outcomes = [outcome for outcome, mask in self._expression.outcomes.values() if mask & possible]
        if len(outcomes) > 1:
            raise Refusal(
                "the MLP function keeps a value from one call to the next (in a cache or a global, say), so it is not "
                "deterministic"
            )
        return outcomes[0]

    def kept(self) -> Any:
        """What a write of this symbol leaves behind."""
        return self.expression_on(self._path)

    def plain(self, operation: Callable[[Any], Any]) -> Any:
        """The plain value of the operation. Forks if there are several."""
        result = self._path.apply(operation, self)
        return result.settled() if isinstance(result, Symbol) else result

    def settled(self) -> Any:
        """The plain value. Forks if there are several."""
        expression = self.expression_on(self._path)
        return self._path.settle(expression) if isinstance(expression, Expression) else expression

    @property  # type: ignore[misc]
    def __class__(self) -> type:  # so that isinstance(z["x"], int) holds, as it does for a plain value
        kinds = {type(outcome) for outcome in self._expression.table if not isinstance(outcome, Raised)}
        return kinds.pop() if len(kinds) == 1 else type(self.settled())

    def __getattr__(self, name: str) -> Any:
        if name.startswith("__"):
            raise AttributeError(name)
        return getattr(self.settled(), name)

    def __bool__(self) -> bool:
        return bool(self.plain(bool))

    def __int__(self) -> int:
        return int(self.plain(int))

    def __float__(self) -> float:
        return float(self.plain(float))

    def __index__(self) -> int:
        return operator.index(self.plain(operator.index))

    def __len__(self) -> int:
        return int(self.plain(len))

    def __hash__(self) -> int:
        return hash(self.settled())

    def __str__(self) -> str:
        return str(self.settled())

    def __repr__(self) -> str:
        return repr(self.settled())

    def __format__(self, spec: str) -> str:
        return format(self.settled(), spec)

    def __iter__(self) -> Iterator[Any]:
        return iter(self.settled())

    def __contains__(self, item: object) -> bool:
        return bool(self._path.apply(operator.contains, self, item))

    def __round__(self, digits: int | None = None) -> Any:
        return self._path.apply(round, self, digits)

    def __pow__(self, other: object, modulus: object = None) -> Any:
        if modulus is None:
            return self._path.apply(operator.pow, self, other)
        return self._path.apply(pow, self, other, modulus)

    def __copy__(self) -> Symbol:
        return self

    def __deepcopy__(self, memo: object) -> Symbol:
        return self

    def __divmod__(self, other: object) -> tuple[Any, Any]:
        return self // other, self % other  # type: ignore[operator]

    def __rdivmod__(self, other: object) -> tuple[Any, Any]:
        return other // self, other % self  # type: ignore[operator]


def _install_operators() -> None:
    def binary(operation: Callable[[Any, Any], Any]) -> Callable[[Symbol, object], Any]:
        return lambda self, other: self._path.apply(operation, self, other)

    def reflected(operation: Callable[[Any, Any], Any]) -> Callable[[Symbol, object], Any]:
        return lambda self, other: self._path.apply(operation, other, self)

    def unary(operation: Callable[[Any], Any]) -> Callable[[Symbol], Any]:
        return lambda self: self._path.apply(operation, self)

    for name in ("add", "sub", "mul", "truediv", "floordiv", "mod", "pow", "and_", "or_", "xor", "lshift", "rshift"):
        operation = getattr(operator, name)
        if name != "pow":
            setattr(Symbol, f"__{name.strip('_')}__", binary(operation))
        setattr(Symbol, f"__r{name.strip('_')}__", reflected(operation))
    for name in ("eq", "ne", "lt", "le", "gt", "ge"):
        setattr(Symbol, f"__{name}__", binary(getattr(operator, name)))
    for operation in (operator.neg, operator.pos, operator.invert, operator.abs, math.floor, math.ceil, math.trunc):
        setattr(Symbol, f"__{operation.__name__}__", unary(operation))


_install_operators()


class Workspace(MutableMapping[str, Any]):
    """What the function gets: it reads and sets variables as if this were a dictionary."""

    def __init__(
        self,
        variables: Mapping[str, Variable],
        read: Callable[[str], Any],
        admit: Callable[[Variable, object], Any],
    ) -> None:
        self._variables = variables
        self._read = read
        self._admit = admit
        self._writes: dict[str, Any] = {}

    def __getitem__(self, name: str) -> Any:
        self._check(name, "reads")
        return self._writes[name] if name in self._writes else self._read(name)

    def __setitem__(self, name: str, value: object) -> None:
        variable = self._check(name, "sets")
        if variable.is_output:
            raise Refusal(
                f"the MLP function sets attention output {name!r}; outputs of heads become NULL after every layer"
            )
        self._writes[name] = self._admit(variable, value)

    def __contains__(self, name: object) -> bool:
        return name in self._variables

    def __iter__(self) -> Iterator[str]:
        return iter(self._variables)

    def __len__(self) -> int:
        return len(self._variables)

    def __delitem__(self, name: str) -> None:
        raise Refusal(f"the MLP function deletes {name!r}; variables stay, and keep a value")

    def _check(self, name: str, verb: str) -> Variable:
        if name not in self._variables:
            known = listing(declared(self._variables))
            raise Refusal(f"the MLP function {verb} {name!r}, which is not a variable; variables: {known}")
        variable = self._variables[name]
        if not variable.domain.values:
            raise Refusal(f"the MLP function {verb} {name!r}, which has no buckets; give it `values`")
        return variable


def symbolic_workspace(path: Path) -> Workspace:
    """Reads give symbols."""

    def admit(variable: Variable, value: object) -> Any:
        if isinstance(value, Symbol):
            return path.apply(variable.admit, value)
        return variable.admit(value)

    return Workspace(path.space.variables, lambda name: path.present(path.space.read(name)), admit)


def plain_workspace(variables: Mapping[str, Variable], assignment: Mapping[str, Value]) -> Workspace:
    """Reads give the values of an assignment."""
    return Workspace(variables, assignment.__getitem__, lambda variable, value: variable.admit(value))


class EscapeError(OutsideDomainError):
    """A symbol is written that can lie outside the domain; what the error says depends on which value it is."""

    def __init__(self, error: OutsideDomainError, expression: Expression) -> None:
        super().__init__(str(error))
        self.expression = expression
        self.variable = error.variable


class Reason(NamedTuple):
    """Why a path is a trap."""

    text: str
    variable: str | None = None


@dataclass(frozen=True)
class Leaf:
    """Where a path ends: what it has written, or why it is a trap."""

    writes: Mapping[str, Expression | Value]
    trap: Reason | Expression | None = None


def explore(
    function: Callable[[Any], object],
    variables: Mapping[str, Variable],
    max_paths: int,
    leaf: Callable[[Leaf | None], R],
    join: Callable[[Expression, list[tuple[Mask, R]]], R],
) -> R:
    """Folds the tree of the function's paths: `leaf` at the ends (None where no assignment gets to), `join` where an
    expression decides."""
    space = Space(variables)
    census = Census(max_paths)
    generator = random.Random(0)
    forks: list[Fork] = []
    branches: list[list[R]] = []
    while True:
        path = Path(space, forks, census)
        try:
            end = _run(function, symbolic_workspace(path))
        except Impossible:
            end = None
        if end is not None:
            if path.passed < len(forks):
                raise LoweringError(NOT_DETERMINISTIC)
            _run_again(function, path, end, census, generator)
        result = leaf(end)
        branches.extend([] for _ in range(len(forks) - len(branches)))
        while forks:
            fork = forks[-1]
            branches[-1].append(result)
            fork.taken += 1
            if fork.taken < len(fork.outcomes):
                break
            result = join(
                fork.expression, [(mask, r) for (_, mask), r in zip(fork.outcomes, branches[-1], strict=True)]
            )
            forks.pop()
            branches.pop()
        if not forks:
            return result


def _run(function: Callable[[Any], object], workspace: Workspace) -> Leaf:
    try:
        with _no_prints():
            function(workspace)
    except AltaError:
        raise
    except SystemExit:
        raise LoweringError("the MLP function calls exit; to stop a run, raise an exception") from None
    except Exception as error:
        return Leaf({}, _reason(error))
    return Leaf({name: v.kept() if isinstance(v, Symbol) else v for name, v in workspace._writes.items()})


def _run_again(
    function: Callable[[Any], object], path: Path, end: Leaf, census: Census, generator: random.Random
) -> None:
    """On plain values that take the same path, the function has to do the same.

    Where a truth value or the like was made and never tested, the function may have looked at it in another way (`is`,
    say), so each of its outcomes is tried.
    """
    wanted: list[tuple[Names, Mask] | None] = [None] * max(1, RERUNS // census.ends)
    census.ends += 1
    for expression in path.unsettled.values():
        if len(expression.outcomes) <= FEW and len(expression.names) > 0:
            possible = path.possible(expression.names)
            masks = [mask & possible for _, mask in expression.outcomes.values()]
            wanted += [(expression.names, mask) for mask in masks if mask]
    for case in wanted:
        assignment = path.sample(generator, case)
        if assignment is not None:
            _compare(function, path, end, assignment)


def _compare(function: Callable[[Any], object], path: Path, end: Leaf, assignment: Mapping[str, Value]) -> None:
    again = _run(function, plain_workspace(path.space.variables, assignment))
    expected: dict[str, object] = {}
    for name, written in end.writes.items():
        if isinstance(written, Expression):
            index = 0
            for variable in written.names:
                values = path.space.values[variable]
                index = index * len(values) + values.index(assignment[variable])
            written = written.table[index]
        expected[name] = written
    if (end.trap is None) != (again.trap is None) or expected != again.writes:
        raise LoweringError(NOT_DETERMINISTIC)


_HERE = str(FilePath(__file__).parent) + os.sep


def _lines(error: Exception) -> Iterator[tuple[str, int]]:
    """The files and lines that an exception came through; unlike `extract_tb`, reads no source."""
    for frame, line in traceback.walk_tb(error.__traceback__):
        yield frame.f_code.co_filename, line


def _reason(error: Exception) -> Reason | Expression:
    frames = [(file, line) for file, line in _lines(error) if not file.startswith(_HERE)]
    where = f" (line {frames[-1][1]} of {FilePath(frames[-1][0]).name})" if frames else ""
    if isinstance(error, EscapeError):
        expression = error.expression
        table = [
            Reason(f"{o.error}{where}", error.variable) if isinstance(o, Raised) else None for o in expression.table
        ]
        return Expression(expression.names, table)
    if isinstance(error, OutsideDomainError):
        return Reason(f"{error}{where}", error.variable)
    return Reason(f"{type(error).__name__}: {error}".removesuffix(": ") + where)


_one_at_a_time = threading.RLock()


@contextmanager
def _no_prints() -> Iterator[None]:
    """A function runs many times while its paths are found; what it prints then, in this thread, is for nobody."""
    thread = threading.get_ident()
    with _one_at_a_time:
        real = builtins.print

        def quiet(*values: object, **options: Any) -> None:
            if threading.get_ident() != thread:
                real(*values, **options)

        builtins.print = quiet
        try:
            yield
        finally:
            builtins.print = real
