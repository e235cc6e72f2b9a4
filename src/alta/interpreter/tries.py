"""Rules as tries in flat arrays, which NumPy and Numba walk alike.

The rules of one output variable whose antecedents constrain the same variables make one trie: a level for each of these
variables, and a rule at each leaf. Variables that are the same at all positions come first, so that most tries end
before any position is looked at. A value that an attention output may have is UNDEFINED: behind it lie the rules as if
they did not constrain that output, and reaching one of them is reading UNDEFINED.
"""

from __future__ import annotations

import math
import operator
from collections import defaultdict
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from alta.language.rules import Rule, Trap
from alta.language.variables import Value

NONE = -1
"""A leaf: no rule."""

BAD = -2
"""A leaf: a trap, or a rule that reads UNDEFINED. Rule r is the leaf `RULE - r`."""

RULE = -3

WIDE = 64
"""Nodes with more children than that are kept sparse, unless an eighth of the children is there."""

SAMPLE = 100
"""Rules by which the order of levels is decided."""

ALL_ORDERS = 5
"""Levels up to which every order is considered."""

Ints = NDArray[np.int64]
Codes = NDArray[np.int32]


@dataclass(frozen=True, eq=False)
class Tries:
    """All tries of a program. A node is a number; what is negative is a leaf.

    The child of a node for the code c is `child[base[node] + c]` where `base[node]` is not negative. Otherwise it is
    `target[k]` where `key[k]` is `node * width + c`, and NONE if there is no such k.
    """

    roots: Codes  # (trie)
    owner: Codes  # (trie): the variable that it sets, or -1 for traps
    levels: tuple[tuple[int, ...], ...]  # (trie): the variables that it looks at
    variable: Codes  # (node)
    base: Ints  # (node)
    child: Codes
    key: Ints
    target: Codes
    width: int

    @property
    def nodes(self) -> int:
        """How many nodes there are."""
        return len(self.variable)


def grow(
    rules: Sequence[Rule],
    traps: Sequence[Trap],
    names: Mapping[str, int],
    codes: Sequence[Mapping[Value, int]],
    outputs: frozenset[int],
    uniform: frozenset[int],
    shares: Sequence[NDArray[np.float64]],
) -> Tries:
    """The tries of the rules and traps. Variables are numbers, `names[name]`, and their values `codes[variable]`.

    `shares[variable]` is a guess at how often each code is met, which decides nothing but the order of levels.
    """
    maker = _Maker([len(table) for table in codes], outputs, shares)
    groups: list[tuple[int, Sequence[tuple[int, Rule | Trap]]]] = [*_by_output(rules, names)]
    groups.append((-1, list(enumerate(traps))))
    for owner, entries in groups:
        for shape, matrix, payload in _by_shape(entries, names, codes):
            leaves = np.full(len(matrix), BAD, np.int32) if owner < 0 else (RULE - payload).astype(np.int32)
            maker.add(owner, shape, matrix, leaves, uniform)
    return maker.tries()


def _by_output(rules: Sequence[Rule], names: Mapping[str, int]) -> Iterable[tuple[int, list[tuple[int, Rule]]]]:
    found: defaultdict[str, list[tuple[int, Rule]]] = defaultdict(list)
    for item in enumerate(rules):
        found[item[1].output].append(item)
    return sorted((names[name], entries) for name, entries in found.items())


_names = operator.attrgetter("variable")
_value = operator.attrgetter("value")


def _by_shape(
    entries: Sequence[tuple[int, Rule | Trap]], names: Mapping[str, int], codes: Sequence[Mapping[Value, int]]
) -> Iterable[tuple[list[int], Codes, Ints]]:
    """Those that constrain the same variables: which, the code of each, and the number of each entry."""
    groups: defaultdict[tuple[str, ...], list[tuple[int, Rule | Trap]]] = defaultdict(list)
    for item in entries:
        groups[tuple(map(_names, item[1].antecedent))].append(item)
    for constrained, group in groups.items():
        shape = [names[name] for name in constrained]
        matrix = np.empty((len(group), len(shape)), np.int32)
        columns = zip(*(map(_value, entry.antecedent) for _, entry in group), strict=True)
        for place, (variable, column) in enumerate(zip(shape, columns, strict=True)):
            matrix[:, place] = list(map(codes[variable].__getitem__, column))
        yield shape, matrix, np.array([number for number, _ in group], np.int64)


class _Maker:
    def __init__(self, sizes: Sequence[int], outputs: frozenset[int], shares: Sequence[NDArray[np.float64]]) -> None:
        self.sizes = sizes
        self.shares = shares
        self.outputs = outputs
        self.width = max(sizes, default=0) + 2
        self.roots: list[int] = []
        self.owner: list[int] = []
        self.levels: list[tuple[int, ...]] = []
        self.variable: list[Codes] = []
        self.base: list[Ints] = []
        self.nodes = 0
        self.child: list[Codes] = []
        self.children = 0
        self.key: list[Ints] = []
        self.target: list[Codes] = []

    def add(self, owner: int, shape: Sequence[int], matrix: Codes, leaves: Codes, uniform: frozenset[int]) -> None:
        """One more trie. Uniform variables come first."""
        here = [[i for i in range(len(shape)) if (shape[i] in uniform) is everywhere] for everywhere in (True, False)]
        order = [place for places in here for place in self._order(places, shape, matrix[:SAMPLE])]
        levels = [shape[place] for place in order]
        self.owner.append(owner)
        self.levels.append(tuple(levels))
        self.roots.append(self._build(levels, matrix[:, order], leaves))

    def _order(self, places: Sequence[int], shape: Sequence[int], rows: Codes) -> list[int]:
        """The columns in the order in which the least is left to look at on the way, as far as `shares` can tell."""
        chosen: list[int] = []
        best: dict[frozenset[int], tuple[float, list[int]]] = {frozenset(): (0.0, [])}
        for _ in places if len(places) <= ALL_ORDERS else ():
            longer: dict[frozenset[int], tuple[float, list[int]]] = {}
            for done, (cost, order) in best.items():
                for place in places:
                    if place not in done:
                        more = [*order, place]
                        found = cost + self._passing(more, shape, rows), more
                        key = done | {place}
                        longer[key] = min(longer.get(key, found), found)
            best = longer
        if len(places) <= ALL_ORDERS:
            return best[frozenset(places)][1]
        while len(chosen) < len(places):
            rest = [place for place in places if place not in chosen]
            chosen.append(min(rest, key=lambda place: self._passing([*chosen, place], shape, rows)))
        return chosen

    def _passing(self, places: Sequence[int], shape: Sequence[int], rows: Codes) -> float:
        """What share of all positions gets past these levels."""
        shares = [self.shares[shape[place]] for place in places]
        prefixes = set(map(tuple, rows[:, places].tolist()))
        return sum(math.prod(float(s[code]) for s, code in zip(shares, codes, strict=True)) for codes in prefixes)

    def _build(self, levels: Sequence[int], matrix: Codes, leaves: Codes) -> int:
        """All nodes, one level after another. `parent` says to which node of the level each row belongs."""
        if not levels:
            return int(leaves.min())  # BAD, or the one rule
        parent = np.zeros(len(matrix), np.int64)
        count = 1
        root = self.nodes
        for depth, variable in enumerate(levels):
            first = self.nodes
            self._add_nodes(count, variable)
            if variable in self.outputs:
                parent, matrix, leaves = self._with_undefined(parent, matrix, leaves, depth, self.sizes[variable])
            edges = parent * self.width + matrix[:, depth]
            if depth == len(levels) - 1:
                order = np.lexsort((leaves, edges))
                edges, targets = edges[order], leaves[order]
                alone = np.append(True, edges[1:] != edges[:-1])  # traps may be listed twice
                self._link(first, edges[alone], targets[alone], count, variable)
                break
            distinct, parent = np.unique(edges, return_inverse=True)
            start = first + count
            self._link(first, distinct, np.arange(start, start + len(distinct), dtype=np.int32), count, variable)
            count = len(distinct)
        return root

    @staticmethod
    def _with_undefined(
        parent: Ints, matrix: Codes, leaves: Codes, depth: int, undefined: int
    ) -> tuple[Ints, Codes, Codes]:
        """More rows: for each, one for UNDEFINED in its place, those that have become equal once."""
        rest = np.column_stack([parent, matrix[:, depth + 1 :]]).astype(np.int64)
        keep = _distinct_rows(rest)
        more = matrix[keep].copy()
        more[:, depth] = undefined
        return (
            np.concatenate([parent, parent[keep]]),
            np.concatenate([matrix, more]),
            np.concatenate([leaves, np.full(len(keep), BAD, np.int32)]),
        )

    def _add_nodes(self, count: int, variable: int) -> None:
        self.variable.append(np.full(count, variable, np.int32))
        self.nodes += count

    def _link(self, first: int, edges: Ints, targets: Codes, count: int, variable: int) -> None:
        """Children of the `count` nodes from `first` on; an edge is a node of the level and a code."""
        wide = self.sizes[variable] + (variable in self.outputs)
        nodes, codes = np.divmod(edges, self.width)
        if wide <= WIDE or 8 * len(edges) >= wide * count:
            block = np.full(count * wide, NONE, np.int32)
            block[nodes * wide + codes] = targets
            self.base.append(self.children + np.arange(count, dtype=np.int64) * wide)
            self.child.append(block)
            self.children += len(block)
        else:
            self.base.append(np.full(count, -1, np.int64))
            self.key.append((nodes + first) * self.width + codes)
            self.target.append(targets)

    def tries(self) -> Tries:
        return Tries(
            roots=np.array(self.roots, np.int32),
            owner=np.array(self.owner, np.int32),
            levels=tuple(self.levels),
            variable=np.concatenate([np.zeros(0, np.int32), *self.variable]),
            base=np.concatenate([np.zeros(0, np.int64), *self.base]),
            child=np.concatenate([np.zeros(0, np.int32), *self.child]),
            key=np.concatenate([np.zeros(0, np.int64), *self.key]),
            target=np.concatenate([np.zeros(0, np.int32), *self.target]),
            width=self.width,
        )


def _distinct_rows(rows: Ints) -> Ints:
    """The first of each kind of row."""
    order = np.lexsort(rows.T[::-1])
    turned = rows[order]
    first = np.append(True, (turned[1:] != turned[:-1]).any(axis=1)) if len(rows) else np.zeros(0, bool)
    found: Ints = order[first]
    return found
