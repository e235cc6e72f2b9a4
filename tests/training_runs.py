"""Short runs, for tests that start processes of their own."""

from __future__ import annotations

import torch

from alta.programs import parity
from alta.training.bits import balanced
from alta.training.exam import Exam
from alta.training.learned import HeldOut, Shape, TraceTask
from alta.training.loop import Recipe, generator, train
from alta.training.traces import trace_dataset


def trace_task(steps, trained_on=6, tested=12, **options):
    program = parity.relative()
    strings = balanced((400,), trained_on, generator(0, -3)).strings()
    traces = trace_dataset(program, [parity.encode(bits) for bits in strings], progress=False)
    data = balanced((300,), tested, generator(0, -1))
    inputs = [tuple(parity.encode(bits)) for bits in data.strings()]
    test = HeldOut.of(program, inputs, None, exam=Exam.of_bits(data, trained_on), last=True)
    recipe = Recipe(steps, 64, **({"learning_rate": 3e-3, "optimizer": "adam", "decay": 0.01} | options))
    return TraceTask("small", recipe, Shape(2, 64), program, traces, test, tested + 1)


def go(directory: str, steps: int, optimizer: str) -> None:
    """A run with a checkpoint as often as can be."""
    torch.set_num_threads(1)
    train(trace_task(steps, optimizer=optimizer, evaluations=6), directory, save_every=0, progress=False)
