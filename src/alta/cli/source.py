"""What a command is given: a program, a model, and inputs."""

from __future__ import annotations

import importlib.util
import json
import sys
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from functools import cached_property
from pathlib import Path
from traceback import walk_tb
from types import ModuleType
from typing import Any

from alta.errors import AltaError, InputError, ProgramError, listing
from alta.language.program import Program, Token
from alta.language.record import from_data
from alta.model.forward import Model, load
from alta.programs import BUNDLED, Bundled, scan_data

MODEL_SUFFIX = ".safetensors"
PROGRAM_SUFFIX = ".json"


class Source:
    """A program as named on the command line, with how to read inputs and show outputs. A saved model holds one too."""

    def __init__(self, name: str) -> None:
        self.name = name
        self.model: Model | None = None
        self._bundled = BUNDLED.get(name)
        if name.endswith(MODEL_SUFFIX):
            self.model = load(name)
            self.program = from_data(self.model.weights.program)
            self._bundled = _twin(self.program)
        elif name.endswith(PROGRAM_SUFFIX):
            self.program = _read_program(Path(name))
            self._bundled = _twin(self.program)
        else:
            self.program = self._bundled.build() if self._bundled else _load(name)

    @cached_property
    def stop(self) -> Token | None:
        """The token with which a causal program ends what it writes."""
        return self._bundled.stop if self._bundled else None

    @cached_property
    def max_layers(self) -> int | None:
        """For how many layers a program without a halting condition is meant to run."""
        return self._bundled.max_layers if self._bundled else None

    def encode(self, text: str) -> Sequence[Token]:
        """The tokens of an input."""
        return self._bundled.encode(text) if self._bundled else self.tokens(text)

    def decode(self, outputs: Sequence[Any]) -> str | None:
        """What the outputs say, where that is known."""
        return self._bundled.decode(outputs) if self._bundled and not self.program.causal else None

    def token(self, text: str) -> Token:
        """The token of that name."""
        for token in self.program.tokens:
            if str(token) == text:
                return token
        raise InputError(f"{text!r} is not a token of this program; tokens: {self.program.describe_tokens()}")

    def tokens(self, text: str) -> list[Token]:
        """The tokens in a text: separated by spaces or commas, or else one a character."""
        known: dict[str, Token] = {str(token): token for token in self.program.tokens}
        if text in known:
            return [known[text]]
        words = text.replace(",", " ").split() if "," not in known else text.split()
        hint = ""
        if len(words) == 1 and words[0] not in known:
            words = list(words[0])
            hint = "; put spaces between tokens" if any(len(name) > 1 for name in known) else ""
        for word in words:
            if word not in known:
                tokens = self.program.describe_tokens()
                raise InputError(f"{word!r} is not a token of this program; tokens: {tokens}{hint}")
        return [known[word] for word in words]

    def inputs(self, path: str) -> list[Sequence[Token]]:
        """The inputs in a file: one a line, as typed on the command line or, in a .jsonl file, as JSON: a text, or a
        list of tokens. `-` is the standard input."""
        return list(self._read(path))

    def data(self, name: str) -> list[Sequence[Token]]:
        """The inputs in a file, or in a part of a SCAN split: `length:train`."""
        split, _, part = name.partition(":")
        if split in scan_data.splits() and self._bundled in (BUNDLED["scan"], BUNDLED["scan-parser"]):
            return [self.encode(example.command) for example in scan_data.split(split, part)]
        return self.inputs(name)

    def layers(self, max_layers: int | None) -> int | None:
        """What was asked for, or else what the program is meant to run."""
        return self.max_layers if max_layers is None else max_layers

    def _read(self, path: str) -> Iterator[Sequence[Token]]:
        try:
            text = sys.stdin.read() if path == "-" else Path(path).read_text()
        except (OSError, UnicodeDecodeError) as error:
            raise InputError(f"{path!r} cannot be read: {error}") from None
        for number, line in enumerate(text.splitlines(), start=1):
            if not line.strip():
                continue
            try:
                given = json.loads(line) if path.endswith(".jsonl") else line
                if not isinstance(given, str | list):
                    raise InputError(f"an input is a text or a list of tokens; got {given!r}")
                tokens = self.encode(given) if isinstance(given, str) else given
                self.program.encode(tokens)
            except ValueError as error:
                raise InputError(f"line {number} of {path}: {error}") from None
            yield tokens


def _twin(program: Program) -> Bundled | None:
    """The bundled program that a saved one is, or is the minimal version of, so that it is typed and read in the same
    way."""
    parts = ("tokens", "heads", "output", "halt", "causal")
    for bundled in BUNDLED.values():
        known = bundled.build()
        domains = [{name: v.domain for name, v in one.variables.items()} for one in (known, program)]
        if domains[0] == domains[1] and all(getattr(known, part) == getattr(program, part) for part in parts):
            return bundled
    return None


def _read_program(path: Path) -> Program:
    try:
        return from_data(json.loads(path.read_text()))
    except (OSError, KeyError, TypeError, IndexError, ValueError, AttributeError) as error:
        if isinstance(error, ProgramError):
            raise
        raise ProgramError(f"{str(path)!r} is no program that can be read: {error}") from None


def _load(name: str) -> Program:
    path, _, attribute = name.rpartition(":") if ":" in name else (name, "", "")
    if not path.endswith(".py"):
        raise ProgramError(
            f"{name!r} is no bundled program, nor path/to/file.py:name, program{PROGRAM_SUFFIX} or "
            f"model{MODEL_SUFFIX}; bundled: {listing(BUNDLED)}"
        )
    if not Path(path).is_file():
        raise ProgramError(f"there is no file {path!r}")
    with _located(Path(path)):
        return _built(Path(path), attribute)


def _built(path: Path, attribute: str) -> Program:
    module = _import(path)
    programs = [known for known, value in vars(module).items() if isinstance(value, Program)]
    if not attribute:
        if len(programs) != 1:
            raise ProgramError(f"write which program of {path}: {path}:NAME; programs: {listing(programs)}")
        attribute = programs[0]
    if not hasattr(module, attribute):
        raise ProgramError(f"{path} has no {attribute!r}; programs: {listing(programs)}")
    found = getattr(module, attribute)
    if callable(found):
        try:
            found = found()
        except AltaError:
            raise
        except Exception as error:
            raise ProgramError(
                f"{attribute!r} in {path}, called without arguments, raises {type(error).__name__}: {error}"
            ) from error
    if not isinstance(found, Program):
        raise ProgramError(f"{attribute!r} in {path} is no program, nor a function that returns one, but {found!r}")
    return found.lowered()  # here, so that what is wrong with the MLP function is told with its line


@contextmanager
def _located(path: Path) -> Iterator[None]:
    """Puts the line of the user's own file in front of what is wrong with a program."""
    try:
        yield
    except ProgramError as error:
        line = _line(error, path)
        if line is None:
            raise
        located = type(error)(f"{path}:{line}: {error}")
        for note in getattr(error, "__notes__", ()):
            located.add_note(f"{path}:{line}: {note}")
        raise located from error


def _line(error: BaseException, path: Path) -> int | None:
    """The line of the file that an error comes from: of what caused it, or else of the call that raised it."""
    cause = error.__cause__ or error.__context__
    if cause is not None and (found := _line(cause, path)) is not None:
        return found
    if isinstance(error, SyntaxError) and error.filename and Path(error.filename).resolve() == path.resolve():
        return error.lineno
    frames = walk_tb(error.__traceback__)
    lines = [line for frame, line in frames if Path(frame.f_code.co_filename).resolve() == path.resolve()]
    return lines[-1] if lines else None


def _import(path: Path) -> ModuleType:
    specification = importlib.util.spec_from_file_location(path.stem, path)
    assert specification is not None and specification.loader is not None
    module = importlib.util.module_from_spec(specification)
    sys.modules[path.stem] = module
    sys.path.insert(0, str(path.parent.resolve()))
    try:
        specification.loader.exec_module(module)
    except AltaError:
        raise
    except (Exception, SystemExit) as error:
        raise ProgramError(f"{path} cannot be loaded: {type(error).__name__}: {error}") from error
    return module
