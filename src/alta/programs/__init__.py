"""The bundled programs, by name. Each module is a model of how to write one."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from alta.errors import InputError
from alta.language.program import Program, Token
from alta.programs import addition, parity, scan, sort, subleq


@dataclass(frozen=True)
class Bundled:
    """A program with what the command line needs to know of it."""

    summary: str
    build: Callable[[], Program]
    encode: Callable[[str], Sequence[Token]]
    """From what a person types to tokens."""
    decode: Callable[[Sequence[Any]], str]
    """From outputs (of a run) or tokens (of a generation) to what a person reads."""
    example: str
    max_layers: int | None = None
    stop: Token | None = None


def _bits(text: str) -> list[int]:
    digits = text.replace(" ", "")
    if set(digits) - {"0", "1"}:
        raise InputError(f"a string of bits, such as 10110, is made of 0 and 1; got {text!r}")
    return [int(digit) for digit in digits]


def _summands(text: str) -> tuple[int, int]:
    parts = [part.strip() for part in text.removesuffix("=").split("+")]
    if len(parts) != 2 or not all(part.isascii() and part.isdigit() for part in parts):
        raise InputError(f"a sum is written like 12+34; got {text!r}")
    return int(parts[0]), int(parts[1])


def _integers(text: str) -> list[int]:
    try:
        return [int(word) for word in text.replace(",", " ").split()]
    except ValueError:
        raise InputError(f"a list of numbers is written like 3 1 2; got {text!r}") from None


def _parity(outputs: Sequence[Any]) -> str:
    return f"parity {parity.decode(outputs)}"


def _words(items: Sequence[Any]) -> str:
    return " ".join(map(str, items))


BUNDLED: Mapping[str, Bundled] = {
    "parity-absolute": Bundled(
        "parity, one position a layer, by absolute positions", parity.absolute, _bits, _parity, "10110"
    ),
    "parity-relative": Bundled(
        "parity, one position a layer, by relative positions",
        parity.relative,
        lambda text: parity.encode(_bits(text)),
        _parity,
        "10110",
    ),
    "parity-sum": Bundled(
        "parity in one layer: the sum modulo 2",
        parity.by_sum,
        lambda text: parity.encode(_bits(text)),
        _parity,
        "10110",
        max_layers=1,
    ),
    "parity-count": Bundled(
        "parity in two layers: the sum as a categorical variable, then modulo 2",
        parity.by_count,
        lambda text: parity.encode(_bits(text)),
        _parity,
        "10110",
        max_layers=2,
    ),
    "addition": Bundled(
        "the sum of two numbers of any length",
        addition.addition,
        lambda text: addition.encode(*_summands(text)),
        lambda outputs: str(addition.decode(outputs)),
        "95+7",
    ),
    "sort-unique": Bundled(
        "different numbers in order, in two layers",
        sort.sort_unique,
        lambda text: sort.encode(_integers(text)),
        lambda outputs: _words(sort.decode(outputs)),
        "5 2 9 0",
    ),
    "subleq": Bundled(
        "an interpreter for the one-instruction computer",
        subleq.subleq,
        lambda text: subleq.encode(_integers(text)),
        lambda outputs: _words(subleq.decode(outputs)),
        "3 4 -1 5 2",
    ),
    "scan-parser": Bundled(
        "a shift-reduce parser for SCAN commands",
        scan.parser,
        scan.encode_parser,
        lambda outputs: "; ".join(map(str, scan.decode_parser(outputs))),
        "jump around left twice",
    ),
    "scan": Bundled(
        "from SCAN commands to actions",
        scan.scan,
        scan.encode,
        lambda outputs: _words(scan.decode(outputs)),
        "jump around left twice and walk",
    ),
    "parity-scratchpad": Bundled(
        "a decoder that writes the running parity",
        parity.scratchpad,
        lambda text: parity.encode_scratchpad(_bits(text.removesuffix("="))),
        _words,
        "10110",
        stop="END",
    ),
    "addition-decoder": Bundled(
        "a decoder that writes a sum, least significant digit first",
        addition.decoder,
        lambda text: addition.encode_decoder(*_summands(text)),
        _words,
        "95+7",
        stop="END",
    ),
}
