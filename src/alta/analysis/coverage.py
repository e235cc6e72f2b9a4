"""What a set of inputs exercises of a program: which rules fire, which tokens and positions are seen.

Coverage is a sum over inputs, so it can be taken in parts, on any number of machines, and put together in any order.
"""

from __future__ import annotations

import hashlib
import json
from collections import Counter
from collections.abc import Iterable, Mapping, Sequence, Sized
from concurrent.futures import Executor
from dataclasses import dataclass, replace
from functools import partial
from itertools import islice
from pathlib import Path

import numpy as np
from numpy.typing import NDArray

from alta.displayed import Displayed
from alta.errors import InputError, amount
from alta.interpreter.batch import CHUNK, checked, numbered, run_chunk
from alta.interpreter.plan import Plan, plan
from alta.interpreter.sheet import Wanted
from alta.interpreter.trace import Assignment
from alta.language.program import Program, Token
from alta.language.record import to_data
from alta.language.rules import Rule
from alta.language.variables import UNDEFINED, Cell, Constant, FromPosition, FromToken, Value, declared, format_value
from alta.parallel import map_chunks, progress_bar
from alta.whole import whole

Counts = NDArray[np.int64]

SAVED_EVERY = 50
"""Chunks after which a checkpoint is written."""


@dataclass(frozen=True, eq=False, repr=False)
class Coverage(Displayed):
    """How often each rule fired, and each token and position was seen, over so many inputs.

    Inputs that met an error count as `failed`, and for nothing else.

    >>> short, long = (alta.coverage(program, [["START", *bits]]) for bits in ("1", "10"))
    >>> (short + long).inputs, (short + long).layers
    (2, 2)
    """

    program: Program
    inputs: int
    failed: int
    rule_counts: Counts  # (rule), in the order of program.rules: core, then resets
    token_counts: Counts  # (token)
    position_counts: Counts  # (position): how many inputs reach it
    layers: int  # the most that an input took
    packed: Mapping[bytes, int] | None = None  # what the MLP was given, as codes of all variables, if it was asked for

    def __add__(self, other: Coverage) -> Coverage:
        if self.program != other.program:
            raise InputError("coverage of one program cannot be added to that of another")
        width = max(len(self.position_counts), len(other.position_counts))
        return Coverage(
            self.program,
            self.inputs + other.inputs,
            self.failed + other.failed,
            self.rule_counts + other.rule_counts,
            self.token_counts + other.token_counts,
            _padded(self.position_counts, width) + _padded(other.position_counts, width),
            max(self.layers, other.layers),
            None if self.packed is None or other.packed is None else _together(self.packed, other.packed),
        )

    @property
    def fired(self) -> Mapping[Rule, int]:
        """The rules that fired, and how often.

        >>> for rule, count in alta.coverage(program, [["START", "1", "0"]]).fired.items():
        ...     if not rule.is_reset:
        ...         print(count, rule)
        1 done=0 ∧ done_left=1 ∧ parity=0 ∧ parity_left=1 ⟹ parity := 1
        2 done=0 ∧ done_left=1 ⟹ done := 1
        """
        rules = tuple(self.program.rules)
        return {rules[number]: int(self.rule_counts[number]) for number in np.flatnonzero(self.rule_counts)}

    @property
    def tokens(self) -> Mapping[Token, int]:
        """The tokens that were seen, and how often.

        >>> alta.coverage(program, [["START", "1", "1"]]).tokens
        {'1': 2, 'START': 1}
        """
        return {self.program.tokens[i]: int(self.token_counts[i]) for i in np.flatnonzero(self.token_counts)}

    @property
    def positions(self) -> int:
        """How many positions were seen: those from 0 up to this.

        >>> alta.coverage(program, [["START", "1", "1"]]).positions
        3
        """
        return len(self.position_counts)

    @property
    def mlp_inputs(self) -> list[tuple[Assignment, int]]:
        """What the MLP was given, over all positions and layers: each distinct assignment, and how often it came. Means
        are the buckets that it sees; a mean without buckets, which it does not see, is UNDEFINED.

        >>> seen = alta.coverage(program, [["START", "1", "1"]], mlp_inputs=True).mlp_inputs
        >>> len(seen), sum(count for _, count in seen)  # three positions, two layers
        (5, 6)
        """
        if self.packed is None:
            raise InputError("MLP inputs were not collected; ask for them with coverage(..., mlp_inputs=True)")
        how = plan(self.program)
        return [(_assignment(how, packed), count) for packed, count in self.packed.items()]

    @property
    def values(self) -> Mapping[str, tuple[Value, ...]]:
        """The values that each variable had: where it started, or was set to; for outputs of heads, what was reset.

        >>> alta.coverage(program, [["START", "0", "0"]]).values["parity"]
        (0,)
        """
        found: dict[str, set[Value]] = {name: set() for name in self.program.variables}
        for name, variable in self.program.variables.items():
            match variable.start:
                case FromToken(table):
                    found[name].update(table[i] for i in np.flatnonzero(self.token_counts))
                case FromPosition(table):
                    found[name].update(table[: self.positions])
                case Constant(value) if self.positions:
                    found[name].add(value)
        for rule in self.fired:
            found[rule.output].add(rule.old if rule.is_reset else rule.new)  # type: ignore[arg-type]
        return {
            name: tuple(value for value in self.program.variables[name].domain.values or values if value in values)
            for name, values in found.items()
        }

    def save(self, path: str | Path) -> None:
        """Writes it as JSON, with a fingerprint of the program.

        >>> alta.coverage(program, [["START", "1"]]).save("seen.json")
        >>> alta.Coverage.load("seen.json", program).inputs
        1
        """
        data = {
            "format": "alta-coverage 1",
            "program": fingerprint(self.program),
            "inputs": self.inputs,
            "failed": self.failed,
            "layers": self.layers,
            "rules": {int(i): int(self.rule_counts[i]) for i in np.flatnonzero(self.rule_counts)},
            "tokens": self.token_counts.tolist(),
            "positions": self.position_counts.tolist(),
            "mlp inputs": None
            if self.packed is None
            else [[count, *np.frombuffer(packed, np.int32).tolist()] for packed, count in self.packed.items()],
        }
        with whole(path) as part:
            part.write_text(json.dumps(data))

    @staticmethod
    def load(path: str | Path, program: Program) -> Coverage:
        """Reads what `save` has written for the same program.

        >>> alta.Coverage.load("nothing.json", program)  # doctest: +ELLIPSIS
        Traceback (most recent call last):
        alta.errors.InputError: 'nothing.json' is no coverage that can be read: ...
        """
        try:
            data = json.loads(Path(path).read_text())
            if data["format"] != "alta-coverage 1":
                raise InputError(f"{str(path)!r} is in format {data['format']!r}; this alta reads alta-coverage 1")
            if data["program"] != fingerprint(program):
                raise InputError(f"{str(path)!r} holds the coverage of another program")
            counts = np.zeros(len(program.rules), np.int64)
            for number, count in dict(data["rules"]).items():
                counts[int(number)] = count
            tokens, positions = (np.array(data[name], np.int64) for name in ("tokens", "positions"))
            packed = data["mlp inputs"]
            if packed is not None:
                packed = {np.array(codes, np.int32).tobytes(): count for count, *codes in packed}
            return Coverage(program, data["inputs"], data["failed"], counts, tokens, positions, data["layers"], packed)
        except (OSError, KeyError, TypeError, IndexError, ValueError) as error:
            if isinstance(error, InputError):
                raise
            raise InputError(f"{str(path)!r} is no coverage that can be read: {error}") from None

    def __repr__(self) -> str:
        fired = int(np.count_nonzero(self.rule_counts))
        rules = amount(len(self.program.rules), "rule")
        return f"<coverage: {amount(self.inputs, 'input')}, {fired:,} of {rules} fired>"

    def __str__(self) -> str:
        core = len(self.program.rules.core)
        fired = [int(np.count_nonzero(part)) for part in (self.rule_counts[:core], self.rule_counts[core:])]
        values, domains = self.values, self.program.variables
        bound = "" if self.program.positions is None else f" of {self.program.positions:,}"
        lines = [
            f"{amount(self.inputs, 'input')}{f', {self.failed:,} of them with an error' if self.failed else ''}, "
            f"up to {amount(self.layers, 'layer')}",
            f"rules      {fired[0]:,} of {core:,} fired, and {fired[1]:,} of {len(self.program.rules.resets):,} resets",
            f"tokens     {len(self.tokens):,} of {len(self.program.tokens):,} seen",
            f"positions  {self.positions:,}{bound}",
            "values",
        ]
        width = max(map(len, declared(domains)), default=0)
        for name in declared(domains):
            number = len(domains[name].domain.values)
            shown = ", ".join(map(format_value, values[name][:8])) + (", …" if len(values[name]) > 8 else "")
            lines.append(f"  {name:{width}}  {len(values[name]):,} of {number or 'all':,}: {shown}")
        return "\n".join(lines)


def coverage(
    program: Program,
    inputs: Iterable[Iterable[Token]],
    max_layers: int | None = None,
    *,
    mlp_inputs: bool = False,
    engine: str = "auto",
    executor: Executor | None = None,
    chunk: int = CHUNK,
    checkpoint: str | Path | None = None,
    progress: bool | None = None,
) -> Coverage:
    """What the inputs exercise of the program. Inputs may be more than memory holds.

    With `mlp_inputs`, the distinct assignments that the MLP is given are collected too, which takes longer.

    With a `checkpoint`, a file, what is known is saved there from time to time; if the file is there already, the
    inputs that it counts are skipped, so that a run that was ended goes on where it was.

    >>> print(alta.coverage(program, [["START", "1"], ["START", "1", "0"]]))
    2 inputs, up to 2 layers
    rules      2 of 3 fired, and 4 of 4 resets
    tokens     3 of 3 seen
    positions  3
    values
      parity       2 of 2: 0, 1
      done         2 of 2: 0, 1
      parity_left  2 of 2: 0, 1
      done_left    2 of 2: 0, 1
    """
    checked(program, inputs, max_layers, engine)
    how = plan(program)
    found = empty(how.program, mlp_inputs)
    total = len(inputs) if isinstance(inputs, Sized) else None
    rest = numbered(inputs)
    if checkpoint is not None and Path(checkpoint).exists():
        found = Coverage.load(checkpoint, how.program)
        if mlp_inputs and found.packed is None:
            raise InputError(f"{str(checkpoint)!r} was begun without MLP inputs; take another file, or leave them out")
        rest = islice(rest, found.inputs, None)
    work = partial(_cover, how, wanted=Wanted(max_layers, fired=True, seen=mlp_inputs), engine=engine)
    with progress_bar("coverage", total, progress) as advance:
        advance(found.inputs)
        for number, (done, part) in enumerate(map_chunks(work, rest, size=chunk, executor=executor), start=1):
            found += Coverage(how.program, *part)
            advance(done)
            if checkpoint is not None and number % SAVED_EVERY == 0:
                found.save(checkpoint)
    if checkpoint is not None:
        found.save(checkpoint)
    return found


def _seen(how: Plan, good: Sequence[tuple[int, tuple[Token, ...]]], wanted: Wanted) -> Counter[bytes]:
    """What the MLP is given by inputs that meet no error. Only NumPy collects it."""
    found: Counter[bytes] = Counter()
    for _, outcome in run_chunk(how, good, replace(wanted, fired=False), "numpy"):
        found.update(outcome.seen)
    return found


def _assignment(how: Plan, packed: bytes) -> Assignment:
    cells: list[Cell] = []
    for column, code in zip(how.columns, np.frombuffer(packed, np.int32).tolist(), strict=True):
        cells.append(column.values[code] if code < len(column.values) else UNDEFINED)
    return Assignment({column.name: number for number, column in enumerate(how.columns)}, tuple(cells))


def empty(program: Program, mlp_inputs: bool = False) -> Coverage:
    """Coverage by no input."""
    none = np.zeros(0, np.int64)
    rules, tokens = np.zeros(len(program.rules), np.int64), np.zeros(len(program.tokens), np.int64)
    return Coverage(program, 0, 0, rules, tokens, none, 0, {} if mlp_inputs else None)


def fingerprint(program: Program) -> str:
    """The same for programs that hold the same data."""
    text = json.dumps(to_data(program), sort_keys=True, separators=(",", ":"))
    return hashlib.sha256(text.encode()).hexdigest()


def _cover(
    how: Plan, given: Sequence[tuple[int, tuple[Token, ...]]], wanted: Wanted, engine: str
) -> tuple[int, int, Counts, Counts, Counts, int, Mapping[bytes, int] | None]:
    """What `Coverage` holds beside its program, which need not travel back from a worker."""
    program = how.program
    rules = np.zeros(len(program.rules), np.int64)
    layers = failed = 0
    good: list[int] = []
    for places, outcome in run_chunk(how, given, replace(wanted, seen=False), engine):
        assert outcome.fired is not None
        right = [row for row in range(len(places)) if row not in outcome.errors]
        failed += len(places) - len(right)
        good += [places[row] for row in right]
        rules += outcome.fired[right].sum(axis=0, dtype=np.int64)
        layers = max(layers, int(outcome.layers[right].max(initial=0)))
    tokens = Counter(token for place in good for token in given[place][1])
    lengths = np.bincount([len(given[place][1]) for place in good], minlength=1)
    return (
        len(given),
        failed,
        rules,
        np.array([tokens[token] for token in program.tokens], np.int64),
        lengths[::-1].cumsum()[::-1][1:].astype(np.int64),  # those that are longer than the position's number
        layers,
        _seen(how, [given[place] for place in good], wanted) if wanted.seen else None,
    )


def _together(one: Mapping[bytes, int], other: Mapping[bytes, int]) -> Mapping[bytes, int]:
    found = Counter(one)
    found.update(other)
    return found


def _padded(counts: Counts, width: int) -> Counts:
    return np.pad(counts, (0, width - len(counts)))
