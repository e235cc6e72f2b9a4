"""The bundled programs, against arithmetic, `sorted`, a plain SUBLEQ machine and the SCAN data."""

from __future__ import annotations

import gzip
import random
from itertools import product
from pathlib import Path

import pytest
import random_programs
from test_random_programs import compare

from alta import EndlessError, TrapError, UndefinedError, generate, run
from alta.programs import BUNDLED, addition, parity, scan, sort, subleq

SCAN_FILE = Path(__file__).parents[2] / "shared" / "data" / "scan" / "tasks.txt.gz"

EXAMPLES = {
    "jump": "I_JUMP",
    "turn left": "I_TURN_LEFT",
    "walk opposite right": "I_TURN_RIGHT I_TURN_RIGHT I_WALK",
    "turn opposite left twice": "I_TURN_LEFT I_TURN_LEFT I_TURN_LEFT I_TURN_LEFT",
    "look around left": "I_TURN_LEFT I_LOOK I_TURN_LEFT I_LOOK I_TURN_LEFT I_LOOK I_TURN_LEFT I_LOOK",
    "run twice and look": "I_RUN I_RUN I_LOOK",
    "run twice after look thrice": "I_LOOK I_LOOK I_LOOK I_RUN I_RUN",
    "jump left after walk": "I_WALK I_TURN_LEFT I_JUMP",
}


@pytest.fixture(scope="module")
def built():
    return {name: bundled.build() for name, bundled in BUNDLED.items()}


PARITIES = [
    ("parity-absolute", lambda bits: bits, None, lambda n: n - 1),
    ("parity-relative", parity.encode, None, lambda n: n),  # START is a position too
    ("parity-sum", parity.encode, 1, lambda _: 1),
    ("parity-count", parity.encode, 2, lambda _: 2),
]


@pytest.mark.parametrize(("name", "encode", "max_layers", "layers"), PARITIES, ids=[row[0] for row in PARITIES])
def test_parity(built, name, encode, max_layers, layers):
    generator = random.Random(0)
    strings = [list(bits) for n in range(1, 9) for bits in product((0, 1), repeat=n)]
    strings += [[generator.randrange(2) for _ in range(n)] for n in (9, 10, 11, 12, 13, 40, 100)]
    for bits in strings:
        result = run(built[name], encode(bits), max_layers)
        assert parity.decode(result.outputs) == sum(bits) % 2
        assert result.layers == layers(len(bits))


@pytest.mark.slow
@pytest.mark.parametrize(("name", "encode", "max_layers", "layers"), PARITIES, ids=[row[0] for row in PARITIES])
def test_parity_of_all_short_and_some_long_strings(built, name, encode, max_layers, layers):
    generator = random.Random(1)
    strings = [list(bits) for n in range(13) for bits in product((0, 1), repeat=n)]
    strings += [[generator.randrange(2) for _ in range(generator.randint(13, 200))] for _ in range(50)]
    strings += [[1] * 200, [0] * 200]
    for bits in strings:
        result = run(built[name], encode(bits), max_layers)
        assert parity.decode(result.outputs) == sum(bits) % 2
        if bits:
            assert result.layers == layers(len(bits))


def test_sequential_parity_gives_the_parity_of_every_prefix(built):
    for bits in product((0, 1), repeat=7):
        prefixes = tuple(sum(bits[: i + 1]) % 2 for i in range(7))
        assert run(built["parity-absolute"], bits).outputs == prefixes
        assert run(built["parity-relative"], parity.encode(bits)).outputs == (0, *prefixes)


def test_the_shares_of_200_ones_are_told_apart(built):
    for ones in range(201):
        result = run(built["parity-sum"], parity.encode([1] * ones), 1)
        assert parity.decode(result.outputs) == ones % 2


def test_addition(built):
    generator = random.Random(0)
    pairs = [(int("9" * n), 1) for n in (1, 2, 10, 50)] + [(0, 0), (1, int("9" * 30))]
    pairs += [(a, b) for a in range(0, 130, 7) for b in range(0, 130, 11)]
    pairs += [tuple(generator.randrange(10 ** generator.randint(1, 50)) for _ in range(2)) for _ in range(60)]
    for a, b in pairs:
        result = run(built["addition"], addition.encode(a, b))
        assert addition.decode(result.outputs) == a + b
        assert result.layers == max(len(str(a)), len(str(b))) + 2


def test_sort(built):
    generator = random.Random(0)
    for length in range(33):
        numbers = generator.sample(range(32), length)
        result = run(built["sort-unique"], sort.encode(numbers))
        assert sort.decode(result.outputs) == sorted(numbers)
        assert result.layers == 2


def test_sort_of_numbers_that_are_not_unique_is_an_error(built):
    with pytest.raises(UndefinedError, match="ranked_here"):
        run(built["sort-unique"], sort.encode([3, 1, 3]))


class Fault(Exception):
    """The plain machine cannot go on."""


def subleq_machine(registers: list[int], low: int, high: int, most: int) -> tuple[list[int], int] | None:
    """The registers at the end and the number of instructions, or None if it goes on for longer than `most`."""
    memory, at = list(registers), 0
    for executed in range(most + 1):
        if at + 2 >= len(memory):
            raise Fault
        a, b, c = memory[at : at + 3]
        if a < 0 or b < 0:
            return memory, executed
        if a >= len(memory) or b >= len(memory) or not low <= memory[b] - memory[a] <= high:
            raise Fault
        memory[b] -= memory[a]
        at = c if memory[b] <= 0 else at + 3
        if at < 0:
            return memory, executed + 1
    return None


def test_subleq_on_random_programs(built):
    """Random memory overwrites its own instructions more often than not."""
    generator = random.Random(0)
    seen = {"halted": 0, "rewrote itself": 0, "fault": 0}
    while seen["halted"] < 200:
        size = generator.randint(3, 17)
        memory = [generator.choice((-1, *range(size), generator.randint(-16, 16))) for _ in range(size)]
        try:
            expected = subleq_machine(memory, -16, 16, 60)
        except Fault:
            if seen["fault"] < 50:
                seen["fault"] += 1
                with pytest.raises((TrapError, UndefinedError)):
                    run(built["subleq"], subleq.encode(memory))
            continue
        if expected is None:
            continue
        registers, instructions = expected
        result = run(built["subleq"], subleq.encode(memory))
        assert subleq.decode(result.outputs) == registers
        halted_by_operand = result.layers % 3
        assert result.layers == 3 * instructions + halted_by_operand
        seen["halted"] += 1
        seen["rewrote itself"] += instructions > 2 and registers[:3] != memory[:3]
    assert min(seen.values()) > 5, seen


def test_subleq_in_another_range():
    program = subleq.subleq(-40, 30)
    memory = [3, 4, -1, 20, -19]
    result = run(program, subleq.encode(memory))
    assert subleq.decode(result.outputs, -40) == [3, 4, -1, 20, -39]


def test_subleq_that_never_halts_is_told(built):
    with pytest.raises(EndlessError):
        run(built["subleq"], subleq.encode([3, 3, 0, 0]))


@pytest.mark.parametrize(("command", "actions"), EXAMPLES.items())
def test_scan(built, command, actions):
    assert scan.decode(run(built["scan"], scan.encode(command)).outputs) == actions.split()


def test_scan_refuses_what_is_no_command(built):
    for command in ("jump jump", "and", "left", "jump and", "twice jump", "jump and walk and run", "turn around"):
        for name, encode in (("scan", scan.encode), ("scan-parser", scan.encode_parser)):
            with pytest.raises(TrapError, match="the words do not make up one command|the command ends too early"):
                run(built[name], encode(command))


@pytest.mark.skipif(not SCAN_FILE.exists(), reason="the SCAN data is not here")
def test_scan_on_some_of_the_data(built):
    lines = scan_lines()
    generator = random.Random(0)
    for command, actions in generator.sample(lines, 20):
        check_scan(built["scan"], command, actions)


@pytest.mark.slow
@pytest.mark.skipif(not SCAN_FILE.exists(), reason="the SCAN data is not here")
def test_scan_on_the_longest_and_200_of_the_data(built):
    lines = sorted(scan_lines(), key=lambda pair: -len(pair[1]))
    generator = random.Random(1)
    for command, actions in (*lines[:10], *generator.sample(lines, 200)):
        check_scan(built["scan"], command, actions)


def scan_lines() -> list[tuple[str, list[str]]]:
    with gzip.open(SCAN_FILE, "rt") as lines:
        pairs = [line.removeprefix("IN: ").split(" OUT: ") for line in lines]
    return [(command, actions.split()) for command, actions in pairs]


def check_scan(program, command: str, actions: list[str]) -> None:
    result = run(program, scan.encode(command))
    assert scan.decode(result.outputs) == actions, command
    assert result.layers <= 408


def yield_of(tree: list[scan.Production]) -> list[str]:
    """The words under a tree whose nodes come in the order of reduction: the reverse of a rightmost derivation."""
    words = ["Command"]
    for production in reversed(tree):
        at = max(i for i, symbol in enumerate(words) if symbol == production.left)
        assert all(symbol in scan.WORDS for symbol in words[at + 1 :])
        words[at : at + 1] = production.right
    return words


@pytest.mark.parametrize("command", EXAMPLES)
def test_the_parsed_tree_derives_the_command(built, command):
    result = run(built["scan-parser"], scan.encode_parser(command))
    assert yield_of(scan.decode_parser(result.outputs)) == command.split()


def test_parity_scratchpad(built):
    generator = random.Random(0)
    strings = [list(bits) for n in range(5) for bits in product((0, 1), repeat=n)]
    strings.append([generator.randrange(2) for _ in range(25)])
    for bits in strings:
        result = generate(built["parity-scratchpad"], parity.encode_scratchpad(bits), stop="END")
        assert result.tokens == (*(str(sum(bits[: i + 1]) % 2) for i in range(len(bits))), "END")
        assert result.stopped


def test_addition_decoder(built):
    generator = random.Random(0)
    pairs = [(0, 0), (9, 1), (999, 1), (1, 999), (5, 5), (12345, 0), (99999999, 1)]
    pairs += [tuple(generator.randrange(10 ** generator.randint(1, 9)) for _ in range(2)) for _ in range(30)]
    for a, b in pairs:
        result = generate(built["addition-decoder"], addition.encode_decoder(a, b), stop="END")
        width = max(len(str(a)), len(str(b)), len(str(a + b)))
        assert result.tokens == (*str(a + b).zfill(width)[::-1], "END")
        assert addition.decode_decoder(result.tokens) == a + b


MOST_RULES = {
    "parity-absolute": (3, 4),
    "parity-relative": (3, 4),
    "parity-sum": (257, 257),
    "parity-count": (514, 258),
    "addition": (16_421, 45),
    "subleq": (43_127 - 165, 165),
    "scan": (70_792 - 5_657, 5_657),
}


@pytest.mark.parametrize("name", BUNDLED)
def test_rules_agree_with_functions(built, name):
    program = built[name]
    generator = random.Random(0)
    for _ in range(300):
        compare(program, random_programs.assignment(generator, program))
        compare(program, random_programs.assignment(generator, program, undefined=0.3))


@pytest.mark.parametrize(("name", "most"), MOST_RULES.items())
def test_there_are_few_rules(built, name, most):
    rules = built[name].rules
    assert len(rules.core) <= most[0]
    assert len(rules.resets) <= most[1]


def test_heads(built):
    assert len(built["subleq"].heads) == 5
    assert len(built["scan"].heads) <= 13


@pytest.mark.parametrize("name", BUNDLED)
def test_every_example_runs(built, name):
    bundled = BUNDLED[name]
    inputs = bundled.encode(bundled.example)
    if built[name].causal:
        assert generate(built[name], inputs, stop=bundled.stop).stopped
    else:
        assert run(built[name], inputs, bundled.max_layers).layers > 0
