"""From a Python function to rules.

The tree of the function's paths (see `symbolic`) becomes one decision diagram per output variable, over single
variables, in the order in which the function reads them. What does not matter to an output collapses, so independent
writes do not multiply. The paths of a diagram are antecedents. Since a path of the diagram holds only variables that
the function has read by then, lowering may remove a read of UNDEFINED, but never adds one.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterator, Mapping, Sequence
from typing import Any, NamedTuple, TypeAlias

from alta.errors import LoweringError
from alta.language.expressions import Expression, Mask, Names, Raised, Refusal
from alta.language.paths import Leaf, Reason, explore
from alta.language.rules import Antecedent, Constraint, Rule, Trap
from alta.language.variables import Value, Variable

MAX_PATHS = 50_000
"""Paths of an MLP function, unless its program allows more."""

Diagram: TypeAlias = int  # a number in Diagrams

KEEP: Diagram = 0
"""Nothing happens."""

ANY: Diagram = 1
"""The function does not get here, or traps, so that anything may happen: it yields to the diagrams beside it."""


def lower(
    function: Callable[[Any], object], variables: Mapping[str, Variable], max_paths: int
) -> tuple[tuple[Rule, ...], tuple[Trap, ...]]:
    """The function's rules and traps."""
    diagrams = Diagrams(variables)
    try:
        end = explore(function, variables, max_paths, diagrams.leaf, diagrams.join)
    except Refusal as refusal:
        raise LoweringError(str(refusal)) from None
    rules = [rule for name in variables if name in end.writes for rule in diagrams.rules(name, end.writes[name])]
    return tuple(rules), tuple(diagrams.traps(end.trap))


class Branch(NamedTuple):
    """What a part of the tree of paths does."""

    writes: dict[str, Diagram]  # for each variable that it sets
    trap: Diagram  # its ends are reasons
    other: Diagram  # for the variables that it does not set


class Diagrams:
    """Decision diagrams that share their parts: equal diagrams have equal numbers."""

    def __init__(self, variables: Mapping[str, Variable]) -> None:
        self._values = {name: variable.domain.values for name, variable in variables.items()}
        self._nodes: list[tuple[str, Any]] = [("keep", None), ("any", None)]  # (name, children) or ("end", value)
        self._names: list[frozenset[str]] = [frozenset(), frozenset()]
        self._numbers: dict[tuple[object, ...], Diagram] = {}
        self._restricted: dict[tuple[Diagram, str, int], Diagram] = {}
        self._chosen: dict[tuple[object, ...], Diagram] = {}
        self._constraints: dict[tuple[str, Value], Constraint] = {}

    def leaf(self, leaf: Leaf | None) -> Branch:
        """What the end of a path does."""
        if leaf is None:
            return Branch({}, ANY, ANY)
        if leaf.trap is not None:
            return Branch({}, self._write(leaf.trap), ANY)
        return Branch({name: self._write(value) for name, value in leaf.writes.items()}, KEEP, KEEP)

    def join(self, decider: Expression, branches: list[tuple[Mask, Branch]]) -> Branch:
        """What a fork does."""
        names = dict.fromkeys(name for _, branch in branches for name in branch.writes)
        return Branch(
            {name: self._choose(decider, [(m, b.writes.get(name, b.other)) for m, b in branches]) for name in names},
            self._choose(decider, [(mask, branch.trap) for mask, branch in branches]),
            min(branch.other for _, branch in branches),
        )

    def rules(self, output: str, root: Diagram) -> Iterator[Rule]:
        """The rules of one output variable."""
        for path, new in self._ends(root, {}):
            for old in (path[output],) if output in path else self._values[output]:
                if old != new:
                    yield Rule(output, old, new, self._antecedent({**path, output: old}))

    def traps(self, root: Diagram) -> Iterator[Trap]:
        """The traps, from the diagram of reasons."""
        for path, reason in self._ends(root, {}):
            yield Trap(self._antecedent(path), *reason)

    def _antecedent(self, path: Mapping[str, Value]) -> Antecedent:
        antecedent = []
        for name in self._values:
            if name in path:
                key = name, path[name]
                if key not in self._constraints:
                    self._constraints[key] = Constraint(*key)
                antecedent.append(self._constraints[key])
        return tuple(antecedent)

    def _ends(self, diagram: Diagram, path: dict[str, Value]) -> Iterator[tuple[dict[str, Value], Any]]:
        if diagram in (KEEP, ANY):
            return
        top, content = self._nodes[diagram]
        if top == "end":
            yield path, content
            return
        values: tuple[Value, ...] = self._values[top]
        for value, child in zip(values, content, strict=True):
            yield from self._ends(child, {**path, top: value})

    def _write(self, value: Expression | Value | Reason) -> Diagram:
        if not isinstance(value, Expression):
            return self._number(("end", value), frozenset())
        impossible = (Raised, type(None))
        labels = [ANY if isinstance(o, impossible) else self._number(("end", o), frozenset()) for o in value.table]
        return self._build(value.names, labels, 0, ())

    def _choose(self, decider: Expression, branches: list[tuple[Mask, Diagram]]) -> Diagram:
        distinct = {diagram for _, diagram in branches if diagram != ANY}
        if len(distinct) < 2:
            return distinct.pop() if distinct else ANY
        key = decider, *branches
        if key not in self._chosen:
            labels = [ANY] * len(decider.table)
            for mask, diagram in branches:
                for index, bit in enumerate(reversed(f"{mask:b}")):
                    if bit == "1":
                        labels[index] = diagram
            self._chosen[key] = self._build(decider.names, labels, 0, ())
        return self._chosen[key]

    def _build(
        self, names: Names, labels: Sequence[Diagram], first: int, fixed: tuple[tuple[str, int], ...]
    ) -> Diagram:
        """The diagram over `names` with these labels at its ends (`labels[first:]`, the last name running fastest)."""
        if not names:
            diagram = labels[first]
            for name, index in fixed:
                diagram = self._restrict(diagram, name, index)
            return diagram
        name, rest = names[0], names[1:]
        stride = math.prod(len(self._values[other]) for other in rest)
        children = [
            self._build(rest, labels, first + index * stride, (*fixed, (name, index)))
            for index in range(len(self._values[name]))
        ]
        return self._node(name, children)

    def _node(self, name: str, children: Sequence[Diagram]) -> Diagram:
        distinct = {child for child in children if child != ANY}
        if len(distinct) < 2:
            return distinct.pop() if distinct else ANY
        names = frozenset((name,)).union(*(self._names[child] for child in distinct))
        return self._number((name, tuple(children)), names)

    def _number(self, node: tuple[str, Any], names: frozenset[str]) -> Diagram:
        key = *node, type(node[1])  # 1 and 1.0 are equal, but only one of them is an integer
        if key not in self._numbers:
            self._numbers[key] = len(self._nodes)
            self._nodes.append(node)
            self._names.append(names)
        return self._numbers[key]

    def _restrict(self, diagram: Diagram, name: str, index: int) -> Diagram:
        if name not in self._names[diagram]:
            return diagram
        key = diagram, name, index
        if key not in self._restricted:
            top, children = self._nodes[diagram]
            self._restricted[key] = (
                children[index]
                if top == name
                else self._node(top, [self._restrict(child, name, index) for child in children])
            )
        return self._restricted[key]
