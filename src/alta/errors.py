"""Every exception that alta raises on purpose::

    AltaError
    ├── ProgramError         a program is ill-formed; found while it is built
    │   ├── RuleError        a transition rule is malformed, or two rules conflict
    │   └── LoweringError    the MLP function cannot be turned into rules
    ├── CompileError         a program cannot be compiled to a Transformer that is exact
    ├── ModelFileError       a file is no model, or is damaged
    ├── VerificationError    a model does not do what its program does
    ├── InputError           an input does not fit the program
    ├── TrainingError        a run cannot be started, or cannot go on
    └── ExecutionError       a run had to stop; knows .layer, .position and .variable
        ├── TrapError        the MLP function raises, or writes outside a domain, on this state
        ├── UndefinedError   a rule had to read an UNDEFINED attention output
        └── EndlessError     the run came back to a state, so it would never halt

ProgramError, InputError and TrainingError are also ValueErrors, so that callers who do not know alta can catch them.
"""

from __future__ import annotations

from collections.abc import Iterable
from types import TracebackType


class AltaError(Exception):
    """The root of the tree.

    >>> try:
    ...     alta.run(program, ["2"])
    ... except alta.AltaError as error:
    ...     print(error)
    '2' at position 0 is not a token of this program; tokens: 0, 1, START
    """


class ProgramError(AltaError, ValueError):
    """A program is ill-formed.

    >>> alta.var(0)
    Traceback (most recent call last):
    alta.errors.ProgramError: the range of a variable is a whole number of values, 1 or more; got 0
    """


class RuleError(ProgramError):
    """A transition rule is malformed, or two rules conflict.

    >>> alta.Rule("done", 1, 1, (alta.Constraint("done", 1),))
    Traceback (most recent call last):
    alta.errors.RuleError: a rule for 'done' changes nothing: old and new are 1
    """


class LoweringError(ProgramError):
    """The MLP function cannot be turned into transition rules.

    >>> variables = {"x": alta.var(2)}
    >>> wrong = alta.program_spec(
    ...     variables=variables, heads={}, ffn_fn=lambda z: z["y"], output_name="x", input_range=2
    ... )
    >>> wrong.rules
    Traceback (most recent call last):
    alta.errors.LoweringError: the MLP function reads 'y', which is not a variable; variables: x
    """


class CompileError(AltaError):
    """A program cannot be compiled to a Transformer that is exact.

    >>> alta.compile(parity.by_sum(), dtype="bfloat16", max_length=20)  # doctest: +ELLIPSIS
    Traceback (most recent call last):
    alta.errors.CompileError: 'share' ...
    """


class ModelFileError(AltaError):
    """A file is no model, or is damaged.

    >>> alta.load("nothing.safetensors")
    Traceback (most recent call last):
    alta.errors.ModelFileError: there is no file 'nothing.safetensors'
    """


class VerificationError(AltaError):
    """A model does not do what its program does.

    >>> from dataclasses import replace
    >>> alta.verify(alta.Model(replace(model.weights, halt=None)))
    Traceback (most recent call last):
    alta.errors.VerificationError: there is a halting read-out too many or too few
    """


class InputError(AltaError, ValueError):
    """An input does not fit the program.

    >>> alta.run(parity.by_sum(), ["START", "1"])
    Traceback (most recent call last):
    alta.errors.InputError: this program has no halting condition, so it needs max_layers
    """


class TrainingError(AltaError, ValueError):
    """A training run cannot be started, or cannot go on from what is in its directory."""


class ExecutionError(AltaError):
    """A run had to stop.

    >>> try:
    ...     alta.run(program, ["1", "0"])
    ... except alta.ExecutionError as error:
    ...     print(error.layer, error.position, error.variable)
    1 0 done_left
    """

    def __init__(self, reason: str, layer: int, position: int | None = None, variable: str | None = None) -> None:
        super().__init__(reason, layer, position, variable)
        self.reason = reason
        self.layer = layer
        self.position = position
        self.variable = variable

    def __str__(self) -> str:
        where = f"layer {self.layer}" if self.position is None else f"layer {self.layer}, position {self.position}"
        return f"{where}: {self.reason}"


class TrapError(ExecutionError):
    """The run reached a state on which the MLP function raises, or writes outside a domain.

    >>> def count(z):
    ...     z["n"] += 1
    >>> counting = alta.program_spec(
    ...     variables={"n": alta.var(3)}, heads={}, ffn_fn=count, output_name="n", input_range=1
    ... )
    >>> alta.run(counting, [0], max_layers=3)  # doctest: +ELLIPSIS
    Traceback (most recent call last):
    alta.errors.TrapError: layer 3, position 0: the MLP traps where n=2: 'n' is set out of its domain: 3 ...
    """


class UndefinedError(ExecutionError):
    """The run reached a state in which a rule reads an UNDEFINED attention output.

    >>> alta.run(program, ["1", "0"])  # doctest: +ELLIPSIS
    Traceback (most recent call last):
    alta.errors.UndefinedError: layer 1, position 0: the MLP reads 'done_left', which is UNDEFINED: ...
    """


class EndlessError(ExecutionError):
    """The run came back to a state that it had been in, so it would never halt.

    >>> variables, halt = {"x": alta.var(2)}, alta.halt_spec("x", 1)
    >>> idle = alta.program_spec(variables=variables, heads={}, rules=(), output_name="x", input_range=1, halt=halt)
    >>> alta.run(idle, [0])
    Traceback (most recent call last):
    alta.errors.EndlessError: layer 1: the state is one that the run has been in before, so it never halts
    """


class Problems:
    """Independent checks of one thing. What goes wrong inside `with problems:` is kept, so that the next check is made
    too; `end` raises the first of the problems, with the others as its notes."""

    def __init__(self) -> None:
        self.found: list[ProgramError] = []

    def __enter__(self) -> Problems:
        return self

    def __exit__(
        self, _: type[BaseException] | None, error: BaseException | None, traceback: TracebackType | None
    ) -> bool:
        if not isinstance(error, ProgramError):
            return False
        self.found.append(error)
        return True

    def end(self) -> None:
        """Raises what was found."""
        if self.found:
            first, *others = self.found
            for other in others:
                first.add_note(str(other))
            raise first


def listing(names: Iterable[object]) -> str:
    """The names, comma-separated: the 'what was allowed' part of a message."""
    return ", ".join(map(str, names)) or "none"


def amount(number: int, noun: str) -> str:
    """One rule, two rules."""
    return f"{number:,} {noun}{'' if number == 1 else 's'}"
