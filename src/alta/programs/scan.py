"""SCAN: from a command such as `jump around left twice and walk` to the actions that it asks for.

Two programs share a shift-reduce parser: `parser`, whose output is the parse tree, and `scan`, which goes on to walk
over the tree and write the actions. Neither knows an absolute position. A pointer is a variable that is 1 at one
position; it moves by looking at its neighbours, and is read by a head whose key it is. So what a program has learned on
short commands holds for long ones.

The stack, the tree and the actions are variables too, and so share the positions between START and END. The stack
grows to the right; each of its cells remembers the symbol under it, so that the top of the stack tells the top two.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

from alta.errors import InputError
from alta.language.builder import Declaration, HeadDeclaration, halt_spec, program_spec, qkv, v_relative, var
from alta.language.program import Program, Token

VERBS = ("turn", "walk", "look", "run", "jump")
WORDS = (*VERBS, "left", "right", "opposite", "around", "twice", "thrice", "and", "after")
TOKENS = (*WORDS, "EOS", "MEM", "START", "END")
SYMBOLS = (*TOKENS, "Verb", "Side", "Turns", "Action", "Phrase", "Rest", "Command")
ACTIONS = ("", "I_TURN_LEFT", "I_TURN_RIGHT", "I_WALK", "I_LOOK", "I_RUN", "I_JUMP")

LONGEST_PHRASE = 24
"""The actions of `jump around left thrice`."""


@dataclass(frozen=True, slots=True)
class Production:
    """A rule of the grammar: `right` is reduced to `left`."""

    left: str
    right: tuple[str, ...]

    def __str__(self) -> str:
        return f"{self.left} -> {' '.join(self.right)}"


GRAMMAR = (
    *(Production("Verb", (verb,)) for verb in VERBS),
    Production("Side", ("left",)),
    Production("Side", ("right",)),
    Production("Turns", ("opposite", "Side")),
    Production("Turns", ("around", "Side")),
    Production("Turns", ("Side",)),
    Production("Action", ("Verb", "Turns")),
    Production("Action", ("Verb",)),
    Production("Phrase", ("Action", "twice")),
    Production("Phrase", ("Action", "thrice")),
    Production("Phrase", ("Action",)),
    Production("Rest", ("and", "Phrase")),
    Production("Rest", ("after", "Phrase")),
    Production("Command", ("Phrase", "Rest")),
    Production("Command", ("Phrase",)),
)

CONTINUED_BY = {
    "Verb": ("left", "right", "opposite", "around"),
    "Action": ("twice", "thrice"),
    "Phrase": ("and", "after"),
}
"""The words that a symbol waits for before it is reduced on its own."""

NO_NODE = 0
NODES = {production: number for number, production in enumerate(GRAMMAR, start=1)}

NO_KIND, PART, TOP = range(3)
"""What a node of the tree is a part of: of nothing, since there is no node; of a phrase; or of the command itself."""

# What to do in a layer. While parsing, one layer decides and the next one acts, so that the rules for acting do not
# multiply with the reasons for it. From REDUCE on, the number tells the production.
BEGIN, DECIDE, SHIFT, SEEK, REWIND, READ, PLAY, REPEAT, DONE, REDUCE = range(10)
STEPS = REDUCE + len(GRAMMAR)


def parser() -> Program:
    """Writes the tree: the numbers of the productions, in the order in which they are reduced (see `GRAMMAR`)."""

    def mlp(z: Any) -> None:
        parse(z, parsed=DONE)

    return program_spec(
        variables=_parser_variables(),
        heads=_parser_heads(),
        ffn_fn=mlp,
        output_name="node",
        tokens=TOKENS,
        halt=halt_spec("step", DONE),
    )


def scan() -> Program:
    """Writes the actions. Decoding reads the tree phrase by phrase into a few variables, and plays each phrase."""

    def mlp(z: Any) -> None:
        if z["step"] == BEGIN:
            move_right(z, "writing")
        if z["step"] == SEEK:
            seek(z)
        elif z["step"] == REWIND:
            rewind(z)
        elif z["step"] == READ:
            read(z)
        elif z["step"] == PLAY:
            play(z)
        elif z["step"] == REPEAT:
            repeat(z)
        else:
            parse(z, parsed=SEEK)

    return program_spec(
        variables={
            **_parser_variables(),
            "writing": var(2, input_init_fn=lambda token: token == "START"),
            "action": var(len(ACTIONS)),
            # The phrase that is read or played, and how much of it is left.
            "leftwards": var(2),
            "verb": var(len(ACTIONS)),
            "side": var(len(ACTIONS)),
            "turns": var(3),
            "turns_left": var(3),
            "rounds": var(5, default=1),
            "rounds_left": var(5, default=1),
            "times_left": var(4),
        },
        heads={
            **_parser_heads(),
            "tree_node": qkv("one", "growing", "node"),
            "tree_kind": qkv("one", "growing", "kind"),
            "growing_right": v_relative("growing", 1),
            "writing_left": v_relative("writing", -1),
        },
        ffn_fn=mlp,
        output_name="action",
        tokens=TOKENS,
        halt=halt_spec("step", DONE),
    )


def parse(z: Any, parsed: int) -> None:
    """One step of the parser. Once the stack holds a command, goes on with the step `parsed`."""
    if z["step"] == BEGIN:
        move_right(z, "reading")
        move_right(z, "growing")
        z["step"] = DECIDE
    elif z["step"] == DECIDE:
        z["step"] = decide(z, parsed)
    elif z["step"] == SHIFT:
        if not z["is_start"] and z["top_left"]:
            z["symbol"], z["under"] = z["word"], z["top_symbol"]
        move_right(z, "top")
        move_right(z, "reading")
        z["step"] = DECIDE
    else:
        for production, node in NODES.items():
            if z["step"] == REDUCE + node - 1:
                reduce(z, production, node)
                z["step"] = DECIDE
                return


def decide(z: Any, parsed: int) -> int:
    """What the parser does next, from the top of the stack and the next word."""
    top = z["top_symbol"]
    if top == symbol("Command"):
        if z["word"] != symbol("EOS") or z["top_under"] != symbol("START"):
            raise ValueError("the words do not make up one command")
        return parsed
    for waiting, words in CONTINUED_BY.items():
        if top == symbol(waiting) and z["word"] in tuple(map(symbol, words)):
            return SHIFT
    for production, node in NODES.items():
        *before, last = map(symbol, production.right)
        if top == last and all(z["top_under"] == other for other in before):
            return REDUCE + node - 1
    if z["word"] == symbol("EOS"):
        raise ValueError("the command ends too early")
    return SHIFT


def reduce(z: Any, production: Production, node: int) -> None:
    """Puts the left side where the right side begins, and a node at the end of the tree. A cell that leaves the stack
    is as if it had never been used, so that what is learned of one use holds for the next."""
    if len(production.right) == 2:
        if z["top"]:
            z["symbol"] = z["under"] = symbol("START")
        move_left(z, "top")
    if z["top"]:
        z["symbol"] = symbol(production.left)
    if z["growing"]:
        z["node"] = node
        z["kind"] = TOP if production.left in ("Rest", "Command") else PART
    move_right(z, "growing")


def seek(z: Any) -> None:
    """Finds the phrase to begin with. The tree ends with it, unless the command is `A and B`."""
    move_left(z, "growing")
    if z["tree_node"] == node_of("Rest", "and", "Phrase"):
        z["step"] = REWIND
    elif z["tree_node"] in (node_of("Rest", "after", "Phrase"), node_of("Command", "Phrase")):
        z["leftwards"] = 1
        z["step"] = READ


def rewind(z: Any) -> None:
    """Goes back to the first node."""
    if z["tree_kind"] == NO_KIND:
        move_right(z, "growing")
        z["step"] = READ
    else:
        move_left(z, "growing")


def read(z: Any) -> None:
    """Reads one node of a phrase. Its verb comes first in the tree, so a phrase read leftwards ends with it."""
    if z["tree_kind"] != PART:
        z["step"] = DONE
        return
    node = z["tree_node"]
    for verb in VERBS:
        if node == node_of("Verb", verb):
            z["verb"] = 0 if verb == "turn" else ACTIONS.index(f"I_{verb.upper()}")
            if z["leftwards"]:
                z["step"] = PLAY
    for side in ("left", "right"):
        if node == node_of("Side", side):
            z["side"] = ACTIONS.index(f"I_TURN_{side.upper()}")
    for right, turns, rounds in ((("Side",), 1, 1), (("opposite", "Side"), 2, 1), (("around", "Side"), 1, 4)):
        if node == node_of("Turns", *right):
            z["turns"] = z["turns_left"] = turns
            z["rounds"] = z["rounds_left"] = rounds
    for right, times in ((("Action",), 1), (("Action", "twice"), 2), (("Action", "thrice"), 3)):
        if node == node_of("Phrase", *right):
            z["times_left"] = times
            if not z["leftwards"]:
                z["step"] = PLAY
    if z["leftwards"]:
        move_left(z, "growing")
    else:
        move_right(z, "growing")


def play(z: Any) -> None:
    """Writes one action: so many turns, then the verb, in so many rounds, so many times. At the end of a phrase, all
    that was read of it is forgotten."""
    if z["turns_left"] > 0:
        write(z, z["side"])
        z["turns_left"] -= 1
        return
    if z["verb"]:
        write(z, z["verb"])
    if z["rounds_left"] > 1:
        z["rounds_left"] -= 1
        z["turns_left"] = z["turns"]
    elif z["times_left"] > 1:
        z["times_left"] -= 1
        z["step"] = REPEAT
    else:
        z["verb"] = z["side"] = z["turns"] = z["times_left"] = 0
        z["rounds"] = z["rounds_left"] = 1
        z["step"] = READ


def repeat(z: Any) -> None:
    """Begins a phrase once more."""
    z["rounds_left"] = z["rounds"]
    z["turns_left"] = z["turns"]
    z["step"] = PLAY


def write(z: Any, action: Any) -> None:
    """Writes an action."""
    if z["writing"]:
        z["action"] = action
    move_right(z, "writing")


def move_right(z: Any, pointer: str) -> None:
    """Moves a pointer by one position."""
    z[pointer] = 0 if z["is_start"] else z[f"{pointer}_left"]


def move_left(z: Any, pointer: str) -> None:
    """Moves a pointer by one position."""
    z[pointer] = 0 if z["is_end"] else z[f"{pointer}_right"]


def symbol(name: str) -> int:
    """The number of a symbol. A word has the same number as a symbol and as a token."""
    return SYMBOLS.index(name)


def node_of(left: str, *right: str) -> int:
    """The number of a production."""
    return NODES[Production(left, right)]


def _parser_variables() -> dict[str, Declaration]:
    def starts_at_start() -> Declaration:
        return var(2, input_init_fn=lambda token: token == "START")

    return {
        "token": var(len(TOKENS), input_init_fn=TOKENS.index),
        "is_start": starts_at_start(),
        "is_end": var(2, input_init_fn=lambda token: token == "END"),
        "one": var(2, default=1),
        "step": var(STEPS, default=BEGIN),
        # Pointers to the next word, to the top of the stack, and to where the next node of the tree goes.
        "reading": starts_at_start(),
        "top": starts_at_start(),
        "growing": starts_at_start(),
        # A cell of the stack, and of the tree.
        "symbol": var(len(SYMBOLS), default=symbol("START")),
        "under": var(len(SYMBOLS), default=symbol("START")),
        "node": var(len(GRAMMAR) + 1, default=NO_NODE),
        "kind": var(3, default=NO_KIND),
    }


def _parser_heads() -> dict[str, HeadDeclaration]:
    return {
        "word": qkv("one", "reading", "token"),
        "top_symbol": qkv("one", "top", "symbol"),
        "top_under": qkv("one", "top", "under"),
        "reading_left": v_relative("reading", -1),
        "top_left": v_relative("top", -1),
        "top_right": v_relative("top", 1),
        "growing_left": v_relative("growing", -1),
    }


def encode(command: str) -> list[Token]:
    """The tokens of `scan`: the words, and as many memory tokens as its actions may need."""
    words = command.split()
    phrases = 1 + words.count("and") + words.count("after")
    return _tokens(words, LONGEST_PHRASE * phrases)


def encode_parser(command: str) -> list[Token]:
    """The tokens of `parser`: the words, and as many memory tokens as the tree may need."""
    words = command.split()
    return _tokens(words, 2 * len(words) + 4)


def _tokens(words: Sequence[str], cells: int) -> list[Token]:
    for word in words:
        if word not in WORDS:
            raise InputError(f"{word!r} is no word of SCAN; words: {', '.join(WORDS)}")
    return ["START", *words, "EOS", *["MEM"] * max(0, cells - len(words) - 1), "END"]


def decode(outputs: Sequence[Any]) -> list[str]:
    """The actions that `scan` has written."""
    return [ACTIONS[action] for action in outputs if action]


def decode_parser(outputs: Sequence[Any]) -> list[Production]:
    """The productions that `parser` has reduced by."""
    return [GRAMMAR[node - 1] for node in outputs if node != NO_NODE]
