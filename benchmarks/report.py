"""Makes docs/performance.md and its plots from what `run.py` and `gpu.py` have measured. `make bench` runs this.

python benchmarks/report.py benchmarks/results docs
"""

from __future__ import annotations

import json
import sys
from collections.abc import Mapping, Sequence
from pathlib import Path
from string import Template
from typing import Any

import matplotlib

matplotlib.use("Agg")
matplotlib.rcParams["svg.hashsalt"] = "alta"  # the same numbers make the same file

from matplotlib import pyplot as plt

Data = Mapping[str, Any]


def time(seconds: float) -> str:
    """As people read it: 1.9 s, 12 ms, 80 µs."""
    for unit, size in (("s", 1.0), ("ms", 1e-3), ("µs", 1e-6)):
        if seconds >= size:
            return f"{seconds / size:.2g} {unit}" if seconds < 10 * size else f"{seconds / size:,.0f} {unit}"
    return f"{seconds * 1e9:.0f} ns"


def table(header: Sequence[str], rows: Sequence[Sequence[str]]) -> str:
    """A table in Markdown."""
    lines = [header, ["---"] * len(header), *rows]
    return "\n".join("| " + " | ".join(line) + " |" for line in lines)


def cases(data: Data) -> str:
    """The interpreters on the same inputs."""
    rows = []
    for case in data["cases"]:
        seconds = case["seconds per input"]
        ratios = [f"{seconds['plain'] / seconds[engine]:,.0f}" for engine in ("numpy", "numba")]
        rows.append([case["case"], f"{case['inputs']:,}", *map(time, seconds.values()), *ratios])
    return table(["case", "inputs", "`run`", "NumPy", "Numba", "`run` / NumPy", "`run` / Numba"], rows)


def rules(data: Data) -> str:
    """How cost grows with rules."""
    rows = []
    for row in data["by rules"]:
        memory = [f"{row[name]:,.0f}" for name in ("plan, more megabytes than with the program alone", "megabytes")]
        rows.append([f"{row['rules']:,}", time(row["plan"]), *memory, time(row["numpy"]), time(row["numba"])])
    return table(["rules", "to plan", "MB more", "MB in all", "a position, NumPy", "a position, Numba"], rows)


def gpu(data: Data) -> str:
    """What a GPU reaches of what it can do."""
    rows = []
    for run in data["runs"]:
        rate, limit = run["operations"] / run["seconds"] / 1e12, run["product, operations a second"] / 1e12
        shares = [f"{run[name]:.0%}" for name in ("share of the product", "share of the copy")]
        done = [f"{run['batch']:,}", f"{run['seconds']:.1f} s", str(run["wrong"])]
        rows.append([run["dtype"], *done, f"{rate:.0f} of {limit:.0f} TFLOP/s", *shares])
    header = ["format", "batch", "all of SCAN", "wrong", "operations", "of a matrix product", "of a copy"]
    return table(header, rows)


def plot(path: Path, title: str, across: str, lines: Mapping[str, Sequence[tuple[float, float]]], up: str) -> None:
    """Lines on doubly logarithmic axes."""
    figure, axes = plt.subplots(figsize=(6, 3.6), layout="constrained")
    for label, points in lines.items():
        axes.loglog(*zip(*points, strict=True), marker="o", label=label)
    axes.set(title=title, xlabel=across, ylabel=up)
    axes.grid(alpha=0.3, which="both")
    axes.legend()
    figure.savefig(path, metadata={"Date": None})
    plt.close(figure)


def main() -> None:
    """Reads results, writes the page."""
    results, docs = map(Path, sys.argv[1:3])
    data = json.loads((results / "cpu.json").read_text())
    lengths = {
        f"{program}, {engine}": [(row["length"], row[engine]) for row in data["by length"] if row["program"] == program]
        for program in ("parity-relative", "addition")
        for engine in ("numpy", "numba")
    }
    plot(docs / "by_length.svg", "One input, longer and longer", "tokens", lengths, "CPU seconds")
    growth = {
        "to plan": [(row["rules"], row["plan"]) for row in data["by rules"]],
        "50,000 positions, NumPy": [(row["rules"], row["numpy"] * 50_000) for row in data["by rules"]],
        "50,000 positions, Numba": [(row["rules"], row["numba"] * 50_000) for row in data["by rules"]],
    }
    plot(docs / "by_rules.svg", "More and more rules", "rules", growth, "CPU seconds")
    gpu_data = json.loads((results / "gpu.json").read_text())
    per_second = 1 / next(
        case["seconds per input"]["numba"] for case in data["cases"] if case["case"].startswith("SCAN, all")
    )
    hours = 1e9 / per_second / 3600
    page = Template(Path(__file__).with_name("performance.md.in").read_text()).substitute(
        cases=cases(data),
        rules=rules(data),
        gpu=gpu(gpu_data),
        dims=gpu_data["dims"],
        heads=gpu_data["heads"],
        units=f"{gpu_data['units']:,}",
        device=gpu_data["device"],
        examples=f"{gpu_data['examples']:,}",
        cores=data["machine"]["cores"],
        processor=data["machine"]["processor"],
        python=data["versions"]["python"],
        numpy=data["versions"]["numpy"],
        per_second=f"{per_second:,.0f}",
        megabytes=f"{per_second * 330 / 1e6:.1f}",
        core_hours=f"{hours:,.0f}",
        cluster_minutes=f"{hours / 256 * 60:,.0f}",
    )
    (docs / "performance.md").write_text(page)


if __name__ == "__main__":
    main()
