"""`alta draw`: figures for papers and talks."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from alta.cli.app import (
    PICTURES,
    LayersOption,
    LengthOption,
    ProgramArgument,
    VariablesOption,
    app,
    chosen_names,
    numbers,
)
from alta.cli.source import Source
from alta.compiler.compile import compile
from alta.interpreter.run import run
from alta.interpreter.trace import Run
from alta.show import figures

if TYPE_CHECKING:
    from matplotlib.figure import Figure

pictures = typer.Typer(no_args_is_help=True, rich_markup_mode="rich")
app.add_typer(pictures, name="draw", rich_help_panel=PICTURES, help="Draw figures for papers and talks.")

OutputOption = Annotated[
    Path, typer.Option("--output", "-o", help="The file to write: NAME.svg, NAME.pdf or NAME.png. Needs matplotlib.")
]
InputArgument = Annotated[str, typer.Argument(metavar="INPUT", help="The input: tokens, with or without spaces.")]
ChosenLayersOption = Annotated[str | None, typer.Option("--layers", help="Only these layers (0 is the start): 0-2")]


@pictures.command(
    "trace",
    epilog="Examples: [bold]alta draw trace parity-absolute 101 --variables parity,done,parity_left -o trace.svg[/]; "
    "[bold]alta draw trace addition 95+7 --positions 0-2 --layers 0-2 -o trace.pdf[/]",
)
def draw_trace(
    program: ProgramArgument,
    text: InputArgument,
    output: OutputOption,
    max_layers: LayersOption = None,
    variables: VariablesOption = None,
    positions: Annotated[str | None, typer.Option(help="Only these positions: 0,3-5")] = None,
    layers: ChosenLayersOption = None,
) -> None:
    """Draw what each position knows after each sub-layer."""
    found = _run(program, text, max_layers)
    names = chosen_names(variables, found.trace.program.variables)
    places = numbers(positions, range(len(found.outputs)), "position")
    depths = numbers(layers, range(found.layers + 1), "layer")
    _save(figures.trace(found, variables=names, positions=places, layers=depths), output)


@pictures.command(
    "attention",
    epilog="Examples: [bold]alta draw attention addition 95+7 -o attention.svg[/]; "
    "[bold]alta draw attention scan 'jump twice' --heads word,top_symbol --layers 1-4 -o attention.pdf[/]",
)
def draw_attention(
    program: ProgramArgument,
    text: InputArgument,
    output: OutputOption,
    max_layers: LayersOption = None,
    heads: Annotated[str | None, typer.Option(help="Only these heads: a,b")] = None,
    layers: ChosenLayersOption = None,
) -> None:
    """Draw which positions each head reads, in each layer."""
    found = _run(program, text, max_layers)
    depths = numbers(layers, range(1, found.layers + 1), "layer")
    _save(figures.attention(found, heads=_names(heads), layers=depths), output)


@pictures.command(
    "weights",
    epilog="Examples: [bold]alta draw weights parity-relative -o weights.svg[/]; "
    "[bold]alta draw weights addition.safetensors --parts embeddings,carry_right,mlp -o weights.pdf[/]",
)
def draw_weights(
    program: ProgramArgument,
    output: OutputOption,
    parts: Annotated[str | None, typer.Option(help="Only these: embeddings, mlp, and names of heads: a,b")] = None,
    max_length: LengthOption = None,
) -> None:
    """Draw the matrices of a Transformer, with variables and their values as labels."""
    source = Source(program)
    model = source.model or compile(source.program, max_length=max_length)
    _save(figures.weights(model, parts=_names(parts)), output)


def _run(program: str, text: str, max_layers: int | None) -> Run:
    source = Source(program)
    return run(source.program, source.encode(text), source.layers(max_layers))


def _names(text: str | None) -> list[str] | None:
    return None if text is None else [name.strip() for name in text.split(",")]


def _save(figure: Figure, output: Path) -> None:
    figures.save(figure, output)
    print(f"wrote {output}, {output.stat().st_size:,} bytes")
