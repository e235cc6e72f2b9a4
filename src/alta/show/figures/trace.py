"""The paper's Figure 2 for any run: what each position knows after each sub-layer."""

from __future__ import annotations

from collections.abc import Collection, Sequence
from typing import TYPE_CHECKING, TypeVar

from alta.errors import InputError, listing
from alta.interpreter.trace import Run, State, Trace
from alta.language.variables import NULL, UNDEFINED, Cell, Variable, declared, format_value
from alta.show.figures.canvas import FAINT, INK, MONO, PALE, RED, area, blank, inches, label, settings

if TYPE_CHECKING:
    from matplotlib.axes import Axes
    from matplotlib.figure import Figure

T = TypeVar("T")

MOST_CELLS = 8000
"""More cells than this cannot be read."""

ROW, GAP, BETWEEN, MARGIN, HEAD, FOOT = 0.2, 0.12, 0.16, 0.15, 0.5, 0.36  # inches
SIZE = 7.0  # points

LIGHT, DARK = (0.945, 0.965, 0.985), (0.45, 0.70, 0.90)
"""The colours of a variable's first value and of its last. Between them are the others."""


def trace(
    run: Run | Trace,
    *,
    variables: Collection[str] | None = None,
    positions: Collection[int] | None = None,
    layers: Collection[int] | None = None,
) -> Figure:
    """The variables of every position, side by side after each sub-layer.

    A cell's colour is its value, from a variable's first to its last; a dark frame and bold type mark what the
    sub-layer has changed (but for outputs of heads that are NULL again), a red frame the output. All of it is shown, or
    the variables, positions and layers that are asked for (layer 0 is the start).
    """
    found = run.trace if isinstance(run, Run) else run
    names = _chosen(declared(found.program.variables), variables, "variable")
    places = _chosen(range(len(found.inputs)), positions, "position")
    depths = _chosen(range(len(found.layers) + 1), layers, "layer")
    states = found.states
    shown = [i for i in range(len(states)) if (i + 1) // 2 in depths]
    cells = len(names) * len(places) * len(shown)
    if not cells:
        raise InputError("there is nothing to draw: choose a variable, a position and a layer at least")
    if cells > MOST_CELLS:
        raise InputError(
            f"a figure of {cells:,} cells cannot be read ({MOST_CELLS:,} can); choose with variables, positions, layers"
        )
    with settings():
        return _draw(found, names, places, shown, states)


def _draw(
    found: Trace,
    names: Sequence[str],
    places: Sequence[int],
    shown: Sequence[int],
    states: Sequence[tuple[str, State]],
) -> Figure:
    from matplotlib.patches import Rectangle

    texts = {i: [format_value(states[i][1][p][n]) for p in places for n in names] for i in shown}
    width = max(inches([text for column in texts.values() for text in column], SIZE) + 0.14, 0.3)
    tokens = [label(f"{place}  {found.inputs[place]}") for place in places]
    titles = [label(name, 32) for name in names]
    token_room = inches(tokens, SIZE + 1) * 1.12 + 0.15
    name_room = inches(titles, SIZE, mono=True) + 0.12
    block = ROW * len(names)
    legend = "colour: value    frame, bold: changed (resets apart)    red frame: output    ∅: null    ?: undefined"
    left = MARGIN + token_room + name_room
    total = max(left + (width + BETWEEN) * len(shown) + MARGIN, inches([legend], SIZE) + 2 * MARGIN)
    height = HEAD + FOOT + (block + GAP) * len(places)
    figure = blank(total, height)
    axes = area(figure, 0, 0, total, height)
    for row, place in enumerate(places):
        top = height - HEAD - row * (block + GAP)
        axes.text(MARGIN, top - block / 2, tokens[row], size=SIZE + 1, weight="bold", va="center")
        for line, title in enumerate(titles):
            middle = top - (line + 0.5) * ROW
            axes.text(left - 0.1, middle, title, size=SIZE, family=MONO, va="center", ha="right")
        for column, i in enumerate(shown):
            x = left + column * (width + BETWEEN)
            before = states[i - 1][1][place] if i else None
            after = states[i][1][place]
            framed = []
            for line, name in enumerate(names):
                changed = before is not None and before[name] != after[name] and after[name] is not NULL
                output = name == found.program.output and i == len(states) - 1
                _cell(axes, (x, top - (line + 1) * ROW, width), after[name], found.program.variables[name], changed)
                if changed or output:
                    framed.append((line, RED if output else INK))
            axes.add_patch(Rectangle((x, top - block), width, block, fill=False, edgecolor=FAINT, linewidth=0.6))
            for line, color in framed:
                corner = (x, top - (line + 1) * ROW)
                axes.add_patch(Rectangle(corner, width, ROW, fill=False, edgecolor=color, linewidth=1.3, zorder=3))
    _headings(axes, shown, height, left, width)
    axes.text(MARGIN, FOOT / 2, legend, size=SIZE, color=FAINT, va="center")
    return figure


def _headings(axes: Axes, shown: Sequence[int], height: float, left: float, width: float) -> None:
    """The sub-layers, and above each pair of them the number of the layer."""
    for column, i in enumerate(shown):
        x = left + column * (width + BETWEEN)
        kind = "start" if i == 0 else ("attn", "MLP")[(i + 1) % 2]
        axes.text(x + width / 2, height - HEAD + 0.06, kind, size=SIZE, ha="center", va="bottom", color=FAINT)
        if i % 2:
            end = x + 2 * width + BETWEEN
            line = height - HEAD + 0.22
            axes.plot([x, end], [line, line], color=PALE, linewidth=1)
            axes.text((x + end) / 2, line + 0.03, f"{(i + 1) // 2}", size=SIZE + 1, weight="bold", ha="center")


def _cell(axes: Axes, place: tuple[float, float, float], value: Cell, variable: Variable, changed: bool) -> None:
    from matplotlib.patches import Rectangle

    x, y, width = place
    hatch = "////" if value is UNDEFINED else None
    color = _color(value, variable)
    axes.add_patch(Rectangle((x, y), width, ROW, facecolor=color, edgecolor=PALE, linewidth=0.4, hatch=hatch))
    ink = FAINT if value is NULL else INK
    weight = "bold" if changed else "normal"
    text = format_value(value)
    axes.text(x + width / 2, y + ROW / 2 - 0.005, text, size=SIZE, ha="center", va="center", color=ink, weight=weight)


def _color(value: Cell, variable: Variable) -> tuple[float, float, float]:
    """From light to dark in the order of the domain's values; a mean goes by its size."""
    if value is NULL or value is UNDEFINED:
        return (1.0, 1.0, 1.0)
    values = variable.domain.values
    if isinstance(value, frozenset):
        share = values.index(value) / max(len(values) - 1, 1)
    else:
        ends = [float(end) for end in (values[0], values[-1])] if values else [0.0, 1.0]  # type: ignore[arg-type]
        share = (float(value) - ends[0]) / ((ends[1] - ends[0]) or 1.0)
    share = min(max(share, 0.0), 1.0)
    red, green, blue = (low + (high - low) * share for low, high in zip(LIGHT, DARK, strict=True))
    return red, green, blue


def _chosen(known: Sequence[T], chosen: Collection[T] | None, what: str) -> list[T]:
    if chosen is None:
        return list(known)
    for one in chosen:
        if one not in known:
            raise InputError(f"there is no {what} {one!r} in this run; there are {listing(known)}")
    return [one for one in known if one in chosen]
