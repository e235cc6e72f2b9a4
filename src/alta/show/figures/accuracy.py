"""Accuracy by group, like the paper's Figure 3: a column of panels for each program, a row for each way of grouping."""

from __future__ import annotations

from collections.abc import Hashable, Mapping
from typing import TYPE_CHECKING, Any, TypeAlias

from alta.errors import InputError
from alta.show.figures.canvas import (
    BLUE,
    FAINT,
    GREEN,
    INK,
    ORANGE,
    PALE,
    PURPLE,
    RED,
    SKY,
    blank,
    label,
    settings,
    thinned,
)

if TYPE_CHECKING:
    from matplotlib.axes import Axes
    from matplotlib.figure import Figure

Groups: TypeAlias = Mapping[Hashable, tuple[int, int]]
"""For each group of inputs, how many of them are right, and how many there are."""

Series: TypeAlias = Mapping[str, Groups]
"""What is drawn in one panel: a line for each of them, by its name, such as "original", "minimal" or "trained"."""

Panels: TypeAlias = Mapping[str, Mapping[str, Series]]
"""For each column (a program) and each row (what the inputs are grouped by), what is drawn."""

LINES = (
    ("#9A9A9A", "-", 4.0, "none"),
    (BLUE, "-", 1.6, "o"),
    (RED, "--", 1.4, "s"),
    (GREEN, "-.", 1.4, "^"),
    (ORANGE, ":", 1.6, "D"),
    (PURPLE, "-", 1.0, "v"),
    (SKY, "--", 1.0, "P"),
)
"""Colour, dashes, width and marker of each line. The first is wide and lies below, since others often lie on it."""

SHADE = 0.5

WIDTH, HEIGHT = 2.6, 1.9
"""Of a panel, in inches."""


def accuracy(panels: Panels, *, seen: Mapping[str, Mapping[str, float]] | None = None) -> Figure:
    """Accuracy by group: `panels[column][row]` maps the name of a line to its groups, each with how many inputs are
    right, and how many there are.

    A line keeps its colour and marker in all panels. `seen[column][row]` tells up to which group training data went,
    which is shaded.
    """
    columns = list(panels)
    rows = list(dict.fromkeys(row for column in panels.values() for row in column))
    names = list(dict.fromkeys(name for column in panels.values() for series in column.values() for name in series))
    if not names:
        raise InputError("there is nothing to draw: give a panel at least one line")
    if len(names) > len(LINES):
        raise InputError(f"{len(names)} lines cannot be told apart; draw {len(LINES)} at most")
    with settings():
        from matplotlib.patches import Patch

        figure = blank(max(WIDTH * len(columns) + 0.6, 3.6), HEIGHT * len(rows) + 0.75)
        figure.set_layout_engine("constrained")
        grid = figure.subplots(len(rows), len(columns), squeeze=False, sharey=True)
        for i, row in enumerate(rows):
            for j, column in enumerate(columns):
                axes = grid[i, j]
                _panel(axes, panels[column].get(row, {}), names, (seen or {}).get(column, {}).get(row))
                axes.set_xlabel(label(row, 40))
                if i == 0:
                    axes.set_title(label(column, 40))
                if j == 0:
                    axes.set_ylabel("accuracy")
        lines = {line.get_label(): line for axes in grid.flat for line in axes.get_lines()}
        handles: list[Any] = [lines[name] for name in names if name in lines]
        titles = [label(name, 40) for name in names if name in lines]
        if any(axes.patches for axes in grid.flat):
            handles.append(Patch(color=PALE, alpha=SHADE))
            titles.append("seen in training")
        if len(handles) > 1:
            figure.legend(handles, titles, loc="outside lower center", ncols=4, frameon=False)
        figure.draw_without_rendering()  # lays it out while the settings hold
        return figure


def _panel(axes: Axes, series: Series, names: list[str], seen: float | None) -> None:
    groups = list(dict.fromkeys(group for one in series.values() for group in one))
    numeric = all(isinstance(group, int | float) for group in groups)
    places = {group: _number(group) if numeric else number for number, group in enumerate(groups)}
    for name, one in series.items():
        color, dashes, width, marker = LINES[names.index(name) + (len(names) == 1)]
        points = sorted((places[group], right / number) for group, (right, number) in one.items() if number)
        size = 3.5 if len(points) <= 45 else 0
        x, y = [point[0] for point in points], [point[1] for point in points]
        axes.plot(x, y, color=color, linestyle=dashes, linewidth=width, marker=marker, markersize=size, label=name)
    axes.set_ylim(-0.04, 1.06)
    axes.set_yticks([0, 0.25, 0.5, 0.75, 1], ["0", "25%", "50%", "75%", "100%"])
    axes.grid(color=PALE, linewidth=0.5)
    axes.set_axisbelow(True)
    for side in ("top", "right"):
        axes.spines[side].set_visible(False)
    if numeric:
        axes.locator_params(axis="x", integer=True, nbins=7)
        low, high = min(places.values(), default=0), max(places.values(), default=0)
        if seen is not None and seen >= low:
            axes.axvspan(low - 0.5, seen + 0.5, color=PALE, alpha=SHADE, linewidth=0)
        axes.set_xlim(low - 0.5, high + 0.5)
    else:
        shown = thinned(len(groups), WIDTH, 7)
        axes.set_xticks(list(shown), [label(groups[i], 14) for i in shown], rotation=90 if len(groups) > 4 else 0)
    axes.tick_params(length=2, color=FAINT, labelsize=7, labelcolor=INK)  # ticks are made when they are drawn


def _number(group: Hashable) -> float:
    assert isinstance(group, int | float)
    return group
