"""What a run leaves behind: the state after every sub-layer, and the rules that fired."""

from __future__ import annotations

from collections.abc import Collection, Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import TypeAlias

from alta.displayed import Displayed
from alta.errors import amount
from alta.language.program import Program, Token
from alta.language.rules import Rule
from alta.language.variables import Cell, declared, format_value
from alta.terminal import columns, cut, pad, paint, printable, widest


class Assignment(Mapping[str, Cell]):
    """The values of all variables at one position.

    >>> first, second = alta.run(program, ["START", "1"]).trace.start
    >>> first["done"], second["done"], dict(second)["parity"]
    (1, 0, 1)
    """

    __slots__ = ("_columns", "_values")

    def __init__(self, columns: Mapping[str, int], values: tuple[Cell, ...]) -> None:
        self._columns = columns
        self._values = values

    def __getitem__(self, name: str) -> Cell:
        return self._values[self._columns[name]]

    def __iter__(self) -> Iterator[str]:
        return iter(self._columns)

    def __len__(self) -> int:
        return len(self._columns)

    def __eq__(self, other: object) -> bool:
        return self._values == other._values if isinstance(other, Assignment) else NotImplemented

    __hash__ = None  # type: ignore[assignment]

    def changed(self, updates: Mapping[str, Cell]) -> Assignment:
        """The assignment with some values replaced.

        >>> first, second = alta.run(program, ["START", "1"]).trace.start
        >>> second.changed({"done": 1})["done"]
        1
        """
        values = list(self._values)
        for name, value in updates.items():
            values[self._columns[name]] = value
        return Assignment(self._columns, tuple(values))

    def __repr__(self) -> str:
        return ", ".join(f"{name}={format_value(value)}" for name, value in self.items())


State: TypeAlias = tuple[Assignment, ...]  # (position)


@dataclass(frozen=True, repr=False)
class Layer:
    """One layer of a run: the state after attention, the state after the MLP, and the rules fired at each position.

    >>> layer = alta.run(program, ["START", "1", "1"]).trace.layers[1]
    >>> layer.attention[2]["parity_left"], layer.mlp[2]["parity"]
    (1, 0)
    >>> print(layer.fired[2][1])
    done=0 ∧ done_left=1 ∧ parity=1 ∧ parity_left=1 ⟹ parity := 0
    """

    attention: State
    mlp: State
    fired: tuple[tuple[Rule, ...], ...]  # (position, rule)

    def __repr__(self) -> str:
        return f"<layer: {amount(len(self.mlp), 'position')}, {amount(sum(map(len, self.fired)), 'rule')} fired>"


@dataclass(frozen=True)
class Trace(Displayed):
    """The states of a run. `print(trace)` shows them as a table.

    >>> trace = alta.run(program, ["START", "1", "0"]).trace
    >>> trace.inputs, len(trace.layers)
    (('START', '1', '0'), 2)
    """

    program: Program
    inputs: tuple[Token, ...]
    start: State
    layers: tuple[Layer, ...]

    @property
    def states(self) -> tuple[tuple[str, State], ...]:
        """Every state, with the name of the sub-layer that it follows.

        >>> trace = alta.run(program, ["START", "1", "0"]).trace
        >>> [(name, state[2]["parity"]) for name, state in trace.states]
        [('start', 0), ('attention 1', 0), ('mlp 1', 0), ('attention 2', 0), ('mlp 2', 1)]
        """
        found = [("start", self.start)]
        for number, layer in enumerate(self.layers, start=1):
            found += [(f"attention {number}", layer.attention), (f"mlp {number}", layer.mlp)]
        return tuple(found)

    def table(
        self,
        *,
        variables: Collection[str] | None = None,
        positions: Collection[int] | None = None,
        layers: Collection[int] | None = None,
        width: int | None = None,
        color: bool = False,
    ) -> str:
        """The states side by side, a block of rows for each position: a star (or colour) marks what a sub-layer
        changed, ∅ is NULL and ? is UNDEFINED. Columns that do not fit `width` follow in a table below, and names that
        leave no room for any are cut.

        >>> print(alta.run(program, ["START", "1", "0"]).trace.table(variables=["parity"], layers=[0, 2]))
                         start  attn  mlp
                                2     2
        0 START  parity  0      0     0
        1 1      parity  1      1     1
        2 0      parity  0      0     1*
        """
        names = declared(self.program.variables)
        rows = [
            (position, name)
            for position in (range(len(self.inputs)) if positions is None else sorted(positions))
            for name in names
            if variables is None or name in variables
        ]
        states = self.states
        shown = range(len(states)) if layers is None else [i for i in range(len(states)) if (i + 1) // 2 in layers]
        parts = [_column(states, index, rows) for index in shown]
        labels = ["", "", *(printable(f"{position} {self.inputs[position]}") for position, _ in rows)]
        starts = [True, True, *(i == 0 or rows[i - 1][0] != position for i, (position, _) in enumerate(rows))]
        labels = [label if first else "" for label, first in zip(labels, starts, strict=True)]
        stub = [labels, ["", "", *(printable(name) for _, name in rows)]]
        if width is not None and parts:
            stub = _narrowed(stub, width - max(part.width for part in parts))
        stub = [_padded(texts) for texts in stub]
        return "\n\n".join(_render(stub, part, color) for part in _split(stub, parts, width))

    def __str__(self) -> str:
        return self.table()

    def __repr__(self) -> str:
        return f"<trace: {amount(len(self.inputs), 'position')}, {amount(len(self.layers), 'layer')}>"


@dataclass(frozen=True)
class Run(Displayed):
    """What `run` returns.

    >>> alta.run(program, ["START", "1", "0"])
    <run: outputs [0, 1, 1] after 2 layers, halted>
    """

    outputs: tuple[Cell, ...]
    layers: int
    halted: bool
    trace: Trace

    def __str__(self) -> str:
        return f"{self.trace}\n\n{self!r}"

    def __repr__(self) -> str:
        outputs = ", ".join(map(format_value, self.outputs))
        return f"<run: outputs [{outputs}] after {amount(self.layers, 'layer')}{', halted' if self.halted else ''}>"


@dataclass(frozen=True)
class Generation:
    """What `generate` returns: the tokens after the prompt, and the run that each of them came from.

    >>> alta.generate(parity.scratchpad(), ["START", "1", "0", "="], stop="END")
    <generation: 1 1 END, stopped>
    """

    prompt: tuple[Token, ...]
    tokens: tuple[Token, ...]
    stopped: bool
    runs: tuple[Run, ...]

    def __repr__(self) -> str:
        return f"<generation: {' '.join(map(str, self.tokens))}{', stopped' if self.stopped else ''}>"


@dataclass(frozen=True)
class _Column:
    header: tuple[str, str]
    cells: list[str]
    changed: list[bool]

    @property
    def width(self) -> int:
        """With two spaces in front, and room for a star behind each cell."""
        return 2 + max(widest(self.header), widest(self.cells) + 1)


def _column(states: Sequence[tuple[str, State]], index: int, rows: Sequence[tuple[int, str]]) -> _Column:
    title, state = states[index]
    kind, _, number = title.replace("attention", "attn").partition(" ")
    cells = [format_value(state[position][name]) for position, name in rows]
    before = states[index - 1][1] if index else state
    changed = [before[position][name] != state[position][name] for position, name in rows]
    return _Column((kind, number), cells, changed)


NARROWEST = 6
"""Names are not cut to less."""


def _narrowed(stub: Sequence[list[str]], room: int) -> list[list[str]]:
    """The columns in front, the widest of them cut first, so that they take no more than the room, if they can."""
    widths = [widest(texts) for texts in stub]
    while sum(widths) + 2 * (len(stub) - 1) > room and max(widths) > NARROWEST:
        widths[widths.index(max(widths))] -= 1
    return [[cut(text, width) for text in texts] for texts, width in zip(stub, widths, strict=True)]


def _padded(texts: Sequence[str]) -> list[str]:
    width = widest(texts)
    return [pad(text, width) for text in texts]


def _split(stub: Sequence[Sequence[str]], parts: Sequence[_Column], width: int | None) -> Iterator[list[_Column]]:
    taken: list[_Column] = []
    room = used = sum(columns(texts[0]) + 2 for texts in stub) - 2
    for part in parts:
        if taken and width is not None and used + part.width > width:
            yield taken
            taken, used = [], room
        taken.append(part)
        used += part.width
    yield taken


def _render(stub: Sequence[Sequence[str]], parts: Sequence[_Column], color: bool) -> str:
    blocks = [list(texts) for texts in stub]
    for part in parts:
        marked = [
            f"{cell}*" if changed and not color else f"{cell} "
            for cell, changed in zip(part.cells, part.changed, strict=True)
        ]
        flags = [False, False, *part.changed]
        texts = _padded([*part.header, *marked])
        blocks.append([paint(text, "changed", color and flag) for text, flag in zip(texts, flags, strict=True)])
    return "\n".join("  ".join(line).rstrip() for line in zip(*blocks, strict=True))
