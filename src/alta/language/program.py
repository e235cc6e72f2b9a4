"""Head, Halt and Program: a whole algorithm, checked when it is built."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass, field, replace
from functools import cached_property
from types import MappingProxyType
from typing import Any, TypeAlias, assert_never

from alta.displayed import Displayed
from alta.errors import InputError, Problems, ProgramError, amount, listing
from alta.language.lowering import MAX_PATHS, lower
from alta.language.rules import RuleSet, resets
from alta.language.variables import (
    Categorical,
    Constant,
    FromPosition,
    FromToken,
    Numerical,
    OutsideDomainError,
    SetOf,
    Value,
    Variable,
    declared,
)

Token: TypeAlias = int | str

MlpFunction: TypeAlias = Callable[[Any], object]
"""A function that reads and sets variables as if its argument were a dictionary."""


@dataclass(frozen=True, slots=True)
class Head:
    """An attention head. Position i reads position j iff `key[j] == query[i]`, or `key[j] in query[i]` for a set query,
    and, where `relative_positions` is given, `j - i` is one of them.

    >>> print(program.heads["parity_left"])
    parity_left: parity where _always matches _always at -1
    """

    name: str
    query: str
    key: str
    value: str
    relative_positions: tuple[int, ...] | None = None

    def __str__(self) -> str:
        relative = "" if self.relative_positions is None else f" at {listing(self.relative_positions)}"
        return f"{self.name}: {self.value} where {self.key} matches {self.query}{relative}"


@dataclass(frozen=True, slots=True)
class Halt:
    """A sequence halts when every position has this value in this variable.

    >>> program.halt
    Halt(variable='done', value=1)
    """

    variable: str
    value: Value


@dataclass(frozen=True)
class Program(Displayed):
    """An ALTA program. Building one checks it; `program.rules` turns its MLP function into rules on first use.

    `variables` holds the outputs of heads too. Two programs are equal when they hold the same data.

    >>> print(*program.heads)
    parity_left done_left
    >>> program.output, program.tokens, program.causal
    ('parity', ('0', '1', 'START'), False)
    """

    variables: Mapping[str, Variable]
    heads: Mapping[str, Head]
    mlp: MlpFunction | RuleSet = field(repr=False)
    output: str
    tokens: tuple[Token, ...]
    positions: int | None = None
    halt: Halt | None = None
    causal: bool = False
    max_paths: int = field(default=MAX_PATHS, compare=False, repr=False)

    def __post_init__(self) -> None:
        object.__setattr__(self, "variables", MappingProxyType(dict(self.variables)))
        object.__setattr__(self, "heads", MappingProxyType(dict(self.heads)))
        if not self.tokens:
            raise ProgramError("a program needs at least one token; give input_range=1 or more, or tokens=(...)")
        problems = Problems()
        for variable in self.variables.values():
            with problems:
                self._check_start(variable)
        for head in self.heads.values():
            with problems:
                self._check_head(head)
        with problems:
            self._check_output()
        if self.halt is not None:
            with problems:
                self._check_halt(self.halt)
        problems.end()
        if isinstance(self.mlp, RuleSet):
            self.mlp.check(self.variables)
            object.__setattr__(self, "mlp", self.mlp.with_resets(resets(self.variables.values())))

    __hash__ = None  # type: ignore[assignment]

    @cached_property
    def rules(self) -> RuleSet:
        """What the MLP does, as rules: `len`, iteration, `.core`, `.resets`, `.traps`.

        >>> len(program.rules)
        7
        """
        if isinstance(self.mlp, RuleSet):
            return self.mlp
        core, traps = lower(self.mlp, self.variables, self.max_paths)
        return RuleSet(core, resets(self.variables.values()), traps)

    def lowered(self) -> Program:
        """The same program as plain data: its rules stand in place of its MLP function.

        >>> isinstance(program.lowered().mlp, alta.RuleSet)
        True
        """
        return self if isinstance(self.mlp, RuleSet) else replace(self, mlp=self.rules)

    def encode(self, inputs: Iterable[Token]) -> list[int]:
        """The inputs as indices into `tokens`.

        >>> program.encode(["START", "1", "0"])
        [2, 1, 0]
        """
        if not isinstance(inputs, Iterable):
            raise InputError(f"inputs are a sequence of tokens; got {inputs!r}")
        indices = self._token_indices
        given = tuple(inputs)
        try:
            found = [indices[token] for token in given]
        except (KeyError, TypeError):
            position = next(i for i, token in enumerate(given) if not self._is_token(token))
            raise InputError(
                f"{given[position]!r} at position {position} is not a token of this program; "
                f"tokens: {self.describe_tokens()}"
            ) from None
        if self.positions is not None and len(found) > self.positions:
            raise InputError(f"{len(found)} tokens are too many; this program has {self.positions} positions")
        return found

    def _is_token(self, token: Token) -> bool:
        try:
            return token in self._token_indices
        except TypeError:
            return False

    def describe_tokens(self) -> str:
        """The tokens as people read them.

        >>> program.describe_tokens()
        '0, 1, START'
        """
        return str(Categorical(len(self.tokens))) if isinstance(self.tokens[0], int) else listing(self.tokens)

    @cached_property
    def _token_indices(self) -> dict[Token, int]:
        return {token: index for index, token in enumerate(self.tokens)}

    def __repr__(self) -> str:
        kind = "causal program" if self.causal else "program"
        own = declared(self.variables.keys() - self.heads.keys())
        sizes = {"variable": len(own), "head": len(self.heads), "token": len(self.tokens)}
        return f"<{kind}: {', '.join(amount(size, noun) for noun, size in sizes.items())}>"

    def __getstate__(self) -> dict[str, object]:
        state = {name: getattr(self, name) for name in self.__dataclass_fields__}
        return {**state, "mlp": self.rules, "variables": dict(self.variables), "heads": dict(self.heads)}

    def __setstate__(self, state: dict[str, object]) -> None:
        self.__dict__.update(state)
        for name in ("variables", "heads"):
            object.__setattr__(self, name, MappingProxyType(state[name]))  # type: ignore[arg-type]

    def _variable(self, name: str, reader: str) -> Variable:
        if not isinstance(name, str) or name not in self.variables:
            raise ProgramError(
                f"{reader} {name!r}, which is not a variable; variables: {listing(declared(self.variables))}"
            )
        return self.variables[name]

    def _check_start(self, variable: Variable) -> None:
        match variable.start:
            case FromToken(table):
                if len(table) != len(self.tokens):
                    raise ProgramError(f"{variable.name!r} starts from {len(table)} tokens of {len(self.tokens)}")
                values = [(value, f"from token {token!r}") for token, value in zip(self.tokens, table, strict=True)]
            case FromPosition(table):
                if self.positions is None or len(table) != self.positions:
                    raise ProgramError(f"{variable.name!r} starts from {len(table)} positions of {self.positions}")
                values = [(value, f"at position {position}") for position, value in enumerate(table)]
            case Constant(value):
                values = [(value, "everywhere")]
            case _:
                if variable.name not in self.heads:
                    raise ProgramError(f"{variable.name!r} is an attention output, but no head writes it")
                values = []
        for value, where in values:
            try:
                variable.domain.admit(value)
            except OutsideDomainError as error:
                raise ProgramError(f"{variable.name!r} cannot start {where}: {error}") from None

    def _check_head(self, head: Head) -> None:
        which = f"head {head.name!r}"
        for name in (head.query, head.key, head.value):
            if self._variable(name, f"{which} reads").is_output:
                raise ProgramError(
                    f"{which} reads {name!r}, the output of another head, but heads run in parallel, each on the state "
                    f"before the sub-layer; copy {name!r} to a variable in the MLP, and read that in the next layer"
                )
        output = self._variable(head.name, f"{which} writes")
        if not output.is_output:
            raise ProgramError(
                f"{which} writes {head.name!r}, which is also declared as a variable; rename one of them"
            )
        query, key = self.variables[head.query].domain, self.variables[head.key].domain
        if isinstance(query, Numerical):
            raise ProgramError(f"{which}: the query {head.query!r} is numerical; it has to be categorical or a set")
        if not isinstance(key, Categorical):
            raise ProgramError(f"{which}: the key {head.key!r} is no categorical variable, but keys have to be")
        if query.size != key.size:
            raise ProgramError(
                f"{which}: the query {head.query!r} ranges over {query.size} values and the key {head.key!r} over "
                f"{key.size}; give both the same range"
            )
        self._check_head_value(head, self.variables[head.value], output)
        self._check_relative_positions(head)

    def _check_head_value(self, head: Head, value: Variable, output: Variable) -> None:
        match value.domain, output.domain:
            case Categorical(size), Categorical(room):
                if room < size:
                    raise ProgramError(
                        f"head {head.name!r}: the value {head.value!r} ranges over {size} values, but the output over "
                        f"{room}; give the output at least {size}"
                    )
            case Numerical(), Numerical():
                pass
            case SetOf(), _:
                raise ProgramError(f"head {head.name!r}: the value {head.value!r} is a set; heads move no sets")
            case given, wanted:
                raise ProgramError(
                    f"head {head.name!r}: the value {head.value!r} is {_kind(given)}, but the output is "
                    f"{_kind(wanted)}; both are categorical or both numerical"
                )

    def _check_relative_positions(self, head: Head) -> None:
        relative = head.relative_positions
        if relative is None:
            return
        if not relative:
            raise ProgramError(f"head {head.name!r} has no relative positions, so it reads nothing; leave them out")
        if len(set(relative)) < len(relative):
            raise ProgramError(f"head {head.name!r} lists a relative position twice: {listing(relative)}")
        if self.causal and min(relative) > 0:
            raise ProgramError(
                f"head {head.name!r} looks only to the right ({listing(relative)}), where a causal program sees "
                "nothing; use a relative position of 0 or less, or causal=False"
            )

    def _check_output(self) -> None:
        output = self._variable(self.output, "the program's output is")
        if output.is_output:
            raise ProgramError(
                f"the program's output is {self.output!r}, an attention output, which is NULL after every layer; "
                "copy it to a variable in the MLP"
            )
        if isinstance(output.domain, SetOf):
            raise ProgramError(f"the program's output is {self.output!r}, a set; it has to be categorical or numerical")

    def _check_halt(self, halt: Halt) -> None:
        variable = self._variable(halt.variable, "halting waits for")
        if variable.is_output:
            raise ProgramError(
                f"halting waits for {halt.variable!r}, an attention output, which is NULL between layers"
            )
        if not isinstance(variable.domain, Categorical):
            raise ProgramError(f"halting waits for {halt.variable!r}, which has to be categorical")
        try:
            variable.domain.admit(halt.value)
        except OutsideDomainError as error:
            raise ProgramError(f"halting waits for a value that {halt.variable!r} never has: {error}") from None


def _kind(domain: Categorical | Numerical | SetOf) -> str:
    match domain:
        case Categorical():
            return "categorical"
        case Numerical():
            return "numerical"
        case SetOf():
            return "a set"
        case _:
            assert_never(domain)
