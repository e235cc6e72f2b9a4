"""Training: data, optimizers, models, and runs that are killed and go on."""

from __future__ import annotations

import errno
import json
import multiprocessing
import os
import random
import signal
import subprocess
import sys
import time
from dataclasses import dataclass, fields, replace
from fractions import Fraction
from pathlib import Path

import numpy as np
import pytest
from typer.testing import CliRunner

import alta
from alta.cli.app import app
from alta.errors import InputError, TrainingError
from alta.language.variables import NULL, UNDEFINED
from alta.programs import addition, parity

torch = pytest.importorskip("torch")

import training_runs  # noqa: E402
from training_runs import trace_task  # noqa: E402

from alta import recipes  # noqa: E402
from alta.training import loop, transformer  # noqa: E402
from alta.training.adafactor import Adafactor  # noqa: E402
from alta.training.bits import balanced  # noqa: E402
from alta.training.checkpoint import load  # noqa: E402
from alta.training.learned import HeldOut, LearnedMlp, Shape, TraceTask, with_mlp  # noqa: E402
from alta.training.loop import CHECKPOINT, Recipe, generator, train, trained  # noqa: E402
from alta.training.parity_task import ParityTask  # noqa: E402
from alta.training.readout_task import ReadOutTask  # noqa: E402
from alta.training.scan_task import END, PAD, ScanTask, pairs  # noqa: E402
from alta.training.traces import TraceDataset, state_dataset, trace_dataset  # noqa: E402
from alta.training.transformer import Architecture, Transformer  # noqa: E402

TINY = Architecture(layers=2, dim=32, hidden=64, heads=2, head_dim=16)


# Data


def test_balanced_strings_have_each_number_of_ones_about_as_often():
    data = balanced((8000,), 7, generator(1, 0))
    inside = torch.arange(7) < data.lengths[:, None]
    assert torch.equal((data.bits * inside).sum(dim=1), data.ones)
    assert not (data.bits * ~inside).any()
    shares = torch.bincount(data.ones, minlength=8) / len(data.ones)
    assert (shares - 1 / 8).abs().max() < 0.02
    lengths = torch.bincount(data.lengths[data.ones == 3], minlength=8)
    assert not lengths[:3].any() and lengths[3:].min() > 0.15 * lengths.sum()
    assert data.bits[data.ones == 3][:, 0].float().mean() > 0.3  # the ones may be anywhere
    assert [sum(bits) for bits in data.strings()] == data.ones.tolist()


def test_what_a_step_sees_depends_on_seed_and_step_alone():
    again = [balanced((5,), 9, generator(3, 50)).bits for _ in range(2)]
    assert torch.equal(*again)
    assert not torch.equal(again[0], balanced((5,), 9, generator(3, 100)).bits)
    assert not torch.equal(again[0], balanced((5,), 9, generator(4, 50)).bits)


@pytest.mark.parametrize(
    ("program", "inputs", "layers"),
    [
        (parity.relative(), [parity.encode(bits) for bits in ([], [1], [1, 0, 1], [0, 1, 1, 1])], None),
        (parity.absolute(6), [[1, 0, 1], [1, 1, 1, 0, 1]], None),
        (parity.by_count(9, 1000.0), [parity.encode(bits) for bits in ([0, 0], [1, 1, 0, 1], [1] * 9)], 2),
        (addition.addition(), [addition.encode(95, 7), addition.encode(3, 4)], None),
    ],
    ids=["relative", "absolute", "count", "addition"],
)
def test_traces_are_what_the_compiled_model_has_in_its_residual_stream(program, inputs, layers):
    data = trace_dataset(program, inputs, layers, progress=False)
    model = alta.compile(program, max_length=10)
    rows: dict[bytes, tuple[int, bytes]] = {}
    unsure = 0
    for tokens in inputs:
        trace = alta.run(program, tokens, layers).trace
        found = model.run(tokens, layers, residual=True)
        for number, layer in enumerate(trace.layers):
            before, after = found.residual[2 * number + 1], found.residual[2 * number + 2]
            for position, assignment in enumerate(layer.attention):
                if UNDEFINED in assignment.values():
                    unsure += 1
                    continue
                given = np.round(before[position], 4).astype(np.float32).tobytes()
                count, _ = rows.get(given, (0, b""))
                rows[given] = count + 1, np.round(after[position], 4).astype(np.float32).tobytes()
    sure = ~data.undefined.any(axis=1)
    known = {
        np.round(given, 4).tobytes(): (int(count), np.round(made, 4).tobytes())
        for given, made, count in zip(data.inputs[sure], data.outputs[sure], data.counts[sure], strict=True)
    }
    assert known == rows
    assert int(data.counts[~sure].sum()) == unsure
    assert not (data.inputs[data.undefined] != 0).any()


@pytest.mark.parametrize(
    ("program", "inputs", "layers"),
    [
        (parity.relative(), [parity.encode(bits) for bits in ([1, 0, 1], [1], [1, 1, 1, 1, 0])], 5),
        (parity.by_count(50, 1000.0), [parity.encode(bits) for bits in ([0, 0], [1], [1, 0, 1, 1])], 2),
        (addition.addition(), [addition.encode(95, 7), addition.encode(3, 4)], 4),
    ],
    ids=["relative", "count", "addition"],
)
def test_states_are_those_of_the_plain_interpreter(program, inputs, layers):
    data = state_dataset(program, inputs, layers)
    for number, tokens in enumerate(inputs):
        states = alta.run(program, tokens, layers).trace.states
        for step in range(1 + 2 * layers):
            _, state = states[min(step, len(states) - 1)]
            for position, assignment in enumerate(state):
                for place, (name, values) in enumerate(data.values.items()):
                    code, value = data.codes[number, step, position, place], assignment[name]
                    if step >= len(states) and program.variables[name].is_output:
                        assert code == -1  # what a halted run would read is not known
                    elif value is NULL or value is UNDEFINED:
                        assert code == -1
                    else:
                        assert values[code] == pytest.approx(float(value) if isinstance(value, Fraction) else value)
        assert (data.codes[number, :, len(tokens) :] == -1).all()


def test_traces_are_saved_and_read_back(tmp_path):
    data = trace_dataset(parity.relative(), [parity.encode([1, 0, 1])], progress=False)
    data.save(tmp_path / "traces.safetensors")
    again = TraceDataset.load(tmp_path / "traces.safetensors")
    for name in ("inputs", "outputs", "undefined", "counts"):
        assert np.array_equal(getattr(again, name), getattr(data, name))
    assert again.slices == data.slices
    assert repr(data) == f"<traces: {len(data)} distinct pairs of {data.counts.sum()}, 9 dims>"
    (tmp_path / "bad.safetensors").write_bytes(b"no")
    with pytest.raises(TrainingError, match="holds no traces that can be read"):
        TraceDataset.load(tmp_path / "bad.safetensors")
    with pytest.raises(InputError, match="no traces"):
        trace_dataset(parity.relative(), [["START"]], progress=False)


# Optimizers


def test_adafactor_is_that_of_pytorch_where_both_have_a_meaning():
    torch.manual_seed(0)
    starts = [torch.randn(7, 5), torch.randn(6)]
    ours = [torch.nn.Parameter(one.clone()) for one in starts]
    theirs = [torch.nn.Parameter(one.clone()) for one in starts]
    optimizers = Adafactor(ours, lr=torch.tensor(0.01)), torch.optim.Adafactor(theirs, lr=0.01)
    for _ in range(20):
        gradients = [torch.randn_like(one) for one in starts]
        for parameters, optimizer in zip((ours, theirs), optimizers, strict=True):
            for parameter, gradient in zip(parameters, gradients, strict=True):
                parameter.grad = gradient.clone()
            optimizer.step()
    for one, other, start in zip(ours, theirs, starts, strict=True):
        assert (one - start).abs().min() > 0
        assert torch.allclose(one, other, atol=1e-6)


def test_adafactor_takes_each_matrix_of_a_stack_for_itself():
    torch.manual_seed(1)
    stack = torch.nn.Parameter(torch.stack([torch.randn(4, 3), 100 * torch.randn(4, 3)]))
    parts = [torch.nn.Parameter(part.clone()) for part in stack.detach()]
    rate = torch.tensor(0.1)
    optimizers = Adafactor([stack], lr=rate), Adafactor(parts, lr=rate)
    for _ in range(3):
        stack.grad = torch.randn_like(stack)
        for part, gradient in zip(parts, stack.grad, strict=True):
            part.grad = gradient.clone()
        for optimizer in optimizers:
            optimizer.step()
    assert torch.allclose(stack, torch.stack(parts), atol=1e-6)


def test_learning_rates_rise_and_fall():
    recipe = Recipe(steps=1000, batch=1, learning_rate=2.0, warmup=10, decay=0.01)
    assert recipe.rate(0) == pytest.approx(0.2)
    assert recipe.rate(9) == recipe.rate(10) == 2.0
    assert recipe.rate(510) == pytest.approx(2.0 * 0.1)
    assert recipe.rate(999) == pytest.approx(2.0 * 0.01, rel=0.06)
    stops = [step for step in range(1, 1001) if replace(recipe, evaluations=4).is_evaluated(step)]
    assert stops == [250, 500, 750, 1000]
    assert [step for step in range(1, 1001) if replace(recipe, evaluations=0).is_evaluated(step)] == [1000]


# Models


def test_a_learned_mlp_is_a_plain_one_in_a_saved_model(tmp_path):
    program = parity.relative()
    mlp = LearnedMlp(9, Shape(3, 11), generator(0, 0))
    model = with_mlp(program, mlp)
    model.save(tmp_path / "model.safetensors")
    again = alta.load(tmp_path / "model.safetensors")
    for bits in ([1, 0, 1, 1], [0], [1, 1, 1, 1, 1, 1]):
        ours, theirs = (one.run(parity.encode(bits), 4, residual=True) for one in (model, again))
        assert np.allclose(ours.residual, theirs.residual, atol=1e-2, rtol=1e-3)
        assert ours.layers == theirs.layers
    z = torch.randn(5, 9)
    assert torch.allclose(z + model.blocks[0].mlp(z), mlp(z), atol=1e-5)
    with pytest.raises(TrainingError, match="only MLPs with relu"):
        with_mlp(program, LearnedMlp(9, Shape(2, 5, "gelu"), generator(0, 0))).save(tmp_path / "other.safetensors")


def test_attention_is_that_of_its_formula():
    torch.manual_seed(0)
    z, read, norm, outer = torch.randn(2, 5, 8), torch.randn(2, 3, 8), torch.rand(1, 8), torch.randn(8, 8)
    query, key, value = (torch.randn(8, 8) for _ in range(3))
    x = z / (z.square().mean(-1, keepdim=True) + 1e-6).sqrt() * norm
    for source, mask in ((None, torch.randn(2, 2, 5, 5)), (read, torch.randn(2, 1, 1, 3))):
        found = transformer._attend(z, mask, 2, norm, torch.cat([query, key, value], dim=1), outer, read=source)
        other = x if source is None else source
        pairs_of = ((x, query), (other, key), (other, value))
        q, k, v = ((given @ weight).reshape(2, -1, 2, 4).transpose(1, 2) for given, weight in pairs_of)
        shares = (q @ k.transpose(-1, -2) + mask).softmax(-1)
        assert torch.allclose(found, (shares @ v).transpose(1, 2).reshape(2, 5, 8) @ outer, atol=1e-4)


@pytest.mark.parametrize("positions", ["relative", "absolute"])
@pytest.mark.parametrize("shared", [True, False])
def test_padding_changes_nothing(positions, shared):
    size = replace(TINY, positions=positions, shared=shared)
    model = Transformer(size, 5, 3, generator(0, 0), decoder=True)
    tokens = torch.tensor([[1, 2, 3, 4, 1]])
    there = torch.ones_like(tokens, dtype=torch.bool)
    longer = torch.tensor([[1, 2, 3, 4, 1, 0, 2, 2]])
    inside = torch.arange(8) < 5
    short, long = model.encode(tokens, there), model.encode(longer, inside[None])
    assert torch.allclose(short, long[:, :5], atol=1e-5)
    written = torch.tensor([[1, 0, 2]])
    logits = model.decode(written, short, there), model.decode(written, long, inside[None])
    assert torch.allclose(*logits, atol=1e-5)
    other = model.decode(torch.tensor([[1, 0, 1]]), short, there)
    assert torch.allclose(logits[0][:, :2], other[:, :2], atol=1e-5)  # nothing is read from the right
    assert not torch.allclose(logits[0][:, 2], other[:, 2], atol=1e-3)


def test_positions_matter():
    for positions in ("relative", "absolute"):
        model = Transformer(replace(TINY, positions=positions), 3, 2, generator(0, 0))
        there = torch.ones(1, 3, dtype=torch.bool)
        one, other = (model.encode(torch.tensor([tokens]), there) for tokens in ([0, 1, 2], [1, 0, 2]))
        assert not torch.allclose(one[:, 2], other[:, 2], atol=1e-3)


def test_relative_positions_share_biases_from_afar():
    both = transformer._buckets(300, False, torch.device("cpu"))
    left = transformer._buckets(300, True, torch.device("cpu"))
    for table, number, near in ((both, 16, 8), (left, 32, 16)):
        back = [int(table[299, 299 - distance]) for distance in range(300)]
        assert back[:near] == list(range(near))
        assert back == sorted(back) and back[-1] == number - 1
        assert back[127] < number and back[128] == number - 1
    assert torch.equal(both[0, 1:], both[1:, 0] + 16)
    assert (left[0, 1:] == 0).all()


@pytest.mark.parametrize("table", [transformer._buckets, transformer._waves])
def test_tables_that_a_captured_graph_reads_are_never_freed(table):
    """A graph knows where they lie, and nothing else; evaluations take tables of many other lengths."""
    second = {transformer._buckets: True, transformer._waves: 4}[table]
    first = table(5, second, torch.device("cpu"))
    for length in range(6, 200):
        table(length, second, torch.device("cpu"))
    assert table(5, second, torch.device("cpu")) is first


def test_layers_of_their_own_and_shared_ones():
    shared = Transformer(replace(TINY, shared=True), 3, 2, generator(0, 0))
    own = Transformer(TINY, 3, 2, generator(0, 0))
    assert own.encoder.up.shape[0] == 2 and shared.encoder.up.shape[0] == 1
    with torch.no_grad():
        for (name, ours), (_, theirs) in zip(own.named_parameters(), shared.named_parameters(), strict=True):
            ours.copy_(theirs.expand_as(ours) if name.startswith("encoder") else theirs)
    tokens, there = torch.tensor([[0, 1, 2, 2]]), torch.ones(1, 4, dtype=torch.bool)
    kept: list[torch.Tensor] = []
    assert torch.allclose(own.encode(tokens, there, kept=kept), shared.encode(tokens, there), atol=1e-5)
    assert len(kept) == 5
    assert not torch.allclose(shared.encode(tokens, there), shared.encode(tokens, there, layers=3), atol=1e-3)


# Runs


def test_trace_supervision_learns_parity_for_longer_strings(tmp_path):
    result = train(trace_task(7000, evaluations=2), tmp_path, progress=False)
    final = result.facts["final"]
    assert final["accuracy"] == {"length <= 6": 1.0, "length > 6": 1.0, "ones > 6": 1.0}
    assert sum(right for right, _ in final["by length"].values()) == 300
    lines = [json.loads(line) for line in (tmp_path / "metrics.jsonl").read_text().splitlines()]
    assert [line["step"] for line in lines] == [3500, 7000]
    assert lines[1]["loss"] < lines[0]["loss"]
    assert json.loads((tmp_path / "result.json").read_text())["step"] == 7000


def test_a_small_encoder_learns_what_it_is_trained_on(tmp_path):
    size = replace(TINY, positions="absolute")
    task = ParityTask(
        "small", Recipe(1000, 64, 3e-3, "adam", warmup=50, decay=0.1), size, trained=4, tested=5, test=200
    )
    final = train(task, tmp_path, progress=False).facts["final"]
    assert final["accuracy"]["length <= 4"] == 1.0


def test_a_small_translator_learns_what_it_is_trained_on(tmp_path):
    words = {"walk": ["W"], "jump": ["J", "K"], "look": ["L"]}
    known = [(f"{a} and {b}", [*words[a], *words[b]]) for a in words for b in words]
    short = pairs(known, known[:4])
    assert short[0].actions.tolist()[0][:3] == [short[0].verbs.index("W") + 2] * 2 + [END]
    assert short[0].commands[0, 3:].tolist() == [END] + [PAD] * (short[0].commands.shape[1] - 4)
    task = ScanTask("small", Recipe(400, 32, 5e-3, "adam", warmup=20, decay=0.1, evaluations=1), TINY, "own", *short)
    assert train(task, tmp_path, progress=False).facts["final"]["accuracy"] == {"train": 1.0, "test": 1.0}


def test_read_outs_learn_a_program_with_nothing_compiled(tmp_path):
    size = replace(TINY, layers=3, shared=True)
    recipe = Recipe(250, 32, 3e-3, "adam", warmup=20, decay=0.1, evaluations=1)
    task = ReadOutTask("small", recipe, size, parity.relative(), parity.encode, 3, 3, trained=3, tested=3, test=100)
    result = train(task, tmp_path, progress=False)
    assert result.facts["final"]["accuracy"]["length <= 3"] > 0.95


@pytest.mark.parametrize(("optimizer", "kills"), [("adafactor", 3), ("adam", 20)])
def test_a_run_that_is_killed_goes_on_to_the_same_weights(tmp_path, optimizer, kills):
    """With SIGKILL, at random moments."""
    context = multiprocessing.get_context("forkserver")
    context.set_forkserver_preload(["torch", "alta.recipes"])
    moments = random.Random(0)

    def go(directory: Path, seconds: float | None) -> bool:
        process = context.Process(target=training_runs.go, args=(str(directory), 600, optimizer))
        process.start()
        if seconds is None:
            process.join()
        else:
            end = time.monotonic() + 120
            while not (directory / "metrics.jsonl").exists() and process.is_alive() and time.monotonic() < end:
                time.sleep(0.005)
            process.join(seconds)
            if process.is_alive():
                os.kill(process.pid, signal.SIGKILL)
                process.join()
        return process.exitcode == 0

    whole, broken = tmp_path / "whole", tmp_path / "broken"
    assert go(whole, None)
    survived = 0
    for _ in range(kills):
        survived += go(broken, moments.uniform(0.0, 0.4))
    assert survived < kills
    while not go(broken, None):
        pass
    ours, theirs = (load(directory / CHECKPOINT)[0] for directory in (whole, broken))
    assert ours.keys() == theirs.keys()
    assert all(torch.equal(ours[key], theirs[key]) for key in ours)
    assert (whole / "metrics.jsonl").read_text() == (broken / "metrics.jsonl").read_text()


@dataclass(frozen=True, eq=False)
class SlowlyJudged(TraceTask):
    """A task whose evaluations take long, and the last of which may be cut off."""

    cut_off: bool = False

    def evaluate(self, objective, *, final):
        if final and self.cut_off:
            raise KeyboardInterrupt
        time.sleep(0.5)
        return super().evaluate(objective, final=final)


def test_speed_is_that_of_steps_alone_and_of_all_of_them(tmp_path):
    task = trace_task(100, evaluations=2)
    known = {one.name: getattr(task, one.name) for one in fields(task)}
    with pytest.raises(KeyboardInterrupt):
        train(SlowlyJudged(**known, cut_off=True), tmp_path, progress=False)
    facts = train(SlowlyJudged(**known), tmp_path, progress=False).facts
    assert facts["step"] / facts["steps_per_second"] < 0.5
    assert facts["seconds"] > 1.0
    assert train(task, tmp_path, progress=False).facts["steps_per_second"] == facts["steps_per_second"]


DISTRIBUTED = """
import gc
import sys
import torch
sys.path.insert(0, sys.argv[2])
from training_runs import tasks
from alta.training.loop import train
several = torch.distributed.is_torchelastic_launched()
if several:
    torch.distributed.init_process_group("gloo")
torch.set_num_threads(1)
for name, task in tasks(60).items():
    train(task, f"{sys.argv[1]}/{name}", progress=False)
if several:
    gc.collect()
    torch.distributed.destroy_process_group()
"""


def test_two_processes_do_what_one_does(tmp_path):
    script = tmp_path / "go.py"
    script.write_text(DISTRIBUTED)
    tests = str(Path(__file__).parent)
    both = [sys.executable, "-m", "torch.distributed.run", "--nproc-per-node", "2", "--standalone"]
    environment = {**os.environ, "OMP_NUM_THREADS": "1"}
    for command, name in ((both, "both"), ([sys.executable], "one")):
        done = subprocess.run(
            [*command, str(script), str(tmp_path / name), tests], capture_output=True, text=True, env=environment
        )
        assert done.returncode == 0, done.stderr
    for kind in training_runs.tasks(60):
        facts = json.loads((tmp_path / "both" / kind / "result.json").read_text())
        assert facts["processes"] == 2
        ours, theirs = (load(tmp_path / name / kind / CHECKPOINT)[0] for name in ("both", "one"))
        assert all(torch.allclose(ours[key], theirs[key], atol=1e-4) for key in ours), kind


def test_directories_hold_one_run(tmp_path):
    train(trace_task(50, evaluations=0), tmp_path, progress=False)
    with pytest.raises(TrainingError, match=r"other settings \(recipe\); take another directory"):
        train(trace_task(100, evaluations=0), tmp_path, progress=False)
    objective, step = trained(trace_task(50, evaluations=0), tmp_path)
    assert step == 50
    with pytest.raises(TrainingError, match="there is no checkpoint '.*none.*'; train first"):
        trained(trace_task(50, evaluations=0), tmp_path / "none")
    (tmp_path / CHECKPOINT).write_bytes(b"damaged")
    with pytest.raises(TrainingError, match="cannot be read"):
        train(trace_task(50, evaluations=0), tmp_path, progress=False)
    assert all(torch.isfinite(parameter).all() for parameter in objective.parameters())


def test_two_runs_do_not_share_a_directory(tmp_path, monkeypatch):
    code = "import fcntl, sys; file = open(sys.argv[1], 'w'); fcntl.lockf(file, fcntl.LOCK_EX); print(); input()"
    command = [sys.executable, "-c", code, str(tmp_path / loop.LOCK)]
    with subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE) as other:
        other.stdout.readline()
        with pytest.raises(TrainingError, match="another process trains in .*; wait until it ends, or take another"):
            train(trace_task(50), tmp_path, progress=False)
        other.kill()

    def no_locks(*_):
        raise OSError(errno.ENOLCK, "no locks available")

    monkeypatch.setattr(loop.fcntl, "lockf", no_locks)
    assert train(trace_task(50), tmp_path, progress=False).facts["step"] == 50


def test_directories_that_cannot_be_written_are_refused(tmp_path):
    (tmp_path / "file").touch()
    (tmp_path / "run" / loop.LOCK).mkdir(parents=True)
    for directory in (tmp_path / "file", tmp_path / "file" / "run", tmp_path / "run"):
        with pytest.raises(TrainingError, match="cannot hold a run: .*; take another directory"):
            train(trace_task(50), directory, progress=False)


def test_a_run_does_not_go_on_with_other_data(tmp_path):
    known = [("a b", ["A", "B"]), ("b a", ["B", "A"])]

    def scan(given):
        return ScanTask("small", Recipe(1, 2, 1e-3, evaluations=0), TINY, "own", *pairs(given, known))

    task = trace_task(1, evaluations=0)
    counts = task.traces.counts[::-1].copy()
    swapped = replace(task.test, inputs=task.test.inputs[::-1], outputs=task.test.outputs[::-1])
    others = {
        "data": (task, replace(task, traces=replace(task.traces, counts=counts)), replace(task, test=swapped)),
        "program": (task, replace(task, program=replace(task.program, output="done"))),
        "data ": (scan(known), scan([known[0], known[0]])),
    }
    for number, (fact, (first, *changed)) in enumerate(others.items()):
        train(first, tmp_path / str(number), progress=False)
        for other in changed:
            with pytest.raises(TrainingError, match=rf"other settings \({fact.strip()}\)"):
                train(other, tmp_path / str(number), progress=False)


def test_a_run_that_diverges_says_so(tmp_path):
    with pytest.raises(TrainingError, match="the loss is .* take a smaller learning rate"):
        train(trace_task(400, learning_rate=1e30, optimizer="adam", evaluations=0), tmp_path, progress=False)


def test_each_process_of_torchrun_has_a_gpu_of_its_own(monkeypatch):
    monkeypatch.setattr(torch.cuda, "is_available", lambda: True)
    monkeypatch.setattr(torch.cuda, "device_count", lambda: 2)
    asked = (None, "cuda", "cuda:0", "cpu")
    assert [str(loop._chosen(device)) for device in asked] == ["cuda:0", "cuda:0", "cuda:0", "cpu"]
    monkeypatch.setenv("TORCHELASTIC_RUN_ID", "1")
    monkeypatch.setenv("LOCAL_RANK", "1")
    assert [str(loop._chosen(device)) for device in asked] == ["cuda:1", "cuda:1", "cuda:0", "cpu"]
    with pytest.raises(TrainingError, match="there is no device 'cuda:2'; devices: cpu, cuda:0, cuda:1"):
        loop._chosen("cuda:2")


@pytest.mark.parametrize("device", ["cuda", "cuda:7", "meta", "abacus"])
def test_devices_that_are_not_there(device, tmp_path):
    if torch.cuda.is_available():
        pytest.skip("there is a GPU")
    with pytest.raises(TrainingError, match=f"there is no device '{device}'; devices: cpu$"):
        train(ParityTask("small", Recipe(1, 2, 1.0), TINY), tmp_path, device=device)


SMALL = ["--layers", "1", "--dim", "16", "--hidden", "16", "--trained", "3", "--tested", "4", "--steps", "2"]


def alta_command(*arguments):
    return CliRunner().invoke(app, list(map(str, arguments)), catch_exceptions=True)


def test_evaluations_take_no_gradients(tmp_path, monkeypatch):
    graded = []
    plain = ParityTask.evaluate

    def evaluate(self, objective, *, final):
        graded.append(torch.is_grad_enabled())
        return plain(self, objective, final=final)

    monkeypatch.setattr(ParityTask, "evaluate", evaluate)
    assert alta_command("train", "parity", *SMALL, "-o", tmp_path).exit_code == 0
    assert alta_command("evaluate", tmp_path).exit_code == 0
    assert len(graded) == 4 and not any(graded)


def test_a_command_that_is_killed_as_it_begins_can_be_given_again(tmp_path, monkeypatch):
    plain = Path.write_text

    def half(path, text):
        plain(path, text[: len(text) // 2])
        sys.exit("killed")

    with monkeypatch.context() as patched:
        patched.setattr(Path, "write_text", half)
        assert alta_command("train", "parity", *SMALL, "-o", tmp_path).exit_code != 0
    assert alta_command("train", "parity", *SMALL, "-o", tmp_path).exit_code == 0


def test_one_process_of_several_notes_what_was_asked_for(tmp_path, monkeypatch):
    monkeypatch.setenv("RANK", "1")
    monkeypatch.setattr(loop, "train", lambda *_, **__: loop.Result(torch.nn.Identity(), {}))
    done = alta_command("train", "parity", *SMALL, "-o", tmp_path / "run", "--json")
    assert (done.exit_code, done.output, (tmp_path / "run").exists()) == (0, "", False)


def test_a_command_that_cannot_write_says_so(tmp_path):
    (tmp_path / "file").touch()
    done = alta_command("train", "parity", *SMALL, "-o", tmp_path / "file")
    assert "cannot hold a run" in str(done.exception) and isinstance(done.exception, TrainingError)


def counter():
    """A program that counts past the end of its variable's range."""

    def mlp(z):
        z["count"] = z["count"] + 1

    variables = {"count": alta.var(3, input_init_fn=lambda token: token)}
    return alta.program_spec(variables=variables, heads={}, ffn_fn=mlp, output_name="count", input_range=2)


@pytest.mark.parametrize(
    ("make", "message"),
    [
        (lambda: Recipe(0, 1, 1.0), "steps is 1 or more"),
        (lambda: Recipe(1, 1, -1.0), "learning_rate and decay are positive"),
        (lambda: Recipe(1, 1, 1.0, optimizer="sgd"), "optimizer is one of adam, adafactor; got 'sgd'"),
        (lambda: Shape(0, 1), "1 hidden layer or more"),
        (lambda: Shape(1, 1, "sigmoid"), "activations relu, gelu, tanh"),
        (lambda: Architecture(layers=0), "layers is 1 or more"),
        (lambda: Architecture(positions="rotary"), "positions are relative or absolute; got 'rotary'"),
        (lambda: Architecture(dim=5), "dim is even"),
        (lambda: recipes.named("parity-8-relative"), "there is no run 'parity-8-relative'; runs: trace-relative"),
        (lambda: recipes.named("trace-best"), "there is no run 'trace-best'"),
        (lambda: recipes.named("scan-nosplit-2-own-relative"), "there is no split 'nosplit' of SCAN"),
        (lambda: pairs([], []), "SCAN needs pairs to train on"),
        (lambda: HeldOut.of(counter(), [[1]], 3), "stops with an error"),
        (lambda: HeldOut.of(counter(), [], 1), "there are no test inputs"),
        (lambda: trace_task(1, precision="bfloat16"), "an MLP is trained in float32 or tf32; got bfloat16"),
        (
            lambda: ReadOutTask(
                "", Recipe(1, 1, 1.0), replace(TINY, layers=3), parity.relative(), parity.encode, 3, tested_layers=4
            ),
            "only layers that share their weights can run for 4 layers; there are 3",
        ),
    ],
)
def test_mistakes(make, message):
    with pytest.raises((TrainingError, InputError), match=message):
        make()


def test_every_cell_of_the_papers_tables_has_a_name():
    found = recipes.names()
    assert len(found) == len(set(found)) == 3 + 8 + 3 + 4 * 2 * (7 + 5)
    for name in ("trace-relative", "parity-40-shared-absolute", "read-out-absolute", "scan-mcd3-256-shared-relative"):
        task = recipes.named(name, seed=2, steps=7)
        assert (task.name, task.recipe.seed, task.recipe.steps) == (name, 2, 7)
        assert json.loads(json.dumps(task.facts()))["recipe"]["steps"] == 7
    size = recipes.named("scan-length-6-own-absolute").size
    assert (size.layers, size.shared, size.positions, size.dim, size.heads) == (6, False, "absolute", 128, 8)
