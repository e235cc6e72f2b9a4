"""How fast runs train on a GPU, each alone, beside what the GPU can do.

    PYTHONPATH=src python experiments/speed.py experiments/results/speed.json

For each run: milliseconds a step, the operations of its matrix products and the bytes that parameters, gradients and
optimizer move at the least, and what share of a measured product and a measured copy that is.
"""

from __future__ import annotations

import dataclasses
import json
import sys
import tempfile
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import torch
from torch.utils.flop_counter import FlopCounterMode

from alta.recipes import named
from alta.training.loop import Recipe, Task, train

RUNS = (
    *(f"trace-{name}" for name in ("relative", "absolute", "sum-modulo")),
    *(f"parity-{layers}-{way}-relative" for layers in (8, 40) for way in ("own", "shared")),
    *(f"scan-mcd1-{layers}-{way}-relative" for layers in (2, 6) for way in ("own", "shared")),
    *(f"read-out-{name}" for name in ("relative", "sum-modulo")),
)
"""One of each size: where positions are absolute, nothing else changes."""

STEPS = {"trace-relative": 5000}
OTHERS = 300

BYTES = {"adam": 40, "adafactor": 24}
"""For each parameter, 4 at a time: it is read in both passes, its gradient written and read, itself read and written;
Adam also reads and writes two averages."""


def seconds(work: Callable[[], object], times: int = 20) -> float:
    """The mean time on the GPU, after a warm-up."""
    work()
    torch.cuda.synchronize()
    start = time.perf_counter()
    for _ in range(times):
        work()
    torch.cuda.synchronize()
    return (time.perf_counter() - start) / times


def product(dtype: torch.dtype, precision: str) -> float:
    """Operations a second of a large square product."""
    size = 8192
    a, b = (torch.randn(size, size, device="cuda", dtype=dtype) for _ in range(2))
    torch.backends.cuda.matmul.fp32_precision = precision
    return 2 * size**3 / seconds(lambda: a @ b)


def copy() -> float:
    """Bytes a second of a large copy, read and written."""
    source = torch.empty(1 << 30, device="cuda", dtype=torch.uint8)
    target = torch.empty_like(source)
    return 2 * source.numel() / seconds(lambda: target.copy_(source))


def operations(task: Task) -> int:
    """Operations of the matrix products of one step."""
    device = torch.device("cuda")
    objective = task.objective().to(device)
    batch = {name: tensor[0] for name, tensor in task.batches(0, 1, device).items()}
    with FlopCounterMode(display=False) as counter:
        objective(**batch).backward()
    return int(counter.get_total_flops())


def short(name: str) -> Task:
    """The run, for some steps, without evaluations."""
    task: Any = named(name, steps=STEPS.get(name, OTHERS))
    recipe: Recipe = dataclasses.replace(task.recipe, evaluations=0)
    return dataclasses.replace(task, recipe=recipe)  # type: ignore[no-any-return]


def measure(name: str, limits: dict[str, float]) -> dict[str, Any]:
    """One run."""
    torch.compiler.reset()  # so that what was compiled for other sizes does not count against the limit
    task = short(name)
    with tempfile.TemporaryDirectory() as folder:
        result = train(task, folder, device="cuda", save_every=1e9, progress=False)
    speed = result.facts["steps_per_second"]
    parameters = sum(parameter.numel() for parameter in result.objective.parameters())
    done = operations(task) * speed
    moved = parameters * BYTES[task.recipe.optimizer] * speed
    return {
        "name": name,
        "parameters": parameters,
        "precision": task.recipe.precision,
        "milliseconds": 1000 / speed,
        "operations a second": done,
        "share of the product": done / limits[task.recipe.precision],
        "share of the copy": moved / limits["copy"],
    }


def main() -> None:
    """Measures, and writes the figures."""
    limits = {
        "tf32": product(torch.float32, "tf32"),
        "float32": product(torch.float32, "ieee"),
        "bfloat16": product(torch.bfloat16, "ieee"),
        "copy": copy(),
    }
    runs = []
    for name in RUNS:
        runs.append(measure(name, limits))
        print(runs[-1], flush=True)
    facts = {"device": torch.cuda.get_device_name(), "torch": torch.__version__, "limits": limits, "runs": runs}
    Path(sys.argv[1]).write_text(json.dumps(facts, indent=1) + "\n")


if __name__ == "__main__":
    main()
