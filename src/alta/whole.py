"""Files that are always whole, whenever a process is killed."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path


@contextmanager
def whole(path: str | Path) -> Iterator[Path]:
    """Yields where to write; what is there in the end takes the place of the file at once."""
    target = Path(path)
    part = target.with_name(target.name + ".part")
    yield part
    part.replace(target)
