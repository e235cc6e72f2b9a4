"""Many inputs side by side in NumPy: the batch interpreter's work on one chunk.

A variable is an array of codes: one for each input if it is the same at all positions, otherwise one for each input and
position. Inputs that have halted, trapped, or come back to an earlier state leave the arrays.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass, field

import numpy as np

from alta.errors import EndlessError, ExecutionError
from alta.interpreter.plan import Plan, children
from alta.interpreter.reading import Array, Bools, Reading
from alta.interpreter.run import mlp
from alta.interpreter.trace import Assignment, State
from alta.interpreter.tries import BAD, NONE, RULE
from alta.language.variables import NULL, UNDEFINED, Cell

FEW = 8
"""Nodes of a trie that are gone on from one after another; more of them, all at once."""


@dataclass(frozen=True, eq=False)
class Snapshot:
    """The state of the inputs that are still running, after a sub-layer."""

    active: Array  # (row): which inputs these are
    columns: list[Array | None]
    means: dict[int, tuple[Array, Array]]  # for each head that takes means: sums of steps, and how many
    fired: list[tuple[Array, Array | None, Array]]  # rows, positions (or all of them), rules


@dataclass(eq=False)
class Outcome:
    """What came of a chunk of inputs."""

    outputs: list[Array]  # (input)(position): codes of the output variable
    layers: Array  # (input)
    halted: Bools  # (input)
    errors: dict[int, ExecutionError]
    fired: Array | None = None  # (input, rule): how often; core rules, then resets
    snapshots: list[Snapshot] = field(default_factory=list)
    seen: Counter[bytes] = field(default_factory=Counter)  # what the MLP was given, as packed codes of all variables


@dataclass(frozen=True)
class Wanted:
    """What is to be kept on the way."""

    max_layers: int | None
    fired: bool = False
    trace: bool = False
    seen: bool = False


def execute(plan: Plan, tokens: Sequence[Array], wanted: Wanted) -> Outcome:
    """Runs all inputs of a chunk, each given by the indices of its tokens."""
    sheet = Sheet(plan, tokens, wanted)
    sheet.run()
    return sheet.outcome


class Sheet(Reading):
    """The state of a chunk."""

    def __init__(self, plan: Plan, tokens: Sequence[Array], wanted: Wanted) -> None:
        self.plan = plan
        self.wanted = wanted
        number = len(tokens)
        self.lengths = np.array([len(row) for row in tokens], np.int64)
        self.width = int(self.lengths.max(initial=0))
        self.active = np.arange(number)
        self.outcome = Outcome(
            outputs=[np.zeros(0, np.int32)] * number,
            layers=np.zeros(number, np.int64),
            halted=np.zeros(number, bool),
            errors={},
            fired=np.zeros((number, len(plan.program.rules)), np.int32) if wanted.fired else None,
        )
        self.there: Bools | None = None
        if int(self.lengths.min(initial=self.width)) < self.width:
            self.there = np.arange(self.width) < self.lengths[:, None]
        padded = np.zeros((number, self.width), np.int32)
        for row, given in enumerate(tokens):
            padded[row, : len(given)] = given
        self.columns: list[Array | None] = [self._start(variable, padded) for variable in range(len(plan.columns))]
        self.landmark: list[Array | None] = []
        self.attended: dict[int, Array] = {}
        self.selected: dict[int, tuple[Array, ...]] = {}
        self.means: dict[int, tuple[Array, Array]] = {}
        self.updates: list[tuple[int, Array, Array | None, Array]] = []  # owner, rows, positions, rules
        self.bad: list[Array] = []

    def _start(self, variable: int, tokens: Array) -> Array | None:
        column = self.plan.columns[variable]
        if column.start is None:
            return None
        codes = column.start.codes.astype(column.dtype)
        match column.start.source:
            case "token":
                return codes[tokens]
            case "position":
                return np.repeat(codes[None, : self.width], len(tokens), axis=0)
            case _:
                shape = (len(tokens),) if column.uniform else tokens.shape
                return np.full(shape, codes[0], column.dtype)

    def run(self) -> None:
        """Layer after layer, until no input is left."""
        most = self.wanted.max_layers
        layer = 0
        if most is None:
            self.landmark = [None if column is None else column.copy() for column in self.columns]
        self._keep(attended=False)
        while len(self.active):
            halted = self._halted()
            self._leave(halted if most is None or layer < most else np.ones_like(halted), halted, layer)
            if not len(self.active):
                return
            layer += 1
            self._layer(layer)
            if most is None and len(self.active):
                self._check_landmark(layer)

    def _halted(self) -> Bools:
        empty: Bools = self.lengths == 0
        if self.plan.halt is None:
            return empty
        variable, code = self.plan.halt
        column = self._column(variable)
        if self.plan.columns[variable].uniform:
            return np.asarray((column == code) | empty)
        done = column == code if self.there is None else (column == code) | ~self.there
        return np.asarray(done.all(axis=1))

    def _leave(self, which: Bools, halted: Bools, layer: int) -> None:
        if not which.any():
            return
        output = self._wide(self.plan.output)
        for row in np.flatnonzero(which):
            self.outcome.outputs[self.active[row]] = output[row, : self.lengths[row]].copy()
        self.outcome.layers[self.active[which]] = layer
        self.outcome.halted[self.active[which]] = halted[which]
        self._drop(which)

    def _drop(self, which: Bools) -> None:
        stay = ~which
        self.active, self.lengths = self.active[stay], self.lengths[stay]
        width = int(self.lengths.max(initial=0))
        self.columns = [None if column is None else _cut(column, stay, width) for column in self.columns]
        self.landmark = [None if column is None else _cut(column, stay, width) for column in self.landmark]
        self.there = None if self.there is None else _cut(self.there, stay, width)
        self.width = width
        if self.there is not None and self.there.all():
            self.there = None

    # A layer

    def _layer(self, layer: int) -> None:
        self.attended, self.selected, self.means, self.updates, self.bad = {}, {}, {}, [], []
        if self.wanted.trace or self.wanted.fired or self.wanted.seen:
            for head in self.plan.heads:
                self.read(head.output)
        if self.wanted.trace:
            self._keep(attended=True)
        self._match()
        stopped = self._stop(layer)
        if stopped is not None:
            left = np.cumsum(~stopped) - 1
            self.updates = [
                (owner, left[rows[keep]], None if places is None else places[keep], rules[keep])
                for owner, rows, places, rules in self.updates
                for keep in (~stopped[rows],)
            ]
            self.attended = {variable: _cut(codes, ~stopped, self.width) for variable, codes in self.attended.items()}
        if self.wanted.fired:
            self._count()
        if self.wanted.seen and len(self.active):
            self._note()
        for owner, rows, positions, rules in self.updates:
            column = self._column(owner)
            new = self.plan.new[rules]
            if column.ndim == 1:
                column[rows] = new
            elif positions is None:
                column[rows] = new[:, None]
            else:
                column[rows, positions] = new
        if self.wanted.trace:
            self._keep(attended=False)

    def _stop(self, layer: int) -> Bools | None:
        """Lets inputs go that met a trap, or read UNDEFINED. What the error says is left to the plain interpreter."""
        if not self.bad:
            return None
        stopped = np.zeros(len(self.active), bool)
        for rows in self.bad:
            stopped[rows] = True
        for row in np.flatnonzero(stopped):
            try:
                mlp(self.plan.program, self._state(int(row)), layer)
            except ExecutionError as error:
                self.outcome.errors[int(self.active[row])] = error
            else:
                raise AssertionError("the batch interpreter stopped where the plain one goes on")
            self.outcome.layers[self.active[row]] = layer
        self._drop(stopped)
        return stopped

    def _state(self, row: int) -> State:
        """One input's state after attention."""
        return states(self.plan, self._snapshot(attended=True), row, int(self.lengths[row]), attended=True)

    def _check_landmark(self, layer: int) -> None:
        same = np.ones(len(self.active), bool)
        for variable, column in sorted(
            enumerate(self.columns), key=lambda item: 0 if item[1] is None else item[1].ndim
        ):
            then = self.landmark[variable]
            if column is None or then is None or not same.any():
                continue
            rows = np.flatnonzero(same)
            equal = column[rows] == then[rows]
            if equal.ndim == 2:
                equal = (equal if self.there is None else equal | ~self.there[rows]).all(axis=1)
            same[rows] = equal
        if same.any():
            for number in self.active[same]:
                reason = "the state is one that the run has been in before, so it never halts"
                self.outcome.errors[int(number)] = EndlessError(reason, layer)
                self.outcome.layers[number] = layer
            self._drop(same)
        if layer.bit_count() == 1:
            self.landmark = [None if column is None else column.copy() for column in self.columns]

    def _keep(self, *, attended: bool) -> None:
        if self.wanted.trace:
            self.outcome.snapshots.append(self._snapshot(attended=attended))

    def _snapshot(self, *, attended: bool) -> Snapshot:
        columns = [None if column is None else column.copy() for column in self.columns]
        if attended:
            for head in self.plan.heads:
                columns[head.output] = self.read(head.output)
            return Snapshot(self.active, columns, dict(self.means), [])
        fired = [(rows, positions, rules) for _, rows, positions, rules in self.updates]
        return Snapshot(self.active, columns, {}, fired)

    def _note(self) -> None:
        columns = self.plan.columns
        wide = [
            self._wide(variable).astype(np.int32) * bool(columns[variable].values) for variable in range(len(columns))
        ]
        there = np.ones((len(self.active), self.width), bool) if self.there is None else self.there
        rows = np.ascontiguousarray(np.stack(wide, axis=2)[there])
        packed = rows.view(np.dtype((np.void, rows.shape[1] * rows.itemsize))).ravel()
        distinct, counts = np.unique(packed, return_counts=True)
        self.outcome.seen.update(dict(zip(map(bytes, distinct), counts.tolist(), strict=True)))

    def _count(self) -> None:
        counts = self.outcome.fired
        assert counts is not None
        for _, rows, positions, rules in self.updates:
            times = self.lengths[rows] if positions is None else 1
            np.add.at(counts, (self.active[rows], rules), times)
        for variable, first in self.plan.first_reset.items():
            size = len(self.plan.columns[variable].values)
            codes = self.attended[variable]
            if codes.ndim == 1:
                defined = np.flatnonzero(codes < size)
                counts[self.active[defined], first + codes[defined].astype(np.int64)] += self.lengths[defined].astype(
                    np.int32
                )
            else:
                on = codes < size if self.there is None else (codes < size) & self.there
                found = np.bincount(np.nonzero(on)[0] * size + codes[on], minlength=len(self.active) * size)
                counts[self.active, first : first + size] += found.reshape(-1, size).astype(np.int32)

    # Rules

    def _match(self) -> None:
        """Walks all tries: collects the updates, and the inputs that met a trap or read UNDEFINED."""
        for variable, table in self.plan.dispatch.items():
            codes = self.read(variable)
            for code in [int(codes[0])] if len(codes) == 1 else np.flatnonzero(np.bincount(codes)).tolist():
                if table[code]:
                    rows = np.flatnonzero(codes == code)
                    for trie, node in table[code]:
                        self._walk(trie, 1, node, rows)
        for trie in self.plan.others:
            self._walk(trie, 0, int(self.plan.tries.roots[trie]), np.arange(len(self.active)))

    def _walk(self, trie: int, depth: int, node: int, rows: Array) -> None:
        """From a node on, for some of the inputs."""
        levels = self.plan.tries.levels[trie]
        nodes: Array = np.full(len(rows), node, np.int32)
        while depth < len(levels) and self.plan.columns[levels[depth]].uniform:
            found = children(self.plan.tries, nodes, self.read(levels[depth])[rows])
            on = found != NONE
            rows, nodes = rows[on], found[on]
            depth += 1
            if not len(rows):
                return
        if depth == len(levels):
            self._arrive(trie, rows, None, nodes)
            return
        distinct = [int(nodes[0])] if (nodes == nodes[0]).all() else np.unique(nodes).tolist()
        if len(distinct) > FEW:
            self._walk_positions(trie, depth, nodes, rows)
            return
        for one in distinct:
            self._walk_positions(trie, depth, one, rows[nodes == one])

    def _walk_positions(self, trie: int, depth: int, node: int | Array, rows: Array) -> None:
        """From one node on, or a node for each input, at every position of some of the inputs."""
        levels = self.plan.tries.levels[trie]
        codes = self._wide(levels[depth])
        if len(rows) < len(codes):
            codes = codes[rows]
        if isinstance(node, int):
            wide = self.plan.columns[levels[depth]].undefined + (levels[depth] in self.plan.head_of)
            then = children(self.plan.tries, np.full(wide, node), np.arange(wide))
            ways = np.flatnonzero(then != NONE)
            on = codes == ways[0] if len(ways) == 1 else (then != NONE)[codes]
        else:
            then = children(self.plan.tries, np.broadcast_to(node[:, None], codes.shape), codes)
            on = then != NONE
        if self.there is not None:
            on = on & (self.there if len(rows) == len(self.there) else self.there[rows])
        flat = np.flatnonzero(on)
        if not len(flat):
            return
        row, position = np.divmod(flat, self.width)
        nodes = then[codes.ravel()[flat]] if isinstance(node, int) else then.ravel()[flat]
        row = rows[row]
        for variable in levels[depth + 1 :]:
            column = self.read(variable)
            nodes = children(self.plan.tries, nodes, column[row] if column.ndim == 1 else column[row, position])
            going = nodes != NONE
            if not going.all():
                row, position, nodes = row[going], position[going], nodes[going]
            if not len(row):
                return
        self._arrive(trie, row, position, nodes)

    def _arrive(self, trie: int, rows: Array, positions: Array | None, leaves: Array) -> None:
        bad = leaves == BAD
        if bad.any():
            self.bad.append(rows[bad])
            good = ~bad
            rows, leaves = rows[good], leaves[good]
            positions = None if positions is None else positions[good]
        if len(rows):
            self.updates.append((int(self.plan.tries.owner[trie]), rows, positions, RULE - leaves))


def states(plan: Plan, snapshot: Snapshot, row: int, length: int, *, attended: bool) -> State:
    """The state of one input in a snapshot, as the plain interpreter has it."""
    names = {column.name: number for number, column in enumerate(plan.columns)}
    cells = [_cells(plan, snapshot, variable, row, length, attended) for variable in range(len(plan.columns))]
    return tuple(Assignment(names, values) for values in zip(*cells, strict=True)) if length else ()


def _cells(plan: Plan, snapshot: Snapshot, variable: int, row: int, length: int, attended: bool) -> list[Cell]:
    column = plan.columns[variable]
    if column.start is None and not attended:
        return [NULL] * length
    found = snapshot.columns[variable]
    assert found is not None
    if variable in snapshot.means:
        total, count = [_row(part, row, length) for part in snapshot.means[variable]]
        mean = plan.heads[plan.head_of[variable]].mean
        assert mean is not None
        pairs = zip(total.tolist(), count.tolist(), strict=True)
        return [mean.value(whole, number) if number else UNDEFINED for whole, number in pairs]
    table: tuple[Cell, ...] = (*column.values, UNDEFINED)
    return [table[code] for code in _row(found, row, length).tolist()]


def _row(column: Array, row: int, length: int) -> Array:
    return column[row : row + 1].repeat(length) if column.ndim == 1 else column[row, :length]


def _cut(column: Array, stay: Bools, width: int) -> Array:
    return column[stay] if column.ndim == 1 else column[stay, :width]
