"""A program to a model, stage by stage."""

from __future__ import annotations

from alta.compiler.attention import check_sharpness, compile_head
from alta.compiler.embeddings import position_embeddings, token_embeddings
from alta.compiler.encoding import Encoding
from alta.compiler.layout import lay_out
from alta.compiler.mlp import compile_mlp
from alta.compiler.precision import Precision, grid_for, precision_of
from alta.compiler.thresholds import held
from alta.errors import CompileError
from alta.language.program import Program
from alta.language.record import to_data
from alta.language.variables import Numerical
from alta.model.forward import Model
from alta.model.weights import Layer, Sparse, Weights


def compile(
    program: Program,
    *,
    dtype: str = "float32",
    max_length: int | None = None,
    activation: str = "clipped",
    layers: int | None = None,
    sharpness: float = 100.0,
) -> Model:
    """The Transformer that runs the program: for every input without a trap, the same outputs, layers and halting.

    It is exact in `dtype` ("float64", "float32", "bfloat16") and in every wider format, or CompileError says why it
    cannot be. Programs that take means need to know the longest input: it is the program's position_range, or
    `max_length`.

    `activation` is that of the MLP: "clipped" to between 0 and 1, as in the paper, or plain "relu". The layers share
    their weights, and run until the program halts; with `layers=k` the model is unrolled to k layers of its own.

    >>> alta.compile(program)
    <model: 9 dims, 2 heads, MLP 7 wide, 59 parameters, float32>
    >>> alta.compile(program, activation="relu", layers=4)
    <model: 4 layers, 9 dims, 2 heads, MLP 14 wide, 90 parameters, float32>
    """
    precision = precision_of(dtype)
    check_sharpness(sharpness, precision)
    _check_count("max_length", max_length)
    _check_count("layers", layers)
    encoding = encode(program, precision)
    layout = encoding.layout
    lengths = [length for length in (program.positions, max_length) if length is not None]
    part = layout.slices[program.output]
    read_out = dict.fromkeys(enumerate(range(part.start, part.stop)), 1.0)
    layer = Layer(
        heads=tuple(compile_head(program, head, layout, sharpness) for head in program.heads.values()),
        mlp=compile_mlp(encoding, precision, max_length, activation),
    )
    weights = Weights(
        tokens=token_embeddings(encoding),
        positions=position_embeddings(encoding),
        layers=(layer,) * (1 if layers is None else layers),
        shared=layers is None,
        activation=activation,
        output=Sparse.of((part.stop - part.start, layout.dim), read_out),
        halt=_halting(encoding),
        vocabulary=program.tokens,
        output_values=_output_values(encoding, precision),
        max_length=min(lengths, default=None),
        causal=program.causal,
        dtype=dtype,
        program=to_data(program),
    )
    return Model(weights)


def encode(program: Program, precision: Precision) -> Encoding:
    """How assignments of the program become vectors in a number format."""
    grids = {}
    for name, variable in program.variables.items():
        if isinstance(variable.domain, Numerical):
            grids[name] = grid_for(name, variable.domain.values or held(program, name), precision)
    return Encoding(program, lay_out(program), grids)


def _check_count(name: str, number: int | None) -> None:
    if number is not None and (isinstance(number, bool) or not isinstance(number, int) or number < 1):
        raise CompileError(f"{name} is a whole number, 1 or more; got {number!r}")


def _output_values(encoding: Encoding, precision: Precision) -> tuple[float, ...] | None:
    """What a numerical output is read out as: the nearest of the values that the variable can hold."""
    program = encoding.program
    name = program.output
    if not isinstance(program.variables[name].domain, Numerical):
        return None
    values = held(program, name)
    for value in values:
        placed = encoding.number(name, value)
        nearest = min(values, key=lambda other: abs(other - placed))
        if nearest != value:
            raise CompileError(
                f"the output {name!r} can be {value:.9g} and {nearest:.9g}, which are too close to tell apart in "
                f"{precision.name}; use a wider dtype"
            )
    return tuple(values)


def _halting(encoding: Encoding) -> Sparse | None:
    halt = encoding.program.halt
    if halt is None:
        return None
    entries = {(0, place): number for place, number in encoding.entries(halt.variable, halt.value).items()}
    return Sparse.of((1, encoding.layout.dim), entries)
