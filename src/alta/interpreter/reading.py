"""What the positions of many inputs read from each other, in NumPy: the heads of the batch interpreter."""

from __future__ import annotations

from typing import Any, TypeAlias

import numpy as np
from numpy.typing import NDArray

from alta.interpreter.plan import HeadPlan, Plan, Selection

Array: TypeAlias = NDArray[Any]
Bools: TypeAlias = NDArray[np.bool_]

EXACT_FLOAT = 2**53


class Reading:
    """The arrays of a chunk: a variable's codes for each input, or each input and position. What heads write is found
    when it is read."""

    plan: Plan
    active: Array  # (row): which inputs these are
    width: int  # of the longest of them
    there: Bools | None  # (row, position), where not all are as long
    columns: list[Array | None]  # of each variable that no head writes
    attended: dict[int, Array]  # of those that heads write, in this layer so far
    selected: dict[int, tuple[Array, ...]]
    means: dict[int, tuple[Array, Array]]

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
