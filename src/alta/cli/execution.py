"""`alta run` and `alta generate`: a program in the interpreter and as a Transformer, which have to agree."""

from __future__ import annotations

from typing import Annotated, Any

import typer

from alta.analysis.agreement import compare
from alta.cli.app import (
    RUNNING,
    JsonOption,
    LayersOption,
    ProgramArgument,
    VariablesOption,
    app,
    chosen_names,
    colored,
    numbers,
    plain,
    print_json,
    terminal_width,
)
from alta.cli.programs import rule_data
from alta.cli.source import Source
from alta.compiler.compile import compile
from alta.errors import CompileError, VerificationError
from alta.interpreter.run import generate, run
from alta.interpreter.trace import Run, State
from alta.language.program import Token
from alta.language.variables import format_value
from alta.model.forward import Model

MOST_LINES = 400
"""A longer trace is printed only when asked for."""

ModelOption = Annotated[bool, typer.Option(help="Also run the program as a Transformer, and compare.")]


@app.command(
    "run",
    rich_help_panel=RUNNING,
    epilog="Examples: [bold]alta run addition 95+7[/]; [bold]alta run scan 'jump twice' --layers 1-3[/]; "
    "[bold]alta run my.safetensors '1 0 1'[/]",
)
def run_program(
    program: ProgramArgument,
    text: Annotated[str, typer.Argument(metavar="INPUT", help="The input: tokens, with or without spaces.")],
    max_layers: LayersOption = None,
    trace: Annotated[bool | None, typer.Option(help="Print the trace. By default, if it is short.")] = None,
    variables: VariablesOption = None,
    positions: Annotated[str | None, typer.Option(help="Only these positions of the trace: 0,3-5")] = None,
    layers: Annotated[str | None, typer.Option(help="Only these layers of the trace (0 is the start): 0-2")] = None,
    model: ModelOption = True,
    as_json: JsonOption = False,
) -> None:
    """Run a program on one input, in the interpreter and as a Transformer.

    They have to agree in every state. Print the trace, the outputs and the number of layers.
    """
    source = Source(program)
    inputs = source.encode(text)
    most = source.layers(max_layers)
    transformer = _transformer(source, len(inputs)) if model else "not asked for"
    if isinstance(transformer, Model):
        result = compare(transformer, inputs, max_layers=most)
    else:
        result = run(source.program, inputs, most)
    decoded = source.decode(result.outputs)
    if as_json:
        _print_run(result, decoded, transformer, trace is True)
        return
    chosen = {
        "variables": chosen_names(variables, source.program.variables),
        "positions": numbers(positions, range(len(result.outputs)), "position"),
        "layers": numbers(layers, range(result.layers + 1), "layer"),
    }
    if trace is not False:
        table = result.trace.table(**chosen, width=terminal_width(), color=colored())  # type: ignore[arg-type]
        lines = table.count("\n") + 1
        if trace or lines <= MOST_LINES or any(choice is not None for choice in chosen.values()):
            print(table + "\n")
        else:
            print(f"(the trace has {lines:,} lines: choose with --variables, --positions, --layers, or give --trace)\n")
    print(f"outputs  {' '.join(map(format_value, result.outputs))}")
    if decoded is not None:
        print(f"decoded  {decoded}")
    print(f"layers   {result.layers}{', halted' if result.halted else ''}")
    if model:
        _print_agreement(transformer, f"the same state after each of {2 * result.layers} sub-layers")


@app.command(
    "generate",
    rich_help_panel=RUNNING,
    epilog="Examples: [bold]alta generate addition-decoder 95+7[/]; [bold]alta generate my.safetensors 'START 1 ='[/]",
)
def generate_tokens(
    program: ProgramArgument,
    prompt: Annotated[str, typer.Argument(metavar="PROMPT", help="The tokens to go on from.")],
    stop: Annotated[str | None, typer.Option(help="Stop after this token.")] = None,
    max_tokens: Annotated[int, typer.Option(min=1, help="Stop after so many tokens.")] = 100,
    max_layers: LayersOption = None,
    model: ModelOption = True,
    as_json: JsonOption = False,
) -> None:
    """Let a causal program write, token by token.

    That is done in the interpreter and as a Transformer, which have to agree.
    """
    source = Source(program)
    inputs = source.encode(prompt)
    end: Token | None = source.stop if stop is None else source.token(stop)
    most = source.layers(max_layers)
    result = generate(source.program, inputs, stop=end, max_tokens=max_tokens, max_layers=most)
    layers = [step.layers for step in result.runs]
    transformer = _transformer(source, len(inputs) + max_tokens) if model else "not asked for"
    if isinstance(transformer, Model):
        found = transformer.generate(inputs, stop=end, max_tokens=max_tokens, max_layers=most)
        if (found.tokens, [*found.layers]) != (result.tokens, layers):
            raise VerificationError(f"the program writes {result.tokens}, the model {found.tokens}")
    if as_json:
        written = {"prompt": result.prompt, "tokens": result.tokens, "stopped": result.stopped, "layers": layers}
        print_json({**written, "model": _model_data(transformer)})
        return
    print(f"prompt  {' '.join(map(str, result.prompt))}")
    print(f"tokens  {' '.join(map(str, result.tokens))}{'' if result.stopped else ' …'}")
    print(f"layers  {' '.join(map(str, layers))}")
    if model:
        _print_agreement(transformer, "the same tokens after as many layers")


def _transformer(source: Source, length: int) -> Model | str:
    """The model to run, or why there is none."""
    if source.model is not None:
        return source.model
    try:
        return compile(source.program, max_length=max(length, 1))
    except CompileError as error:
        return str(error)


def _print_agreement(transformer: Model | str, what: str) -> None:
    if isinstance(transformer, str):
        print(f"\nno Transformer in float32: {transformer}")
    else:
        print(f"\nthe Transformer agrees: {what}\n{transformer!r}")


def _model_data(transformer: Model | str) -> dict[str, Any]:
    if isinstance(transformer, str):
        return {"agrees": None, "reason": transformer}
    return {"agrees": True, "dims": transformer.weights.dim, "parameters": transformer.weights.parameters}


def _print_run(result: Run, decoded: str | None, transformer: Model | str, trace: bool) -> None:
    print_json(
        {
            "inputs": result.trace.inputs,
            "outputs": [plain(output) for output in result.outputs],
            "decoded": decoded,
            "layers": result.layers,
            "halted": result.halted,
            "model": _model_data(transformer),
            **({"trace": _trace_data(result)} if trace else {}),
        }
    )


def _trace_data(result: Run) -> dict[str, Any]:
    return {
        "states": [{"after": name, "positions": _state_data(state)} for name, state in result.trace.states],
        "fired": [[[rule_data(rule) for rule in fired] for fired in layer.fired] for layer in result.trace.layers],
    }


def _state_data(state: State) -> list[dict[str, Any]]:
    return [{name: plain(value) for name, value in assignment.items()} for assignment in state]
