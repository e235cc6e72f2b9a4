"""Causal models writing token by token, with a cache of what earlier positions have computed.

Under a causal mask nothing that comes later changes a position, so its residual stream after every layer can be kept,
and so can its keys and values. Halting makes the number of layers differ from token to token: a step that needs a layer
which some positions have not been through takes those through it. They are always the last ones, since a position has
been through the most layers of any step that it was there for.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field
from typing import Any, Protocol

from alta.errors import EndlessError, InputError
from alta.model.inputs import Token, encode, most_layers
from alta.model.result import ModelGeneration, ModelRun
from alta.model.weights import Weights


class Generator(Protocol):
    """What generation needs of a model, in NumPy or torch: all of it for one sequence, without a batch axis."""

    @property
    def weights(self) -> Weights: ...

    def run(self, inputs: Iterable[Token], max_layers: int | None = None) -> ModelRun:
        """Afresh, from the tokens."""

    def embed(self, tokens: Sequence[int], first: int = 0) -> Any:
        """The residual stream at the start. (position, dim)"""

    def context(self, index: int, z: Any) -> Sequence[tuple[Any, Any]]:
        """The keys and values of each head."""

    def layer(self, index: int, z: Any, context: Any = None) -> tuple[Any, Any]:
        """The residual stream after attention, and after the MLP."""

    def halts(self, z: Any) -> Any:
        """Which positions have halted."""

    def logits(self, z: Any) -> Any:
        """The read-out of each position."""

    def rows(self, number: int, width: int) -> Any:
        """So many rows of zeros."""


def generate(
    model: Generator,
    prompt: Iterable[Token],
    stop: Token | None,
    max_tokens: int,
    max_layers: int | None,
    cached: bool,
) -> ModelGeneration:
    """Appends the output of the last position until it is `stop`, or `max_tokens` are written, or the model is full."""
    weights = model.weights
    prompt = tuple(prompt)
    _check(weights, prompt, stop)
    most = most_layers(weights, max_layers)
    cache = Cache(model, most)
    fresh = encode(weights, prompt)
    written: list[Token] = []
    layers: list[int] = []
    while len(written) < max_tokens and (not written or written[-1] != stop):
        if weights.max_length is not None and len(prompt) + len(written) > weights.max_length:
            break
        if cached:
            row, taken = cache.extend(fresh)
            output = int(row.argmax())
            fresh = [output]
        else:
            run = model.run((*prompt, *written), max_layers)
            output, taken = int(run.outputs[-1]), run.layers
        written.append(weights.vocabulary[output])
        layers.append(taken)
    return ModelGeneration(prompt, tuple(written), bool(written) and written[-1] == stop, tuple(layers))


def _check(weights: Weights, prompt: Sequence[Token], stop: Token | None) -> None:
    if not weights.causal:
        raise InputError("only a causal model can generate; its program is built with program_spec(..., causal=True)")
    if weights.output_values is not None or weights.output.shape[0] > len(weights.vocabulary):
        raise InputError(
            f"to generate, a model's outputs have to be tokens: its {len(weights.vocabulary)} tokens are too few"
            if weights.output_values is None
            else "to generate, a model's outputs have to be tokens, but this one gives numbers"
        )
    if not prompt:
        raise InputError("the prompt is empty, so there is no last position to read an output from")
    if stop is not None and stop not in weights.token_rows:
        raise InputError(f"the stop token {stop!r} is not a token of this model")


@dataclass
class Rows:
    """Rows that grow at the end."""

    model: Generator
    count: int = 0
    held: Any = None

    def append(self, rows: Any) -> None:
        """Makes room by doubling."""
        needed = self.count + len(rows)
        if self.held is None or needed > len(self.held):
            larger = self.model.rows(max(2 * self.count, needed), rows.shape[-1])
            if self.held is not None:
                larger[: self.count] = self.held[: self.count]
            self.held = larger
        self.held[self.count : needed] = rows
        self.count = needed

    def first(self, count: int) -> Any:
        """The first so many."""
        return self.held[:count]


@dataclass
class Depth:
    """What is known after some number of layers, of the positions that have been through them."""

    residual: Rows
    context: list[tuple[Rows, Rows]]  # keys and values of each head of the next layer
    all_halted: bool = True

    def append(self, model: Generator, z: Any) -> None:
        """More positions."""
        self.residual.append(z)
        self.all_halted = self.all_halted and bool(model.halts(z).all())


@dataclass
class Cache:
    """The residual stream of a growing sequence after every layer."""

    model: Generator
    most: int | None  # layers
    depths: list[Depth] = field(default_factory=list)

    def extend(self, tokens: Sequence[int]) -> tuple[Any, int]:
        """Runs the sequence with more tokens at its end. Returns the last logits, and the number of layers."""
        model = self.model
        start = self._depth(0)
        start.append(model, model.embed(tokens, start.residual.count))
        length = start.residual.count
        layers = 0
        while not self.depths[layers].all_halted and (self.most is None or layers < self.most):
            self._advance(layers)
            layers += 1
            if self.most is None and self._comes_back(layers, length):
                raise EndlessError("the residual stream is one that the run has had before, so it never halts", layers)
        return model.logits(self.depths[layers].residual.first(length)[-1:])[0], layers

    def _depth(self, index: int) -> Depth:
        if index == len(self.depths):
            self.depths.append(Depth(Rows(self.model), []))
        return self.depths[index]

    def _advance(self, index: int) -> None:
        """Takes the positions that have been through `index` layers through one more."""
        model = self.model
        before, after = self._depth(index), self._depth(index + 1)
        fresh = before.residual.first(before.residual.count)[after.residual.count :]
        if not len(fresh):
            return
        more = model.context(index, fresh)
        if not before.context:
            before.context = [(Rows(model), Rows(model)) for _ in more]
        for (keys, values), (new_keys, new_values) in zip(before.context, more, strict=True):
            keys.append(new_keys)
            values.append(new_values)
        context = [(k.first(k.count), v.first(v.count)) for k, v in before.context]
        after.append(model, model.layer(index, fresh, context)[1])

    def _comes_back(self, layers: int, length: int) -> bool:
        """Whether the stream is the one that it was after the last power of two of layers."""
        earlier = 0 if layers == 1 else 1 << ((layers - 1).bit_length() - 1)
        now, then = (self.depths[depth].residual.first(length) for depth in (layers, earlier))
        return bool((now[-1] == then[-1]).all()) and bool((now == then).all())
