"""SCAN: its 20,910 commands with their actions, made from its grammar, and the splits that people test on.

The data set is by Lake and Baroni (2018), as are the splits but `mcd1` to `mcd3`, which are by Keysers et al. (2020).
`scan_splits.json.gz` holds which examples belong to which split, and its licence.
"""

from __future__ import annotations

import gzip
import json
from dataclasses import dataclass
from functools import cache
from importlib.resources import files

from alta.errors import InputError, listing

VERBS = {"walk": ("I_WALK",), "look": ("I_LOOK",), "run": ("I_RUN",), "jump": ("I_JUMP",)}
SIDES = {"left": "I_TURN_LEFT", "right": "I_TURN_RIGHT"}


@dataclass(frozen=True, slots=True)
class Example:
    """A command and what it asks for."""

    command: str
    actions: tuple[str, ...]


@cache
def examples() -> tuple[Example, ...]:
    """All of SCAN, in a fixed order, which the splits count by."""
    phrases = [
        Example(f"{example.command}{times}", example.actions * number)
        for example in _actions()
        for times, number in (("", 1), (" twice", 2), (" thrice", 3))
    ]
    pairs = [(first, second) for first in phrases for second in phrases]
    both = [Example(f"{a.command} and {b.command}", a.actions + b.actions) for a, b in pairs]
    after = [Example(f"{a.command} after {b.command}", b.actions + a.actions) for a, b in pairs]
    return (*phrases, *both, *after)


def _actions() -> list[Example]:
    """A verb, and where to: turning is walking without a step."""
    found = []
    for verb, step in {**VERBS, "turn": ()}.items():
        if step:
            found.append(Example(verb, step))
        for side, turn in SIDES.items():
            found.append(Example(f"{verb} {side}", (turn, *step)))
            found.append(Example(f"{verb} opposite {side}", (turn, turn, *step)))
            found.append(Example(f"{verb} around {side}", (turn, *step) * 4))
    return found


def splits() -> tuple[str, ...]:
    """The names of the splits."""
    return tuple(_membership())


def split(name: str, part: str) -> list[Example]:
    """The examples of a split's `train` or `test` part."""
    members = _membership()
    if name not in members:
        raise InputError(f"there is no split {name!r} of SCAN; splits: {listing(members)}")
    if part not in ("train", "test"):
        raise InputError(f"a split has the parts train and test; got {part!r}")
    bits = int(members[name][part], 16)
    return [example for number, example in enumerate(examples()) if bits >> number & 1]


@cache
def _membership() -> dict[str, dict[str, str]]:
    """For each split and part a number in hexadecimal, whose bit i is 1 if it holds example i."""
    packed = files("alta.programs").joinpath("scan_splits.json.gz").read_bytes()
    found: dict[str, dict[str, str]] = json.loads(gzip.decompress(packed))["splits"]
    return found
