"""Every exception that alta raises on purpose.

    AltaError
    ├── ProgramError         a program is ill-formed; found while it is built
    │   ├── RuleError        a transition rule is malformed, or two rules conflict
    │   └── LoweringError    the MLP function cannot be turned into rules
    ├── CompileError         a program cannot be compiled to a Transformer that is exact
    ├── ModelFileError       a file is no model, or is damaged
    ├── VerificationError    a model does not do what its program does
    ├── InputError           an input does not fit the program
    └── ExecutionError       a run had to stop; knows .layer, .position and .variable
        ├── TrapError        the MLP function raises, or writes outside a domain, on this state
        ├── UndefinedError   a rule had to read an UNDEFINED attention output
        └── EndlessError     the run came back to a state, so it would never halt

ProgramError and InputError are also ValueErrors, so that callers who do not know alta can catch them.
"""

from __future__ import annotations

from collections.abc import Iterable
from types import TracebackType


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
