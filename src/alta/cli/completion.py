"""What the shell completes: bundled programs and parts of SCAN's splits. Where nothing fits, it completes files.

Shells and alta talk in environment variables: `_ALTA_COMPLETE` says which shell asks, `COMP_WORDS` are the words typed,
one a line, and `COMP_CWORD` is the number of the one to complete.
"""

from __future__ import annotations

import os
from collections.abc import MutableMapping

from alta.programs import BUNDLED, scan_data

SPLIT = "_ALTA_SPLIT"
"""What comes before the colon at which bash has split the word to complete: it wants only what comes after."""


PARTS = ("train", "test")


def complete_program(incomplete: str) -> list[tuple[str, str]]:
    """The bundled programs that begin so, each with what it is."""
    return [(name, bundled.summary) for name, bundled in BUNDLED.items() if name.startswith(incomplete)]


def complete_data(incomplete: str) -> list[str]:
    """The parts of splits that begin so."""
    if split := os.environ.get(SPLIT):
        return [part for part in PARTS if part.startswith(incomplete) and split in scan_data.splits()]
    parts = [f"{split}:{part}" for split in scan_data.splits() for part in PARTS]
    return [part for part in parts if part.startswith(incomplete)]


def join_words(environment: MutableMapping[str, str]) -> None:
    """Puts together what bash splits: it takes `length:train` for three words."""
    if environment.get("_ALTA_COMPLETE") != "complete_bash":
        return
    words = environment["COMP_WORDS"].split("\n")[: int(environment["COMP_CWORD"]) + 1]
    joined: list[str] = []
    for number, word in enumerate(words):
        if number and ":" in (word, words[number - 1]):
            joined[-1] += word
        else:
            joined.append(word)
    if ":" in words[-2:]:
        environment[SPLIT], _, joined[-1] = joined[-1].rpartition(":")
    environment["COMP_WORDS"], environment["COMP_CWORD"] = "\n".join(joined), str(len(joined) - 1)
