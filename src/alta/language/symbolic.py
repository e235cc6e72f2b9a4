"""Runs a Python function on symbols, once for each path that it can take, without enumerating assignments.

A read returns a `Symbol`: a function of some variables, kept as its table over their domains. Operators combine tables.
Only where Python itself demands a plain value (a truth value, an index, a hash, a string) does the run fork, into as
many paths as there are outcomes. What a path has learned is kept as bit masks over joint values, so that an outcome
that contradicts it is not explored.
"""

from __future__ import annotations

import math
import operator
import os
import random
import sys
from collections import Counter
from collections.abc import Callable, Iterator
from itertools import combinations
from pathlib import Path as FilePath
from typing import Any, TypeAlias

from alta.errors import listing
from alta.language.expressions import Expression, Impossible, Mask, Names, Raised, Refusal, Space, bits
from alta.language.variables import OutsideDomainError, Value

Knowledge: TypeAlias = dict[Names, Mask]  # for groups of variables, the joint values that are still possible

MAX_TABLE = 1 << 17
"""Joint values in one table. An operation on more of them first splits a variable."""

NOT_DETERMINISTIC = (
    "the MLP function is not deterministic, or looks at more of its values than operators show (their type, say): "
    "a second run on the same values went another way; it must not use random numbers, the time or state that changes"
)

HERE = str(FilePath(__file__).parent) + os.sep
"""The folder of the files whose frames are not the function's."""


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
            bit = 1 << generator.choice(bits(mask))
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


class EscapeError(OutsideDomainError):
    """A symbol is written that can lie outside the domain; what the error says depends on which value it is."""

    def __init__(self, error: OutsideDomainError, expression: Expression) -> None:
        super().__init__(str(error))
        self.expression = expression
        self.variable = error.variable


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
    while frame.f_code.co_filename.startswith(HERE) and frame.f_back is not None:
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
