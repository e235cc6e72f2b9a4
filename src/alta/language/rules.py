"""Rules as data: what an MLP does to an assignment, one update at a time."""

from __future__ import annotations

import operator
from collections import Counter, defaultdict
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass
from functools import cached_property
from typing import Literal, NamedTuple, TypeAlias

from alta.displayed import Displayed
from alta.errors import RuleError, amount, listing
from alta.language.variables import (
    NULL,
    UNDEFINED,
    Categorical,
    Cell,
    Missing,
    OutsideDomainError,
    Value,
    Variable,
    declared,
    format_value,
)


@dataclass(frozen=True, slots=True)
class Constraint:
    """`variable = value`, a part of an antecedent.

    >>> print(alta.Constraint("done", 0))
    done=0
    """

    variable: str
    value: Value

    def __post_init__(self) -> None:
        if not isinstance(self.variable, str) or not isinstance(self.value, int | float | frozenset):
            raise RuleError(f"a constraint is a variable's name and a value; got {self.variable!r}, {self.value!r}")

    def __str__(self) -> str:
        return f"{self.variable}={format_value(self.value)}"


_name = operator.attrgetter("variable")

Antecedent: TypeAlias = tuple[Constraint, ...]


@dataclass(frozen=True, slots=True)
class Rule:
    """Where every constraint of the antecedent holds, `output` changes from `old` to `new`.

    Constraints are kept in the order of their variables' names, so that equal rules are equal.

    >>> print(alta.Rule("done", 0, 1, (alta.Constraint("done_left", 1), alta.Constraint("done", 0))))
    done=0 ∧ done_left=1 ⟹ done := 1
    """

    output: str
    old: Value
    new: Value | Literal[Missing.NULL]
    antecedent: Antecedent

    def __post_init__(self) -> None:
        object.__setattr__(self, "antecedent", tuple(sorted(self.antecedent, key=_name)))
        values = {constraint.variable: constraint.value for constraint in self.antecedent}
        if len(values) < len(self.antecedent):
            raise RuleError(f"a rule for {self.output!r} constrains a variable twice: {_and(self.antecedent)}")
        if self.output not in values or values[self.output] != self.old:
            raise RuleError(
                f"a rule that changes {self.output!r} from {format_value(self.old)} constrains it to that value; "
                f"its antecedent is {_and(self.antecedent)}"
            )
        if self.new == self.old:
            raise RuleError(f"a rule for {self.output!r} changes nothing: old and new are {format_value(self.old)}")

    @property
    def is_reset(self) -> bool:
        """Whether this rule makes an attention output NULL again.

        >>> [rule.output for rule in program.rules if rule.is_reset]
        ['parity_left', 'parity_left', 'done_left', 'done_left']
        """
        return self.new is NULL

    def __str__(self) -> str:
        return f"{_and(self.antecedent)} ⟹ {self.output} := {format_value(self.new)}"


@dataclass(frozen=True, slots=True)
class Trap:
    """Where every constraint of the antecedent holds, the MLP has no meaning, for the reason given.

    `variable` is the one that would be set out of its domain, if that is the reason.

    >>> x = alta.MLPBuilder({"n": alta.var(3)}, {})
    >>> for n in x.get("n"):
    ...     x.set("n", n + 1)
    >>> print(x.rules.traps[0])
    n=2 ⟹ 'n' is set out of its domain: 3 is outside 0..2
    """

    antecedent: Antecedent
    reason: str
    variable: str | None = None

    def __post_init__(self) -> None:
        object.__setattr__(self, "antecedent", tuple(sorted(self.antecedent, key=_name)))

    def __str__(self) -> str:
        return f"{_and(self.antecedent)} ⟹ {self.reason}"


class Match(NamedTuple):
    """What a set of rules says of one assignment."""

    rules: list[Rule]
    traps: list[Trap]
    undefined: list[tuple[Rule | Trap, str]]  # with the UNDEFINED variable that each reads


@dataclass(frozen=True)
class RuleSet(Displayed):
    """The rules of an MLP: `core` as written, `resets` of the attention outputs, and `traps`.

    Iterating and `len` go over the core rules and the resets. No two rules can fire for one output variable: that is
    checked here, so a conflict is found when the rules are made.

    >>> len(program.rules), len(program.rules.core), len(program.rules.resets), len(program.rules.traps)
    (7, 3, 4, 0)
    >>> for rule in program.rules.core:
    ...     print(rule)
    done=0 ∧ done_left=1 ∧ parity=0 ∧ parity_left=1 ⟹ parity := 1
    done=0 ∧ done_left=1 ∧ parity=1 ∧ parity_left=1 ⟹ parity := 0
    done=0 ∧ done_left=1 ⟹ done := 1
    """

    core: tuple[Rule, ...]
    resets: tuple[Rule, ...] = ()
    traps: tuple[Trap, ...] = ()

    def __post_init__(self) -> None:
        for rule in self.core:
            if not isinstance(rule, Rule) or rule.is_reset:
                raise RuleError(f"the core of a rule set holds rules with a new value; got {rule!r}")
        by_output: defaultdict[str, list[Rule]] = defaultdict(list)
        for rule in self.core:
            by_output[rule.output].append(rule)
        for rules in by_output.values():
            _refuse_conflicts(rules)

    def __iter__(self) -> Iterator[Rule]:
        yield from self.core
        yield from self.resets

    def __len__(self) -> int:
        return len(self.core) + len(self.resets)

    def with_resets(self, resets: tuple[Rule, ...]) -> RuleSet:
        """The same rules with these resets, which need no second look for conflicts.

        >>> len(program.rules.with_resets(()))
        3
        """
        found = object.__new__(RuleSet)
        found.__setstate__({"core": self.core, "resets": resets, "traps": self.traps})
        return found

    def match(self, assignment: Mapping[str, Cell]) -> Match:
        """The rules and traps whose antecedents hold, and the core rules and traps that read UNDEFINED.

        UNDEFINED is read when all constraints on defined variables hold and at least one is on an undefined variable.
        Resets are excepted. Numerical values of the assignment are buckets already.

        >>> found = program.rules.match({"parity": 0, "done": 0, "parity_left": 1, "done_left": 1})
        >>> [rule.output for rule in found.rules]
        ['done', 'parity', 'parity_left', 'done_left']
        """
        found = Match([], [], [])
        _descend(self._tree, assignment, found, None)
        for name, by_value in self._resets.items():
            if (reset := by_value.get(assignment[name])) is not None:
                found.rules.append(reset)
        return found

    @cached_property
    def _resets(self) -> dict[str, dict[Cell, Rule]]:
        by_name: defaultdict[str, dict[Cell, Rule]] = defaultdict(dict)
        for rule in self.resets:
            by_name[rule.output][rule.old] = rule
        return by_name

    @cached_property
    def _tree(self) -> _Node:
        entries: Iterable[Rule | Trap] = (*self.core, *self.traps)
        return _grow([({c.variable: c.value for c in entry.antecedent}, entry) for entry in entries])

    def check(self, variables: Mapping[str, Variable]) -> None:
        """Refuses rules that do not fit the variables.

        >>> program.rules.check({"done": program.variables["done"]})  # doctest: +ELLIPSIS
        Traceback (most recent call last):
        alta.errors.RuleError: unknown variable ...; variables: done
        """
        fits: set[Constraint] = set()
        entries: Iterable[Rule | Trap] = (*self.core, *self.traps)
        for entry in entries:
            for constraint in entry.antecedent:
                if constraint not in fits:
                    _check_value(constraint.variable, constraint.value, variables, entry)
                    fits.add(constraint)
            if isinstance(entry, Rule):
                if variables[entry.output].is_output:
                    raise RuleError(f"attention output {entry.output!r} cannot be set by the MLP; in the rule {entry}")
                assert entry.new is not NULL
                update = Constraint(entry.output, entry.new)
                if update not in fits:
                    _check_value(entry.output, entry.new, variables, entry)
                    fits.add(update)

    def __getstate__(self) -> dict[str, object]:
        return {"core": self.core, "resets": self.resets, "traps": self.traps}

    def __setstate__(self, state: dict[str, object]) -> None:
        self.__dict__.update(state)

    def __repr__(self) -> str:
        sizes = {"core rule": len(self.core), "reset": len(self.resets), "trap": len(self.traps)}
        return f"RuleSet({', '.join(amount(size, noun) for noun, size in sizes.items())})"


def resets(variables: Iterable[Variable]) -> tuple[Rule, ...]:
    """One rule for each value of each attention output, which makes it NULL."""
    return tuple(
        Rule(variable.name, value, NULL, (Constraint(variable.name, value),))
        for variable in variables
        if variable.is_output
        for value in variable.domain.values
    )


def _and(antecedent: Antecedent) -> str:
    return " ∧ ".join(map(str, antecedent)) or "always"


def _check_value(name: str, value: Value, variables: Mapping[str, Variable], entry: Rule | Trap) -> None:
    if name not in variables:
        raise RuleError(f"unknown variable {name!r} in the rule {entry}; variables: {listing(declared(variables))}")
    try:
        admitted = variables[name].domain.admit(value)
    except OutsideDomainError as error:
        raise RuleError(f"in the rule {entry}: {name!r}: {error}") from None
    if isinstance(variables[name].domain, Categorical) and type(value) is not int:
        raise RuleError(f"in the rule {entry}: {name!r} takes integers; write {admitted!r} for {value!r}")


def _refuse_conflicts(rules: list[Rule]) -> None:
    """Splits the rules by one variable after another, the one that most of them constrain first. Those that do not
    constrain it go with every value. Rules that are still together when one has no constraint left can fire together.
    """
    groups = [[({c.variable: c.value for c in rule.antecedent}, rule) for rule in rules]]
    while groups:
        group = groups.pop()
        if len(group) < 2:
            continue
        bare = [rule for constraints, rule in group if not constraints]
        if bare:
            raise _conflict(bare[0], next(rule for _, rule in group if rule is not bare[0]))
        variable = Counter(name for constraints, _ in group for name in constraints).most_common(1)[0][0]
        branches: defaultdict[Value, list[tuple[dict[str, Value], Rule]]] = defaultdict(list)
        rest = []
        for constraints, rule in group:
            if variable in constraints:
                others = {name: value for name, value in constraints.items() if name != variable}
                branches[constraints[variable]].append((others, rule))
            else:
                rest.append((constraints, rule))
        groups += [[*branch, *rest] for branch in branches.values()]
        if len(branches) > 1 and len(rest) > 1:
            groups.append(rest)


def _conflict(first: Rule, second: Rule) -> RuleError:
    return RuleError(
        f"two rules can both change {first.output!r}: [{first}] and [{second}]; "
        "make them disagree on a variable that both constrain"
    )


class _Node(NamedTuple):
    """Decisions on variables, one after another; each entry below is behind one of them, or `here`."""

    here: list[Rule | Trap]
    decisions: list[tuple[str, dict[Value, _Node]]]


def _grow(entries: list[tuple[dict[str, Value], Rule | Trap]]) -> _Node:
    node = _Node([entry for constraints, entry in entries if not constraints], [])
    entries = [item for item in entries if item[0]]
    while entries:
        counts = Counter(name for constraints, _ in entries for name in constraints)
        variable = counts.most_common(1)[0][0]
        branches: defaultdict[Value, list[tuple[dict[str, Value], Rule | Trap]]] = defaultdict(list)
        rest = []
        for constraints, entry in entries:
            if variable in constraints:
                branches[constraints.pop(variable)].append((constraints, entry))
            else:
                rest.append((constraints, entry))
        node.decisions.append((variable, {value: _grow(branch) for value, branch in branches.items()}))
        entries = rest
    return node


def _descend(node: _Node, assignment: Mapping[str, Cell], found: Match, unread: str | None) -> None:
    for entry in node.here:
        if unread is not None:
            found.undefined.append((entry, unread))
        elif isinstance(entry, Rule):
            found.rules.append(entry)
        else:
            found.traps.append(entry)
    for variable, children in node.decisions:
        value = assignment[variable]
        if value is UNDEFINED:
            for child in children.values():
                _descend(child, assignment, found, unread or variable)
        elif value is not NULL and value in children:
            _descend(children[value], assignment, found, unread)
