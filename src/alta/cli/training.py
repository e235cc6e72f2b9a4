"""`alta train` and `alta evaluate`: Transformers that learn, from traces or end to end.

PyTorch is imported when a command runs, since the other commands do without it.
"""

from __future__ import annotations

import json
import os
from collections.abc import Hashable
from dataclasses import replace
from enum import StrEnum
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from alta.cli.app import DATA_HELP, LEARNING, JsonOption, LayersOption, ProgramArgument, app, print_json
from alta.cli.source import MODEL_SUFFIX, Source
from alta.errors import InputError, TrainingError
from alta.show.figures import accuracy, save

if TYPE_CHECKING:
    from alta.training.loop import Recipe, Result, Task

group = typer.Typer(
    no_args_is_help=True,
    help="Train an MLP on a program's traces, or a Transformer end to end. "
    "A run that was stopped goes on where it was.",
)
app.add_typer(group, name="train", rich_help_panel=LEARNING)

ARGUMENTS = "arguments.json"
"""The file in a run's directory that tells what was asked for."""


class Optimizer(StrEnum):
    """How parameters are updated."""

    ADAM = "adam"
    ADAFACTOR = "adafactor"


class Positions(StrEnum):
    """How an encoder knows positions."""

    RELATIVE = "relative"
    ABSOLUTE = "absolute"


class Precision(StrEnum):
    """How matrix products are taken."""

    FLOAT32 = "float32"
    TF32 = "tf32"
    BFLOAT16 = "bfloat16"


DirectoryOption = Annotated[Path, typer.Option("--output", "-o", help="The run's directory.")]
StepsOption = Annotated[int | None, typer.Option(min=1, help="Steps.")]
BatchOption = Annotated[int | None, typer.Option(min=1, help="Examples a step.")]
RateOption = Annotated[float | None, typer.Option("--learning-rate", help="The highest learning rate.")]
OptimizerOption = Annotated[Optimizer | None, typer.Option(help="How parameters are updated.")]
PrecisionOption = Annotated[
    Precision | None, typer.Option(help="How matrix products are taken; without a GPU, tf32 is float32.")
]
SeedOption = Annotated[int, typer.Option(help="The seed of everything random.")]
DeviceOption = Annotated[str | None, typer.Option(help="cpu, cuda or cuda:1; by default a GPU, if there is one.")]
DepthOption = Annotated[int, typer.Option(min=1, help="Layers.")]
SharedOption = Annotated[bool, typer.Option("--shared/--own", help="Whether layers share their weights.")]
PositionsOption = Annotated[Positions, typer.Option(help="How the encoder knows positions.")]
DimOption = Annotated[int | None, typer.Option(min=2, help="The width of the residual stream.")]
HiddenOption = Annotated[int | None, typer.Option(min=1, help="The width of the MLP's hidden layers.")]
HeadsOption = Annotated[int | None, typer.Option(min=1, help="Heads.")]
HeadDimOption = Annotated[int | None, typer.Option(min=1, help="The width of a head.")]


@group.command("paper", epilog="Example: [bold]alta train paper trace-relative --seed 1 -o runs/relative-1[/]")
def train_paper(
    name: Annotated[
        str,
        typer.Argument(
            metavar="NAME",
            help="trace-PROGRAM, read-out-PROGRAM, parity-LAYERS-WAY-POSITIONS or scan-SPLIT-LAYERS-WAY-POSITIONS: "
            "PROGRAM is relative, absolute or sum-modulo, WAY is shared or own, POSITIONS is relative or absolute.",
        ),
    ],
    output: DirectoryOption,
    steps: StepsOption = None,
    seed: SeedOption = 0,
    device: DeviceOption = None,
    as_json: JsonOption = False,
) -> None:
    """A run of the paper's tables, with its settings."""
    _train({"command": "paper", "name": name, "steps": steps, "seed": seed}, output, device, as_json)


@group.command(
    "trace",
    epilog="Example: [bold]alta train trace addition --train sums.txt --test longer.txt --steps 20000 -o run[/]",
)
def train_trace(
    program: ProgramArgument,
    train: Annotated[str, typer.Option("--train", help=DATA_HELP)],
    test: Annotated[str, typer.Option("--test", help=DATA_HELP)],
    output: DirectoryOption,
    hidden_layers: Annotated[int, typer.Option(min=1, help="Hidden layers of the MLP.")] = 2,
    hidden: HiddenOption = None,
    mlp_activation: Annotated[str, typer.Option(help="relu, gelu or tanh; relu can be saved as a model.")] = "relu",
    noise: Annotated[float, typer.Option(min=0, help="The standard deviation of noise on MLP inputs.")] = 0.1,
    max_layers: LayersOption = None,
    steps: StepsOption = None,
    batch: BatchOption = None,
    learning_rate: RateOption = None,
    optimizer: OptimizerOption = None,
    precision: PrecisionOption = None,
    seed: SeedOption = 0,
    device: DeviceOption = None,
    as_json: JsonOption = False,
) -> None:
    """An MLP on the traces of any program, put into its compiled model in place of its own MLP."""
    arguments: dict[str, Any] = {"command": "trace", "program": program, "train": train, "test": test}
    arguments |= {
        "max_layers": max_layers,
        "hidden_layers": hidden_layers,
        "hidden": hidden or 128,
        "activation": mlp_activation,
        "noise": noise,
    }
    settings = _settings(steps, batch, learning_rate, optimizer, precision, seed)
    _train({**arguments, "recipe": settings}, output, device, as_json)


@group.command(
    "parity", epilog="Example: [bold]alta train parity --layers 8 --shared --trained 20 --tested 40 -o run[/]"
)
def train_parity(
    output: DirectoryOption,
    layers: DepthOption = 8,
    shared: SharedOption = False,
    positions: PositionsOption = Positions.RELATIVE,
    dim: DimOption = None,
    hidden: HiddenOption = None,
    heads: HeadsOption = None,
    head_dim: HeadDimOption = None,
    trained: Annotated[int, typer.Option(min=1, help="Train on up to so many bits.")] = 20,
    tested: Annotated[int, typer.Option(min=1, help="Test on up to so many bits.")] = 40,
    steps: StepsOption = None,
    batch: BatchOption = None,
    learning_rate: RateOption = None,
    optimizer: OptimizerOption = None,
    precision: PrecisionOption = None,
    seed: SeedOption = 0,
    device: DeviceOption = None,
    as_json: JsonOption = False,
) -> None:
    """A Transformer encoder on the parity of strings of bits."""
    size = _given(
        layers=layers, shared=shared, positions=positions, dim=dim, hidden=hidden, heads=heads, head_dim=head_dim
    )
    settings = _settings(steps, batch, learning_rate, optimizer, precision, seed)
    _train(
        {"command": "parity", "size": size, "trained": trained, "tested": tested, "recipe": settings},
        output,
        device,
        as_json,
    )


@group.command("scan", epilog="Example: [bold]alta train scan mcd1 --layers 2 -o run[/]")
def train_scan(
    split: Annotated[str, typer.Argument(metavar="SPLIT", help="length, mcd1, mcd2, mcd3, simple, …")],
    output: DirectoryOption,
    layers: DepthOption = 2,
    shared: SharedOption = False,
    positions: PositionsOption = Positions.RELATIVE,
    dim: DimOption = None,
    hidden: HiddenOption = None,
    heads: HeadsOption = None,
    head_dim: HeadDimOption = None,
    steps: StepsOption = None,
    batch: BatchOption = None,
    learning_rate: RateOption = None,
    optimizer: OptimizerOption = None,
    precision: PrecisionOption = None,
    seed: SeedOption = 0,
    device: DeviceOption = None,
    as_json: JsonOption = False,
) -> None:
    """An encoder-decoder on SCAN."""
    size = _given(
        layers=layers, shared=shared, positions=positions, dim=dim, hidden=hidden, heads=heads, head_dim=head_dim
    )
    settings = _settings(steps, batch, learning_rate, optimizer, precision, seed)
    _train({"command": "scan", "split": split, "size": size, "recipe": settings}, output, device, as_json)


@app.command(
    "evaluate",
    rich_help_panel=LEARNING,
    epilog="Examples: [bold]alta evaluate runs/relative-1[/]; [bold]alta evaluate run -o model.safetensors[/]; "
    "[bold]alta evaluate run --plot run.svg[/]",
)
def evaluate(
    directory: Annotated[Path, typer.Argument(metavar="DIRECTORY", help="Of a run of alta train.")],
    output: Annotated[
        Path | None,
        typer.Option("--output", "-o", help=f"Of trace supervision: save the model, as NAME{MODEL_SUFFIX}."),
    ] = None,
    plot: Annotated[Path | None, typer.Option(help="Draw accuracy by group to this file. Needs matplotlib.")] = None,
    device: DeviceOption = None,
    as_json: JsonOption = False,
) -> None:
    """Tell what a run has learned so far: on the whole test set, by length and by number of ones."""
    _need_torch()
    from alta.training.learned import TraceLoss, TraceTask
    from alta.training.loop import evaluated, trained

    task = _task(_read(directory))
    objective, step = trained(task, directory, device=device)
    if output is not None:
        if not isinstance(task, TraceTask) or not isinstance(objective, TraceLoss):
            raise InputError("only a run of trace supervision is a model with a program; leave -o out")
        task.model(objective).save(output)
    found = evaluated(task, objective, final=True)
    if plot is not None:
        save(accuracy({task.name: {by: {"trained": groups} for by, groups in _groups(found).items()}}), plot)
    if as_json:
        print_json({"step": step, **found})
    else:
        print(f"after {step:,} of {task.recipe.steps:,} steps")
        _print_report(found)


def _train(arguments: dict[str, Any], directory: Path, device: str | None, as_json: bool) -> None:
    _need_torch()
    from alta.training.loop import train, write, writing

    written = directory / ARGUMENTS
    if written.exists() and _read(directory) != json.loads(json.dumps(arguments)):
        raise TrainingError(f"{str(directory)!r} holds a run with other settings; take another directory")
    task = _task(arguments)
    is_first = os.environ.get("RANK", "0") == "0"  # torchrun gives its processes numbers
    if is_first and not written.exists():
        with writing(directory):
            directory.mkdir(parents=True, exist_ok=True)
            write(written, arguments)
    result: Result = train(task, directory, device=device)
    if not is_first:
        return
    if as_json:
        print_json(result.facts)
    else:
        _print_report(result.facts["final"])


def _task(arguments: dict[str, Any]) -> Task:
    """The run that was asked for."""
    from alta import recipes
    from alta.training.loop import Recipe

    settings = arguments.get("recipe", {})
    match arguments["command"]:
        case "paper":
            return recipes.named(arguments["name"], seed=arguments["seed"], steps=arguments["steps"])
        case "trace":
            return _trace_task(
                arguments, replace(Recipe(20_000, 256, 1e-3, "adam", warmup=100, decay=0.01), **settings)
            )
        case "parity":
            return recipes.parity_run(
                arguments["size"], settings, trained=arguments["trained"], tested=arguments["tested"]
            )
        case _:
            return recipes.scan_run(arguments["split"], arguments["size"], settings)


def _trace_task(arguments: dict[str, Any], recipe: Recipe) -> Task:
    from alta.training.learned import HeldOut, Shape, TraceTask
    from alta.training.traces import trace_dataset

    source = Source(arguments["program"])
    most = source.layers(arguments["max_layers"])
    traces = trace_dataset(source.program, source.data(arguments["train"]), most)
    test = HeldOut.of(source.program, source.data(arguments["test"]), most)
    shape = Shape(arguments["hidden_layers"], arguments["hidden"], arguments["activation"])
    limit = test.layers + 1 if most is None else most  # what has learned to halt wrongly may never halt
    return TraceTask(source.name, recipe, shape, source.program, traces, test, limit, arguments["noise"])


def _read(directory: Path) -> dict[str, Any]:
    try:
        found: dict[str, Any] = json.loads((directory / ARGUMENTS).read_text())
    except (OSError, ValueError) as error:
        raise InputError(f"{str(directory)!r} is no directory of `alta train`: {error}") from None
    return found


def _settings(
    steps: int | None,
    batch: int | None,
    learning_rate: float | None,
    optimizer: Optimizer | None,
    precision: Precision | None,
    seed: int,
) -> dict[str, Any]:
    return _given(
        steps=steps, batch=batch, learning_rate=learning_rate, optimizer=optimizer, precision=precision, seed=seed
    )


def _given(**options: Any) -> dict[str, Any]:
    """The options that were given."""
    return {name: value for name, value in options.items() if value is not None}


def _need_torch() -> None:
    try:
        import torch  # noqa: F401
    except ModuleNotFoundError:
        raise InputError("training needs PyTorch: pip install 'alta[torch]'") from None


def _print_report(found: dict[str, Any]) -> None:
    for name, share in found["accuracy"].items():
        print(f"{name:16}  {share:7.1%}")
    for title, groups in _groups(found).items():
        print(f"\n{title:>16}  {'inputs':>7}  {'right':>7}")
        for number, (right, inputs) in groups.items():
            print(f"{number:>16}  {inputs:7,}  {right / inputs:7.1%}")


def _groups(found: dict[str, Any]) -> dict[str, dict[Hashable, tuple[int, int]]]:
    """The parts of a report that count what is right by group."""
    return {title: groups for title, groups in found.items() if title.startswith("by ") or title.endswith("by length")}
