"""The paper's vocabulary: the functions with which people write programs."""

from __future__ import annotations

import builtins
import dis
import operator
import sys
from collections import Counter
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from types import CodeType, FrameType
from typing import Any, TypeAlias

from alta.errors import Problems, ProgramError, RuleError, amount, listing
from alta.language.lowering import MAX_PATHS
from alta.language.program import Halt, Head, MlpFunction, Program, Token
from alta.language.rules import Constraint, Rule, RuleSet, Trap
from alta.language.variables import (
    Categorical,
    Constant,
    Domain,
    FromPosition,
    FromToken,
    Numerical,
    Output,
    OutsideDomainError,
    SetOf,
    Start,
    Value,
    Variable,
)

StartFunction: TypeAlias = Callable[[Any], object]

ALWAYS = "_always"
"""The single-valued variable that `v_relative` heads take as query and key."""


@dataclass(frozen=True, slots=True)
class Declaration:
    """A variable before it has a name, and before its start functions have been called."""

    domain: Domain
    input_init_fn: StartFunction | None
    position_init_fn: StartFunction | None
    default: object


@dataclass(frozen=True, slots=True)
class HeadDeclaration:
    """A head before it has a name."""

    query: str
    key: str
    value: str
    relative_positions: tuple[int, ...] | None
    output: Declaration | None


def var(
    range: int,
    *,
    input_init_fn: StartFunction | None = None,
    position_init_fn: StartFunction | None = None,
    default: int | None = None,
) -> Declaration:
    """A categorical variable, one of `0..range-1`. It starts from the token, from the position, or at `default` (0).

    >>> variables = {
    ...     "bit": alta.var(2, input_init_fn=lambda token: token == "1"),
    ...     "place": alta.var(8, position_init_fn=lambda position: position),
    ...     "count": alta.var(9, default=1),
    ... }
    >>> small = alta.program_spec(
    ...     variables=variables, heads={}, rules=(), output_name="count", tokens=("0", "1"), position_range=8
    ... )
    >>> for assignment in alta.run(small, ["1", "0"], max_layers=0).trace.start:
    ...     print(assignment)
    bit=1, place=0, count=1
    bit=0, place=1, count=1
    """
    return _declare(Categorical(range), input_init_fn, position_init_fn, default, 0)


def numeric_var(
    values: Sequence[float] = (),
    *,
    input_init_fn: StartFunction | None = None,
    position_init_fn: StartFunction | None = None,
    default: float | None = None,
) -> Declaration:
    """A numerical variable. The MLP sees the nearest of `values`, its buckets; where it neither reads nor sets the
    variable, they may be left out.

    >>> alta.numeric_var((0, 0.5, 1)).domain.snap(0.7)
    0.5
    """
    return _declare(Numerical(values), input_init_fn, position_init_fn, default, 0.0)  # type: ignore[arg-type]


def set_var(
    range: int,
    values: Iterable[Iterable[int]],
    *,
    input_init_fn: StartFunction | None = None,
    position_init_fn: StartFunction | None = None,
    default: Iterable[int] | None = None,
) -> Declaration:
    """A variable whose value is one of `values`, each a set of integers in `0..range-1`. It serves as a query.

    >>> up_to = [range(number + 1) for number in range(4)]
    >>> alta.set_var(4, up_to, input_init_fn=up_to.__getitem__).domain.values[2]
    frozenset({0, 1, 2})
    """
    domain = SetOf(range, values)  # type: ignore[arg-type]
    return _declare(domain, input_init_fn, position_init_fn, default, frozenset())


numerical_var = numeric_var


def qkv(
    query: str,
    key: str,
    value: str,
    *,
    relative_positions: Iterable[int] | None = None,
    output_spec: Declaration | None = None,
) -> HeadDeclaration:
    """A head: position i reads `value` where `key` equals (or, for a set, is in) its own `query`.

    With `relative_positions`, it reads position j only where `j - i` is one of them. The output has the value's type,
    unless `output_spec` gives another.

    >>> neighbours = alta.qkv("colour", "colour", "count", relative_positions=(-1, 1))
    >>> neighbours.query, neighbours.key, neighbours.value, neighbours.relative_positions
    ('colour', 'colour', 'count', (-1, 1))
    """
    if relative_positions is not None:
        if isinstance(relative_positions, int | str):
            raise ProgramError(f"relative positions are a tuple, such as (-1,); got {relative_positions!r}")
        try:
            relative_positions = tuple(operator.index(offset) for offset in relative_positions)
        except TypeError:
            raise ProgramError(f"relative positions are whole numbers; got {relative_positions!r}") from None
    return HeadDeclaration(query, key, value, relative_positions, output_spec)


def v_relative(value: str, offset: int, *, output_spec: Declaration | None = None) -> HeadDeclaration:
    """A head that reads `value` at one relative position: -1 is the position to the left.

    >>> alta.v_relative("parity", -1).relative_positions
    (-1,)
    """
    return qkv(ALWAYS, ALWAYS, value, relative_positions=(offset,), output_spec=output_spec)


relative_v = v_relative


def halt_spec(variable: str, halt_value: int) -> Halt:
    """Halt once `variable` is `halt_value` at every position.

    >>> alta.halt_spec("done", 1) == program.halt
    True
    """
    return Halt(variable, halt_value)


def program_spec(
    *,
    variables: Mapping[str, Declaration],
    heads: Mapping[str, HeadDeclaration],
    output_name: str,
    ffn_fn: MlpFunction | None = None,
    rules: RuleSet | Iterable[Rule] | None = None,
    input_range: int | None = None,
    tokens: Sequence[str] | None = None,
    position_range: int | None = None,
    halt: Halt | None = None,
    causal: bool = False,
    max_paths: int = MAX_PATHS,
) -> Program:
    """A program, checked.

    The MLP is a function, `ffn_fn`, or its `rules` (from `MLPBuilder`). Inputs are integers in `0..input_range-1`, or
    strings out of `tokens`. `position_range` bounds the length, and is needed where a variable starts from the
    position. `max_paths` bounds the work of turning the function into rules.

    >>> def mlp(z):
    ...     if not z["first"]:
    ...         z["bit"] = z["bit_left"]
    >>> shift = alta.program_spec(
    ...     variables={
    ...         "bit": alta.var(2, input_init_fn=lambda token: token),
    ...         "first": alta.var(2, position_init_fn=lambda position: position == 0),
    ...     },
    ...     heads={"bit_left": alta.v_relative("bit", -1)},
    ...     ffn_fn=mlp,
    ...     output_name="bit",
    ...     input_range=2,
    ...     position_range=8,
    ... )
    >>> alta.run(shift, [1, 0, 1], max_layers=1).outputs
    (1, 1, 0)
    """
    vocabulary = _vocabulary(input_range, tokens)
    positions = None if position_range is None else Categorical(position_range).size
    resolved: dict[str, Variable] = {}
    problems = Problems()
    for name, declaration in _entries(variables, "variables").items():
        with problems:
            _declared(name, declaration)
            resolved[name] = Variable(name, declaration.domain, _start(name, declaration, vocabulary, positions))
    problems.end()
    named: dict[str, Head] = {}
    for name, head in _entries(heads, "heads").items():
        if not isinstance(head, HeadDeclaration):
            raise ProgramError(f"head {name!r} is {head!r}; declare it with qkv or v_relative")
        if name in resolved:
            raise ProgramError(f"{name!r} is both a variable and a head; a head's name is the variable that it writes")
        if head.query == ALWAYS:
            resolved.setdefault(ALWAYS, Variable(ALWAYS, Categorical(1), Constant(0)))
        named[name] = Head(name, head.query, head.key, head.value, head.relative_positions)
    declared = dict(resolved)
    for name, head in heads.items():
        resolved[name] = Variable(name, _output_domain(name, head, declared), Output())
    if (ffn_fn is None) == (rules is None):
        raise ProgramError("a program has one MLP: give either ffn_fn or rules")
    if ffn_fn is not None and not callable(ffn_fn):
        raise ProgramError(f"ffn_fn is a function of the variables; got {ffn_fn!r}")
    if isinstance(rules, MLPBuilder) or (rules is not None and not isinstance(rules, Iterable)):
        raise ProgramError(f"rules are a RuleSet or a sequence of rules, such as MLPBuilder(...).rules; got {rules!r}")
    if isinstance(max_paths, bool) or not isinstance(max_paths, int) or max_paths < 1:
        raise ProgramError(f"max_paths is a whole number, 1 or more; got {max_paths!r}")
    if halt is not None and not isinstance(halt, Halt):
        raise ProgramError(f"halt is made by halt_spec; got {halt!r}")
    return Program(
        variables=resolved,
        heads=named,
        mlp=ffn_fn if ffn_fn is not None else rules if isinstance(rules, RuleSet) else RuleSet(tuple(rules or ())),
        output=output_name,
        tokens=vocabulary,
        positions=positions,
        halt=halt,
        causal=causal,
        max_paths=max_paths,
    )


class MLPBuilder:
    """Writes transition rules directly, with the constraints of the loops around each `set`.

        >>> x = alta.MLPBuilder({"done": alta.var(2)}, {})
        >>> for done in x.get("done"):
        ...     if done == 0:
        ...         x.set("done", 1)
        >>> print(*x.rules)  # as program_spec(..., rules=x.rules) takes them
        done=0 ⟹ done := 1

    A constraint holds for as long as its `for` loop runs: `break`, `return` and exceptions end it (unless you keep what
    the loop goes over, an `enumerate` of it, say, in a variable). Values taken in any other way are refused.
    """

    def __init__(self, variables: Mapping[str, Declaration], heads: Mapping[str, HeadDeclaration]) -> None:
        self._domains = {name: _declared(name, d).domain for name, d in _entries(variables, "variables").items()}
        declared = {name: Variable(name, domain, Constant(0)) for name, domain in self._domains.items()}
        declared[ALWAYS] = Variable(ALWAYS, Categorical(1), Constant(0))
        self._outputs = set(heads)
        for name, head in _entries(heads, "heads").items():
            self._domains[name] = _output_domain(name, head, declared)
        self._loops: list[_Loop] = []
        self._rules: list[Rule] = []
        self._traps: list[Trap] = []

    def __repr__(self) -> str:
        return f"<MLP builder: {amount(len(self._rules), 'rule')}, {amount(len(self._traps), 'trap')} so far>"

    @property
    def rules(self) -> RuleSet:
        """The rules written so far.

        >>> alta.MLPBuilder({"x": alta.var(2)}, {}).rules
        RuleSet(0 core rules, 0 resets, 0 traps)
        """
        return RuleSet(tuple(self._rules), (), tuple(self._traps))

    def get(self, *names: str) -> Iterable[Any]:
        """The values of a variable (or tuples of the values of several), for use in a `for` loop.

        >>> x = alta.MLPBuilder({"a": alta.var(2), "b": alta.var(2)}, {})
        >>> [(a, b) for a, b in x.get("a", "b")]
        [(0, 0), (0, 1), (1, 0), (1, 1)]
        """
        if not names:
            raise RuleError("get needs the name of a variable")
        for name in names:
            self._domain(name)
        return _Loops(self, names)

    def set(self, name: str, value: object) -> None:
        """Sets a variable wherever the loops around this call have brought us.

        >>> x = alta.MLPBuilder({"a": alta.var(2), "b": alta.var(3)}, {})
        >>> for a in x.get("a"):
        ...     if a == 1:
        ...         x.set("b", 0)
        >>> for rule in x.rules:
        ...     print(rule)
        a=1 ∧ b=1 ⟹ b := 0
        a=1 ∧ b=2 ⟹ b := 0
        """
        domain = self._domain(name)
        if name in self._outputs:
            raise RuleError(f"attention output {name!r} cannot be set by the MLP; it becomes NULL after every layer")
        scope = self._scope()
        try:
            new = domain.admit(value)
        except OutsideDomainError as error:
            self._traps.append(Trap(_antecedent(scope), f"{name!r} is set out of its domain: {error}", name))
            return
        for old in [scope[name]] if name in scope else domain.values:
            if old != new:
                self._rules.append(Rule(name, old, new, _antecedent({**scope, name: old})))

    def _domain(self, name: str) -> Domain:
        if name not in self._domains:
            raise RuleError(f"{name!r} is not a variable; variables: {listing(self._domains)}")
        domain = self._domains[name]
        if isinstance(domain, Numerical) and not domain.values:
            raise RuleError(f"{name!r} has no buckets, so the MLP cannot read or set it; give it `values`")
        return domain

    def _scope(self) -> dict[str, Value]:
        callers = _callers()
        for loop in self._loops:
            if loop.runner is not None and loop.runner not in callers:
                raise RuleError(
                    f"a loop over {loop.name!r} was left half-way in {loop.runner[1].co_name!r}, a generator that "
                    "still exists; loop in the function that calls set, or close the generator"
                )
        return {loop.name: loop.value for loop in self._loops if loop.value is not None}


class _Loops:
    """What `get` returns: iterable, but no iterator, so that only the loop itself keeps its constraint alive."""

    def __init__(self, builder: MLPBuilder, names: tuple[str, ...]) -> None:
        self._builder = builder
        self._names = names

    def __iter__(self) -> Iterator[Any]:
        values = self._walk(self._names)
        return values if len(self._names) > 1 else (value for (value,) in values)

    def _walk(self, names: tuple[str, ...]) -> Iterator[tuple[Value, ...]]:
        if not names:
            yield ()
            return
        for value in _Loop(self._builder, names[0]):
            for others in self._walk(names[1:]):
                yield value, *others


class _Loop:
    """A running loop over one variable's values. Its constraint is in scope from the first value to the end."""

    def __init__(self, builder: MLPBuilder, name: str) -> None:
        self.builder = builder
        self.name = name
        self.value: Value | None = None
        self.runner: tuple[int, CodeType] | None = None

    def __iter__(self) -> Iterator[Value]:
        loops = self.builder._loops
        known = self.builder._scope()
        values = [known[self.name]] if self.name in known else self.builder._domains[self.name].values
        loops.append(self)
        try:
            for value in values:
                if self not in loops:
                    raise RuleError(f"the loop over {self.name!r} goes on after the loop around it has moved on")
                del loops[loops.index(self) + 1 :]
                self.value = value
                self.runner = _looping_function(self.name)
                yield value
        finally:
            if self in loops:
                del loops[loops.index(self) :]


def _callers() -> list[tuple[int, CodeType]]:
    """The running functions outside of this file, innermost first."""
    frame: FrameType | None = sys._getframe(1)
    found = []
    while frame is not None:
        if frame.f_code.co_filename != __file__:
            found.append((id(frame), frame.f_code))
        frame = frame.f_back
    return found


def _looping_function(name: str) -> tuple[int, CodeType]:
    """The function whose `for` loop asks for the next value. Others, such as `sorted`, would take all the values and
    forget the constraints."""
    frame = sys._getframe(2)
    while frame.f_code.co_filename == __file__ and frame.f_back is not None:
        frame = frame.f_back
    instruction = dis.opname[frame.f_code.co_code[frame.f_lasti]]
    if not instruction.startswith(("FOR_ITER", "SEND", "YIELD_FROM")):
        raise RuleError(
            f"the values of {name!r} are taken outside of a for loop (line {frame.f_lineno} of "
            f"{Path(frame.f_code.co_filename).name}), so they would be no constraints; write "
            f"`for ... in x.get({name!r})`"
        )
    return id(frame), frame.f_code


def _antecedent(scope: Mapping[str, Value]) -> tuple[Constraint, ...]:
    return tuple(Constraint(name, value) for name, value in scope.items())


def _declare(
    domain: Domain,
    input_init_fn: StartFunction | None,
    position_init_fn: StartFunction | None,
    default: object,
    zero: object,
) -> Declaration:
    given = [start for start in (input_init_fn, position_init_fn, default) if start is not None]
    if len(given) > 1:
        raise ProgramError(
            "a variable starts from the token, from the position or from a constant; "
            "give one of input_init_fn, position_init_fn and default"
        )
    return Declaration(domain, input_init_fn, position_init_fn, zero if default is None else default)


def _vocabulary(input_range: int | None, tokens: Sequence[str] | None) -> tuple[Token, ...]:
    if (input_range is None) == (tokens is None):
        raise ProgramError("give either input_range, for integer tokens, or tokens, for strings")
    if tokens is None:
        return Categorical(input_range).values  # type: ignore[arg-type]
    if not isinstance(tokens, tuple | list) or not all(isinstance(token, str) for token in tokens):
        raise ProgramError(f"tokens are a tuple of strings; got {tokens!r}")
    for token, count in Counter(tokens).items():
        if count > 1:
            raise ProgramError(f"token {token!r} is listed twice")
    return tuple(tokens)


def _entries(entries: Mapping[str, Any], what: str) -> Mapping[str, Any]:
    if not isinstance(entries, Mapping):
        raise ProgramError(f"{what} is a dictionary from names to declarations; got {entries!r}")
    for name in entries:
        if not isinstance(name, str) or not name:
            raise ProgramError(f"the names in {what} are strings; got {name!r}")
        if name.startswith("_"):
            raise ProgramError(f"{name!r} in {what}: names that begin with an underscore are alta's own")
    return entries


def _declared(name: str, declaration: object) -> Declaration:
    if not isinstance(declaration, Declaration):
        raise ProgramError(f"variable {name!r} is {declaration!r}; declare it with var, numeric_var or set_var")
    return declaration


def _start(name: str, declaration: Declaration, tokens: tuple[Token, ...], positions: int | None) -> Start:
    if declaration.input_init_fn is not None:
        starts = [_call(name, declaration.input_init_fn, token, f"from token {token!r}") for token in tokens]
        where = [f"from token {token!r}" for token in tokens]
        return FromToken(_admit(name, declaration.domain, starts, where))
    if declaration.position_init_fn is not None:
        if positions is None:
            raise ProgramError(f"{name!r} starts from the position, so the program needs a position_range")
        starts = [_call(name, declaration.position_init_fn, i, f"at position {i}") for i in builtins.range(positions)]
        where = [f"at position {i}" for i in builtins.range(positions)]
        return FromPosition(_admit(name, declaration.domain, starts, where))
    return Constant(_admit(name, declaration.domain, [declaration.default], ["everywhere; give it a default"])[0])


def _call(name: str, function: StartFunction, argument: object, where: str) -> object:
    try:
        return function(argument)
    except Exception as error:
        raise ProgramError(
            f"{name!r} cannot start {where}: its function raised {type(error).__name__}: {error}"
        ) from error


def _admit(name: str, domain: Domain, starts: Sequence[object], where: Sequence[str]) -> tuple[Value, ...]:
    admitted = []
    for start, place in zip(starts, where, strict=True):
        try:
            admitted.append(domain.admit(start))
        except OutsideDomainError as error:
            raise ProgramError(f"{name!r} cannot start {place}: {error}") from None
    return tuple(admitted)


def _output_domain(name: str, head: HeadDeclaration, variables: Mapping[str, Variable]) -> Domain:
    if head.output is not None:
        if not isinstance(head.output, Declaration):
            raise ProgramError(f"head {name!r}: output_spec is made by var or numeric_var; got {head.output!r}")
        return head.output.domain
    if head.value in variables:
        return variables[head.value].domain
    return Categorical(1)  # building the program will tell that the value is no variable a head can read
