"""What all figures share: an empty figure, its type and colours, labels that fit, and files."""

from __future__ import annotations

import os
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING, Any

from alta.errors import InputError
from alta.terminal import cut, printable

if TYPE_CHECKING:
    from matplotlib.axes import Axes
    from matplotlib.figure import Figure

BLUE, ORANGE, GREEN, RED, PURPLE, SKY = "#0072B2", "#E69F00", "#009E73", "#D55E00", "#CC79A7", "#56B4E9"
"""Colours by Okabe and Ito, which people who do not see all colours can tell apart."""

INK, FAINT, PALE = "#222222", "#8A8A8A", "#D9D9D9"

MONO = "DejaVu Sans Mono"
"""Comes with matplotlib, as does DejaVu Sans, which has the signs that rules are written with."""

MOST_INCHES = 200.0
"""No figure is wider or higher."""

SETTINGS: dict[str, Any] = {
    "font.family": "DejaVu Sans",
    "font.size": 8,
    "text.parse_math": False,  # a dollar in a token is a dollar
    "text.usetex": False,
    "text.color": INK,
    "axes.edgecolor": FAINT,
    "axes.labelcolor": INK,
    "axes.linewidth": 0.6,
    "axes.titlesize": 9,
    "axes.unicode_minus": True,
    "xtick.color": INK,
    "ytick.color": INK,
    "xtick.labelsize": 7,
    "ytick.labelsize": 7,
    "svg.fonttype": "path",
    "svg.hashsalt": "alta",
    "pdf.fonttype": 42,
}


@contextmanager
def settings() -> Iterator[None]:
    """Draws in the same way whatever the user has set; InputError without matplotlib."""
    try:
        import matplotlib
    except ModuleNotFoundError:
        raise InputError("figures need matplotlib: pip install 'alta[plot]'") from None
    with matplotlib.rc_context():
        matplotlib.rcdefaults()
        parameters: Any = matplotlib.rcParams
        parameters.update(SETTINGS)
        yield


def blank(width: float, height: float) -> Figure:
    """An empty figure of so many inches. It belongs to nobody but its holder: pyplot knows nothing of it."""
    from matplotlib.figure import Figure

    if max(width, height) > MOST_INCHES:
        raise InputError(f"the figure would be {width:.0f} by {height:.0f} inches; choose fewer things to show")
    return Figure(figsize=(width, height), facecolor="white")


def area(figure: Figure, left: float, bottom: float, width: float, height: float) -> Axes:
    """A part of the figure without ticks and frame, placed in inches from the lower left; its unit is an inch."""
    whole_width, whole_height = figure.get_size_inches()
    part = (left / whole_width, bottom / whole_height, width / whole_width, height / whole_height)
    axes = figure.add_axes(part, frame_on=False)
    axes.set(xlim=(0, width), ylim=(0, height), xticks=[], yticks=[])
    return axes


def save(figure: Figure, path: str | Path) -> None:
    """Writes the figure; the name's ending says as what: .svg, .pdf or .png. Equal figures make equal files."""
    kind = Path(path).suffix.removeprefix(".").lower()
    dates = {"svg": {"Date": None}, "pdf": {"CreationDate": None}, "png": {}}
    if kind not in dates:
        raise InputError(f"figures are saved as NAME.svg, NAME.pdf or NAME.png; got {os.fspath(path)!r}")
    try:
        with settings():
            figure.savefig(path, format=kind, metadata=dates[kind], dpi=200)
    except OSError as error:
        raise InputError(f"{os.fspath(path)!r} cannot be written: {error}") from None


def label(text: object, most: int = 24) -> str:
    """A token or name as figures show it: no control characters, and not too long."""
    return cut(printable(str(text)), most)


def inches(texts: Sequence[str], size: float, *, mono: bool = False) -> float:
    """The width of the widest of some texts, in a font of that size."""
    from matplotlib.font_manager import FontProperties
    from matplotlib.textpath import TextPath

    font = FontProperties(family=MONO if mono else "DejaVu Sans", size=size)
    longest = sorted(set(texts), key=len)[-12:]
    return max(
        (float(TextPath((0, 0), text, prop=font).get_extents().x1) / 72 for text in longest if text), default=0.0
    )


def thinned(number: int, room: float, size: float) -> range:
    """Which of so many labels beside each other are shown, so that they do not overlap: every one, or every second,
    fifth, tenth, ..., for a line of that many inches and labels that are `size` points high."""
    most = max(int(room * 72 / (size * 1.25)), 1)
    for step in (scale * base for scale in (10**power for power in range(9)) for base in (1, 2, 5)):
        if number <= most * step:
            return range(0, number, step)
    return range(0)
