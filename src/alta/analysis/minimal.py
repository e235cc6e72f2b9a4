"""The part of a program that a set of inputs pins down, and what it makes of other inputs.

A Transformer that is trained on the inputs, even with every intermediate state given, sees nothing of rules that never
fire and of tokens and positions that never occur. The paper's procedure leaves them out: what remains is the minimal
program, and where it goes wrong, a trained model is free to.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Callable, Hashable, Iterable, Mapping, Sequence
from concurrent.futures import Executor
from dataclasses import dataclass, replace
from typing import Any, TypeAlias

import numpy as np

from alta.analysis.coverage import Coverage, coverage
from alta.displayed import Displayed
from alta.errors import amount
from alta.interpreter.batch import BatchRun, run_batch
from alta.language.program import Program, Token
from alta.language.rules import RuleSet
from alta.language.variables import (
    Categorical,
    Constant,
    Domain,
    FromPosition,
    FromToken,
    Numerical,
    Output,
    SetOf,
    Start,
    Value,
    Variable,
)

Judge: TypeAlias = Callable[[Sequence[Token], Sequence[Any]], bool]
"""Whether outputs are right for an input."""


@dataclass(frozen=True, repr=False)
class Minimal(Displayed):
    """The minimal program for some inputs: what is left, and the coverage that it was taken from.

    `program` is an ordinary one. Resets belong to every program; of them, `resets` counts those that the inputs use.

    >>> print(alta.minimal(program, [["START", "1", "0"]]))
    6 rules (2 and 4 resets) of 7 (3 and 4 resets); 3 of 3 tokens, 3 positions
    """

    program: Program
    coverage: Coverage

    @property
    def core(self) -> int:
        """Rules that are left, without resets.

        >>> alta.minimal(program, [["START", "1", "0"]]).core
        2
        """
        return len(self.program.rules.core)

    @property
    def resets(self) -> int:
        """Resets that the inputs use.

        >>> alta.minimal(program, [["START", "1", "0"]]).resets
        4
        """
        return int(np.count_nonzero(self.coverage.rule_counts[len(self.coverage.program.rules.core) :]))

    def __repr__(self) -> str:
        return f"<minimal program: {self.core + self.resets:,} of {amount(len(self.coverage.program.rules), 'rule')}>"

    def __str__(self) -> str:
        before = self.coverage.program.rules
        return (
            f"{self.core + self.resets:,} rules ({self.core:,} and {self.resets:,} resets) of {len(before):,} "
            f"({len(before.core):,} and {len(before.resets):,} resets); {len(self.coverage.tokens):,} of "
            f"{amount(len(self.coverage.program.tokens), 'token')}, {amount(self.coverage.positions, 'position')}"
        )


def minimal(
    program: Program,
    inputs: Iterable[Iterable[Token]] | Coverage,
    max_layers: int | None = None,
    *,
    executor: Executor | None = None,
    progress: bool | None = None,
) -> Minimal:
    """The minimal program for the inputs, or for a coverage that has been taken already.

    Rules that never fire go, and so do traps, which no input of a training set may meet. What starts from a token or a
    position that is never seen starts at a default: 0, the bucket nearest to it, or the empty set (if it is declared,
    otherwise the first).

    >>> small = alta.minimal(program, [["START", "1", "0"]])
    >>> alta.run(small.program, ["START", "0", "1"]).outputs
    (0, 0, 1)
    """
    seen = inputs if isinstance(inputs, Coverage) else None
    if seen is None:
        seen = coverage(program, inputs, max_layers, executor=executor, progress=progress)  # type: ignore[arg-type]
    rules = seen.program.rules
    core = tuple(rule for rule, count in zip(rules.core, seen.rule_counts, strict=False) if count)
    variables = {name: _restricted(variable, seen) for name, variable in seen.program.variables.items()}
    return Minimal(replace(seen.program, variables=variables, mlp=RuleSet(core)), seen)


def _restricted(variable: Variable, seen: Coverage) -> Variable:
    start: Start
    match variable.start:
        case FromToken(table):
            start = FromToken(_where(seen.token_counts > 0, table, variable.domain))
        case FromPosition(table):
            start = FromPosition(_where(np.arange(len(table)) < seen.positions, table, variable.domain))
        case Constant() | Output():
            start = variable.start
    return replace(variable, start=start)


def _where(seen: Any, table: tuple[Value, ...], domain: Domain) -> tuple[Value, ...]:
    return tuple(value if there else default(domain) for there, value in zip(seen.tolist(), table, strict=True))


def default(domain: Domain) -> Value:
    """What a variable starts at where nothing else is known."""
    match domain:
        case Categorical():
            return 0
        case Numerical(values):
            return min(values, key=abs, default=0.0)
        case SetOf(_, values):
            return frozenset() if frozenset() in values else values[0]


@dataclass(frozen=True)
class Failure:
    """A test input on which the minimal program is wrong, and what it lacks there."""

    inputs: tuple[Token, ...]
    reasons: tuple[str, ...]

    def __str__(self) -> str:
        text = " ".join(map(str, self.inputs))
        return f"{text if len(text) <= 60 else text[:59] + '…'}: {'; '.join(self.reasons)}"


@dataclass(frozen=True, repr=False)
class Prediction(Displayed):
    """How a program and its minimal version do on a test set, by group: (number, right, right with the minimal one).

    >>> found = alta.predict(program, train=[["START", "1", "0"]], test=[["START", "1"], ["START", "1", "1"]])
    >>> print(found.failures[0])
    START 1 1: rules never fired: done=0 ∧ done_left=1 ∧ parity=1 ∧ parity_left=1 ⟹ parity := 0
    """

    minimal: Minimal
    groups: Mapping[Hashable, tuple[int, int, int]]
    failures: tuple[Failure, ...]  # the first of them

    @property
    def accuracy(self) -> float:
        """The share of the test set on which the minimal program is right.

        >>> alta.predict(program, train=[["START", "1", "0"]], test=[["START", "1"], ["START", "1", "1"]]).accuracy
        0.5
        """
        return self._share(2)

    @property
    def original(self) -> float:
        """The share of the test set on which the original program is right.

        >>> alta.predict(program, train=[["START", "1", "0"]], test=[["START", "1"], ["START", "1", "1"]]).original
        1.0
        """
        return self._share(1)

    def _share(self, column: int) -> float:
        total = sum(row[0] for row in self.groups.values())
        return sum(row[column] for row in self.groups.values()) / total if total else 1.0

    def __repr__(self) -> str:
        number = sum(row[0] for row in self.groups.values())
        return f"<prediction: right on {self.accuracy:.1%} of {number:,} inputs; the original on {self.original:.1%}>"

    @property
    def series(self) -> dict[str, dict[Hashable, tuple[int, int]]]:
        """By group, how many inputs are right, and how many there are: with the original and the minimal program.

        >>> found = alta.predict(program, train=[["START", "1", "0"]], test=[["START", "1"], ["START", "1", "1"]])
        >>> found.series["minimal"]
        {2: (1, 1), 3: (0, 1)}
        """
        groups = self.groups.items()
        return {
            "original": {group: (right, number) for group, (number, right, _) in groups},
            "minimal": {group: (right, number) for group, (number, _, right) in groups},
        }

    def regrouped(self, by: Callable[[Any], Hashable]) -> Prediction:
        """The same, with the groups together that `by` takes to one.

        >>> found = alta.predict(program, train=[["START", "1", "0"]], test=[["START", "1"], ["START", "1", "1"]])
        >>> found.regrouped(lambda length: "long" if length > 2 else "short").groups
        {'long': (1, 1, 0), 'short': (1, 1, 1)}
        """
        groups: defaultdict[Hashable, list[int]] = defaultdict(lambda: [0, 0, 0])
        for group, row in self.groups.items():
            groups[by(group)] = [a + b for a, b in zip(groups[by(group)], row, strict=True)]
        return replace(self, groups=_ordered(groups))

    def table(self, title: str = "") -> str:
        """Accuracy by group.

        >>> found = alta.predict(program, train=[["START", "1", "0"]], test=[["START", "1"], ["START", "1", "1"]])
        >>> print(found.table("length"))
        length               inputs   original    minimal
        2                         1     100.0%     100.0%
        3                         1     100.0%       0.0%
        all                       2     100.0%      50.0%
        """
        lines = [f"{title:16}  {'inputs':>9}  {'original':>9}  {'minimal':>9}"]
        for group, (number, original, small) in self.groups.items():
            lines.append(f"{group!s:16}  {number:9,}  {original / number:9.1%}  {small / number:9.1%}")
        if len(self.groups) > 1:
            number = sum(row[0] for row in self.groups.values())
            lines.append(f"{'all':16}  {number:9,}  {self.original:9.1%}  {self.accuracy:9.1%}")
        return "\n".join(lines)

    @property
    def first_failures(self) -> str:
        """The first inputs that fail, and why.

        >>> found = alta.predict(program, train=[["START", "1", "0"]], test=[["START", "1"], ["START", "1", "1"]])
        >>> print(found.first_failures)
        the first that fail:
          START 1 1: rules never fired: done=0 ∧ done_left=1 ∧ parity=1 ∧ parity_left=1 ⟹ parity := 0
        """
        return "\n".join(("the first that fail:", *(f"  {failure}" for failure in self.failures)))

    def __str__(self) -> str:
        lines = [f"minimal program: {self.minimal}", self.table()]
        return "\n".join([*lines, self.first_failures] if self.failures else lines)


def predict(
    program: Program,
    train: Iterable[Iterable[Token]] | Coverage | Minimal,
    test: Iterable[Iterable[Token]],
    max_layers: int | None = None,
    *,
    by: Callable[[Sequence[Token]], Hashable] = len,
    right: Judge | None = None,
    executor: Executor | None = None,
    failures: int = 5,
    progress: bool | None = None,
) -> Prediction:
    """Minimises the program on the training set (unless it is given as a minimal program already), and runs both on the
    test set.

    Inputs are grouped `by` a function of their tokens. An output is right if `right(inputs, outputs)` says so; without
    it, if it is what the original program gives. An input that stops with an error is wrong.

    >>> found = alta.predict(program, train=[["START", "1", "0"]], test=[["START", "1"], ["START", "1", "1"]])
    >>> found.groups  # by length: inputs, right, right with the minimal program
    {2: (1, 1, 1), 3: (1, 1, 0)}
    """
    small = train if isinstance(train, Minimal) else None
    if small is None:
        small = minimal(program, train, max_layers, executor=executor, progress=progress)  # type: ignore[arg-type]
    batch = [tuple(tokens) for tokens in test]
    ours = run_batch(program, batch, max_layers, executor=executor, progress=progress)
    # A run that went wrong may never end; with no limit of its own it gets the one of what it should have been.
    limit = max((one.layers for one in ours), default=0) + 1 if max_layers is None else max_layers
    theirs = run_batch(small.program, batch, limit, executor=executor, progress=progress)
    groups: defaultdict[Hashable, list[int]] = defaultdict(lambda: [0, 0, 0])
    wrong: list[Failure] = []
    for tokens, one, other in zip(batch, ours, theirs, strict=True):
        good = [_is_right(tokens, run, one, right) for run in (one, other)]
        row = groups[by(tokens)]
        row[0] += 1
        row[1] += good[0]
        row[2] += good[1]
        if not good[1] and len(wrong) < failures:
            wrong.append(Failure(tokens, _reasons(small.coverage, tokens, max_layers, other)))
    return Prediction(small, _ordered(groups), tuple(wrong))


def _ordered(groups: Mapping[Hashable, Sequence[int]]) -> dict[Hashable, tuple[int, int, int]]:
    """Numbers in their order, then others in that of their names."""
    numbers = [group for group in groups if isinstance(group, int | float)]
    ordered = [*sorted(numbers), *sorted((group for group in groups if group not in numbers), key=str)]
    return {group: tuple(groups[group]) for group in ordered}  # type: ignore[misc]


def _is_right(
    tokens: Sequence[Token],
    run: BatchRun,
    original: BatchRun,
    right: Callable[[Sequence[Token], Sequence[Any]], bool] | None,
) -> bool:
    if run.error is not None:
        return False
    if right is not None:
        return bool(right(tokens, run.outputs))
    return (run.outputs, run.halted) == (original.outputs, original.halted)


def _reasons(seen: Coverage, tokens: tuple[Token, ...], max_layers: int | None, run: BatchRun) -> tuple[str, ...]:
    """What the original program uses here that the training set never did; if nothing, what happened."""
    needed = coverage(seen.program, [tokens], max_layers, progress=False)
    reasons = []
    unseen = [str(token) for token in needed.tokens if not seen.token_counts[seen.program.tokens.index(token)]]
    if unseen:
        reasons.append(f"tokens never seen: {', '.join(unseen)}")
    if needed.positions > seen.positions and any(
        isinstance(variable.start, FromPosition) for variable in seen.program.variables.values()
    ):
        reasons.append(f"positions never seen: {seen.positions} to {needed.positions - 1}")
    rules = tuple(seen.program.rules)
    core = len(seen.program.rules.core)
    missing = np.flatnonzero((needed.rule_counts[:core] > 0) & (seen.rule_counts[:core] == 0))
    if len(missing):
        more = f", and {len(missing) - 1:,} more" if len(missing) > 1 else ""
        reasons.append(f"rules never fired: {rules[missing[0]]}{more}")
    if not reasons:
        reasons.append(str(run.error) if run.error is not None else "it goes another way")
    return tuple(reasons)
