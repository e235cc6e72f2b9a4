"""Where every variable starts: embeddings of tokens and positions."""

from __future__ import annotations

from alta.compiler.encoding import Encoding
from alta.language.variables import Constant, FromPosition, FromToken
from alta.model.weights import Sparse


def token_embeddings(encoding: Encoding) -> Sparse:
    """What starts from the token, and the constants."""
    entries: dict[tuple[int, int], float] = {}
    tokens = range(len(encoding.program.tokens))
    for name, variable in encoding.program.variables.items():
        for token in tokens:
            match variable.start:
                case FromToken(table):
                    value = table[token]
                case Constant(constant):
                    value = constant
                case _:
                    continue
            entries |= {(token, place): number for place, number in encoding.entries(name, value).items()}
    return Sparse.of((len(tokens), encoding.layout.dim), entries)


def position_embeddings(encoding: Encoding) -> Sparse | None:
    """What starts from the position, or None if nothing does."""
    entries: dict[tuple[int, int], float] = {}
    found = False
    for name, variable in encoding.program.variables.items():
        if isinstance(variable.start, FromPosition):
            found = True
            for position, value in enumerate(variable.start.table):
                entries |= {(position, place): number for place, number in encoding.entries(name, value).items()}
    positions = encoding.program.positions
    return Sparse.of((positions, encoding.layout.dim), entries) if found and positions is not None else None
