"""Whether a model does what its program does: by proof from its weights, and side by side on inputs."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence, Sized
from concurrent.futures import Executor
from dataclasses import replace
from fractions import Fraction
from functools import partial
from typing import Any, Protocol

import numpy as np

from alta.analysis.certificate import Certificate, certify
from alta.analysis.means import displacement, holdings, rounding_of_mean
from alta.compiler.compile import encode
from alta.compiler.encoding import Encoding
from alta.compiler.precision import Precision, precision_of
from alta.errors import VerificationError
from alta.interpreter.run import run
from alta.interpreter.trace import Assignment, Run
from alta.language.program import Program, Token
from alta.language.record import from_data
from alta.language.variables import UNDEFINED, format_value
from alta.model.result import ModelRun
from alta.model.weights import Weights
from alta.parallel import map_chunks, progress_bar

CHUNK = 16
"""Inputs that are compared at a time."""


class Runnable(Protocol):
    """A model, in NumPy or torch."""

    @property
    def weights(self) -> Weights: ...

    def run(self, inputs: Iterable[Token], max_layers: int | None = None, *, residual: bool = False) -> ModelRun: ...


def verify(
    model: Runnable,
    inputs: Iterable[Sequence[Token]] | None = None,
    *,
    max_layers: int | None = None,
    executor: Executor | None = None,
    progress: bool | None = None,
) -> Certificate:
    """A certificate that the model agrees with its program, or VerificationError, which says where it does not.

    With `inputs`, interpreter and model are also run side by side on each of them, and the states compared after every
    sub-layer; an executor spreads that over its workers. A bar on the terminal shows how far it is, unless `progress`
    is False.

    >>> print(alta.verify(model, [["START", "1", "1"]]))
    certified: the model does what its program does, on every input of any length that meets no trap,
    in float32 and wider formats
      7 rules in 7 units, 2 heads; slack 0.496
      and side by side on 1 input: the same state after every sub-layer
    """
    certificate = certify(model.weights)
    if inputs is None:
        return certificate
    compared = 0
    work = partial(_compare_all, model, max_layers=max_layers)
    total = len(inputs) if isinstance(inputs, Sized) else None
    with progress_bar("side by side", total, progress) as advance:
        for number, _ in map_chunks(work, inputs, size=CHUNK, executor=executor):
            compared += number
            advance(number)
    return replace(certificate, inputs=compared)


def _compare_all(model: Runnable, inputs: Sequence[Sequence[Token]], max_layers: int | None) -> None:
    for _ in _side_by_side(model, model.weights, inputs, max_layers):
        pass


def compare(model: Runnable, inputs: Sequence[Token], *, max_layers: int | None = None) -> Run:
    """Runs interpreter and model side by side, and returns what the interpreter gives; VerificationError names the
    first difference."""
    return next(_side_by_side(model, model.weights, [inputs], max_layers))


def _side_by_side(
    model: Runnable, weights: Weights, batch: Iterable[Sequence[Token]], max_layers: int | None
) -> Iterator[Run]:
    program = from_data(weights.program)
    precision = precision_of(weights.dtype)
    encoding = encode(program, precision)
    if not weights.shared:
        max_layers = len(weights.layers) if max_layers is None else min(max_layers, len(weights.layers))
    for inputs in batch:
        yield _compare(model, program, encoding, precision, inputs, max_layers)


def _compare(
    model: Runnable,
    program: Program,
    encoding: Encoding,
    precision: Precision,
    inputs: Sequence[Token],
    max_layers: int | None,
) -> Run:
    expected = run(program, inputs, max_layers)
    at_most = expected.layers + 1 if max_layers is None else max_layers  # a wrong model may never halt
    found = model.run(inputs, at_most, residual=True)
    for (name, state), residual in zip(expected.trace.states, found.residual, strict=False):
        stream = np.asarray(residual, np.float64)
        for position, assignment in enumerate(state):
            _compare_position(encoding, precision, assignment, stream[position], name, position, len(inputs))
    if (expected.layers, expected.halted) != (found.layers, found.halted):
        further = " or more" if found.layers == at_most and not found.halted else ""
        raise VerificationError(
            f"on {list(inputs)!r} the program runs {expected.layers} layers, halted: {expected.halted}; "
            f"the model {found.layers}{further}, halted: {found.halted}"
        )
    if expected.outputs != found.outputs:
        raise VerificationError(f"on {list(inputs)!r} the program gives {expected.outputs}, the model {found.outputs}")
    return expected


def _compare_position(
    encoding: Encoding,
    precision: Precision,
    assignment: Assignment,
    vector: Any,
    after: str,
    position: int,
    length: int,
) -> None:
    """All is exact but means, which are rounded: as much as the certificate allows for."""
    program = encoding.program
    loose = {name: value for name, value in assignment.items() if value is UNDEFINED or isinstance(value, Fraction)}
    exact = encoding.vector({name: value for name, value in assignment.items() if name not in loose})
    for name in loose:
        exact[encoding.layout.slices[name]] = vector[encoding.layout.slices[name]]
    for name, value in (loose if np.array_equal(vector, exact) else assignment).items():
        if value is UNDEFINED:
            continue
        part = encoding.layout.slices[name]
        if isinstance(value, Fraction):
            read = program.heads[name].value
            allowed = rounding_of_mean(holdings(program, read), value, length, precision.rounding)
            right = abs(Fraction(float(vector[part][0])) - value) <= allowed + displacement(encoding, read)
        else:
            right = np.array_equal(vector[part], exact[part])
        if not right:
            raise VerificationError(
                f"after {after}, position {position}: {name!r} is {format_value(value)} in the program, but the model "
                f"has {np.array2string(vector[part], precision=4, threshold=12)}"
            )
