"""Text on a terminal: how wide it is, how it is made to fit, and in which colours."""

from __future__ import annotations

import unicodedata
from collections.abc import Iterable
from functools import lru_cache

STYLES = {
    "changed": "1;36",  # bold cyan
    "good": "32",  # green
    "note": "33",  # yellow
    "bad": "1;31",  # bold red
    "title": "1",  # bold
    "faint": "2",
}
"""What each style is on a terminal. Colours are the terminal's own, so they suit a dark one and a light one."""


def paint(text: str, style: str, color: bool) -> str:
    """The text in a style, if there is to be colour."""
    return f"\x1b[{STYLES[style]}m{text}\x1b[0m" if color and text else text


@lru_cache(maxsize=10_000)
def columns(text: str) -> int:
    """The columns that a text takes: two for most characters of Chinese, Japanese and Korean, none for accents that
    combine with the letter before."""
    if text.isascii():
        return len(text)
    return sum(map(_columns_of, text))


def printable(text: str) -> str:
    """The text with control characters written out, so that no token or name can move the cursor."""
    if text.isprintable():
        return text
    return "".join(c if c.isprintable() or _columns_of(c) == 0 else repr(c)[1:-1] for c in text)


def pad(text: str, width: int) -> str:
    """The text with spaces up to a width."""
    return text + " " * (width - columns(text))


def widest(texts: Iterable[str]) -> int:
    """The columns of the widest text."""
    return max(map(columns, texts), default=0)


def cut(text: str, width: int) -> str:
    """The text, or as much of it as fits, and an ellipsis."""
    if columns(text) <= width:
        return text
    kept, used = "", 0
    for character in text:
        used += _columns_of(character)
        if used > width - 1:
            break
        kept += character
    return kept + "…"


def wrap(words: Iterable[str], width: int | None, indent: str) -> list[str]:
    """The words in lines of at most that width, each line but the first indented. A word that is wider has a line of
    its own."""
    lines: list[str] = []
    line = ""
    for word in words:
        longer = f"{line} {word}" if line else word
        if line.strip() and width is not None and columns(longer) > width:
            lines.append(line)
            longer = indent + word
        line = longer
    return [*lines, line]


def _columns_of(character: str) -> int:
    if unicodedata.category(character) in ("Mn", "Me", "Cf"):
        return 0
    return 2 if unicodedata.east_asian_width(character) in ("W", "F") else 1
