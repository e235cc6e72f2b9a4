"""The compiled SCAN model over the whole data set on a GPU, beside what the GPU can do: a matrix product and a copy.

    PYTHONPATH=src python benchmarks/gpu.py tasks.txt.gz results.json

The data is SCAN's `tasks.txt`, gzipped: lines of `IN: command OUT: actions`.
"""

from __future__ import annotations

import gzip
import json
import sys
import time
from collections.abc import Callable
from pathlib import Path

import torch

import alta
from alta.model.weights import Weights
from alta.programs import scan


def seconds(work: Callable[[], object], times: int = 20) -> float:
    """The mean time on the GPU, after a warm-up."""
    work()
    torch.cuda.synchronize()
    start = time.perf_counter()
    for _ in range(times):
        work()
    torch.cuda.synchronize()
    return (time.perf_counter() - start) / times


def limits(dtype: torch.dtype) -> tuple[float, float]:
    """Operations a second of a large square product, and bytes a second of a large copy."""
    size = 8192
    a, b = (torch.randn(size, size, device="cuda", dtype=dtype) for _ in range(2))
    operations = 2 * size**3 / seconds(lambda: a @ b)
    source = torch.empty(1 << 30, device="cuda", dtype=torch.uint8)
    target = torch.empty_like(source)
    return operations, 2 * source.numel() / seconds(lambda: target.copy_(source))


def examples(path: Path) -> list[tuple[list[str], list[str]]]:
    """Commands as tokens, and their actions."""
    with gzip.open(path, "rt") as lines:
        pairs = [line.removeprefix("IN: ").split(" OUT: ") for line in lines]
    return [(scan.encode(command), actions.split()) for command, actions in pairs]  # type: ignore[misc]


def measure(data: list[tuple[list[str], list[str]]], dtype: str, batch: int) -> dict[str, object]:
    """Runs all of the data, longest together with longest, and checks every output."""
    model = alta.compile(scan.scan(), dtype=dtype)
    twin = model.to_torch(dtype, "cuda")
    rows = model.weights.token_rows
    order = sorted(range(len(data)), key=lambda index: len(data[index][0]))
    batches = []
    for first in range(0, len(order), batch):
        part = order[first : first + batch]
        lengths = torch.tensor([len(data[index][0]) for index in part], device="cuda")
        tokens = torch.zeros((len(part), int(lengths.max())), dtype=torch.long)
        for row, index in enumerate(part):
            tokens[row, : len(data[index][0])] = torch.tensor([rows[token] for token in data[index][0]])
        batches.append((part, tokens.cuda(), lengths))
    with torch.no_grad():
        twin(*batches[-1][1:])
        torch.cuda.synchronize()
        start = time.perf_counter()
        runs = [twin(tokens, lengths) for _, tokens, lengths in batches]
        torch.cuda.synchronize()
        took = time.perf_counter() - start
    wrong = operations = moved = positions = 0
    cost, bytes_moved = per_position(model.weights, torch.empty((), dtype=getattr(torch, dtype)).element_size())
    for (part, tokens, lengths), run in zip(batches, runs, strict=True):
        chosen = run.logits.argmax(dim=-1).cpu()
        for row, index in enumerate(part):
            found = scan.decode(chosen[row, : int(lengths[row])].tolist())
            wrong += found != data[index][1] or not bool(run.halted[row])
        worked = int(run.layers.sum()) * tokens.shape[1]
        positions += int((run.layers * lengths).sum())
        operations += worked * (cost + 4 * tokens.shape[1] * attention_width(model.weights))
        moved += worked * bytes_moved
    return {
        "dtype": dtype,
        "batch": batch,
        "seconds": took,
        "wrong": wrong,
        "positions through layers": positions,
        "operations": operations,
        "bytes": moved,
    }


def per_position(weights: Weights, size: int) -> tuple[int, int]:
    """Operations that the dense products of one layer take for each position, and bytes that they read and write, if
    weights stay in the caches."""
    layer = weights.layers[0]
    matrices = [part for head in layer.heads for part in (head.query, head.key, head.value, head.output)]
    matrices += [linear.weight for linear in layer.mlp]
    operations = sum(2 * rows * columns for rows, columns in (matrix.shape for matrix in matrices))
    return operations, size * sum(rows + columns for rows, columns in (matrix.shape for matrix in matrices))


def attention_width(weights: Weights) -> int:
    """Products for each pair of positions."""
    return sum((head.query.shape[0] + head.value.shape[0]) // 2 for head in weights.layers[0].heads)


def main() -> None:
    """Measures every format."""
    data = examples(Path(sys.argv[1]))
    weights = alta.compile(scan.scan()).weights
    found = {
        "device": torch.cuda.get_device_name(),
        "torch": torch.__version__,
        "examples": len(data),
        "dims": weights.dim,
        "heads": len(weights.layers[0].heads),
        "units": weights.layers[0].mlp[-1].weight.shape[1],
        "runs": [],
    }
    for dtype in ("float32", "bfloat16"):
        operations, copied = limits(getattr(torch, dtype))
        for batch in (1024, 4096):
            run = measure(data, dtype, batch)
            run["product, operations a second"] = operations
            run["copy, bytes a second"] = copied
            run["share of the product"] = run["operations"] / run["seconds"] / operations  # type: ignore[operator]
            run["share of the copy"] = run["bytes"] / run["seconds"] / copied  # type: ignore[operator]
            found["runs"].append(run)  # type: ignore[attr-defined]
            print(json.dumps(run), flush=True)
    Path(sys.argv[2]).write_text(json.dumps(found, indent=2) + "\n")


if __name__ == "__main__":
    main()
