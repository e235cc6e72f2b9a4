"""The meaning of a program, for many inputs at once: what `run` gives, thousands of times as fast."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence, Sized
from concurrent.futures import Executor
from dataclasses import dataclass, field
from functools import partial
from importlib import import_module
from itertools import pairwise
from typing import Any

import numpy as np

from alta.errors import ExecutionError, InputError
from alta.interpreter.plan import Plan, plan
from alta.interpreter.reading import Array
from alta.interpreter.run import check_generation, check_layers
from alta.interpreter.sheet import Outcome, Snapshot, Wanted, execute, states
from alta.interpreter.trace import Layer, State, Trace
from alta.language.program import Program, Token
from alta.language.rules import Rule
from alta.language.variables import Categorical, Cell
from alta.parallel import map_chunks, progress_bar

CHUNK = 4096
"""Inputs that are taken at a time."""

CELLS = 1 << 16
"""Positions that are worked on side by side: as many as fit a processor's cache with their variables."""

COUNTS = 1 << 24
"""Counts of rules, of all inputs that are worked on side by side."""

SMALL = 1 << 21
"""Positions times layers, at a guess, below which a job is small."""

ENGINES = ("auto", "numpy", "numba")

_cells_so_far = 0


@dataclass(frozen=True, eq=False)
class BatchRun:
    """What came of one input: outputs, layers and whether it halted, as `run` gives them, or the error that stopped it.

    `fired` tells how often each rule fired, if that was asked for, and `trace` is the full one.

    >>> good, bad = alta.run_batch(program, [["START", "1"], ["1", "0"]])
    >>> good.outputs, good.layers, good.halted
    ((0, 1), 1, True)
    >>> type(bad.error).__name__
    'UndefinedError'
    """

    outputs: tuple[Cell, ...]
    layers: int
    halted: bool
    error: ExecutionError | None = None
    fired: Mapping[Rule, int] | None = field(default=None, repr=False)
    trace: Trace | None = field(default=None, repr=False)


def run_batch(
    program: Program,
    inputs: Iterable[Iterable[Token]],
    max_layers: int | None = None,
    *,
    fired: bool = False,
    trace: bool = False,
    engine: str = "auto",
    executor: Executor | None = None,
    chunk: int = CHUNK,
    progress: bool | None = None,
) -> list[BatchRun]:
    """Runs the program on every input. One that traps, reads UNDEFINED or would run for ever is reported as such, and
    the others finish.

    `engine` is "numpy", "numba" (needs the extra `fast`), or "auto", which takes Numba where it is installed. With an
    executor, chunks of inputs are spread over its workers. A bar on the terminal shows how far it is, unless `progress`
    is False.

    >>> batch = [["START", *format(number, "b")] for number in range(1000)]
    >>> sum(found.outputs[-1] for found in alta.run_batch(program, batch))
    500
    """
    options = {"fired": fired, "trace": trace, "engine": engine, "executor": executor, "chunk": chunk}
    return list(run_stream(program, inputs, max_layers, progress=progress, **options))  # type: ignore[arg-type]


def run_stream(
    program: Program,
    inputs: Iterable[Iterable[Token]],
    max_layers: int | None = None,
    *,
    fired: bool = False,
    trace: bool = False,
    engine: str = "auto",
    executor: Executor | None = None,
    chunk: int = CHUNK,
    progress: bool | None = None,
) -> Iterator[BatchRun]:
    """The same, one result after another. Inputs are taken as they are needed, so they need not fit in memory.

    >>> inputs = (["START", *format(number, "b")] for number in range(1000))
    >>> sum(found.outputs[-1] for found in alta.run_stream(program, inputs))
    500
    """
    checked(program, inputs, max_layers, engine)
    how = plan(program)
    work = partial(_work, how, wanted=Wanted(max_layers, fired, trace), engine=engine)
    total = len(inputs) if isinstance(inputs, Sized) else None
    with progress_bar("running", total, progress) as advance:
        for number, results in map_chunks(work, numbered(inputs), size=chunk, executor=executor):
            yield from results
            advance(number)


@dataclass(frozen=True)
class BatchGeneration:
    """What a causal program has written after one prompt, and how many layers each token took, or the error that
    stopped it.

    >>> (written,) = alta.generate_batch(parity.scratchpad(), [["START", "1", "0", "="]], stop="END")
    >>> written.tokens, written.stopped, written.layers
    (('1', '1', 'END'), True, (4, 4, 4))
    """

    prompt: tuple[Token, ...]
    tokens: tuple[Token, ...]
    stopped: bool
    layers: tuple[int, ...]
    error: ExecutionError | None = None


def generate_batch(
    program: Program,
    prompts: Iterable[Iterable[Token]],
    *,
    stop: Token | None = None,
    max_tokens: int = 1000,
    max_layers: int | None = None,
    engine: str = "auto",
    executor: Executor | None = None,
) -> list[BatchGeneration]:
    """Lets a causal program write after each of the prompts, as `generate` does after one.

    >>> prompts = [["START", *bits, "="] for bits in ("10", "111")]
    >>> [written.tokens for written in alta.generate_batch(parity.scratchpad(), prompts, stop="END")]
    [('1', '1', 'END'), ('1', '0', '1', 'END')]
    """
    check_generation(program, stop)
    given = [tuple(prompt) for prompt in prompts]
    for number, prompt in enumerate(given):
        if not prompt:
            raise InputError(f"prompt {number} is empty, so there is no last position to read an output from")
    found = [BatchGeneration(prompt, (), False, ()) for prompt in given]
    going = list(range(len(found))) if max_tokens > 0 else []
    while going:
        texts = [(*found[i].prompt, *found[i].tokens) for i in going]
        runs = run_batch(program, texts, max_layers, engine=engine, executor=executor, progress=False)
        for i, result in zip(going, runs, strict=True):
            before = found[i]
            if result.error is not None:
                found[i] = BatchGeneration(before.prompt, before.tokens, False, before.layers, result.error)
                continue
            token = program.tokens[result.outputs[-1]]  # type: ignore[index]
            found[i] = BatchGeneration(
                before.prompt, (*before.tokens, token), token == stop, (*before.layers, result.layers)
            )
        full = program.positions
        going = [
            i
            for i in going
            for one in (found[i],)
            if one.error is None
            and not one.stopped
            and len(one.tokens) < max_tokens
            and (full is None or len(one.prompt) + len(one.tokens) < full)
        ]
    return found


def checked(program: Program, inputs: object, max_layers: int | None, engine: str) -> None:
    """Refuses what cannot be run."""
    check_layers(program, max_layers)
    if isinstance(inputs, str) or not isinstance(inputs, Iterable):
        raise InputError(f"a batch is a sequence of inputs, each a sequence of tokens; got {inputs!r}")
    if engine not in ENGINES:
        raise InputError(f"there is no engine {engine!r}; engines: {', '.join(ENGINES)}")


def numbered(inputs: Iterable[Iterable[Token]]) -> Iterator[tuple[int, tuple[Token, ...]]]:
    """The inputs as tuples, each with its number."""
    for number, tokens in enumerate(inputs):
        if not isinstance(tokens, Iterable):
            raise InputError(f"input {number}: inputs are a sequence of tokens; got {tokens!r}")
        yield number, tuple(tokens)


def _work(how: Plan, given: Sequence[tuple[int, tuple[Token, ...]]], wanted: Wanted, engine: str) -> list[BatchRun]:
    results: list[BatchRun | None] = [None] * len(given)
    for places, outcome in run_chunk(how, given, wanted, engine):
        for row, place in enumerate(places):
            results[place] = _result(how, given[place][1], outcome, row, wanted)
    return results  # type: ignore[return-value]


def run_chunk(
    how: Plan, given: Sequence[tuple[int, tuple[Token, ...]]], wanted: Wanted, engine: str = "auto"
) -> Iterator[tuple[list[int], Outcome]]:
    """Runs some inputs, those of like length side by side. Yields the places of some of them, and their outcome."""
    encoded = _encoded(how.program, given)
    order = sorted(range(len(encoded)), key=lambda place: len(encoded[place]))
    cells = sum(len(row) * max(len(row), 32) for row in encoded)
    if not (wanted.trace or wanted.seen) and (kernel := _kernel(engine, cells)) is not None:
        order = yield from kernel.run_rows(how, encoded, order, wanted)
    most = COUNTS // len(how.program.rules) if wanted.fired and len(how.program.rules) else len(order)
    while order:
        size = max(min(CELLS // max(len(encoded[order[-1]]), 1), most), 1)
        part, order = order[-size:], order[:-size]
        yield part, execute(how, [encoded[place] for place in part], wanted)


def _kernel(engine: str, cells: int) -> Any:
    """The module with the compiled loops, if they are to be used. Loading them takes about as long as NumPy takes for a
    small job, or for the chunks of a large one that have come so far."""
    global _cells_so_far
    _cells_so_far += cells
    if engine == "numpy" or (engine == "auto" and _cells_so_far < SMALL):
        return None
    name = "alta.interpreter.kernel"
    try:
        return import_module(name)
    except ModuleNotFoundError:
        if engine == "numba":
            raise InputError("the engine 'numba' needs Numba: pip install 'alta[fast]'") from None
        return None


def _encoded(program: Program, given: Sequence[tuple[int, tuple[Token, ...]]]) -> list[Array]:
    codes: list[int] = []
    ends = [0]
    for number, tokens in given:
        try:
            codes += program.encode(tokens)
        except InputError as error:
            raise InputError(f"input {number}: {error}") from None
        ends.append(len(codes))
    together = np.array(codes, np.int32)
    return [together[first:end] for first, end in pairwise(ends)]


def _result(how: Plan, tokens: tuple[Token, ...], outcome: Outcome, row: int, wanted: Wanted) -> BatchRun:
    layers, error = int(outcome.layers[row]), outcome.errors.get(row)
    fired = None if outcome.fired is None else _fired(how, outcome.fired[row])
    if error is not None:
        return BatchRun((), layers, False, error, fired)
    codes, domain = outcome.outputs[row].tolist(), how.program.variables[how.program.output].domain
    values = how.columns[how.output].values
    outputs = tuple(codes if isinstance(domain, Categorical) else [values[code] for code in codes])
    trace = _trace(how, tokens, outcome, row, layers) if wanted.trace else None
    return BatchRun(outputs, layers, bool(outcome.halted[row]), None, fired, trace)


def _fired(how: Plan, counts: Array) -> dict[Rule, int]:
    rules = tuple(how.program.rules)
    return {rules[number]: int(counts[number]) for number in np.flatnonzero(counts)}


def _trace(how: Plan, tokens: tuple[Token, ...], outcome: Outcome, row: int, layers: int) -> Trace:
    length = len(tokens)

    def state(snapshot: Snapshot, attended: bool) -> State:
        place = int(np.searchsorted(snapshot.active, row))
        return states(how, snapshot, place, length, attended=attended)

    start, *rest = outcome.snapshots[: 1 + 2 * layers]
    found = [
        Layer(state(attended, True), state(done, False), _fired_at(how, attended, done, row, length))
        for attended, done in zip(rest[::2], rest[1::2], strict=True)
    ]
    return Trace(how.program, tokens, state(start, False), tuple(found))


def _fired_at(how: Plan, attended: Snapshot, done: Snapshot, row: int, length: int) -> tuple[tuple[Rule, ...], ...]:
    """The rules that fired at each position, those as written first."""
    rules = how.program.rules
    fired: list[list[Rule]] = [[] for _ in range(length)]
    place = int(np.searchsorted(done.active, row))
    for rows, positions, numbers in done.fired:
        for index in np.flatnonzero(rows == place).tolist():
            for position in range(length) if positions is None else (int(positions[index]),):
                fired[position].append(rules.core[int(numbers[index])])
    place = int(np.searchsorted(attended.active, row))
    for variable, first in how.first_reset.items():
        codes = attended.columns[variable]
        assert codes is not None
        for position in range(length):
            code = int(codes[place] if codes.ndim == 1 else codes[place, position])
            if code < len(how.columns[variable].values):
                fired[position].append(rules.resets[first - len(rules.core) + code])
    return tuple(map(tuple, fired))
