"""Trace supervision: an MLP that learns what the compiled one does, and takes its place in the compiled model."""

from __future__ import annotations

import json
from collections.abc import Iterable, Sequence
from dataclasses import asdict, dataclass, field
from itertools import pairwise
from typing import Any

import numpy as np
import torch
from torch import Tensor, nn

from alta.analysis.coverage import fingerprint
from alta.compiler.compile import compile
from alta.errors import TrainingError
from alta.interpreter.batch import run_batch
from alta.language.program import Program, Token
from alta.model.torch import Block, Mlp, TorchModel, linear_weights
from alta.model.weights import Linear, Sparse, checksum
from alta.training.exam import Exam
from alta.training.loop import Recipe, generator
from alta.training.traces import TraceDataset

UNDEFINED_RANGE = 10.0
"""What is UNDEFINED is drawn evenly from minus this to this, or as far as the largest number that stands there."""

ACTIVATIONS = {"relu": nn.ReLU, "gelu": nn.GELU, "tanh": nn.Tanh}

JUDGED = 512
"""Test inputs of the evaluations along the way; the final one takes all."""


@dataclass(frozen=True)
class Shape:
    """The size of a learned MLP."""

    layers: int = 2  # hidden ones
    hidden: int = 128
    activation: str = "relu"

    def __post_init__(self) -> None:
        if self.layers < 1 or self.hidden < 1 or self.activation not in ACTIVATIONS:
            raise TrainingError(
                "an MLP has 1 hidden layer or more, of 1 unit or more, and one of the activations "
                f"{', '.join(ACTIVATIONS)}; got {self}"
            )


class LearnedMlp(nn.Sequential):
    """An MLP from one state to the next."""

    def __init__(self, dim: int, shape: Shape, random: torch.Generator) -> None:
        super().__init__()
        self.shape = shape
        sizes = [dim, *[shape.hidden] * shape.layers, dim]
        for number, (inputs, outputs) in enumerate(pairwise(sizes)):
            if number:
                self.append(ACTIVATIONS[shape.activation]())
            linear = nn.Linear(inputs, outputs)
            nn.init.normal_(linear.weight, std=(2 / inputs) ** 0.5, generator=random)
            nn.init.zeros_(linear.bias)
            self.append(linear)


class Difference(Mlp):
    """A learned MLP where its input is added to what it gives, as a block does: the next state less this one."""

    def __init__(self, learned: LearnedMlp) -> None:
        super().__init__([], "relu")
        self.append(learned)
        self.shape = learned.shape

    def forward(self, z: Tensor) -> Tensor:
        """How the next state differs. (…, dim)"""
        found: Tensor = super().forward(z)
        return found - z

    def weights(self) -> tuple[Linear, ...]:
        """The same as plain layers: units that carry z and -z along take it away again in the end."""
        if self.shape.activation != "relu":
            raise TrainingError(f"only MLPs with relu are saved in a model; this one has {self.shape.activation}")
        (learned,) = self
        assert isinstance(learned, LearnedMlp)
        first, *middle, last = (linear_weights(part) for part in learned if isinstance(part, nn.Linear))
        dim = first.weight.shape[1]
        both = _identity(dim).above(_identity(dim).scaled(-1.0))
        carried = np.zeros(2 * dim)
        found = [Linear(first.weight.above(both), np.concatenate([first.bias, carried]))]
        for layer in middle:
            height, below = layer.weight.shape
            above = layer.weight.beside(Sparse.of((height, 2 * dim), {}))
            weight = above.above(Sparse.of((2 * dim, below), {}).beside(_identity(2 * dim)))
            found.append(Linear(weight, np.concatenate([layer.bias, carried])))
        return (*found, Linear(last.weight.beside(both.turned().scaled(-1.0)), last.bias))


def with_mlp(program: Program, mlp: LearnedMlp, max_length: int | None = None) -> TorchModel:
    """The compiled model of a program, with a learned MLP in place of its own."""
    device = next(mlp.parameters()).device
    model = compile(program, activation="relu", max_length=max_length).to_torch("float32", str(device))
    block = model.blocks[0]
    assert isinstance(block, Block)
    block.mlp = Difference(mlp)
    return model


def _identity(dim: int) -> Sparse:
    return Sparse.of((dim, dim), {(place, place): 1.0 for place in range(dim)})


class TraceLoss(nn.Module):
    """The mean squared error of an MLP on a batch."""

    def __init__(self, mlp: LearnedMlp) -> None:
        super().__init__()
        self.mlp = mlp

    def forward(self, given: Tensor, wanted: Tensor) -> Tensor:
        error: Tensor = self.mlp(given) - wanted
        return error.square().mean()


@dataclass(frozen=True)
class HeldOut:
    """Inputs, the outputs that are right for them, and which of them count: all, or the last alone."""

    inputs: Sequence[Sequence[Token]]
    outputs: Sequence[Sequence[Any]] = field(repr=False)
    exam: Exam
    last: bool = False
    layers: int = 0  # the most that the program takes on an input

    @staticmethod
    def of(
        program: Program,
        inputs: Iterable[Sequence[Token]],
        max_layers: int | None,
        *,
        exam: Exam | None = None,
        last: bool = False,
    ) -> HeldOut:
        """With the outputs that the program gives, judged by length if no exam is given."""
        given = [tuple(tokens) for tokens in inputs]
        if not given:
            raise TrainingError("there are no test inputs; give one or more")
        runs = run_batch(program, given, max_layers, progress=False)
        for tokens, run in zip(given, runs, strict=True):
            if run.error is not None:
                raise TrainingError(f"the test input {' '.join(map(str, tokens))!r} stops with an error: {run.error}")
        layers = max((run.layers for run in runs), default=0)
        return HeldOut(given, [run.outputs for run in runs], exam or Exam.of(given), last, layers)

    def right(self, model: TorchModel, chosen: Tensor, max_layers: int | None) -> Tensor:
        """Which of some inputs the model is right on."""
        numbers = chosen.tolist()
        runs = model.run_batch([self.inputs[number] for number in numbers], max_layers)
        first = -1 if self.last else 0
        pairs = [(run.outputs, tuple(self.outputs[number])) for number, run in zip(numbers, runs, strict=True)]
        return torch.tensor([found[first:] == wanted[first:] for found, wanted in pairs])


@dataclass(frozen=True, eq=False)
class TraceTask:
    """An MLP to be trained on a program's traces, and judged inside the compiled model."""

    name: str
    recipe: Recipe
    shape: Shape
    program: Program
    traces: TraceDataset
    test: HeldOut
    max_layers: int | None  # of the compiled model
    noise: float = 0.1  # the standard deviation of what is added to MLP inputs
    _tables: dict[torch.device, tuple[Tensor, Tensor, Tensor, Tensor]] = field(default_factory=dict, repr=False)

    def __post_init__(self) -> None:
        if self.recipe.precision == "bfloat16":
            raise TrainingError("an MLP is trained in float32 or tf32; got bfloat16")

    def facts(self) -> dict[str, Any]:
        """The whole configuration, as JSON has it."""
        own = {"kind": "trace", "name": self.name, "shape": asdict(self.shape), "noise": self.noise}
        sizes = {"pairs": len(self.traces), "dims": self.traces.inputs.shape[1], "max_layers": self.max_layers}
        sizes |= {"test": len(self.test.inputs)}
        data = checksum(self.traces.checksum + json.dumps([self.test.inputs, self.test.outputs], default=str), {})
        return own | sizes | {"program": fingerprint(self.program), "data": data, "recipe": asdict(self.recipe)}

    def objective(self) -> TraceLoss:
        """The MLP, new, with its loss."""
        return TraceLoss(LearnedMlp(self.traces.inputs.shape[1], self.shape, generator(self.recipe.seed, -2)))

    def batches(self, first: int, steps: int, device: torch.device) -> dict[str, Tensor]:
        """Pairs drawn as often as they came, with noise, and anything where a value is UNDEFINED."""
        inputs, outputs, undefined, ends = self._on(device)
        random = generator(self.recipe.seed, first, device)
        shape = steps, self.recipe.batch
        share = torch.rand(shape, generator=random, device=device, dtype=torch.float64)
        rows = torch.searchsorted(ends, share * ends[-1], right=True).clamp_(max=len(ends) - 1)
        given = inputs[rows]
        reach = inputs.abs().amax(dim=0).clamp_(min=UNDEFINED_RANGE)
        anything = torch.rand(given.shape, generator=random, device=device).mul_(2).sub_(1).mul_(reach)
        given = torch.where(undefined[rows], anything, given)
        given += torch.randn(given.shape, generator=random, device=device).mul_(self.noise)
        return {"given": given, "wanted": outputs[rows]}

    def evaluate(self, objective: nn.Module, *, final: bool) -> dict[str, Any]:
        """The test set, by the compiled model with the MLP as it is."""
        assert isinstance(objective, TraceLoss)
        whole = len(self.test.inputs)
        number = whole if final else min(JUDGED, whole)
        chosen = torch.arange(number) * whole // number
        right = self.test.right(self.model(objective), chosen, self.max_layers)
        return self.test.exam.some(chosen).report(right, final=final)

    def model(self, objective: TraceLoss) -> TorchModel:
        """The compiled model with the MLP as it is."""
        return with_mlp(self.program, objective.mlp, max(*map(len, self.test.inputs), 1))

    def _on(self, device: torch.device) -> tuple[Tensor, Tensor, Tensor, Tensor]:
        if device not in self._tables:
            traces = self.traces
            ends = traces.counts.cumsum().astype(np.float64)
            arrays: list[Any] = [traces.inputs, traces.outputs, traces.undefined, ends]
            inputs, outputs, undefined, sums = (torch.from_numpy(array).to(device) for array in arrays)
            self._tables[device] = inputs, outputs, undefined, sums
        return self._tables[device]
