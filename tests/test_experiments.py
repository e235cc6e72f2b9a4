"""The experiments' commands: runs that stop and go on, and the page that is made of results."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from pathlib import Path

import pytest

pytest.importorskip("torch")
pytest.importorskip("matplotlib")

ROOT = Path(__file__).parent.parent


def python(script, *arguments):
    environment = {**os.environ, "OMP_NUM_THREADS": "1"}
    command = [sys.executable, str(ROOT / "experiments" / script), *map(str, arguments)]
    return subprocess.run(command, capture_output=True, text=True, env=environment, cwd=ROOT)


def test_the_results_page_says_what_the_results_say(tmp_path):
    done = python("report.py", "experiments/results", tmp_path)
    assert done.returncode == 0, done.stderr
    page = (tmp_path / "results.md").read_text()
    assert page == (ROOT / "docs" / "results.md").read_text(), "run experiments/report.py experiments/results docs"
    cells = [line.split("|") for line in page.splitlines() if line.startswith("| relative |")]
    shares = []
    for path in (ROOT / "experiments" / "results").glob("trace-relative-*.json"):
        right, number = 0, 0
        for length, (good, inputs) in json.loads(path.read_text())["final"]["by length"].items():
            if int(length) <= 20:
                right, number = right + good, number + inputs
        shares.append(right / number)
    assert len(shares) >= 3
    assert cells[0][4].strip() == f"{sum(shares) / len(shares):.0%}"


def test_cells_that_were_not_run_say_so(tmp_path):
    (tmp_path / "results").mkdir()
    slices = {"length <= 20": 1.0, "length > 20": 0.625, "ones > 20": 0.5}
    counts = {"by length": {"3": [3, 3], "30": [5, 8]}, "by ones": {"2": [3, 3], "21": [4, 8]}}
    facts = {"device": "X", "versions": {"torch": "0"}, "step": 700, "final": {"accuracy": slices, **counts}}
    for seed, name in enumerate(("parity-8-own-relative", "scan-length-2-own-relative", "trace-absolute")):
        final = {"accuracy": {"test": 0.08}} if name.startswith("scan") else facts["final"]
        result = {"name": name, "seed": seed, **facts, "final": final}
        (tmp_path / "results" / f"{name}-0.json").write_text(json.dumps(result))
    assert python("report.py", tmp_path / "results", tmp_path).returncode == 0
    page = (tmp_path / "results.md").read_text()
    row = "| 8 | own | relative | 100% / 100% | 60% / 62% | 51% / 50% | 700 of 50,000 |"
    assert row in page
    assert "| 8 | shared | relative | 100% / not run | 65% / not run | 52% / not run | not run |" in page
    assert "| length | own | relative | 9% / 8% (700 of 100,000 steps) | 9% / · |" in page
    assert "| relative | length <= 20 | 100% | not run | 100% |" in page
    assert "| absolute | length <= 20 | 100% | 100% (700 of 50,000 steps) | 100% |" in page
    assert (tmp_path / "results_parity.svg").exists()


@pytest.mark.slow
def test_runs_stop_go_on_and_are_collected(tmp_path):
    out, results = tmp_path / "out", tmp_path / "results"
    where = ("--steps", "100", "--out", out, "--results", results)
    stopped = python("run.py", "trace-relative:4", *where, "--minutes", "0.005")
    assert stopped.returncode == 0 and "stopped: trace-relative:4" in stopped.stdout
    done = python("run.py", "trace-relative:4", *where)
    assert done.returncode == 0 and done.stdout.startswith("trace-relative:4  {'length <= 20'"), done.stdout
    found = json.loads((results / "trace-relative-4.json").read_text())
    assert (found["name"], found["seed"], found["step"], found["task"]["recipe"]["seed"]) == (
        "trace-relative",
        4,
        100,
        4,
    )
    assert [line["step"] for line in found["metrics"]] == list(range(10, 101, 10))
    assert python("run.py", "trace-relative:4", *where).stdout == ""  # it is finished
    (results / "trace-relative-4.json").unlink()
    assert python("run.py", "trace-relative:4", *where).stdout == done.stdout  # but was not collected
    assert json.loads((results / "trace-relative-4.json").read_text()) == found
    failed = python("run.py", "trace-nothing", *where)
    assert failed.returncode == 1 and "trace-nothing:0 failed; see" in failed.stdout
