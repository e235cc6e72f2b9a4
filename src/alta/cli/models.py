"""`alta compile` and `alta verify`: Transformers as files, and the proof that they do what their programs do."""

from __future__ import annotations

from dataclasses import asdict
from pathlib import Path
from typing import Annotated

import typer

from alta.analysis.agreement import verify
from alta.cli.app import (
    DATA_HELP,
    TRANSFORMERS,
    DtypeOption,
    JsonOption,
    LayersOption,
    LengthOption,
    ProgramArgument,
    app,
    print_json,
)
from alta.cli.completion import complete_data
from alta.cli.source import MODEL_SUFFIX, Source
from alta.compiler.compile import compile
from alta.errors import InputError
from alta.language.program import Program
from alta.language.variables import Numerical

ActivationOption = Annotated[str, typer.Option(help="Of the MLP: clipped (to between 0 and 1) or relu.")]


@app.command(
    "compile",
    rich_help_panel=TRANSFORMERS,
    epilog="Examples: [bold]alta compile addition -o addition.safetensors[/]; "
    "[bold]alta compile parity-sum --max-length 64 -o sum.safetensors[/]",
)
def compile_program(
    program: ProgramArgument,
    output: Annotated[Path, typer.Option("--output", "-o", help=f"The file to write: NAME{MODEL_SUFFIX}")],
    dtype: DtypeOption = "float32",
    max_length: LengthOption = None,
    activation: ActivationOption = "clipped",
    layers: Annotated[int | None, typer.Option(min=1, help="Unroll to so many layers of their own.")] = None,
    as_json: JsonOption = False,
) -> None:
    """Compile a program to a Transformer, and save it with everything it needs in one file."""
    if output.suffix != MODEL_SUFFIX:
        raise InputError(f"a model is saved as NAME{MODEL_SUFFIX}; got {str(output)!r}")
    source = Source(program)
    model = compile(source.program, dtype=dtype, max_length=max_length, activation=activation, layers=layers)
    model.save(output)
    size = output.stat().st_size
    if as_json:
        weights = model.weights
        shape = {"dims": weights.dim, "heads": len(weights.layers[0].heads), "parameters": weights.parameters}
        print_json({"file": str(output), "bytes": size, **shape, "max_length": weights.max_length, "dtype": dtype})
        return
    print(
        f"{model!r}\nsaved to {output}, {size:,} bytes; alta verify {output} proves that it does what its program does"
    )


@app.command(
    "verify",
    rich_help_panel=TRANSFORMERS,
    epilog="Examples: [bold]alta verify addition[/]; [bold]alta verify my.safetensors --inputs inputs.txt[/]",
)
def verify_model(
    program: ProgramArgument,
    inputs: Annotated[
        str | None, typer.Option(help="Also run side by side on these. " + DATA_HELP, autocompletion=complete_data)
    ] = None,
    max_layers: LayersOption = None,
    dtype: DtypeOption = "float32",
    max_length: LengthOption = None,
    activation: ActivationOption = "clipped",
    as_json: JsonOption = False,
) -> None:
    """Prove, from its weights, that a Transformer does what its program does.

    A saved model is taken as it is, a program as it is compiled with the options.
    """
    source = Source(program)
    given = [] if inputs is None else source.data(inputs)
    model = source.model
    if model is None:
        if max_length is None and _has_means(source.program):
            max_length = max(map(len, given), default=None)
        model = compile(source.program, dtype=dtype, max_length=max_length, activation=activation)
    certificate = verify(model, given or None, max_layers=source.layers(max_layers))
    if as_json:
        print_json(asdict(certificate))
    else:
        print(certificate)


def _has_means(program: Program) -> bool:
    return any(isinstance(program.variables[name].domain, Numerical) for name in program.heads)
