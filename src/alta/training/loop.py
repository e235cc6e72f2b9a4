"""The training loop, for everything that is trained here.

What a step sees is a function of the seed and the step alone, so a run holds no state but its parameters, its
optimizer and its step: killed at any moment and started again, it goes on from its checkpoint to the same weights. On a
GPU, a step is one CUDA graph. Under torchrun, each process takes its share of every batch.
"""

from __future__ import annotations

import gc
import json
import math
import os
import platform
import random
import sys
import time
from collections.abc import Callable, Iterator, Mapping
from contextlib import ExitStack, contextmanager, nullcontext
from dataclasses import dataclass, field
from importlib.util import find_spec
from pathlib import Path
from typing import Any, Protocol

import torch
from torch import Tensor, distributed, nn

from alta.errors import TrainingError, listing
from alta.parallel import progress_bar
from alta.training.adafactor import Adafactor
from alta.training.checkpoint import load, restore, save, tensors_of
from alta.whole import whole

try:
    import fcntl
except ModuleNotFoundError:  # not on Windows
    fcntl = None  # type: ignore[assignment]

CHECKPOINT = "checkpoint.safetensors"
"""The file in a run's directory that it goes on from."""

LOCK = "lock"
"""The file in a run's directory that the process which trains there has locked."""

CHUNK = 50
"""Steps whose batches are made together. Checkpoints lie between chunks."""

WARM_UP = 3
"""Steps that are run, and undone, before one is captured."""

REPORTED_EVERY = 60.0
"""Seconds between lines, where there is no terminal for a bar."""

OPTIMIZERS = ("adam", "adafactor")
PRECISIONS = ("float32", "tf32", "bfloat16")


@dataclass(frozen=True)
class Recipe:
    """How something is trained, whatever it is."""

    steps: int
    batch: int
    learning_rate: float
    optimizer: str = "adafactor"
    warmup: int = 0  # steps in which the learning rate rises from 0
    decay: float = 1.0  # what it falls to in `steps` steps after that, exponentially, as a share
    precision: str = "tf32"  # of matrix products (TF32 on a GPU only); parameters are float32
    seed: int = 0
    evaluations: int = 10  # over the run, evenly

    def __post_init__(self) -> None:
        for name in ("steps", "batch"):
            if getattr(self, name) < 1:
                raise TrainingError(f"{name} is 1 or more; got {getattr(self, name)}")
        for name, known in (("optimizer", OPTIMIZERS), ("precision", PRECISIONS)):
            if getattr(self, name) not in known:
                raise TrainingError(f"{name} is one of {', '.join(known)}; got {getattr(self, name)!r}")
        if not (self.learning_rate > 0 and 0 < self.decay <= 1 and self.warmup >= 0 and self.evaluations >= 0):
            raise TrainingError(
                f"learning_rate and decay are positive, decay at most 1, warmup and evaluations 0 or more; got {self}"
            )

    def rate(self, step: int) -> float:
        """The learning rate of a step, counted from 0."""
        rising = min((step + 1) / self.warmup, 1.0) if self.warmup else 1.0
        falling = max(step - self.warmup, 0) / self.steps
        return self.learning_rate * rising * float(self.decay**falling)

    def is_evaluated(self, step: int) -> bool:
        """Whether there is an evaluation after so many steps."""
        return step == self.steps or (
            self.evaluations > 0 and step * self.evaluations // self.steps > (step - 1) * self.evaluations // self.steps
        )


class Task(Protocol):
    """What is trained, on what, and how it is judged."""

    @property
    def name(self) -> str:
        """For people."""

    @property
    def recipe(self) -> Recipe:
        """How it is trained."""

    def facts(self) -> dict[str, Any]:
        """The whole configuration, as JSON has it."""

    def objective(self) -> nn.Module:
        """The model, newly initialised from the seed on the CPU. Its forward pass takes a batch by name, and gives the
        loss."""

    def batches(self, first: int, steps: int, device: torch.device) -> dict[str, Tensor]:
        """The batches of some steps, each tensor (step, batch, …), from nothing but the seed and the first step."""

    def evaluate(self, objective: nn.Module, *, final: bool) -> dict[str, Any]:
        """How good the model is, as JSON has it; the final evaluation may say more."""


@dataclass(frozen=True)
class Result:
    """A finished run: the trained objective, and what is in its result.json."""

    objective: nn.Module = field(repr=False)
    facts: dict[str, Any]


def generator(seed: int, step: int, device: torch.device | str = "cpu") -> torch.Generator:
    """Randomness for what begins at a step. No two seeds or steps share it."""
    return torch.Generator(device).manual_seed(random.Random(f"{seed} {step}").getrandbits(63))


def weighted(mean: Tensor, count: Tensor) -> Tensor:
    """A process's mean over what it counts in its share of a batch, so weighted that the mean of all processes is that
    over the whole batch."""
    if not distributed.is_initialized() or distributed.get_world_size() == 1:
        return mean
    all_counts = count.to(mean.dtype)
    distributed.all_reduce(all_counts)
    return mean * (count * distributed.get_world_size() / all_counts.clamp(min=1))


def train(
    task: Task,
    directory: str | Path,
    *,
    device: str | torch.device | None = None,
    save_every: float = 60.0,
    progress: bool | None = None,
) -> Result:
    """Trains, or goes on with, the run in a directory, and writes what came of it to result.json there.

    A checkpoint is written every so many seconds, and after the last step. metrics.jsonl has a line for each
    evaluation.
    """
    chosen = _chosen(device)
    current = torch.cuda.device(chosen) if chosen.type == "cuda" else nullcontext()
    with (
        current,
        _processes(chosen) as (rank, world),
        _alone(Path(directory), rank),
        _precision(task.recipe.precision, chosen),
    ):
        run = _Run(task, Path(directory), chosen, rank, world)
        return run.go(save_every, progress)


def trained(task: Task, directory: str | Path, *, device: str | torch.device | None = None) -> tuple[nn.Module, int]:
    """The objective of a run as its checkpoint has it, and after how many steps that was."""
    path = Path(directory) / CHECKPOINT
    saved, facts = load(path)
    objective = task.objective()
    restore(tensors_of(objective), saved, path)
    return objective.to(_chosen(device)), int(facts["step"])


def evaluated(task: Task, objective: nn.Module, *, final: bool) -> dict[str, Any]:
    """How good a model is, as the task judges it; without gradients, which take more memory than there may be."""
    with torch.no_grad():
        return task.evaluate(objective, final=final)


def _chosen(device: str | torch.device | None) -> torch.device:
    """The device that was asked for, or a GPU if there is one; of several, each process that torchrun starts has its
    own."""
    gpus = torch.cuda.device_count() if torch.cuda.is_available() else 0
    known = [torch.device("cpu"), *(torch.device("cuda", number) for number in range(gpus))]
    try:
        chosen = torch.device(device or ("cuda" if gpus else "cpu"))
    except RuntimeError:
        chosen = None
    if chosen == torch.device("cuda"):
        chosen = torch.device("cuda", int(os.environ["LOCAL_RANK"]) if distributed.is_torchelastic_launched() else 0)
    if chosen not in known:
        raise TrainingError(f"there is no device {str(device or chosen)!r}; devices: {listing(known)}")
    return chosen


class _Run:
    """One run, as one of its processes sees it."""

    def __init__(self, task: Task, directory: Path, device: torch.device, rank: int, world: int) -> None:
        self.task, self.directory, self.device, self.rank, self.world = task, directory, device, rank, world
        recipe = task.recipe
        if recipe.batch % world:
            raise TrainingError(f"a batch of {recipe.batch} cannot be shared by {world} processes; take a multiple")
        self.steps = recipe.steps
        self.objective = task.objective().to(device)
        self.rate = torch.zeros((), device=device)
        parameters = list(self.objective.parameters())
        self.optimizer: torch.optim.Optimizer
        if recipe.optimizer == "adam":
            on_gpu = device.type == "cuda"
            self.optimizer = torch.optim.Adam(parameters, lr=self.rate, capturable=on_gpu, fused=not on_gpu)
        else:
            self.optimizer = Adafactor(parameters, lr=self.rate)
        self.update = self.optimizer.step
        if device.type == "cuda" and find_spec("triton"):
            self.update = torch.compile(self.optimizer.step)
        self.forward: nn.Module = self.objective
        if world > 1:
            self.forward = nn.parallel.DistributedDataParallel(self.objective)
        self.inputs = {name: _room(tensor) for name, tensor in self._batches(0).items()}
        self.inputs["rate"] = torch.zeros(CHUNK, device=device)
        self.losses = torch.zeros(CHUNK, device=device)
        self.place = torch.zeros(1, dtype=torch.long, device=device)
        self.working = 0.0  # seconds that the steps have taken, without evaluations
        self.graph: torch.cuda.CUDAGraph | None = None

    @property
    def checkpoint(self) -> Path:
        return self.directory / CHECKPOINT

    def go(self, save_every: float, progress: bool | None) -> Result:
        """From where the run stands to its end."""
        start = {name: value.detach().clone() for name, value in tensors_of(self.objective).items()}
        self._prepare()
        tensors = tensors_of(self.objective, self.optimizer)
        with torch.no_grad():
            for name, tensor in tensors.items():
                if name in start:
                    tensor.copy_(start[name])
                else:
                    tensor.zero_()
        done, spent = self._resume(tensors)
        metrics = _Metrics(self.directory / "metrics.jsonl", done) if self.rank == 0 else None
        begun = saved = time.monotonic()
        shown = self.rank == 0 if progress is None else progress
        found: dict[str, Any] = {}
        with _reports(self.task.name, self.steps, done, shown) as report:
            while done < self.steps:
                number = min(CHUNK - done % CHUNK, self.steps - done)
                stops = [step for step in range(done + 1, done + number + 1) if self.task.recipe.is_evaluated(step)]
                loss = self._chunk(done, number, stops, metrics)
                done += number
                if not math.isfinite(loss):
                    raise TrainingError(f"the loss is {loss} after {done:,} steps; take a smaller learning rate")
                report(done, loss)
                if self.rank == 0 and (done == self.steps or time.monotonic() - saved >= save_every):
                    saved = time.monotonic()
                    save(self.checkpoint, tensors, self._facts(done, spent + saved - begun))
        seconds = time.monotonic() - begun
        if self.rank == 0:
            found = self._facts(done, spent + seconds) | {"steps_per_second": done / self.working}
            found["final"] = evaluated(self.task, self.objective, final=True)
            write(self.directory / "result.json", found)
        self.forward = self.objective  # the wrapper has to be gone before its process group
        return Result(self.objective, found)

    def _facts(self, done: int, seconds: float) -> dict[str, Any]:
        return {
            "task": self.task.facts(),
            "step": done,
            "seconds": seconds,
            "seconds_of_steps": self.working,
            "processes": self.world,
            "device": torch.cuda.get_device_name(self.device) if self.device.type == "cuda" else platform.machine(),
            "versions": {"python": platform.python_version(), "torch": torch.__version__},
        }

    def _resume(self, tensors: dict[str, Tensor]) -> tuple[int, float]:
        """The steps that were done before, and the seconds they took."""
        if not self.checkpoint.exists():
            return 0, 0.0
        saved, facts = load(self.checkpoint)
        before, now = facts["task"], json.loads(json.dumps(self.task.facts()))
        other = sorted(name for name in before if before[name] != now.get(name))
        if other:
            raise TrainingError(
                f"{str(self.directory)!r} holds a run with other settings ({', '.join(other)}); take another directory"
            )
        restore(tensors, saved, self.checkpoint)
        self.working = float(facts.get("seconds_of_steps", facts["seconds"]))  # older checkpoints have the one
        return int(facts["step"]), float(facts["seconds"])

    def _batches(self, first: int) -> dict[str, Tensor]:
        """This process's share of the batches of a chunk, whichever of its steps are wanted."""
        made = self.task.batches(first - first % CHUNK, CHUNK, self.device)
        return {name: tensor[:, self.rank :: self.world] for name, tensor in made.items()}

    def _prepare(self) -> None:
        """Makes the optimizer's state and, on a GPU, the graph. What the steps change is put back by the caller."""
        graphed = self.device.type == "cuda" and self.world == 1
        if not graphed:
            self._step()
            return
        stream = torch.cuda.Stream()
        stream.wait_stream(torch.cuda.current_stream())
        with torch.cuda.stream(stream):
            for _ in range(WARM_UP):
                self._step()
        torch.cuda.current_stream().wait_stream(stream)
        self.optimizer.zero_grad(set_to_none=True)
        self.place.zero_()
        self.graph = torch.cuda.CUDAGraph()
        with torch.cuda.graph(self.graph):
            self._step()

    def _step(self) -> None:
        batch = {name: tensor.index_select(0, self.place)[0] for name, tensor in self.inputs.items()}
        self.rate.copy_(batch.pop("rate"))
        self.optimizer.zero_grad(set_to_none=True)
        loss = self.forward(**batch)
        loss.backward()
        self.update()
        self.losses.index_copy_(0, self.place, loss.detach()[None])
        self.place += 1

    def _chunk(self, done: int, number: int, stops: list[int], metrics: _Metrics | None) -> float:
        """Some steps, with the evaluations among them; the mean loss."""
        entered = time.monotonic()
        start = done % CHUNK
        rates = [self.task.recipe.rate(step) for step in range(done - start, done - start + CHUNK)]
        for name, tensor in self._batches(done).items():
            self.inputs[name].copy_(tensor)
        self.inputs["rate"].copy_(torch.tensor(rates))
        self.place.fill_(start)
        for step in range(done + 1, done + number + 1):
            if self.graph is None:
                self._step()
            else:
                self.graph.replay()
            if step in stops and metrics is not None:
                loss = float(self.losses[start : start + step - done].mean())  # waits for the device
                self.working += time.monotonic() - entered
                metrics.add({"step": step, "loss": loss, **evaluated(self.task, self.objective, final=False)})
                entered = time.monotonic()
        loss = float(self.losses[start : start + number].mean())
        self.working += time.monotonic() - entered
        return loss


class _Metrics:
    """Lines of JSON, one an evaluation; those of steps after the checkpoint are dropped when a run goes on."""

    def __init__(self, path: Path, done: int) -> None:
        self.path = path
        kept = []
        for line in path.read_text().splitlines() if path.exists() else ():
            try:
                if json.loads(line)["step"] <= done:
                    kept.append(line)
            except (ValueError, KeyError):
                break  # the last line, if the run was killed while it was written
        with whole(path) as part:
            part.write_text("".join(f"{line}\n" for line in kept))

    def add(self, facts: Mapping[str, Any]) -> None:
        with self.path.open("a") as file:
            file.write(json.dumps(facts) + "\n")


def _room(tensor: Tensor) -> Tensor:
    return torch.empty_like(tensor, memory_format=torch.contiguous_format).copy_(tensor)


@contextmanager
def writing(directory: Path) -> Iterator[None]:
    """Says which directory it is that cannot be written."""
    try:
        yield
    except OSError as error:
        raise TrainingError(f"{str(directory)!r} cannot hold a run: {error}; take another directory") from None


def write(path: Path, facts: Mapping[str, Any]) -> None:
    """Writes JSON; a kill at any moment leaves the old file or the new one."""
    with whole(path) as part:
        part.write_text(json.dumps(facts, indent=2) + "\n")


@contextmanager
def _processes(device: torch.device) -> Iterator[tuple[int, int]]:
    """This process's number, and how many there are: those that torchrun has started, or one."""
    if not distributed.is_torchelastic_launched() or distributed.is_initialized():
        yield (distributed.get_rank(), distributed.get_world_size()) if distributed.is_initialized() else (0, 1)
        return
    distributed.init_process_group("nccl" if device.type == "cuda" else "gloo")
    try:
        yield distributed.get_rank(), distributed.get_world_size()
    finally:
        gc.collect()  # wrappers that outlive their group now and then abort the process as it ends
        distributed.destroy_process_group()


@contextmanager
def _alone(directory: Path, rank: int) -> Iterator[None]:
    """Makes the directory, and keeps other runs out of it. The lock goes when its process does, however that ends."""
    if rank:
        yield
        return
    with writing(directory):
        directory.mkdir(parents=True, exist_ok=True)
        lock = (directory / LOCK).open("w")
    with lock:
        if fcntl is not None:
            try:
                fcntl.lockf(lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
            except (BlockingIOError, PermissionError):
                raise TrainingError(
                    f"another process trains in {str(directory)!r}; wait until it ends, or take another directory"
                ) from None
            except OSError:
                pass  # a file system without locks
        yield


@contextmanager
def _precision(name: str, device: torch.device) -> Iterator[None]:
    """Matrix products of float32 in TF32, if that is asked for. (bfloat16 is the models' own work.)"""
    matmul = torch.backends.cuda.matmul
    before = matmul.fp32_precision
    with ExitStack() as stack:
        if device.type == "cuda":
            stack.callback(setattr, matmul, "fp32_precision", before)
            matmul.fp32_precision = "ieee" if name == "float32" else "tf32"
        yield


@contextmanager
def _reports(what: str, steps: int, done: int, shown: bool | None) -> Iterator[Callable[[int, float], None]]:
    """Yields what to call with the steps that are done and the loss: a bar on a terminal, otherwise (or where Rich is
    not installed) a line a minute."""
    if shown is False or (sys.stderr.isatty() and find_spec("rich")):
        with progress_bar(what, steps, shown) as advance:
            advance(done)
            last = done

            def step_bar(now: int, _: float) -> None:
                nonlocal last
                advance(now - last)
                last = now

            yield step_bar
        return
    begun = told = time.monotonic()

    def tell(now: int, loss: float) -> None:
        nonlocal told
        moment = time.monotonic()
        if moment - told >= REPORTED_EVERY or now == steps:
            told = moment
            speed = (now - done) / (moment - begun)
            left = (steps - now) / speed / 60
            line = f"{what}: step {now:,} of {steps:,}, loss {loss:.3g}, {speed:,.1f} steps/s, {left:,.0f} min left"
            print(line, file=sys.stderr, flush=True)  # noqa: T201

    yield tell
