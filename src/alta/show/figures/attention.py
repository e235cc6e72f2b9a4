"""Which positions each head reads in each layer of a run."""

from __future__ import annotations

from collections.abc import Collection, Sequence
from typing import TYPE_CHECKING

import numpy as np

from alta.errors import InputError, listing
from alta.interpreter.run import select
from alta.interpreter.trace import Run, State, Trace
from alta.show.figures.canvas import BLUE, FAINT, MONO, PALE, area, blank, inches, label, settings, thinned

if TYPE_CHECKING:
    from matplotlib.axes import Axes
    from matplotlib.figure import Figure

MOST_PANELS = 150
"""More patterns than this cannot be read."""

SMALLEST, LARGEST, CELL = 0.75, 3.4, 0.16  # inches, of a panel and of one of its cells
GAP, MARGIN, HEAD, FOOT = 0.14, 0.15, 0.42, 0.32
SIZE = 7.0  # points


def attention(
    run: Run | Trace, *, heads: Collection[str] | None = None, layers: Collection[int] | None = None
) -> Figure:
    """A row of patterns for each head, a column for each layer (from 1): position i, from top to bottom, reads the
    positions that are marked, from left to right. It reads one of them in full, or of several the mean, which is paler.

    Rows that read nothing are hatched: there the output is UNDEFINED, and a model, whose shares always add up to one,
    writes a mixture that no rule reads.
    """
    found = run.trace if isinstance(run, Run) else run
    for name in heads or ():
        if name not in found.program.heads:
            raise InputError(f"{name!r} is no head; heads: {listing(found.program.heads)}")
    names = [name for name in found.program.heads if heads is None or name in heads]
    depths = range(1, len(found.layers) + 1) if layers is None else sorted(layers)
    for depth in depths:
        if not 1 <= depth <= len(found.layers):
            raise InputError(f"there is no layer {depth} in this run; it has {len(found.layers)}, from 1")
    panels = len(names) * len(depths)
    if not panels or not found.inputs:
        raise InputError("there is nothing to draw: the run has no layer, the program no head, or the input no token")
    if panels > MOST_PANELS:
        raise InputError(
            f"{panels:,} patterns cannot be read ({MOST_PANELS} can); choose with heads and layers: the heads are "
            f"{listing(found.program.heads)}, the layers 1 to {len(found.layers)}"
        )
    with settings():
        return _draw(found, names, depths)


def pattern(found: Trace, name: str, state: State) -> np.ndarray[tuple[int, int], np.dtype[np.float64]]:
    """How much position i reads position j. (i, j)"""
    shares = np.zeros((len(state), len(state)))
    for i, positions in enumerate(select(found.program, found.program.heads[name], state)):
        shares[i, positions] = 1 / max(len(positions), 1)
    return shares


def _draw(found: Trace, names: Sequence[str], depths: Sequence[int]) -> Figure:
    size = min(max(CELL * len(found.inputs), SMALLEST), LARGEST)
    tokens = [label(token, 10) for token in found.inputs]
    titles = [label(name, 32) for name in names]
    token_room = inches(tokens, SIZE - 1) + 0.1
    left = MARGIN + inches(titles, SIZE, mono=True) + 0.2 + token_room
    width = left + (size + GAP) * len(depths) + MARGIN
    legend = "row i reads the columns that are marked; hatched: nothing is read"
    height = HEAD + (size + GAP) * len(names) + token_room + FOOT
    total = max(width, inches([legend], SIZE) + 2 * MARGIN)
    figure = blank(total, height)
    whole = area(figure, 0, 0, total, height)
    whole.text(MARGIN, FOOT / 2, legend, size=SIZE, color=FAINT, va="center")
    for row, name in enumerate(names):
        bottom = height - HEAD - (row + 1) * size - row * GAP
        middle = bottom + size / 2
        whole.text(MARGIN, middle, titles[row], size=SIZE, family=MONO, va="center", weight="bold")
        for column, depth in enumerate(depths):
            x = left + column * (size + GAP)
            axes = area(figure, x, bottom, size, size)
            before = found.states[2 * depth - 2][1]
            _panel(axes, pattern(found, name, before), size)
            if row == 0:
                whole.text(x + size / 2, bottom + size + 0.08, f"layer {depth}", size=SIZE, ha="center")
            if column == 0:
                _ticks(axes, tokens, size, down=True)
            if row == len(names) - 1:
                _ticks(axes, tokens, size, down=False)
    return figure


def _panel(axes: Axes, shares: np.ndarray[tuple[int, int], np.dtype[np.float64]], size: float) -> None:
    from matplotlib.colors import LinearSegmentedColormap
    from matplotlib.patches import Rectangle

    number = len(shares)
    cell = size / number
    colors = LinearSegmentedColormap.from_list("shares", ["white", BLUE])
    shown = np.where(shares > 0, 0.35 + 0.65 * shares, 0)  # so that a share of many is not white
    axes.imshow(shown, cmap=colors, vmin=0, vmax=1, extent=(0, size, 0, size), interpolation="nearest")
    for i in np.flatnonzero(shares.sum(axis=1) == 0).tolist():
        corner = (0.0, size - (i + 1) * cell)
        axes.add_patch(Rectangle(corner, size, cell, fill=False, edgecolor=PALE, linewidth=0, hatch="//////"))
    axes.add_patch(Rectangle((0, 0), size, size, fill=False, edgecolor=FAINT, linewidth=0.8, clip_on=False))
    if number <= 40:
        for line in range(1, number):
            axes.plot([0, size], [line * cell] * 2, color=PALE, linewidth=0.3)
            axes.plot([line * cell] * 2, [0, size], color=PALE, linewidth=0.3)


def _ticks(axes: Axes, tokens: Sequence[str], size: float, *, down: bool) -> None:
    cell = size / len(tokens)
    for i in thinned(len(tokens), size, SIZE - 1):
        place = (i + 0.5) * cell
        if down:
            axes.text(-0.05, size - place, tokens[i], size=SIZE - 1, ha="right", va="center")
        else:
            axes.text(place, -0.05, tokens[i], size=SIZE - 1, ha="center", va="top", rotation=90)
