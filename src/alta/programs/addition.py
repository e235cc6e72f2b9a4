"""Addition of two numbers of any length: as an encoder, in N + 2 layers for N digits, and as a decoder."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from alta.language.builder import halt_spec, program_spec, qkv, v_relative, var
from alta.language.program import Program, Token

DIGITS = tuple("0123456789")
BLANK = 10
"""In `value`, a token that is no digit; in `sum`, a position without an output."""


def addition() -> Program:
    """Adds START 1 2 + 3 4 END digit by digit, from the right.

    Three pointers mark one position each: the current digits of both numbers, and where the sum is written, from the
    last digit of the second number leftwards. A pointer that has passed the first digit of its number rests on the
    blank (START or +) there, which counts as 0; once both rest, the last carry is written.
    """
    digit, first, plus, last = range(4)
    kinds = {**dict.fromkeys(DIGITS, digit), "START": first, "+": plus, "END": last}

    def mlp(z: Any) -> None:
        if not z["started"]:
            z["started"] = 1
            if z["kind"] != last:
                z["at_a"] = z["kind_right"] == plus
                z["at_b"] = z["at_sum"] = z["kind_right"] == last
        else:
            total = z["a"] % 10 + z["b"] % 10 + z["carry"]  # a BLANK counts as 0
            z["carry"] = total // 10
            if z["at_sum"]:
                z["sum"] = total % 10
            if z["a"] == BLANK and z["b"] == BLANK:
                z["done"] = 1
            if z["kind"] != last:
                move_pointers(z)

    def move_pointers(z: Any) -> None:
        z["at_sum"] = z["at_sum_right"]
        if z["kind"] != first or not z["at_a"]:
            z["at_a"] = z["at_a_right"]
        if z["kind"] == plus:
            z["at_b"] |= z["at_b_right"]
        elif z["kind_right"] != plus:
            z["at_b"] = z["at_b_right"]

    return program_spec(
        variables={
            "kind": var(4, input_init_fn=kinds.__getitem__),
            "value": var(11, input_init_fn=lambda token: int(token) if token in DIGITS else BLANK),
            "started": var(2),
            "at_a": var(2),
            "at_b": var(2),
            "at_sum": var(2),
            "carry": var(2),
            "sum": var(11, default=BLANK),
            "done": var(2),
            "one": var(2, default=1),
        },
        heads={
            "kind_right": v_relative("kind", 1),
            "at_a_right": v_relative("at_a", 1),
            "at_b_right": v_relative("at_b", 1),
            "at_sum_right": v_relative("at_sum", 1),
            "a": qkv("one", "at_a", "value"),
            "b": qkv("one", "at_b", "value"),
        },
        ffn_fn=mlp,
        output_name="sum",
        tokens=(*DIGITS, "START", "+", "END"),
        halt=halt_spec("done", 1),
    )


def decoder() -> Program:
    """A decoder that adds: from START 1 9 + 3 = it goes on 2 2 END, the least significant digit first.

    All tokens move to the right together, one position a layer. The position of `=` takes the digits a and b that reach
    it first, right after `=` and right after `+`. The k-th digits are two positions further from the k-th token of the
    sum than the ones before from the token before, so each position takes its own two layers after its left neighbour
    has: once it has seen that, it waits for one layer. Carries pass from left to right in the same way.
    """
    tokens = (*DIGITS, "+", "=", "START", "END")
    plus, start, end = tokens.index("+"), tokens.index("START"), tokens.index("END")
    unknown = 11

    def mlp(z: Any) -> None:
        if z["is_start"]:
            return
        write(z)
        arriving = z["passing_left"]
        if z["after_left"]:
            z["after"] = 1
        if arriving == start and not z["after"]:
            z["done"] = 1
        if z["is_equals"]:
            if z["b"] == unknown:
                z["b"] = digit_or_blank(arriving)
            if z["a"] == unknown and z["passing"] == plus:
                z["a"] = digit_or_blank(arriving)
        else:
            take(z, "a", arriving)
            take(z, "b", arriving)
        z["passing"] = arriving

    def take(z: Any, digit: str, arriving: Any) -> None:
        if z[digit] != unknown or z[f"{digit}_left"] == unknown:
            return
        if not z[f"{digit}_due"]:
            z[f"{digit}_due"] = 1
        elif z[f"{digit}_left"] == BLANK:
            z[digit] = BLANK
        else:
            z[digit] = digit_or_blank(arriving)

    def digit_or_blank(token: Any) -> Any:
        return token if token < BLANK else BLANK

    def write(z: Any) -> None:
        if z["done"] or z["a"] == unknown or z["b"] == unknown:
            return
        carry = 0 if z["is_equals"] else z["carry_left"]
        if carry == unknown_carry:
            return
        if z["a"] == BLANK and z["b"] == BLANK and not carry:
            z["next"] = end
        else:
            total = z["a"] % 10 + z["b"] % 10 + carry
            z["next"] = total % 10
            z["carry"] = total // 10
        z["done"] = 1

    unknown_carry = 2
    return program_spec(
        variables={
            "passing": var(len(tokens), input_init_fn=tokens.index),
            "is_start": var(2, input_init_fn=lambda token: token == "START"),
            "is_equals": var(2, input_init_fn=lambda token: token == "="),
            "after": var(2, input_init_fn=lambda token: token == "="),
            "a": var(12, default=unknown),
            "b": var(12, default=unknown),
            "a_due": var(2),
            "b_due": var(2),
            "carry": var(3, default=unknown_carry),
            "next": var(len(tokens)),
            "done": var(2, input_init_fn=lambda token: token == "START"),
        },
        heads={
            "passing_left": v_relative("passing", -1),
            "after_left": v_relative("after", -1),
            "a_left": v_relative("a", -1),
            "b_left": v_relative("b", -1),
            "carry_left": v_relative("carry", -1),
        },
        ffn_fn=mlp,
        output_name="next",
        tokens=tokens,
        halt=halt_spec("done", 1),
        causal=True,
    )


def encode(a: int, b: int) -> list[Token]:
    """The tokens of `addition`."""
    return ["START", *str(a), "+", *str(b), "END"]


def decode(outputs: Sequence[Any]) -> int:
    """The sum that `addition` has written."""
    return int("".join(str(digit) for digit in outputs if digit != BLANK))


def encode_decoder(a: int, b: int) -> list[Token]:
    """The prompt of `decoder`."""
    return ["START", *str(a), "+", *str(b), "="]


def decode_decoder(tokens: Sequence[Token]) -> int:
    """The sum that `decoder` has written."""
    return int("".join(str(token) for token in tokens if token in DIGITS)[::-1])
