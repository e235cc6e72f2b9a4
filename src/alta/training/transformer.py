"""Transformers to be trained end to end: T5's encoder and decoder, with relative or absolute positions.

Normalisation comes before each sub-layer, without means and biases; attention is not scaled, since its initial weights
are; relative positions add a learned bias to the scores, the same in all layers. The parameters of all layers lie in
one tensor each, so an optimizer has few of them to go through. They are float32; products are taken in the given
format.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import dataclass, replace
from functools import cache
from importlib.util import find_spec

import torch
from torch import Tensor, nn
from torch.nn import functional

from alta.errors import TrainingError

POSITIONS = ("relative", "absolute")

BUCKETS = 32
"""Relative positions that have a bias of their own, or share one with others about as far."""

FARTHEST = 128
"""From this distance on, relative positions share a bias."""


@dataclass(frozen=True)
class Architecture:
    """The size of a Transformer; `layers` is that of the encoder, and of the decoder, if there is one."""

    layers: int = 8
    shared: bool = False  # whether all layers share their weights
    positions: str = "relative"
    dim: int = 512
    hidden: int = 2048
    heads: int = 6
    head_dim: int = 64

    def __post_init__(self) -> None:
        for name in ("layers", "dim", "hidden", "heads", "head_dim"):
            if getattr(self, name) < 1:
                raise TrainingError(f"{name} is 1 or more; got {getattr(self, name)}")
        if self.positions not in POSITIONS:
            raise TrainingError(f"positions are {' or '.join(POSITIONS)}; got {self.positions!r}")
        if self.dim % 2:
            raise TrainingError(f"dim is even, for sines and cosines; got {self.dim}")


class Attention(nn.Module):
    """The parameters of attention in all layers."""

    def __init__(self, size: Architecture, layers: int, random: torch.Generator) -> None:
        super().__init__()
        inner = size.heads * size.head_dim
        spread = torch.tensor([(size.dim * size.head_dim) ** -0.5, size.dim**-0.5, size.dim**-0.5])
        first = torch.randn(layers, 3, size.dim, inner, generator=random) * spread[:, None, None]
        self.inner = nn.Parameter(first)  # query, key, value
        self.outer = _normal((layers, inner, size.dim), inner**-0.5, random)
        self.norm = nn.Parameter(torch.ones(layers, 1, size.dim))

    def weights(self) -> list[Tensor]:
        """What the layers take: norms, inner projections side by side (layer, dim, 3 inner), and outer ones."""
        return [self.norm, self.inner.transpose(1, 2).flatten(2), self.outer]


class Stack(nn.Module):
    """Layers of self-attention, in a decoder of attention to the encoder's output, and of MLPs."""

    def __init__(self, size: Architecture, dtype: torch.dtype, random: torch.Generator, *, decoder: bool) -> None:
        super().__init__()
        self.size, self.dtype, self.decoder = size, dtype, decoder
        layers = 1 if size.shared else size.layers
        self.attention = Attention(size, layers, random)
        self.cross = Attention(size, layers, random) if decoder else None
        self.up = _normal((layers, size.dim, size.hidden), size.dim**-0.5, random)
        self.down = _normal((layers, size.hidden, size.dim), size.hidden**-0.5, random)
        self.norm = nn.Parameter(torch.ones(layers, 1, size.dim))
        self.last = nn.Parameter(torch.ones(size.dim))
        self.bias = None
        if decoder or size.positions == "relative":
            self.bias = _normal((BUCKETS, size.heads), size.dim**-0.5, random)

    def forward(
        self,
        z: Tensor,
        there: Tensor,
        encoded: Tensor | None = None,
        encoded_there: Tensor | None = None,
        *,
        layers: int | None = None,
        kept: list[Tensor] | None = None,
    ) -> Tensor:
        """The residual stream after all layers (or so many, if they share their weights), normalised. (batch, position,
        dim) `kept` is filled with the stream after each sub-layer. Positions that are not `there` are not read."""
        heads = self.size.heads
        mask = _mask(there, self.decoder).to(self.dtype)
        if self.bias is not None:
            places = _buckets(z.shape[1], self.decoder, z.device)
            mask = mask + self.bias.to(self.dtype)[places].permute(2, 0, 1)
        sides = (
            () if encoded is None or encoded_there is None else (encoded, _mask(encoded_there, False).to(self.dtype))
        )
        weights = self.attention.weights()
        if self.cross is not None:
            weights += self.cross.weights()
        weights += [self.norm, self.up, self.down]
        norms = {0, 3, 6} if self.cross is not None else {0, 3}
        each = [(w if i in norms else w.to(self.dtype)).unbind(0) for i, w in enumerate(weights)]
        block = _fused() if z.is_cuda and torch.is_grad_enabled() else _block
        for layer in range(layers or self.size.layers):
            part = [tensors[0 if self.size.shared else layer] for tensors in each]
            attended, z = block(z, mask, heads, part, sides)
            if kept is not None:
                kept += [attended, z]
        return _normalised(z, self.last)


class Transformer(nn.Module):
    """An encoder, and a decoder if it is given output tokens."""

    def __init__(
        self,
        size: Architecture,
        tokens: int,
        outputs: int,
        random: torch.Generator,
        *,
        dtype: torch.dtype = torch.float32,
        decoder: bool = False,
    ) -> None:
        super().__init__()
        self.size = size
        self.tokens = _normal((tokens, size.dim), 1.0, random)
        self.encoder = Stack(size, dtype, random, decoder=False)
        self.decoder = Stack(replace(size, positions="relative"), dtype, random, decoder=True) if decoder else None
        self.written = _normal((outputs, size.dim), 1.0, random) if decoder else None
        self.output = _normal((size.dim, outputs), size.dim**-0.5, random)

    def encode(
        self, tokens: Tensor, there: Tensor, *, layers: int | None = None, kept: list[Tensor] | None = None
    ) -> Tensor:
        """What the encoder makes of tokens. (batch, position, dim)"""
        z = _looked_up(tokens, self.tokens)
        if self.size.positions == "absolute":
            z = z + _waves(tokens.shape[1], self.size.dim, tokens.device)
        if kept is not None:
            kept.append(z)
        found: Tensor = self.encoder(z, there, layers=layers, kept=kept)
        return found

    def decode(self, written: Tensor, encoded: Tensor, there: Tensor) -> Tensor:
        """For each output token, the logits of the next. (batch, position, token)"""
        assert self.decoder is not None and self.written is not None
        z = _looked_up(written, self.written)
        return self.logits(self.decoder(z, torch.ones_like(written, dtype=torch.bool), encoded, there))

    def logits(self, z: Tensor) -> Tensor:
        """The read-out. (…, output)"""
        return z.float() @ self.output


@cache
def _fused() -> Callable[..., tuple[Tensor, Tensor]]:
    """A layer, compiled: all layers share the code. Where there is no Triton, as it is."""
    return torch.compile(_block) if find_spec("triton") else _block


def _block(
    z: Tensor, mask: Tensor, heads: int, weights: list[Tensor], sides: tuple[Tensor, ...]
) -> tuple[Tensor, Tensor]:
    """One layer: the stream after attention, and after the MLP."""
    z = z + _attend(z, mask, heads, *weights[:3])
    if sides:
        encoded, there = sides
        z = z + _attend(z, there, heads, *weights[3:6], read=encoded)
    return z, z + _mlp(z, *weights[-3:])


def _attend(
    z: Tensor, mask: Tensor, heads: int, norm: Tensor, inner: Tensor, outer: Tensor, *, read: Tensor | None = None
) -> Tensor:
    """What attention adds: to what is read, or to the stream itself."""
    x = _normalised(z, norm).to(inner.dtype)
    if read is None:
        query, key, value = _by_head(x @ inner, 3, heads)
    else:
        width = inner.shape[1] // 3
        (query,) = _by_head(x @ inner[:, :width], 1, heads)
        key, value = _by_head(read.to(inner.dtype) @ inner[:, width:], 2, heads)
    found = functional.scaled_dot_product_attention(query, key, value, attn_mask=mask, scale=1.0)
    return (found.transpose(1, 2).flatten(-2) @ outer).float()


def _by_head(x: Tensor, parts: int, heads: int) -> tuple[Tensor, ...]:
    """(batch, position, parts x heads x width) as parts, each (batch, head, position, width)"""
    found: tuple[Tensor, ...] = x.unflatten(-1, (parts, heads, -1)).permute(2, 0, 3, 1, 4).unbind(0)
    return found


def _mlp(z: Tensor, norm: Tensor, up: Tensor, down: Tensor) -> Tensor:
    return (functional.gelu(_normalised(z, norm).to(up.dtype) @ up) @ down).float()


def _normalised(z: Tensor, norm: Tensor) -> Tensor:
    return z * torch.rsqrt(z.square().mean(dim=-1, keepdim=True) + 1e-6) * norm


def _looked_up(tokens: Tensor, table: Tensor) -> Tensor:
    """The rows of a small table; as a product, since that has a quick gradient."""
    return functional.one_hot(tokens, len(table)).to(table.dtype) @ table


def _mask(there: Tensor, causal: bool) -> Tensor:
    """What is added to the scores: a lot less for what is not to be read. (batch, 1, i or 1, j)"""
    seen = there[:, None, None, :]
    if causal:
        length = there.shape[1]
        seen = seen & torch.ones(length, length, dtype=torch.bool, device=there.device).tril()
    return torch.zeros(seen.shape, device=there.device).masked_fill(~seen, -1e4)


def _normal(shape: tuple[int, ...], spread: float, random: torch.Generator) -> nn.Parameter:
    return nn.Parameter(torch.randn(shape, generator=random) * spread)


@cache  # without a limit, since captured graphs read what is here
def _buckets(length: int, causal: bool, device: torch.device) -> Tensor:
    """The bias that each pair of positions has: near ones their own, farther ones by the logarithm of their distance.
    An encoder has half of them for each side. (i, j)"""
    positions = torch.arange(length)
    distances = positions - positions[:, None]
    number = BUCKETS if causal else BUCKETS // 2
    side = torch.zeros_like(distances) if causal else (distances > 0).long() * number
    far = (-distances).clamp(min=0) if causal else distances.abs()
    near = number // 2
    steps = (far.clamp(min=near).float() / near).log() / math.log(FARTHEST / near) * (number - near)
    return (side + torch.where(far < near, far, (near + steps.long()).clamp(max=number - 1))).to(device)


@cache  # without a limit, since captured graphs read what is here
def _waves(length: int, dim: int, device: torch.device) -> Tensor:
    """Sines and cosines of positions, as in the first Transformer. (position, dim)"""
    speeds = torch.exp(torch.arange(dim // 2) * (-math.log(10000.0) / max(dim // 2 - 1, 1)))
    angles = torch.arange(length)[:, None] * speeds
    return torch.cat([angles.sin(), angles.cos()], dim=1).to(device)
