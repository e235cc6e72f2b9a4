"""The examples that rules are judged by: which constraints hold where."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from typing import Any

import numpy as np
from numpy.typing import NDArray

from alta.language.rules import Constraint, Rule
from alta.language.variables import UNDEFINED

Bools = NDArray[np.bool_]


class Table:
    """The data, by variable: which examples have which value."""

    def __init__(self, rules: Sequence[Rule], data: Iterable[Mapping[str, Any]]) -> None:
        examples = list(data)
        self.size = len(examples)
        self._holds: dict[Constraint, Bools] = {}
        self._open: dict[str, Bools] = {}
        for name in {constraint.variable for rule in rules for constraint in rule.antecedent}:
            column = [example[name] for example in examples]
            self._open[name] = np.array([value is UNDEFINED for value in column], bool)
            for value in {c.value for rule in rules for c in rule.antecedent if c.variable == name}:
                self._holds[Constraint(name, value)] = np.array([other == value for other in column], bool)

    def holds(self, constraint: Constraint) -> Bools:
        """Where a constraint holds."""
        return self._holds[constraint]

    def is_open(self, constraint: Constraint) -> Bools:
        """Where a constraint is on a variable that is UNDEFINED."""
        return self._open[constraint.variable]

    def fires(self, antecedent: Iterable[Constraint]) -> Bools:
        """Where all constraints hold."""
        found = np.ones(self.size, bool)
        for constraint in antecedent:
            found &= self._holds[constraint]
        return found

    def reaches(self, antecedent: Iterable[Constraint]) -> Bools:
        """Where all constraints on what is defined hold."""
        found = np.ones(self.size, bool)
        for constraint in antecedent:
            found &= self._holds[constraint] | self._open[constraint.variable]
        return found

    def kinds(self, constraints: Iterable[Constraint], where: Bools) -> NDArray[np.int64]:
        """The numbers of examples, one for each way in which the constraints hold, fail or are open in those given."""
        numbers = np.flatnonzero(where)
        key, codes = np.zeros(len(numbers), np.int64), 1
        for constraint in constraints:
            if codes > 2**60:
                key, codes = np.unique(key, return_inverse=True)[1].astype(np.int64), len(numbers)
            key = 3 * key + self._holds[constraint][numbers] + 2 * self._open[constraint.variable][numbers]
            codes *= 3
        return numbers[np.unique(key, return_index=True)[1]]
