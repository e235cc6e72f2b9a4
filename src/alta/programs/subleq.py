"""An interpreter for SUBLEQ, the computer with one instruction.

`a b c` subtracts the register at address a from the one at address b; if the result is 0 or less, it goes on at address
c, otherwise at the next three registers. It halts when it has to go on at a negative c, or meets a negative a or b.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from alta.language.builder import halt_spec, program_spec, qkv, var
from alta.language.program import Program, Token


def subleq(min_value: int = -16, max_value: int = 16) -> Program:
    """Each token is a register with its value, and positions are addresses. Three layers an instruction; registers
    that hold instructions may be overwritten. The three operands are read before the result is written.

    A result outside of the range, and an address without a register, are errors.
    """
    values = range(min_value, max_value + 1)
    size = len(values)
    fetch, execute, branch, done = range(4)

    def encode_value(value: Any) -> Any:
        return value - min_value

    def decode_value(index: Any) -> Any:
        return index + min_value

    def mlp(z: Any) -> None:
        if z["step"] == fetch:
            z["a"], z["b"], z["c"] = z["fetched_a"], z["fetched_b"], z["fetched_c"]
            z["is_b"] = z["address"] == z["fetched_b"]
            halting = decode_value(z["fetched_a"]) < 0 or decode_value(z["fetched_b"]) < 0
            z["step"] = done if halting else execute
        elif z["step"] == execute:
            z["jump"] = decode_value(z["at_b"]) - decode_value(z["at_a"]) <= 0
            if z["is_b"]:
                z["register"] = encode_value(decode_value(z["register"]) - decode_value(z["at_a"]))
            z["step"] = branch
        elif z["step"] == branch:
            z["step"] = fetch
            if not z["jump"]:
                for operand in ("a", "b", "c"):
                    z[f"next_{operand}"] += 3
            elif decode_value(z["c"]) < 0:
                z["step"] = done
            else:
                for offset, operand in enumerate(("a", "b", "c")):
                    z[f"next_{operand}"] = z["c"] + offset

    return program_spec(
        variables={
            "register": var(size, input_init_fn=lambda token: encode_value(int(token))),
            "address": var(size, position_init_fn=encode_value),
            "step": var(4),
            # The addresses of the operands of the current instruction, and the operands.
            "next_a": var(size, default=encode_value(0)),
            "next_b": var(size, default=encode_value(1)),
            "next_c": var(size, default=encode_value(2)),
            "a": var(size),
            "b": var(size),
            "c": var(size),
            # Whether b is the address of this register, and whether to go on at c.
            "is_b": var(2),
            "jump": var(2),
        },
        heads={
            "fetched_a": qkv("next_a", "address", "register"),
            "fetched_b": qkv("next_b", "address", "register"),
            "fetched_c": qkv("next_c", "address", "register"),
            "at_a": qkv("a", "address", "register"),
            "at_b": qkv("b", "address", "register"),
        },
        ffn_fn=mlp,
        output_name="register",
        tokens=tuple(map(str, values)),
        position_range=max_value + 1,
        halt=halt_spec("step", done),
    )


def encode(registers: Sequence[int]) -> list[Token]:
    """The tokens: one for each register."""
    return [str(value) for value in registers]


def decode(outputs: Sequence[Any], min_value: int = -16) -> list[int]:
    """The registers at the end."""
    return [int(index) + min_value for index in outputs]
