"""That weights do what a program's rules say, shown from the weights as they are.

The argument is an induction over sub-layers: if the residual stream encodes a state exactly, so it does after the next
sub-layer. `certify` checks every step of it for all inputs at once. Since each part of a model is a sum over variables,
the largest and smallest of what a unit can receive is found variable by variable, without enumerating states.

Of the compiler this shares the layout and the encoding; how weights are made, it does not look at.
"""

from __future__ import annotations

from dataclasses import dataclass
from itertools import pairwise

import numpy as np

from alta.analysis.certified_mlp import MlpCheck
from alta.analysis.ground import Ground, Matrix, refuse, require
from alta.analysis.means import holdings
from alta.displayed import Displayed
from alta.errors import amount
from alta.language.program import Head
from alta.language.variables import Categorical, Constant, FromPosition, FromToken, Numerical, Output
from alta.model.weights import Head as HeadWeights
from alta.model.weights import Layer, Sparse, Weights


@dataclass(frozen=True, repr=False)
class Certificate(Displayed):
    """What has been shown of a model, and under which conditions it holds.

    >>> certificate = alta.verify(model)
    >>> certificate.rules, certificate.units, certificate.max_length
    (7, 7, None)
    """

    dtype: str
    max_length: int | None
    layers: int | None  # None where the layers are shared, so that any number of them may run
    rules: int
    units: int
    heads: int
    slack: float  # how far a rule's unit stays from being neither on nor off, at the least
    inputs: int = 0  # that were also run side by side

    def __repr__(self) -> str:
        length = "any length" if self.max_length is None else f"up to {amount(self.max_length, 'token')}"
        parts = f"{amount(self.rules, 'rule')}, {amount(self.heads, 'head')}"
        return f"<certificate: exact in {self.dtype} on inputs of {length}; {parts}>"

    def __str__(self) -> str:
        length = "any length" if self.max_length is None else f"up to {amount(self.max_length, 'token')}"
        depth = "" if self.layers is None else f", for up to {amount(self.layers, 'layer')}"
        parts = f"{amount(self.rules, 'rule')} in {amount(self.units, 'unit')}, {amount(self.heads, 'head')}"
        lines = [
            f"certified: the model does what its program does, on every input of {length} that meets no trap{depth},",
            f"in {self.dtype}{' and wider formats' if self.dtype != 'float64' else ''}",
            f"  {parts}; slack {self.slack:.3f}",
        ]
        if self.inputs:
            lines.append(f"  and side by side on {amount(self.inputs, 'input')}: the same state after every sub-layer")
        return "\n".join(lines)


def certify(weights: Weights) -> Certificate:
    """A certificate for the weights, or VerificationError, which says what is wrong with them."""
    return Checker(weights).check()


class Checker:
    """Checks one set of weights, part by part."""

    def __init__(self, weights: Weights) -> None:
        self.weights = weights
        self.ground = Ground(weights)
        self.program = self.ground.program

    def check(self) -> Certificate:
        """The whole argument."""
        self._check_frame()
        self._check_embeddings()
        slack = min(self._check_layer(layer) for layer in self.weights.distinct)
        self._check_output()
        self._check_halting()
        return Certificate(
            dtype=self.weights.dtype,
            max_length=self.weights.max_length,
            layers=None if self.weights.shared else len(self.weights.layers),
            rules=len(self.program.rules),
            units=self.weights.layers[0].mlp[-1].weight.shape[1],
            heads=len(self.weights.layers[0].heads),
            slack=slack,
        )

    def _check_frame(self) -> None:
        weights, program = self.weights, self.program
        require(weights.activation in ("clipped", "relu"), f"there is no activation {weights.activation!r}")
        require(len(weights.layers) == 1 if weights.shared else bool(weights.layers), "the layers do not add up")
        require(weights.dim == self.ground.layout.dim, "the residual stream does not have the program's width")
        require(weights.vocabulary == program.tokens, "the vocabulary is not the program's")
        require(weights.causal == program.causal, "the causal mask is not the program's")
        require(
            program.positions is None or (weights.max_length is not None and weights.max_length <= program.positions),
            "the longest input is not stated",
        )
        matrices: list[tuple[str, Sparse | None]] = [("token embeddings", weights.tokens)]
        matrices += [("position embeddings", weights.positions), ("output", weights.output), ("halting", weights.halt)]
        for layer in weights.distinct:
            for head in layer.heads:
                parts = (head.query, head.key, head.value, head.output)
                matrices += [(f"head {head.name!r}", part) for part in parts]
                require(head.bias is None or bool(np.isfinite(head.bias).all()), "relative biases are not finite")
            matrices += [("MLP", linear.weight) for linear in layer.mlp]
            require(all(bool(np.isfinite(linear.bias).all()) for linear in layer.mlp), "MLP biases are not finite")
        for what, matrix in matrices:
            if matrix is None:
                continue
            require(bool(np.isfinite(matrix.values).all()), f"{what}: there are weights that are not finite")
            places = matrix.rows.astype(np.int64) * matrix.shape[1] + matrix.columns
            require(len(np.unique(places)) == len(places), f"{what}: two weights are in one place")

    # Embeddings

    def _check_embeddings(self) -> None:
        tokens = self.weights.tokens.dense()
        positions = None if self.weights.positions is None else self.weights.positions.dense()
        require(tokens.shape[0] == len(self.program.tokens), "there is not one embedding for each token")
        from_position = any(isinstance(v.start, FromPosition) for v in self.program.variables.values())
        require(from_position == (positions is not None), "position embeddings are there without use, or missing")
        if positions is not None:
            require(positions.shape[0] == self.program.positions, "there is not one embedding for each position")
        for name, variable in self.program.variables.items():
            part = self.ground.layout.slices[name]
            zero = np.zeros(part.stop - part.start)
            by_token: list[Matrix] = [zero] * len(tokens)
            by_position: list[Matrix] = [zero] * (0 if positions is None else len(positions))
            match variable.start:
                case FromToken(table):
                    by_token = [self.ground.vector(name, value)[part] for value in table]
                case FromPosition(table):
                    by_position = [self.ground.vector(name, value)[part] for value in table]
                case Constant(value):
                    by_token = [self.ground.vector(name, value)[part]] * len(tokens)
                case Output():
                    pass
            for token, wanted in enumerate(by_token):
                if not np.array_equal(tokens[token, part], wanted):
                    refuse(
                        f"the embedding of token {self.program.tokens[token]!r} does not start {name!r} where it should"
                    )
            for position, wanted in enumerate(by_position):
                assert positions is not None
                if not np.array_equal(positions[position, part], wanted):
                    refuse(f"the embedding of position {position} does not start {name!r} where it should")

    def _check_layer(self, layer: Layer) -> float:
        names = [head.name for head in layer.heads]
        require(names == list(self.program.heads), "the heads are not the program's")
        for head in layer.heads:
            self._check_head(self.program.heads[head.name], head)
        return MlpCheck(self.ground).check(layer.mlp)

    # Attention

    def _check_head(self, head: Head, weights: HeadWeights) -> None:
        which = f"head {head.name!r}"
        moved = weights.output.dense() @ weights.value.dense()
        wanted = np.zeros_like(moved)
        read = self.ground.layout.slices[head.value]
        written = self.ground.layout.slices[head.name].start
        for row in range(read.stop - read.start):
            wanted[written + row, read.start + row] = 1.0
        carried = np.array_equal(moved, wanted) and _one_each(weights.value) and _one_each(weights.output)
        require(carried, f"{which} does not carry {head.value!r} to its output as it is")
        scores = weights.query.dense().T @ weights.key.dense()  # (own dim, other dim)
        query, key = self.ground.layout.slices[head.query], self.ground.layout.slices[head.key]
        inside = scores[query, key].copy()
        scores[query, key] = 0
        require(not scores.any(), f"{which} matches on other variables than its query and key")
        by_key = self.ground.tables[head.query][:, query] @ inside  # (query value, key value): the score of a pair
        keys = range(key.stop - key.start)
        matches = [
            [k in q if isinstance(q, frozenset) else k == q for k in keys] for q in self.ground.values[head.query]
        ]
        near, far = self._biases(head, weights, which)
        for row, matched in zip(by_key, np.array(matches), strict=True):
            if not matched.any():
                continue
            hits, misses = row[matched], row[~matched]
            sizes = np.abs(row).max() + np.abs([*near, *far]).max(initial=0)
            rounding = (
                4 * float(self.ground.precision.rounding) + len(keys) * 2.0**-self.ground.precision.sum_bits
            ) * sizes
            below = [misses.max() + near.max()] if misses.size else []
            below += [row.max() + far.max()] if far.size else []
            gap = hits.min() + near.min() - max(below, default=-np.inf)
            require(gap > self.ground.precision.vanishing + rounding, f"{which} lets positions leak that do not match")
            if isinstance(self.program.variables[head.value].domain, Numerical):
                equal = hits.min() == hits.max() and near.min() == near.max()
                require(bool(equal), f"{which} does not weigh the positions that it reads alike")

    def _biases(self, head: Head, weights: HeadWeights, which: str) -> tuple[Matrix, Matrix]:
        """The biases of positions within reach, and of those beyond."""
        if head.relative_positions is None:
            require(weights.bias is None, f"{which} has relative biases, but reads at any distance")
            return np.zeros(1), np.zeros(0)
        if weights.bias is None:
            refuse(f"{which} has no relative biases")
        reach = len(weights.bias) // 2
        enough = len(weights.bias) % 2 == 1 and reach > max(map(abs, head.relative_positions))
        require(enough, f"{which} has too few relative biases")
        within = np.zeros(len(weights.bias), bool)
        within[[reach + offset for offset in head.relative_positions]] = True
        return weights.bias[within], weights.bias[~within]

    # Read-outs

    def _check_output(self) -> None:
        matrix = self.weights.output.dense()
        name = self.program.output
        wrong = f"the output projection does not read {name!r}"
        rest_low, rest_high = np.zeros(len(matrix)), np.zeros(len(matrix))
        pairs_low = np.zeros((len(matrix), len(matrix)))
        own = self.ground.tables[name] @ matrix.T  # (value, logit)
        for other, table in self.ground.tables.items():
            if other != name and not self.program.variables[other].is_output:
                logits = table @ matrix.T
                rest_low += logits.min(axis=0)
                rest_high += logits.max(axis=0)
                pairs_low += (logits[:, :, None] - logits[:, None, :]).min(axis=0)
        if isinstance(self.program.variables[name].domain, Categorical):
            require(self.weights.output_values is None and len(matrix) == len(own), wrong)
            for value, logits in enumerate(own):
                ahead = logits[value] - logits + pairs_low[value]
                require(bool((np.delete(ahead, value) > 1e-2).all()), wrong)
            return
        numbers = [float(value) for value in self.ground.values[name]]  # type: ignore[arg-type]
        require(len(matrix) == 1 and self.weights.output_values is not None, wrong)
        listed = sorted(self.weights.output_values or ())
        require(set(holdings(self.program, name)) <= set(listed), wrong)
        gaps = [high - low for low, high in pairwise(listed)] or [1.0]
        for number, logits in zip(numbers, own, strict=True):
            if number in listed:
                low, high = logits[0] + rest_low[0] - number, logits[0] + rest_high[0] - number
                require(max(abs(low), abs(high)) < min(gaps) / 3, wrong)

    def _check_halting(self) -> None:
        halt = self.program.halt
        require((halt is None) == (self.weights.halt is None), "there is a halting read-out too many or too few")
        if halt is None or self.weights.halt is None:
            return
        row = self.weights.halt.dense()[0]
        low = high = 0.0
        for name, table in self.ground.tables.items():
            if name != halt.variable and not self.program.variables[name].is_output:
                found = table @ row
                low, high = low + float(found.min()), high + float(found.max())
        for value, score in zip(
            self.ground.values[halt.variable], self.ground.tables[halt.variable] @ row, strict=True
        ):
            right = score + low > 0.51 if value == halt.value else score + high < 0.49
            require(bool(right), f"the halting read-out does not tell whether {halt.variable!r} is {halt.value}")


def _one_each(matrix: Sparse) -> bool:
    """Whether no row and no column has two entries."""
    return all(len(np.unique(places)) == len(places) for places in (matrix.rows, matrix.columns))
