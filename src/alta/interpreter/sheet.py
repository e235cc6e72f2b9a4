"""Many inputs side by side in NumPy: the batch interpreter's work on one chunk.

A variable is an array of codes: one for each input if it is the same at all positions, otherwise one for each input and
position. Inputs that have halted, trapped, or come back to an earlier state leave the arrays.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import Any, TypeAlias

import numpy as np
from numpy.typing import NDArray

from alta.errors import EndlessError, ExecutionError
from alta.interpreter.plan import HeadPlan, Plan, Selection, children
from alta.interpreter.run import mlp
from alta.interpreter.trace import Assignment, State
from alta.interpreter.tries import BAD, NONE, RULE
from alta.language.variables import NULL, UNDEFINED, Cell

Array: TypeAlias = NDArray[Any]
Bools: TypeAlias = NDArray[np.bool_]

EXACT_FLOAT = 2**53

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


class Sheet:
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

    # Attention

    def _column(self, variable: int) -> Array:
        column = self.columns[variable]
        assert column is not None
        return column

    def read(self, variable: int) -> Array:
        """A variable's codes; what heads write is found when it is first read."""
        column = self.columns[variable]
        if column is not None:
            return column
        if variable not in self.attended:
            head = self.plan.heads[self.plan.head_of[variable]]
            self.attended[variable] = self._attend(head, self.plan.selections[head.selection])
        return self.attended[variable]

    def _wide(self, variable: int) -> Array:
        """A variable's codes at every position."""
        column = self.read(variable)
        return np.broadcast_to(column[:, None], (len(column), self.width)) if column.ndim == 1 else column

    def _attend(self, head: HeadPlan, selection: Selection) -> Array:
        out = self.plan.columns[head.output]
        if head.mean is not None:
            count, total = self._sums(head, selection)
            self.means[head.output] = total, count
            return self._buckets(head, count, total).astype(out.dtype)
        if selection.shift is not None:
            return self._shifted(self._wide(head.value), selection.shift, out.undefined).astype(out.dtype, copy=False)
        if head.selection not in self.selected:
            self.selected[head.selection] = self._select(selection)
        count, place = self.selected[head.selection]
        values = self.read(head.value)
        if values.ndim == 2:
            rows = np.arange(len(values))
            values = values[rows, place] if place.ndim == 1 else values[rows[:, None], place]
        elif count.ndim == 2:
            values = values[:, None]
        return np.where(count == 1, values, out.undefined).astype(out.dtype)

    def _shifted(self, values: Array, by: int, missing: int) -> Array:
        """The values of the neighbours."""
        found = np.full(values.shape, missing, np.result_type(values.dtype, np.min_scalar_type(missing)))
        if abs(by) < self.width:
            if by <= 0:
                found[:, -by or None :] = values[:, : by or None]
            else:
                found[:, :-by] = values[:, by:]
                if self.there is not None:
                    found[:, :-by][~self.there[:, by:]] = missing
        return found

    def _select(self, selection: Selection) -> tuple[Array, Array]:
        """How many positions each one reads, and, where that is one, which."""
        if selection.relative is not None:
            return self._near(selection)
        if selection.uniform:
            matched = self._matched_everywhere(selection)
            return matched.sum(axis=1), matched.argmax(axis=1)
        if self.plan.program.causal:
            return self._before(selection)
        count, last = self._by_key(selection)
        return self._of_queries(selection, count), np.minimum(self._of_queries(selection, last), self.width - 1)

    def _matched_everywhere(self, selection: Selection) -> Bools:
        """Which positions match the one query."""
        keys = self._wide(selection.key)
        query = self.read(selection.query)
        if selection.member is not None:
            matched = selection.member[query[:, None], keys]
        else:
            matched = keys == query[:, None]
        return matched if self.there is None else matched & self.there

    def _near(self, selection: Selection) -> tuple[Array, Array]:
        count = np.zeros((len(self.active), self.width), np.int64)
        place = np.zeros_like(count)
        for offset, matched in self._neighbours(selection):
            count += matched
            place = np.where(matched, np.arange(self.width) + offset, place)
        return count, np.clip(place, 0, max(self.width - 1, 0))

    def _neighbours(self, selection: Selection) -> list[tuple[int, Bools]]:
        """For each relative position, whether what is there matches."""
        queries, keys = self._wide(selection.query), self._wide(selection.key)
        nothing = self.plan.columns[selection.key].undefined
        found = []
        for offset in selection.relative or ():
            if offset > 0 and self.plan.program.causal:
                continue
            key = self._shifted(keys, offset, nothing)
            if selection.member is not None:
                padded = np.column_stack([selection.member, np.zeros(len(selection.member), bool)])
                found.append((offset, padded[queries, key]))
            else:
                found.append((offset, key == queries))
        return found

    def _by_key(self, selection: Selection) -> tuple[Array, Array]:
        """For each input and key, how many positions have it, and the last of them. (row, key)"""
        keys = self._wide(selection.key)
        size = len(self.plan.columns[selection.key].values)
        flat = np.arange(len(keys))[:, None] * size + keys
        positions = np.broadcast_to(np.arange(self.width), keys.shape)
        if self.there is not None:
            flat, positions = flat[self.there], positions[self.there]
        flat = flat.ravel()
        count = np.bincount(flat, minlength=len(keys) * size)
        last = np.zeros(len(keys) * size, np.int64)
        last[flat] = positions.ravel()
        return count.reshape(-1, size), last.reshape(-1, size)

    def _of_queries(self, selection: Selection, by_key: Array) -> Array:
        """What the queries find: for a set, the sum over its members. (row, position)"""
        queries = self._wide(selection.query)
        if selection.member is not None:
            by_key = by_key @ selection.member.T.astype(by_key.dtype)
        return by_key[np.arange(len(queries))[:, None], queries]

    def _before(self, selection: Selection) -> tuple[Array, Array]:
        """The same where each position reads only itself and what comes before."""
        count = np.zeros((len(self.active), self.width), np.int64)
        place = np.zeros_like(count)
        for which, low, high, order in self._ranges(selection):
            count += np.where(which, high - low, 0)
            one = order[np.minimum(low, len(order) - 1)] % max(self.width, 1) if len(order) else np.zeros_like(low)
            place = np.where(which & (high > low), one, place)
        return count, place

    def _ranges(self, selection: Selection) -> list[tuple[Bools | bool, Array, Array, Array]]:
        """Positions sorted by input, key and position, and for each query where what it may read begins and ends. For a
        set, once for each key, with the queries that it is a member of."""
        keys, queries = self._wide(selection.key), self._wide(selection.query)
        size, width = len(self.plan.columns[selection.key].values), self.width
        rows = np.arange(len(keys))[:, None] * size
        places = (rows + keys) * width + np.arange(width)
        order = np.sort((places if self.there is None else places[self.there]).ravel())
        wanted: list[tuple[Bools | bool, Array]] = [(True, queries)]
        if selection.member is not None:
            wanted = [(selection.member[:, k][queries], np.full_like(keys, k)) for k in range(size)]
        found = []
        for which, key in wanted:
            start = (rows + key) * width
            low = np.searchsorted(order, start)
            high = np.searchsorted(order, start + np.arange(width), side="right")
            found.append((which, low, high, order))
        return found

    def _sums(self, head: HeadPlan, selection: Selection) -> tuple[Array, Array]:
        """How many positions are read, and the sum of their steps."""
        assert head.mean is not None
        kind = np.int64 if head.mean.fits(self.width) else object
        table = np.array(head.mean.steps, kind)
        steps = table[self._wide(head.value)]
        if selection.relative is not None:
            count = np.zeros(steps.shape, np.int64)
            total = np.zeros(steps.shape, kind)
            for offset, matched in self._neighbours(selection):
                count += matched
                total = total + np.where(matched, self._moved(steps, offset), 0)
            return count, total
        if selection.uniform:
            matched = self._matched_everywhere(selection)
            return matched.sum(axis=1), np.where(matched, steps, 0).sum(axis=1)
        if self.plan.program.causal:
            return self._sums_before(selection, steps)
        number, _ = self._by_key(selection)
        keys = self._wide(selection.key)
        size = len(self.plan.columns[selection.key].values)
        flat = np.arange(len(keys))[:, None] * size + keys
        weights = steps
        if self.there is not None:
            flat, weights = flat[self.there], steps[self.there]
        if kind is np.int64 and max(head.mean.steps) * self.width < EXACT_FLOAT:
            by_key = np.bincount(flat.ravel(), weights.ravel(), minlength=number.size).astype(np.int64)
        else:
            by_key = np.zeros(number.size, kind)
            np.add.at(by_key, flat.ravel(), weights.ravel())
        return self._of_queries(selection, number), self._of_queries(selection, by_key.reshape(number.shape))

    def _moved(self, steps: Array, by: int) -> Array:
        found = np.zeros_like(steps)
        if abs(by) < self.width:
            found[:, max(-by, 0) : self.width - max(by, 0)] = steps[:, max(by, 0) : self.width + min(by, 0)]
        return found

    def _sums_before(self, selection: Selection, steps: Array) -> tuple[Array, Array]:
        count = np.zeros(steps.shape, np.int64)
        total = np.zeros(steps.shape, steps.dtype)
        size, width = len(self.plan.columns[selection.key].values), max(self.width, 1)
        for which, low, high, order in self._ranges(selection):
            sums = np.zeros(len(order) + 1, steps.dtype)
            sums[1:] = np.cumsum(steps[order // (width * size), order % width])  # that it wraps around does no harm
            count += np.where(which, high - low, 0)
            total = total + np.where(which, sums[high] - sums[low], 0)
        return count, total

    def _buckets(self, head: HeadPlan, count: Array, total: Array) -> Array:
        assert head.mean is not None
        found = np.full(count.shape, self.plan.columns[head.output].undefined, np.int64)
        for number in np.unique(count).tolist():
            if number:
                which = count == number
                limits = head.mean.limits(number)
                if total.dtype == object:
                    exact = [edge.numerator * number // edge.denominator for edge in head.mean.edges]
                    found[which] = [sum(limit < one for limit in exact) for one in total[which]]
                else:
                    found[which] = np.searchsorted(limits, total[which])
        return found


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
