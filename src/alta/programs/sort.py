"""Sorting unique numbers in two layers."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from alta.language.builder import halt_spec, numeric_var, program_spec, qkv, set_var, var
from alta.language.program import Program, Token


def sort_unique(limit: int = 32, positions: int = 33) -> Program:
    """Sorts different numbers in 0..limit-1, after a START token (which is the number `limit`).

    A number's rank is how many numbers there are up to it. Its query is the set of these numbers and START, so the
    share of START in what it reads is 1 / (rank + 1). In the second layer, each position takes the number whose rank
    is the position.
    """
    start = limit
    rank, place, done = range(3)

    def mlp(z: Any) -> None:
        if z["step"] == rank:
            z["rank"] = round(1 / z["share"]) - 1
            z["step"] = place
        elif z["step"] == place:
            z["sorted"] = z["ranked_here"]
            z["step"] = done

    sets = [frozenset({*range(number + 1), start}) for number in range(limit)] + [frozenset({start})]
    return program_spec(
        variables={
            "number": var(limit + 1, input_init_fn=lambda token: token),
            "up_to": set_var(limit + 1, sets, input_init_fn=sets.__getitem__),
            "is_start": numeric_var(input_init_fn=lambda token: token == start),
            "position": var(positions, position_init_fn=lambda position: position),
            "rank": var(positions),
            "sorted": var(limit + 1),
            "step": var(3),
        },
        heads={
            "share": qkv(
                "up_to",
                "number",
                "is_start",
                output_spec=numeric_var([1 / (rank + 1) for rank in reversed(range(positions))]),
            ),
            "ranked_here": qkv("position", "rank", "number"),
        },
        ffn_fn=mlp,
        output_name="sorted",
        input_range=limit + 1,
        position_range=positions,
        halt=halt_spec("step", done),
    )


def encode(numbers: Sequence[int], limit: int = 32) -> list[Token]:
    """START, and the numbers."""
    return [limit, *numbers]


def decode(outputs: Sequence[Any]) -> list[int]:
    """The numbers in order."""
    return [int(number) for number in outputs[1:]]
