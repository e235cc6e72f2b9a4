"""Strings of bits for parity, as many with each number of ones."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import torch
from torch import Tensor

from alta.training.loop import generator


@dataclass(frozen=True)
class Bits:
    """A batch of strings. What is behind a string's end is 0."""

    bits: Tensor  # (…, string, position)
    lengths: Tensor  # (…, string)
    ones: Tensor  # (…, string)

    @property
    def parity(self) -> Tensor:
        """1 for an odd number of ones."""
        return self.ones % 2

    def strings(self) -> list[tuple[int, ...]]:
        """The strings, as programs take them."""
        rows = zip(self.bits.tolist(), self.lengths.tolist(), strict=True)
        return [tuple(row[:length]) for row, length in rows]


def balanced(shape: Sequence[int], longest: int, random: torch.Generator) -> Bits:
    """Strings of up to so many bits: the number of ones is drawn first, each equally likely, then the length among
    those that have room for them, then where they are."""
    device = random.device
    ones = torch.randint(0, longest + 1, tuple(shape), generator=random, device=device)
    share = torch.rand(tuple(shape), generator=random, device=device)
    lengths = (ones + (share * (longest + 1 - ones)).long()).clamp_(max=longest)
    order = torch.rand((*shape, longest), generator=random, device=device)
    order = order.masked_fill(torch.arange(longest, device=device) >= lengths[..., None], 2.0)
    ranks = order.argsort(dim=-1).argsort(dim=-1)
    return Bits((ranks < ones[..., None]).long(), lengths, ones)


def test_set(size: int, longest: int, seed: int) -> Bits:
    """Strings to judge by; no batch of a run with the same seed shares their randomness."""
    return balanced((size,), longest, generator(seed, -1))
