"""Parity of a string of bits, in five ways.

The first three are the paper's. They compute the parity of every prefix or of the whole, and differ in what a learner
could generalise from: `absolute` counts positions, `relative` only looks to the left, `by_sum` counts the ones.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from alta.language.builder import halt_spec, numeric_var, program_spec, qkv, v_relative, var
from alta.language.program import Program, Token

START = "START"


def absolute(positions: int = 256) -> Program:
    """Walks from left to right, one position a layer, and finds its neighbour by its position."""

    def mlp(z: Any) -> None:
        if not z["done"] and z["done_left"]:
            z["parity"] ^= z["parity_left"]
            z["done"] = 1

    return program_spec(
        variables={
            "parity": var(2, input_init_fn=lambda bit: bit),
            "done": var(2, position_init_fn=lambda position: position == 0),
            "position": var(positions, position_init_fn=lambda position: position),
            "position_left": var(positions, position_init_fn=lambda position: max(position - 1, 0)),
        },
        heads={
            "parity_left": qkv("position_left", "position", "parity"),
            "done_left": qkv("position_left", "position", "done"),
        },
        ffn_fn=mlp,
        output_name="parity",
        input_range=2,
        position_range=positions,
        halt=halt_spec("done", 1),
    )


def relative() -> Program:
    """Walks from left to right, one position a layer, and knows only what is to its left. Three rules."""

    def mlp(z: Any) -> None:
        if not z["done"] and z["done_left"]:
            z["parity"] ^= z["parity_left"]
            z["done"] = 1

    return program_spec(
        variables={
            "parity": var(2, input_init_fn=lambda token: token == "1"),
            "done": var(2, input_init_fn=lambda token: token == START),
        },
        heads={"parity_left": v_relative("parity", -1), "done_left": v_relative("done", -1)},
        ffn_fn=mlp,
        output_name="parity",
        tokens=("0", "1", START),
        halt=halt_spec("done", 1),
    )


def by_sum(max_ones: int = 256) -> Program:
    """Counts the ones in one layer, by the share that START has among START and the ones, and takes the count modulo 2.

    It has no halting condition: run it for one layer.
    """

    def mlp(z: Any) -> None:
        ones = round(1 / z["share"]) - 1
        z["parity"] = ones % 2

    return program_spec(
        variables={"parity": var(2), **_counting_variables()},
        heads={"share": qkv("one", "counted", "is_start", output_spec=numeric_var(_shares(max_ones)))},
        ffn_fn=mlp,
        output_name="parity",
        tokens=("0", "1", START),
    )


def by_count(max_ones: int = 256, scale: float = 1) -> Program:
    """Like `by_sum`, but the count is a variable of its own: set in the first layer, reduced modulo 2 in the second.

    It has no halting condition: run it for two layers. What the second layer does must not depend on what its head
    reads, so the query then asks for zeros, of which START is none. An MLP that has learned this program is not quite
    exact, and would make a different share of what was counted. With a `scale`, shares are so many times as large, and
    as far apart, which an MLP that learns from noisy inputs needs.
    """

    def mlp(z: Any) -> None:
        if z["one"]:
            if z["num_ones"] == 0 and z["share"]:  # as they are; otherwise, rules for other counts are made
                z["num_ones"] = round(scale / z["share"]) - 1
            z["one"] = 0
        else:
            z["parity"] = z["num_ones"] % 2

    return program_spec(
        variables={"parity": var(2), "num_ones": var(max_ones + 1), **_counting_variables(scale)},
        heads={"share": qkv("one", "counted", "is_start", output_spec=numeric_var((0, *_shares(max_ones, scale))))},
        ffn_fn=mlp,
        output_name="parity",
        tokens=("0", "1", START),
    )


def scratchpad() -> Program:
    """A decoder that writes the running parity: from START 1 0 1 1 = it goes on 1 1 0 1 END, for any length.

    The k-th token after `=` is as far from the k-th bit as every other, so all tokens move to the right together, one
    position a layer, until START reaches `=`; then every position after `=` has its bit. A bit before `=` is done when
    START reaches it.
    """
    tokens = ("0", "1", "=", START, "END")
    equals, start, end = tokens.index("="), tokens.index(START), tokens.index("END")

    def mlp(z: Any) -> None:
        if z["done"]:
            return
        if z["after"] and z["ready"]:
            z["next"] = end if z["passed"] == equals else z["passed"] ^ z["parity"]
            z["done"] = 1
            return
        z["passed"] = z["passing"]
        z["passing"] = z["passing_left"]
        if z["after_left"]:
            z["after"] = 1
        if z["passing_left"] == start:
            if z["is_equals"]:
                z["arrived"] = 1
            elif not z["after"]:
                z["done"] = 1

    return program_spec(
        variables={
            "parity": var(2, input_init_fn=lambda token: token == "1"),
            "passing": var(len(tokens), input_init_fn=tokens.index),
            "passed": var(len(tokens)),
            "is_equals": var(2, input_init_fn=lambda token: token == "="),
            "after": var(2, input_init_fn=lambda token: token == "="),
            "arrived": var(2),
            "next": var(len(tokens)),
            "done": var(2, input_init_fn=lambda token: token == START),
            "one": var(2, default=1),
        },
        heads={
            "passing_left": v_relative("passing", -1),
            "after_left": v_relative("after", -1),
            "ready": qkv("one", "is_equals", "arrived"),
        },
        ffn_fn=mlp,
        output_name="next",
        tokens=tokens,
        halt=halt_spec("done", 1),
        causal=True,
    )


def encode(bits: Sequence[int]) -> list[Token]:
    """The tokens of all programs but `absolute`, which takes the bits as they are."""
    return [START, *map(str, bits)]


def encode_scratchpad(bits: Sequence[int]) -> list[Token]:
    """The prompt of `scratchpad`."""
    return [START, *map(str, bits), "="]


def decode(outputs: Sequence[Any]) -> int:
    """The parity of all bits."""
    return int(outputs[-1]) if outputs else 0


def _counting_variables(scale: float = 1) -> dict[str, Any]:
    return {
        "is_start": numeric_var((0, scale), input_init_fn=lambda token: scale * (token == START)),
        "counted": var(2, input_init_fn=lambda token: token in ("1", START)),
        "one": var(2, default=1),
    }


def _shares(max_ones: int, scale: float = 1) -> tuple[float, ...]:
    return tuple(scale / (ones + 1) for ones in reversed(range(max_ones + 1)))
