"""The matrices of a model, with variables and their values as labels, as in the paper's Appendix A.2.

Everything but the inner layers of an MLP that reads numbers or sets has the residual stream on one side. It runs from
top to bottom in all panels, so that they can be read across; matrices that take from it are transposed for that.
"""

from __future__ import annotations

from collections.abc import Collection, Iterator, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Protocol

import numpy as np

from alta.compiler.compile import encode
from alta.compiler.layout import Layout
from alta.compiler.precision import precision_of
from alta.errors import InputError, listing
from alta.language.program import Program
from alta.language.record import from_data
from alta.language.variables import Numerical
from alta.model.weights import Array, Head, Linear, Weights
from alta.show.figures.canvas import BLUE, FAINT, INK, MONO, PALE, RED, area, blank, inches, label, settings, thinned

if TYPE_CHECKING:
    from matplotlib.axes import Axes
    from matplotlib.figure import Figure

CELL_WIDTH, CELL_HEIGHT, BIAS = 0.27, 0.16, 0.16  # inches, where there is room
WIDEST, HIGHEST = 10.0, 4.0  # inches, of the matrices of one row together, and of one without numbers
GAP, MARGIN, HEAD, FOOT = 0.3, 0.15, 0.42, 0.1
SIZE = 6.5  # points

MOST_DIMS = 46
"""With more dimensions, labels are names of variables, without values, and entries are colours, without numbers."""

MOST_RULES = 24
"""So many rules are written out below the matrices that hold them."""

PIXELS = 1200
"""A matrix with more rows or columns is shown by the largest entries of neighbouring ones."""


class Weighted(Protocol):
    """A model, in NumPy or torch."""

    @property
    def weights(self) -> Weights: ...


@dataclass(frozen=True)
class Panel:
    """One matrix. (row, column)"""

    title: str
    matrix: Array
    columns: Sequence[str]
    on_stream: bool = True  # whether its rows are the residual stream
    below: Array | None = None  # a bias for each column


@dataclass(frozen=True)
class Row:
    """Matrices beside each other."""

    title: str
    panels: Sequence[Panel]
    notes: Sequence[str] = ()


def weights(model: Weighted, *, layer: int = 0, parts: Collection[str] | None = None) -> Figure:
    """The embeddings, the query, key, value and output projections of each head, the MLP and the read-out. All of them,
    or those in `parts`: "embeddings", "mlp", and the names of heads."""
    found = model.weights
    if not 0 <= layer < len(found.layers):
        raise InputError(f"there is no layer {layer}; the model holds {len(found.layers)}, from 0")
    heads = {head.name: head for head in found.layers[layer].heads}
    known = ["embeddings", *heads, "mlp"]
    for part in parts or ():
        if part not in known:
            raise InputError(f"there is no part {part!r} of this model; parts: {listing(known)}")
    shown = [part for part in known if parts is None or part in parts]
    if not shown:
        raise InputError(f"there is nothing to draw; parts: {listing(known)}")
    program = from_data(found.program)
    layout = encode(program, precision_of(found.dtype)).layout
    names = list(_dimensions(program, layout))
    rows = []
    for part in shown:
        if part == "embeddings":
            rows.append(_embeddings(found, program))
        elif part == "mlp":
            rows.append(_mlp(found.layers[layer].mlp, names, clipped=found.activation == "clipped"))
        else:
            rows.append(_head(heads[part], program))
    rows = [row for row in rows if all(panel.matrix.size for panel in row.panels)]  # an MLP without rules is empty
    if not rows:
        raise InputError("there is nothing to draw: this MLP has no rules")
    with settings():
        return _draw(rows, names, layout)


def _dimensions(program: Program, layout: Layout) -> Iterator[str]:
    for name, part in layout.slices.items():
        title = _name(name)
        if isinstance(program.variables[name].domain, Numerical) or part.stop - part.start == 1:
            yield title
        else:
            yield from (f"{title} = {value}" for value in range(part.stop - part.start))


def _name(name: str) -> str:
    return label(name.lstrip("_"), 24)


def _embeddings(found: Weights, program: Program) -> Row:
    panels = [Panel("tokens", found.tokens.dense().T, [label(token, 10) for token in program.tokens])]
    if found.positions is not None:
        positions = found.positions.dense().T
        panels.append(Panel("positions", positions, [str(i) for i in range(positions.shape[1])]))
    output = found.output.dense().T
    logits = [str(i) for i in range(output.shape[1])] if output.shape[1] > 1 else [_name(program.output)]
    panels.append(Panel("read-out", output, logits))
    if found.halt is not None:
        panels.append(Panel("halting", found.halt.dense().T, ["halts"]))
    return Row("embeddings and read-out", panels)


def _head(head: Head, program: Program) -> Row:
    spec = program.heads[head.name]
    relative = "" if spec.relative_positions is None else f", at distance {listing(spec.relative_positions)}"
    always = spec.query.startswith("_")
    where = "" if always else f" where {_name(spec.key)} matches {_name(spec.query)}"

    def columns(name: str, number: int) -> list[str]:
        return [str(i) for i in range(number)] if number > 1 else [_name(name)]

    query, key, value, output = (part.dense() for part in (head.query, head.key, head.value, head.output))
    return Row(
        f"{_name(head.name)}: reads {_name(spec.value)}{where}{relative}",
        [
            Panel("query, transposed", query.T, columns(spec.query, len(query))),
            Panel("key, transposed", key.T, columns(spec.key, len(key))),
            Panel("value, transposed", value.T, columns(spec.value, len(value))),
            Panel("output", output, columns(spec.value, output.shape[1])),
        ],
    )


def _mlp(layers: Sequence[Linear], names: Sequence[str], *, clipped: bool) -> Row:
    panels = []
    *hidden, last = layers
    for number, linear in enumerate(hidden, start=1):
        matrix = linear.weight.dense().T
        titles = _units(matrix.shape[1], rules=linear is hidden[-1])
        title = f"W{number}, transposed, and b{number}"
        panels.append(Panel(title, matrix, titles, on_stream=number == 1, below=linear.bias[None, :]))
    matrix = last.weight.dense()
    panels.append(Panel(f"W{len(layers)}", matrix, _units(matrix.shape[1], rules=True)))
    notes = []
    if len(layers) == 2 and clipped and matrix.shape[1] <= MOST_RULES:
        first = hidden[0].weight.dense()
        notes = [f"R{unit + 1}   {_rule(first[unit], matrix[:, unit], names)}" for unit in range(len(first))]
    return Row("MLP", panels, notes)


def _units(number: int, *, rules: bool) -> list[str]:
    return [f"{'R' if rules else ''}{unit + 1}" for unit in range(number)]


def _rule(takes: Array, gives: Array, names: Sequence[str]) -> str:
    """What a unit does, read off its weights."""
    where = " ∧ ".join(names[place].replace(" = ", "=") for place in np.flatnonzero(takes > 0).tolist())
    old, new = (np.flatnonzero(there).tolist() for there in (gives < 0, gives > 0))
    changed = names[(old or new)[0]].rpartition(" = ")[0]
    value = names[new[0]].rpartition(" = ")[2] if new else "∅"
    return f"{where} ⟹ {changed} := {value}"


def _draw(rows: Sequence[Row], names: Sequence[str], layout: Layout) -> Figure:
    side = list(names) if len(names) <= MOST_DIMS else [_name(name) for name in layout.slices]
    left = MARGIN + inches(side, SIZE, mono=True) + 0.12
    plans = [_plan(row) for row in rows]
    notes = [inches(row.notes, SIZE) for row in rows]
    titles = [inches([row.title], 9) * 1.1 for row in rows]
    width = max(max(left + plan.width for plan in plans), *(MARGIN + room for room in (*notes, *titles))) + MARGIN
    height = sum(plan.height for plan in plans) + MARGIN
    figure = blank(width, height)
    whole = area(figure, 0, 0, width, height)
    top = height - MARGIN
    for row, plan in zip(rows, plans, strict=True):
        whole.text(MARGIN, top, row.title, size=9, weight="bold", va="top")
        x, y = left, top - HEAD
        for panel, (wide, high) in zip(row.panels, plan.sizes, strict=True):
            axes = area(figure, x, y - high, wide, high)
            _matrix(axes, panel.matrix, wide, high)
            whole.text(x, y + 0.05, panel.title, size=SIZE + 0.5, va="bottom", color=INK)
            if panel.on_stream:
                _lines(axes, layout, wide, high)
            bottom = y - high
            if panel.below is not None:
                bottom -= BIAS + 0.06
                _matrix(area(figure, x, bottom, wide, BIAS), panel.below, wide, BIAS)
            if panel is row.panels[0]:
                _side(axes, names, layout, high)
                bias = "" if panel.below is None else "bias"
                whole.text(x - 0.06, bottom + BIAS / 2, bias, size=SIZE, ha="right", va="center", family=MONO)
            _bottom(whole, panel.columns, x, bottom, wide)
            x += wide + GAP
        below = top - plan.height + 0.13 * len(row.notes) + FOOT
        for number, note in enumerate(row.notes):
            whole.text(MARGIN, below - 0.13 * number, note, size=SIZE, va="top")
        top -= plan.height
    return figure


@dataclass(frozen=True)
class _Plan:
    """Where the matrices of a row go, in inches."""

    sizes: Sequence[tuple[float, float]]
    width: float
    height: float


def _plan(row: Row) -> _Plan:
    columns = sum(panel.matrix.shape[1] for panel in row.panels)
    cell_width = min(CELL_WIDTH, WIDEST / columns)
    sizes = []
    for panel in row.panels:
        high = CELL_HEIGHT * len(panel.matrix)
        wide = max(cell_width * panel.matrix.shape[1], _narrowest(panel))
        sizes.append((wide, high if len(panel.matrix) <= MOST_DIMS else HIGHEST))
    strip = BIAS + 0.06 if any(panel.below is not None for panel in row.panels) else 0.0
    width = sum(wide + GAP for wide, _ in sizes) - GAP
    foot = max(_foot(panel.columns, wide) for panel, (wide, _) in zip(row.panels, sizes, strict=True))
    height = HEAD + max(high for _, high in sizes) + strip + foot + 0.13 * len(row.notes) + 0.3
    return _Plan(sizes, width, height)


def _narrowest(panel: Panel) -> float:
    return max(inches([panel.title], SIZE + 0.5) - GAP + 0.1, CELL_WIDTH)


def _matrix(axes: Axes, matrix: Array, width: float, height: float) -> None:
    """A matrix as colours: blue is positive, red negative. Numbers where there is room for them."""
    from matplotlib.colors import LinearSegmentedColormap
    from matplotlib.patches import Rectangle

    rows, columns = matrix.shape
    cell_width, cell_height = width / columns, height / rows
    numbered = cell_width >= 0.2 and cell_height >= 0.12
    ends = ("#F2A67E", "white", "#86BEE5") if numbered else (RED, "white", BLUE)
    colors = LinearSegmentedColormap.from_list("weights", ends)
    shown = _pooled(_pooled(matrix, PIXELS).T, PIXELS).T
    most = float(np.abs(matrix).max(initial=0)) or 1.0
    strength = np.sign(shown) * np.where(shown != 0, 0.4 + 0.6 * np.abs(shown) / most, 0)  # small ones can be seen too
    axes.imshow(
        strength, cmap=colors, vmin=-1, vmax=1, extent=(0, width, 0, height), aspect="auto", interpolation="nearest"
    )
    axes.add_patch(Rectangle((0, 0), width, height, fill=False, edgecolor=FAINT, linewidth=0.7, clip_on=False))
    if not numbered:
        return
    for i, j in np.argwhere(matrix != 0).tolist():
        x, y = (j + 0.5) * cell_width, height - (i + 0.5) * cell_height
        axes.text(x, y, f"{matrix[i, j]:.4g}".replace("-", "−"), size=SIZE, ha="center", va="center")


def _pooled(matrix: Array, most: int) -> Array:
    """Fewer rows: the largest entries of neighbouring ones."""
    step = -(-len(matrix) // most)
    if step == 1:
        return matrix
    padded = np.pad(matrix, ((0, -len(matrix) % step), (0, 0))).reshape(-1, step, matrix.shape[1])
    largest = np.abs(padded).argmax(axis=1)
    return np.asarray(np.take_along_axis(padded, largest[:, None, :], axis=1)[:, 0, :])


def _lines(axes: Axes, layout: Layout, width: float, height: float) -> None:
    """Lines between the variables."""
    for part in layout.slices.values():
        if part.start:
            y = height * (1 - part.start / layout.dim)
            axes.plot([0, width], [y, y], color=PALE, linewidth=0.6)


def _side(axes: Axes, names: Sequence[str], layout: Layout, height: float) -> None:
    places: list[tuple[float, str]]
    if len(names) <= MOST_DIMS:
        places = [(i + 0.5, name) for i, name in enumerate(names)]
    else:
        places = [((part.start + part.stop) / 2, _name(name)) for name, part in layout.slices.items()]
    last = -np.inf
    for place, name in places:
        y = height * (1 - place / len(names))
        if place / len(names) * height - last >= SIZE * 1.1 / 72:  # those that would overlap are left out
            axes.text(-0.06, y, name, size=SIZE, family=MONO, ha="right", va="center")
            last = place / len(names) * height


def _bottom(whole: Axes, columns: Sequence[str], x: float, y: float, width: float) -> None:
    upright = _is_upright(columns, width)
    for i in thinned(len(columns), width, SIZE):
        place = x + (i + 0.5) * width / len(columns)
        whole.text(place, y - 0.05, columns[i], size=SIZE, ha="center", va="top", rotation=0 if upright else 90)


def _is_upright(columns: Sequence[str], width: float) -> bool:
    return inches(columns, SIZE) * 1.15 <= width / len(columns) or len(columns) == 1


def _foot(columns: Sequence[str], width: float) -> float:
    return 0.16 if _is_upright(columns, width) else inches(columns, SIZE) + 0.08
