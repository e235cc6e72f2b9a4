"""Traces as data: what the MLP is given and what it makes of it, as vectors of the residual stream."""

from __future__ import annotations

import json
from collections.abc import Iterable, Mapping
from concurrent.futures import Executor
from dataclasses import dataclass
from functools import cached_property
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray
from safetensors import SafetensorError, safe_open
from safetensors.numpy import save_file

from alta.analysis.coverage import coverage
from alta.compiler.compile import encode
from alta.compiler.encoding import Encoding
from alta.compiler.layout import width
from alta.compiler.precision import precision_of
from alta.errors import InputError, TrainingError
from alta.interpreter.plan import Plan, plan
from alta.interpreter.sheet import Snapshot, Wanted, execute
from alta.language.program import Program, Token
from alta.language.variables import NULL, UNDEFINED, Cell
from alta.model.weights import Array, checksum
from alta.whole import whole

FORMAT = "alta-traces 1"


@dataclass(frozen=True, eq=False)
class TraceDataset:
    """The distinct pairs of MLP input and output over all positions and layers of some runs, and how often each came.

    A mean stands at the bucket that the MLP takes it for. What is UNDEFINED can be anything: it is 0 in `inputs`, and
    `undefined` tells where.
    """

    inputs: NDArray[np.float32]  # (pair, dim)
    outputs: NDArray[np.float32]  # (pair, dim)
    undefined: NDArray[np.bool_]  # (pair, dim)
    counts: NDArray[np.int64]  # (pair)
    slices: Mapping[str, slice]  # of each variable in dim

    def __len__(self) -> int:
        return len(self.counts)

    @cached_property
    def checksum(self) -> str:
        """The same for the same pairs."""
        return checksum("", self._arrays())

    def _arrays(self) -> dict[str, NDArray[Any]]:
        return {name: np.ascontiguousarray(getattr(self, name)) for name in _ARRAYS}

    def save(self, path: str | Path) -> None:
        """Writes it to one safetensors file."""
        arrays = self._arrays()
        slices = {name: [part.start, part.stop] for name, part in self.slices.items()}
        with whole(path) as part:
            save_file(arrays, part, {"format": FORMAT, "slices": json.dumps(slices)})

    @staticmethod
    def load(path: str | Path) -> TraceDataset:
        """Reads what `save` has written."""
        try:
            with safe_open(path, "np") as file:
                metadata = file.metadata() or {}
                if metadata.get("format") != FORMAT:
                    raise TrainingError(f"{str(path)!r} holds no traces, or those of another version of alta")
                arrays: dict[str, Any] = {name: file.get_tensor(name) for name in _ARRAYS}
            slices = {name: slice(*ends) for name, ends in json.loads(metadata["slices"]).items()}
            return TraceDataset(**arrays, slices=slices)
        except (OSError, SafetensorError, KeyError, ValueError) as error:
            if isinstance(error, TrainingError):
                raise
            raise TrainingError(f"{str(path)!r} holds no traces that can be read: {error}") from None

    def __repr__(self) -> str:
        pairs, dim = self.inputs.shape
        return f"<traces: {pairs:,} distinct pairs of {int(self.counts.sum()):,}, {dim} dims>"


_ARRAYS = ("inputs", "outputs", "undefined", "counts")


def trace_dataset(
    program: Program,
    inputs: Iterable[Iterable[Token]],
    max_layers: int | None = None,
    *,
    executor: Executor | None = None,
    checkpoint: str | Path | None = None,
    progress: bool | None = None,
) -> TraceDataset:
    """Runs the program on the inputs, which may be more than memory holds, and collects what its MLP does.

    With a `checkpoint`, a file, a run that was ended goes on where it was, as that of `coverage` does.
    """
    seen = coverage(
        program, inputs, max_layers, mlp_inputs=True, executor=executor, checkpoint=checkpoint, progress=progress
    )
    if not seen.packed:
        raise InputError("the inputs give no traces: no layer ran on any of them")
    pairs = seen.mlp_inputs
    encoding = encode(program, precision_of("float32"))
    shape = len(pairs), encoding.layout.dim
    given, made = np.zeros(shape, np.float32), np.zeros(shape, np.float32)
    undefined = np.zeros(shape, bool)
    after = [_after(program, assignment) for assignment, _ in pairs]
    for name, part in encoding.layout.slices.items():
        before: list[Cell] = [assignment[name] for assignment, _ in pairs]
        given[:, part] = _vectors(encoding, name, before)
        made[:, part] = _vectors(
            encoding, name, [updates.get(name, old) for updates, old in zip(after, before, strict=True)]
        )
        undefined[:, part] = np.array([value is UNDEFINED for value in before])[:, None]
    counts = np.array([count for _, count in pairs], np.int64)
    return TraceDataset(given, made, undefined, counts, dict(encoding.layout.slices))


def _after(program: Program, assignment: Mapping[str, Cell]) -> dict[str, Cell]:
    """What the MLP changes; outputs of heads are NULL in the end."""
    found: dict[str, Cell] = {name: NULL for name, variable in program.variables.items() if variable.is_output}
    for rule in program.rules.match(assignment).rules:
        found[rule.output] = rule.new
    return found


def _vectors(encoding: Encoding, name: str, values: list[Cell]) -> Array:
    """A variable's part of the residual stream for each value; zeros for NULL and UNDEFINED."""
    rows: dict[Cell, int] = {}
    places = np.array([rows.setdefault(value, len(rows)) for value in values])
    first = encoding.layout.slices[name].start
    table = np.zeros((len(rows), width(encoding.program.variables[name].domain)))
    for value, row in rows.items():
        if value is not NULL and value is not UNDEFINED:
            for place, number in encoding.entries(name, value).items():
                table[row, place - first] = number
    return np.asarray(table[places])


@dataclass(frozen=True, eq=False)
class StateDataset:
    """The states of some runs, as numbers: of each variable its value's place among `values`, and -1 where it is NULL,
    UNDEFINED, or there is no position. An input that has halted stays as it is, but for the outputs of its heads."""

    codes: NDArray[np.int16]  # (input, sub-layer, position, variable); the start, then attention, MLP, attention, …
    values: Mapping[str, tuple[Cell, ...]]  # of each variable


def state_dataset(program: Program, inputs: Iterable[Iterable[Token]], layers: int) -> StateDataset:
    """Runs the program on the inputs for so many layers. Means are taken as the buckets that the MLP sees; those
    without buckets are left out."""
    how = plan(program)
    rows = [np.array(program.encode(tuple(tokens)), np.int32) for tokens in inputs]
    outcome = execute(how, rows, Wanted(layers, trace=True))
    if outcome.errors:
        number, error = next(iter(outcome.errors.items()))
        raise InputError(f"input {number}: {error}")
    chosen = [number for number, column in enumerate(how.columns) if column.values]
    longest = max(map(len, rows), default=0)
    codes = np.full((len(rows), 1 + 2 * layers, longest, len(chosen)), -1, np.int16)
    there = np.arange(longest) < np.array([len(row) for row in rows])[:, None]
    for step in range(1 + 2 * layers):
        if step:
            codes[:, step] = codes[:, step - 1]
        for place, variable in enumerate(chosen):
            if how.columns[variable].start is None:
                codes[:, step, :, place] = -1
        if step < len(outcome.snapshots):
            _note(how, outcome.snapshots[step], chosen, codes[:, step])
    codes[~np.broadcast_to(there[:, None], codes.shape[:3])] = -1
    return StateDataset(codes, {how.columns[number].name: how.columns[number].values for number in chosen})


def _note(how: Plan, snapshot: Snapshot, chosen: list[int], codes: NDArray[np.int16]) -> None:
    for place, variable in enumerate(chosen):
        found = snapshot.columns[variable]
        if found is not None:
            wide = np.broadcast_to(found[:, None], (len(found), codes.shape[1])) if found.ndim == 1 else found
            wide = np.where(wide == how.columns[variable].undefined, np.int16(-1), wide.astype(np.int16))
            codes[snapshot.active, : wide.shape[1], place] = wide
