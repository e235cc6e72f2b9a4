"""Every path that a function can take: it is run once for each, on symbols, and again on plain values to be sure."""

from __future__ import annotations

import builtins
import random
import threading
import traceback
from collections.abc import Callable, Iterator, Mapping, MutableMapping
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path as FilePath
from typing import Any, NamedTuple, TypeVar

from alta.errors import AltaError, LoweringError, listing
from alta.language.expressions import Expression, Impossible, Mask, Names, Raised, Refusal, Space
from alta.language.symbolic import HERE, NOT_DETERMINISTIC, Census, EscapeError, Fork, Path, Symbol
from alta.language.variables import OutsideDomainError, Value, Variable, declared

FEW = 4
"""Outcomes of an expression that was never settled, each of which is tried on plain values."""

RERUNS = 32
"""Times that the first path is run again on plain values; the n-th, a n-th of it, but at least once."""

R = TypeVar("R")


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


def _lines(error: Exception) -> Iterator[tuple[str, int]]:
    """The files and lines that an exception came through; unlike `extract_tb`, reads no source."""
    for frame, line in traceback.walk_tb(error.__traceback__):
        yield frame.f_code.co_filename, line


def _reason(error: Exception) -> Reason | Expression:
    frames = [(file, line) for file, line in _lines(error) if not file.startswith(HERE)]
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
