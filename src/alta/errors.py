"""Every exception that alta raises on purpose.

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


class AltaError(Exception):
    """The root of the tree."""


class ProgramError(AltaError, ValueError):
    """A program is ill-formed."""


class RuleError(ProgramError):
    """A transition rule is malformed, or two rules conflict."""


class LoweringError(ProgramError):
    """The MLP function cannot be turned into transition rules."""


class CompileError(AltaError):
    """A program cannot be compiled to a Transformer that is exact."""


class ModelFileError(AltaError):
    """A file is no model, or is damaged."""


class VerificationError(AltaError):
    """A model does not do what its program does."""


class InputError(AltaError, ValueError):
    """An input does not fit the program."""


class TrainingError(AltaError, ValueError):
    """A training run cannot be started, or cannot go on from what is in its directory."""


class ExecutionError(AltaError):
    """A run had to stop."""

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
    """The run reached a state on which the MLP function raises, or writes outside a domain."""


class UndefinedError(ExecutionError):
    """The run reached a state in which a rule reads an UNDEFINED attention output."""


class EndlessError(ExecutionError):
    """The run came back to a state that it had been in, so it would never halt."""


def listing(names: Iterable[object]) -> str:
    """The names, comma-separated: the 'what was allowed' part of a message."""
    return ", ".join(map(str, names)) or "none"
