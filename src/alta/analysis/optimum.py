"""Whether the compiled MLP is a strict coordinate-wise local optimum of the loss that trace supervision has.

The setting is the paper's (Appendix B): categorical variables, resets left out, a unit for each rule with weights of 1
and a bias of 1 - N for N constraints, and the loss `alpha * ||parameters|| + sum over data of ||output - target||_1`,
where the targets are the compiled MLP's own outputs. All derivatives are exact: a parameter moves one unit, the loss of
the data is 0 where it stands, and so it grows in proportion to how many examples the move shows in.

For each rule let `on` be the number of examples on which it fires, and `near` that on which exactly one of its
constraints fails. Then the parameters are a strict coordinate-wise local optimum, for alpha < 1, exactly if every rule
has `on >= 1`, and every rule of two constraints or more has `near >= 1`.

That is less than minimality (see `rule_sets`), which asks for a near miss of *every* constraint. docs/learning.md tells
what follows for the paper's two theorems.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

from alta.errors import InputError, amount
from alta.language.rules import Constraint, Rule, RuleSet
from alta.language.variables import Missing

Matrix = NDArray[np.float64]

REGULARIZERS = ("l1", "l2")


@dataclass(frozen=True)
class Failing:
    """A parameter at which the loss has no strict minimum, and what it belongs to."""

    parameter: str  # "W1", "b1" or "W2"
    rule: Rule
    constraint: Constraint | None  # for W1
    left: float  # derivative
    right: float

    def __str__(self) -> str:
        which = f" for {self.constraint}" if self.constraint else ""
        return f"{self.parameter}{which} of [{self.rule}]: derivatives {self.left:g} and {self.right:g}"


@dataclass(frozen=True, eq=False)
class Derivatives:
    """Left and right derivatives of the loss in every parameter."""

    w1: tuple[Matrix, Matrix]  # each (rule, dim)
    b1: tuple[Matrix, Matrix]  # each (rule)
    w2: tuple[Matrix, Matrix]  # each (dim, rule)


@dataclass(frozen=True, eq=False)
class Optimum:
    """What `optimum` finds."""

    is_optimum: bool
    failing: tuple[Failing, ...]
    on: NDArray[np.int64]  # (rule): examples on which it fires
    near: NDArray[np.int64]  # (rule): examples on which one constraint fails
    derivatives: Derivatives
    dims: tuple[tuple[str, int], ...]  # what each dimension stands for: a variable and its value

    def __str__(self) -> str:
        if self.is_optimum:
            return f"a strict coordinate-wise local optimum: {amount(len(self.on), 'rule')}, each pinned down"
        shown = [f"  {failing}" for failing in self.failing[:10]]
        more = [f"  and {len(self.failing) - 10:,} more"] if len(self.failing) > 10 else []
        lines = [
            f"no strict coordinate-wise local optimum: {amount(len(self.failing), 'parameter')} may move",
            *shown,
            *more,
        ]
        return "\n".join(lines)


@dataclass(frozen=True, eq=False)
class Compiled:
    """The paper's MLP for some rules."""

    w1: Matrix  # (rule, dim)
    b1: Matrix  # (rule)
    w2: Matrix  # (dim, rule)

    def outputs(self, z: Matrix) -> Matrix:
        """From assignments to assignments. (example, dim)"""
        return z + np.clip(z @ self.w1.T + self.b1, 0, 1) @ self.w2.T


def optimum(
    rules: RuleSet | Sequence[Rule],
    data: Iterable[Mapping[str, Any]],
    alpha: float = 0.5,
    *,
    regularizer: str = "l1",
) -> Optimum:
    """Whether the MLP compiled from the rules is a strict coordinate-wise local optimum on the data: assignments of all
    variables as the MLP finds them, where NULL and UNDEFINED hold no value. `regularizer` is "l1", as in the theorems,
    or "l2", squared, as in their remark.

    >>> seen = alta.coverage(program, [["START", "1", "0"]], mlp_inputs=True).mlp_inputs
    >>> print(alta.optimum(alta.minimal(program, [["START", "1", "0"]]).program.rules, [one for one, _ in seen]))
    a strict coordinate-wise local optimum: 2 rules, each pinned down
    """
    if not alpha > 0:
        raise InputError(f"alpha is a positive number; got {alpha!r}")
    if regularizer not in REGULARIZERS:
        raise InputError(f"there is no regularizer {regularizer!r}; regularizers: {', '.join(REGULARIZERS)}")
    core = tuple(rules.core if isinstance(rules, RuleSet) else rules)
    examples = [dict(assignment) for assignment in data]
    dims = dimensions(core, examples)
    mlp, z = compile_rules(core, dims), encode(examples, dims)
    g = z @ mlp.w1.T + mlp.b1  # (example, rule): whole numbers, so the comparisons are exact
    on, near = (g == 1).astype(np.float64), (g == 0).astype(np.float64)
    changes = np.abs(mlp.w2).sum(axis=0)  # (rule): what the loss takes when a unit moves
    # Lowering what a unit adds up shows where it is 1, raising it where it is 0: elsewhere the activation clips.
    w1_loss = -(changes[:, None] * (on.T @ z)), changes[:, None] * (near.T @ z)
    b1_loss = -changes * on.sum(axis=0), changes * near.sum(axis=0)
    fires = np.broadcast_to(on.sum(axis=0), mlp.w2.shape)
    derivatives = Derivatives(
        _with_penalty(w1_loss, mlp.w1, alpha, regularizer),
        _with_penalty(b1_loss, mlp.b1, alpha, regularizer),
        _with_penalty((-fires, fires), mlp.w2, alpha, regularizer),
    )
    failing = tuple(_failing(core, dims, derivatives, regularizer))
    counts = [part.sum(axis=0).astype(np.int64) for part in (on, near)]
    return Optimum(not failing, failing, counts[0], counts[1], derivatives, dims)


def dimensions(rules: Sequence[Rule], examples: Sequence[Mapping[str, Any]]) -> tuple[tuple[str, int], ...]:
    """A dimension for each value of each variable, as far as rules and data know them."""
    found: set[tuple[str, int]] = set()
    for example in examples:
        found.update((name, value) for name, value in example.items() if not isinstance(value, Missing))
    for rule in rules:
        found.update((constraint.variable, constraint.value) for constraint in rule.antecedent)  # type: ignore[misc]
        found.add((rule.output, rule.new))  # type: ignore[arg-type]
    for name, value in found:
        if isinstance(value, bool) or not isinstance(value, int):
            raise InputError(f"the theorems are for categorical variables; {name!r} has the value {value!r}")
    return tuple(sorted(found))


def compile_rules(rules: Sequence[Rule], dims: Sequence[tuple[str, int]]) -> Compiled:
    """The paper's weights."""
    place = {dim: number for number, dim in enumerate(dims)}
    w1, w2 = np.zeros((len(rules), len(dims))), np.zeros((len(dims), len(rules)))
    for number, rule in enumerate(rules):
        for constraint in rule.antecedent:
            w1[number, place[constraint.variable, constraint.value]] = 1.0  # type: ignore[index]
        w2[place[rule.output, rule.old], number] = -1.0  # type: ignore[index]
        w2[place[rule.output, rule.new], number] = 1.0  # type: ignore[index]
    return Compiled(w1, 1.0 - w1.sum(axis=1), w2)


def encode(examples: Sequence[Mapping[str, Any]], dims: Sequence[tuple[str, int]]) -> Matrix:
    """One-hot. (example, dim)"""
    place = {dim: number for number, dim in enumerate(dims)}
    z = np.zeros((len(examples), len(dims)))
    for row, example in enumerate(examples):
        z[row, [place[name, value] for name, value in example.items() if not isinstance(value, Missing)]] = 1.0
    return z


def _with_penalty(
    loss: tuple[Matrix, Matrix], weights: Matrix, alpha: float, regularizer: str
) -> tuple[Matrix, Matrix]:
    left, right = loss
    if regularizer == "l2":
        return left + 2 * alpha * weights, right + 2 * alpha * weights
    return left + np.where(weights > 0, alpha, -alpha), right + np.where(weights < 0, -alpha, alpha)


def _failing(
    rules: Sequence[Rule], dims: Sequence[tuple[str, int]], derivatives: Derivatives, regularizer: str
) -> Iterable[Failing]:
    """Where the loss does not grow both ways. A slope of 0 is flat for l1; for l2 the square still grows."""

    def fails(pair: tuple[Matrix, Matrix]) -> NDArray[np.bool_]:
        left, right = pair
        return (left > 0) | (right < 0) if regularizer == "l2" else (left >= 0) | (right <= 0)

    for number, place in np.argwhere(fails(derivatives.w1)).tolist():
        left, right = (float(side[number, place]) for side in derivatives.w1)
        yield Failing("W1", rules[number], Constraint(*dims[place]), left, right)
    for number in np.flatnonzero(fails(derivatives.b1)).tolist():
        left, right = (float(side[number]) for side in derivatives.b1)
        yield Failing("b1", rules[number], None, left, right)
    for place, number in np.argwhere(fails(derivatives.w2)).tolist():
        left, right = (float(side[place, number]) for side in derivatives.w2)
        yield Failing("W2", rules[number], None, left, right)


def loss(mlp: Compiled, z: Matrix, targets: Matrix, alpha: float, regularizer: str = "l1") -> float:
    """The loss itself: of the data, and of the parameters."""
    parts = (mlp.w1, mlp.b1, mlp.w2)
    penalty = sum(float((np.abs(part) if regularizer == "l1" else part**2).sum()) for part in parts)
    return alpha * penalty + float(np.abs(mlp.outputs(z) - targets).sum())
