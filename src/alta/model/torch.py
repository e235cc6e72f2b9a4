"""The forward pass as a torch.nn.Module: the same results as in NumPy, in batches, on any device, with gradients.

Modules are named so that hooks land where people look: `blocks.0.attn.heads.<name>` gives what a head writes to the
residual stream, `blocks.0.attn` what all of them do together, `blocks.0.mlp` what the MLP does. In a model that shares
its weights there is one block, which runs once for each layer.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass, field, replace
from functools import lru_cache
from pathlib import Path
from typing import Any, TypeAlias

import numpy as np

try:
    import torch
except ModuleNotFoundError as error:
    raise ModuleNotFoundError("PyTorch is not installed: pip install 'alta[torch]'", name="torch") from error
from torch import Tensor, nn

from alta.displayed import Displayed
from alta.errors import EndlessError, InputError
from alta.model.generation import generate
from alta.model.inputs import Token, check_batch, check_format, encode, most_layers
from alta.model.result import ModelGeneration, ModelRun, read_out
from alta.model.weights import Array, Layer, Linear, Sparse, Weights, save
from alta.model.weights import Head as HeadWeights

PAIRS = 1 << 24
"""Pairs of positions that `run_batch` looks at side by side, so that memory stays bounded."""

Context: TypeAlias = Sequence[tuple[Tensor, Tensor]]
"""For each head, the keys (…, position, match) and the values (…, position, read) of all positions."""


@dataclass(frozen=True, eq=False)
class TorchRun:
    """What a model gives for a batch. `residual` holds the residual stream at the start and after each sub-layer, if it
    was asked for; that of a sequence which has halted stays as it is."""

    logits: Tensor = field(repr=False)  # (batch, position, logit)
    layers: Tensor  # (batch)
    halted: Tensor  # (batch)
    residual: tuple[Tensor, ...] = field(default=(), repr=False)  # each (batch, position, dim)


class TorchModel(Displayed, nn.Module):
    """A Transformer in PyTorch. `Model.to_torch` makes one, and `weights` is the way back.

    >>> [name for name, _ in model.to_torch().named_children()]
    ['token_embedding', 'blocks', 'output', 'halt']
    """

    def __init__(self, weights: Weights, dtype: str = "float32", device: str | torch.device = "cpu") -> None:
        super().__init__()
        check_format(weights, dtype)
        self._frame = weights
        self.token_embedding = _embedding(weights.tokens)
        self.position_embedding = None if weights.positions is None else _embedding(weights.positions)
        self.blocks = nn.ModuleList(Block(layer, weights) for layer in weights.layers)
        self.output = _linear(weights.output)
        self.halt = None if weights.halt is None else _linear(weights.halt)
        self.to(device=device, dtype=getattr(torch, dtype))

    @property
    def weights(self) -> Weights:
        """The parameters as they are now, to verify, save, or run in NumPy.

        >>> twin = model.to_torch()
        >>> alta.verify(alta.Model(twin.weights)) == alta.verify(model)
        True
        """
        frame, positions, halt = self._frame, self.position_embedding, self.halt
        blocks = list(self.blocks)
        return replace(
            frame,
            tokens=_sparse(self.token_embedding.weight),
            positions=None if positions is None else _sparse(positions.weight),
            layers=tuple(block.weights() for block in blocks if isinstance(block, Block)),
            output=_sparse(self.output.weight),
            halt=None if halt is None else _sparse(halt.weight),
        )

    def save(self, path: str | Path) -> None:
        """Writes the model to one safetensors file; `alta.load` reads it.

        >>> model.to_torch().save("parity.safetensors")
        >>> alta.load("parity.safetensors").run(["START", "1", "0"]).outputs
        (0, 1, 1)
        """
        save(self.weights, path)

    def forward(
        self,
        tokens: Tensor,
        lengths: Tensor | None = None,
        max_layers: int | None = None,
        *,
        residual: bool = False,
    ) -> TorchRun:
        """Runs a batch of token indices (batch, position), each sequence until all its positions have halted, for at
        most `max_layers` layers. `lengths` (batch) tells sequences from padding. Sequences that have halted leave the
        batch.

        >>> import torch
        >>> found = model.to_torch()(torch.tensor([[2, 1, 0], [2, 1, 1]]))
        >>> found.logits.shape, found.layers
        (torch.Size([2, 3, 2]), tensor([2, 2]))
        """
        most = most_layers(self._frame, max_layers)
        lengths = self._check(tokens, lengths)
        with self._exactly():
            return self._run(tokens, lengths, most, residual)

    def _run(self, tokens: Tensor, lengths: Tensor, most: int | None, residual: bool) -> TorchRun:
        z = self.embed(tokens)
        active = torch.arange(len(tokens), device=z.device)
        layers = torch.zeros_like(active)
        halted = torch.zeros_like(active, dtype=torch.bool)
        left: list[tuple[Tensor, Tensor]] = []  # sequences that have left the batch, and their residual stream
        kept = [z] if residual else []
        landmark = z
        taken = 0
        while len(active):
            there = torch.arange(z.shape[1], device=z.device) < lengths[active, None]
            now = (self.halts(z) | ~there).all(dim=1)
            leave = now if most is None or taken < most else torch.ones_like(now)
            if leave.any():
                halted[active[now]] = True
                left.append((active[leave], z[leave]))
                active, stay = active[~leave], ~leave
                if not len(active):
                    break
                longest = int(lengths[active].max())
                z, landmark, there = z[stay, :longest], landmark[stay, :longest], there[stay, :longest]
            attended, z = self.layer(taken, z, there=there)
            taken += 1
            layers[active] = taken
            if residual:
                kept += [_placed(kept[-1], active, attended), _placed(kept[-1], active, z)]
            if most is None:
                came_back = ((z == landmark).all(dim=2) | ~there).all(dim=1)
                if came_back.any():
                    which = f"input {int(active[came_back][0])}: " if len(tokens) > 1 else ""
                    reason = "the residual stream is one that the run has had before, so it never halts"
                    raise EndlessError(which + reason, taken)
                if taken.bit_count() == 1:
                    landmark = z
        final = z.new_zeros((*tokens.shape, z.shape[2]))
        for which_left, stream in left:
            final = _placed(final, which_left, stream)
        return TorchRun(self.logits(final), layers, halted, tuple(kept))

    def run(self, inputs: Iterable[Token], max_layers: int | None = None, *, residual: bool = False) -> ModelRun:
        """Runs one input, as `Model.run` does, and gives back NumPy arrays.

        >>> model.to_torch().run(["START", "1", "0"]).outputs
        (0, 1, 1)
        """
        return self.run_batch([inputs], max_layers, residual=residual)[0]

    def run_batch(
        self, batch: Iterable[Iterable[Token]], max_layers: int | None = None, *, residual: bool = False
    ) -> list[ModelRun]:
        """The same for many inputs, of different lengths: those of like length side by side.

        >>> [found.outputs for found in model.to_torch().run_batch([["START"], ["START", "1", "1"]])]
        [(0,), (0, 1, 0)]
        """
        rows = [encode(self._frame, inputs) for inputs in check_batch(batch)]
        order = sorted(range(len(rows)), key=lambda number: len(rows[number]))
        runs: dict[int, ModelRun] = {}
        while order:
            size = max(PAIRS // max(len(rows[order[-1]]), 1) ** 2, 1)
            part, order = order[-size:], order[:-size]
            runs |= zip(part, self._run_part([rows[number] for number in part], max_layers, residual), strict=True)
        return [runs[number] for number in range(len(rows))]

    def _run_part(self, rows: Sequence[Sequence[int]], max_layers: int | None, residual: bool) -> Iterator[ModelRun]:
        lengths = torch.tensor([len(row) for row in rows])
        tokens = torch.zeros((len(rows), int(lengths.max())), dtype=torch.long)
        for number, row in enumerate(rows):
            tokens[number, : len(row)] = torch.tensor(row, dtype=torch.long)
        device = self.output.weight.device
        with torch.no_grad():
            found = self(tokens.to(device), lengths.to(device), max_layers, residual=residual)
        logits, kept = _array(found.logits), [_array(z) for z in found.residual]
        for number, row in enumerate(rows):
            mine, layers = logits[number, : len(row)], int(found.layers[number])
            stream = tuple(z[number, : len(row)] for z in kept[: 2 * layers + 1])
            yield ModelRun(read_out(self._frame, mine), layers, bool(found.halted[number]), mine, stream)

    def generate(
        self,
        prompt: Iterable[Token],
        *,
        stop: Token | None = None,
        max_tokens: int = 1000,
        max_layers: int | None = None,
        cached: bool = True,
    ) -> ModelGeneration:
        """Lets a causal model write, token by token, as `Model.generate` does.

        >>> twin = alta.compile(parity.scratchpad()).to_torch()
        >>> twin.generate(["START", "1", "1", "="], stop="END").tokens
        ('1', '0', 'END')
        """
        with torch.no_grad(), self._exactly():
            return generate(self, prompt, stop, max_tokens, max_layers, cached)

    def embed(self, tokens: Tensor | Sequence[int], first: int = 0) -> Tensor:
        """The residual stream at the start, of tokens at the positions from `first` on. (…, position, dim)

        >>> model.to_torch().embed([2, 1]).shape
        torch.Size([2, 9])
        """
        rows = torch.as_tensor(tokens, dtype=torch.long, device=self.output.weight.device)
        z: Tensor = self.token_embedding(rows)
        if self.position_embedding is not None:
            z = z + self.position_embedding.weight[first : first + rows.shape[-1]]
        return z

    def layer(
        self, index: int, z: Tensor, context: Context | None = None, there: Tensor | None = None
    ) -> tuple[Tensor, Tensor]:
        """The residual stream after attention, and after the MLP.

        >>> twin = model.to_torch()
        >>> attended, after = twin.layer(0, twin.embed([2, 1, 0]))
        >>> attended.shape, after.shape
        (torch.Size([3, 9]), torch.Size([3, 9]))
        """
        found: tuple[Tensor, Tensor] = self._block(index)(z, context, there)
        return found

    def context(self, index: int, z: Tensor) -> Context:
        """The keys and values of each head.

        >>> twin = model.to_torch()
        >>> (keys, values), _ = twin.context(0, twin.embed([2, 1, 0]))
        >>> keys.shape, values.shape
        (torch.Size([3, 1]), torch.Size([3, 2]))
        """
        return self._block(index).attn.context(z)

    def halts(self, z: Tensor) -> Tensor:
        """Which positions have halted.

        >>> twin = model.to_torch()
        >>> twin.halts(twin.embed([2, 1, 0]))
        tensor([ True, False, False])
        """
        if self.halt is None:
            return torch.zeros(z.shape[:-1], dtype=torch.bool, device=z.device)
        found: Tensor = self.halt(z)[..., 0] > 0.5
        return found

    def logits(self, z: Tensor) -> Tensor:
        """The read-out of each position. (…, position, logit)

        >>> twin = model.to_torch()
        >>> twin.logits(twin.embed([2, 1, 0])).argmax(dim=-1)
        tensor([0, 1, 0])
        """
        found: Tensor = self.output(z)
        return found

    def rows(self, number: int, width: int) -> Tensor:
        """So many rows of zeros.

        >>> model.to_torch().rows(2, 3).shape
        torch.Size([2, 3])
        """
        return self.output.weight.new_zeros((number, width))

    def _block(self, index: int) -> Block:
        block = self.blocks[0 if self._frame.shared else index]
        assert isinstance(block, Block)
        return block

    def _check(self, tokens: Tensor, lengths: Tensor | None) -> Tensor:
        frame = self._frame
        if tokens.ndim != 2 or tokens.dtype.is_floating_point or tokens.dtype == torch.bool:
            shape = "x".join(map(str, tokens.shape))
            raise InputError(f"a batch is a tensor of token indices (batch, position); got {tokens.dtype}, {shape}")
        if not len(tokens):
            raise InputError("the batch is empty; give it at least one input")
        size, longest = len(frame.vocabulary), tokens.shape[1]
        if tokens.numel() and not 0 <= int(tokens.min()) <= int(tokens.max()) < size:
            raise InputError(f"token indices are 0 to {size - 1}; got {int(tokens.min())} to {int(tokens.max())}")
        if frame.max_length is not None and longest > frame.max_length:
            raise InputError(f"{longest} tokens are too many; this model was compiled for {frame.max_length}")
        if lengths is None:
            return torch.full((len(tokens),), longest, device=tokens.device)
        if lengths.shape != tokens.shape[:1] or not 0 <= int(lengths.min()) <= int(lengths.max()) <= longest:
            raise InputError(f"lengths are one for each input, 0 to {longest}; got {lengths.tolist()}")
        return lengths

    @contextmanager
    def _exactly(self) -> Iterator[None]:
        """Without what trades exactness for speed: autocast, TF32, sums in bfloat16."""
        weight = self.output.weight
        check_format(self._frame, str(weight.dtype).removeprefix("torch."))
        matmul = torch.backends.cuda.matmul
        with ExitStack() as stack:
            stack.enter_context(torch.autocast(weight.device.type, enabled=False))
            if weight.is_cuda:
                stack.enter_context(_set(matmul, "fp32_precision", "ieee"))
                stack.enter_context(_set(matmul, "allow_bf16_reduced_precision_reduction", False))
            else:
                stack.enter_context(_set(torch.backends.mkldnn.matmul, "fp32_precision", "ieee"))  # type: ignore[attr-defined]
            yield


class Block(nn.Module):
    """One layer: attention, then the MLP, each added to the residual stream."""

    def __init__(self, layer: Layer, weights: Weights) -> None:
        super().__init__()
        self.attn = Attention(layer.heads, weights.causal)
        self.mlp = Mlp(layer.mlp, weights.activation)

    def forward(self, z: Tensor, context: Context | None = None, there: Tensor | None = None) -> tuple[Tensor, Tensor]:
        """The residual stream after attention, and after the MLP. With a context, `z` holds its last positions only."""
        attended = z + self.attn(z, context, there)
        return attended, attended + self.mlp(attended)

    def weights(self) -> Layer:
        """The parameters as they are now."""
        return Layer(self.attn.weights(), self.mlp.weights())


class Attention(nn.Module):
    """All heads, side by side."""

    def __init__(self, heads: Sequence[HeadWeights], causal: bool) -> None:
        super().__init__()
        self.heads = nn.ModuleDict()
        for head in heads:
            key = head.name.replace(".", "_")
            while hasattr(self.heads, key) or key in self.heads:  # such as 'keys', which a ModuleDict has itself
                key += "_"
            self.heads[key] = Head(head, causal)

    def forward(self, z: Tensor, context: Context | None = None, there: Tensor | None = None) -> Tensor:
        """The sum of what the heads write."""
        written = torch.zeros_like(z)
        for number, head in enumerate(self.heads.values()):
            written = written + head(z, None if context is None else context[number], there)
        return written

    def context(self, z: Tensor) -> Context:
        """The keys and values of each head."""
        return [head.context(z) for head in self.heads.values() if isinstance(head, Head)]

    def weights(self) -> tuple[HeadWeights, ...]:
        """The parameters as they are now."""
        return tuple(head.weights() for head in self.heads.values() if isinstance(head, Head))


class Head(nn.Module):
    """One head: the paper's query, key, value and output projections, and a bias for each relative position."""

    def __init__(self, head: HeadWeights, causal: bool) -> None:
        super().__init__()
        self.name = head.name
        self.causal = causal
        self.query = _linear(head.query)
        self.key = _linear(head.key)
        self.value = _linear(head.value)
        self.output = _linear(head.output)
        self.bias = None if head.bias is None else nn.Parameter(torch.from_numpy(np.array(head.bias, np.float64)))

    def forward(self, z: Tensor, context: tuple[Tensor, Tensor] | None = None, there: Tensor | None = None) -> Tensor:
        """What the head writes to the residual stream. (…, position, dim)"""
        keys, values = self.context(z) if context is None else context
        found: Tensor = self.output(self.pattern(z, keys, there) @ values)
        return found

    def context(self, z: Tensor) -> tuple[Tensor, Tensor]:
        """Keys and values."""
        return self.key(z), self.value(z)

    def pattern(self, z: Tensor, keys: Tensor, there: Tensor | None = None) -> Tensor:
        """How much position i reads position j. (…, i, j), where the i are the last of the j"""
        scores: Tensor = self.query(z) @ keys.transpose(-1, -2)
        queries, length = z.shape[-2], keys.shape[-2]
        if self.bias is not None:
            scores = scores + self.bias[_places(queries, length, len(self.bias) // 2, z.device)]
        if self.causal:
            scores = scores.masked_fill(_distances(queries, length, z.device) > 0, -torch.inf)
        if there is not None:
            scores = scores.masked_fill(~there[..., None, :], -torch.inf)
        return scores.softmax(dim=-1)

    def weights(self) -> HeadWeights:
        """The parameters as they are now."""
        query, key, value, output = (_sparse(part.weight) for part in (self.query, self.key, self.value, self.output))
        return HeadWeights(self.name, query, key, value, output, None if self.bias is None else _array(self.bias))


class Mlp(nn.Sequential):
    """Linear layers, and an activation between them."""

    def __init__(self, layers: Sequence[Linear], activation: str) -> None:
        modules: list[nn.Module] = []
        for layer in layers:
            modules += [_linear(layer.weight, layer.bias), _activation(activation)]
        super().__init__(*modules[:-1])

    def weights(self) -> tuple[Linear, ...]:
        """The parameters as they are now."""
        return tuple(linear_weights(module) for module in self if isinstance(module, nn.Linear))


def linear_weights(layer: nn.Linear) -> Linear:
    """The parameters of a layer with a bias, as they are now."""
    return Linear(_sparse(layer.weight), _array(layer.bias))


@lru_cache(maxsize=64)
def _distances(queries: int, keys: int, device: torch.device) -> Tensor:
    """From each query to each key; the queries are the last of the keys. (i, j)"""
    positions = torch.arange(keys, device=device)
    return positions - positions[keys - queries :, None]


@lru_cache(maxsize=64)
def _places(queries: int, keys: int, far: int, device: torch.device) -> Tensor:
    """Where the bias of each distance is."""
    return _distances(queries, keys, device).clamp(-far, far) + far


def _activation(name: str) -> nn.Module:
    return nn.Hardtanh(0.0, 1.0) if name == "clipped" else nn.ReLU()


def _linear(weight: Sparse, bias: Array | None = None) -> nn.Linear:
    outputs, inputs = weight.shape
    made = nn.Linear(1, 1, bias=bias is not None, device="meta")  # small: initialising an empty matrix warns
    made.in_features, made.out_features = inputs, outputs
    made.weight = nn.Parameter(torch.from_numpy(weight.dense()))
    if bias is not None:
        made.bias = nn.Parameter(torch.from_numpy(np.array(bias, np.float64)))
    return made


def _embedding(table: Sparse) -> nn.Embedding:
    return nn.Embedding(*table.shape, _weight=torch.from_numpy(table.dense()))


def _array(tensor: Tensor) -> Array:
    return tensor.detach().to("cpu", torch.float64).numpy()


def _sparse(weight: Tensor) -> Sparse:
    return Sparse.from_dense(_array(weight))


def _placed(whole: Tensor, which: Tensor, part: Tensor) -> Tensor:
    """The whole batch with some sequences changed, in their first positions."""
    found = whole.clone()
    found[which, : part.shape[1]] = part
    return found


@contextmanager
def _set(holder: Any, name: str, value: object) -> Iterator[None]:
    before = getattr(holder, name)
    setattr(holder, name, value)
    try:
        yield
    finally:
        setattr(holder, name, before)
