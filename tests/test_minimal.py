"""Coverage, minimal programs and predictions, against plain runs, arithmetic and the SCAN data."""

from __future__ import annotations

import gzip
import json
import random
from collections import Counter
from concurrent.futures import ProcessPoolExecutor
from itertools import islice, product

import numpy as np
import pytest
import random_programs
from test_lowering import addition_as_in_the_paper
from test_programs import SCAN_FILE, scan_lines

from alta import (
    Coverage,
    ExecutionError,
    InputError,
    compile,
    coverage,
    minimal,
    predict,
    run,
    run_batch,
    verify,
)
from alta.language.variables import FromToken
from alta.programs import BUNDLED, addition, parity, scan, scan_data

SHORT = [list(bits) for n in range(1, 9) for bits in product((0, 1), repeat=n)]


def plain_coverage(program, batch, max_layers):
    """What plain runs tell."""
    rules, tokens, lengths, values = Counter(), Counter(), [], {name: set() for name in program.variables}
    for given in batch:
        try:
            result = run(program, given, max_layers)
        except ExecutionError:
            continue
        rules.update(rule for layer in result.trace.layers for fired in layer.fired for rule in fired)
        tokens.update(given)
        lengths.append(len(given))
        for name, state in result.trace.states:
            if not name.startswith("attention"):
                for assignment in state:
                    for variable in program.variables:
                        if variable not in program.heads:
                            values[variable].add(assignment[variable])
    return rules, tokens, lengths, values


def test_coverage_counts_what_plain_runs_do():
    for seed in range(150):
        generator = random.Random(seed)
        program = random_programs.program(seed)
        batch = [random_programs.inputs(generator, program) for _ in range(8)]
        found = coverage(program, batch, 4)
        rules, tokens, lengths, values = plain_coverage(program, batch, 4)
        assert found.fired == rules
        assert found.tokens == tokens
        assert found.positions == max(lengths, default=0)
        assert found.position_counts.tolist() == [sum(n > i for n in lengths) for i in range(found.positions)]
        assert (found.inputs, found.failed) == (8, 8 - len(lengths))
        for name in program.variables.keys() - program.heads.keys():
            assert set(found.values[name]) == values[name], name


def same(one: Coverage, other: Coverage) -> bool:
    arrays = ("rule_counts", "token_counts", "position_counts")
    numbers = ("inputs", "failed", "layers", "packed")
    return all(np.array_equal(getattr(one, name), getattr(other, name)) for name in arrays) and all(
        getattr(one, name) == getattr(other, name) for name in numbers
    )


def test_coverage_adds_up_in_any_order_and_over_workers():
    program = BUNDLED["addition"].build()
    batch = [addition.encode(a, b) for a in range(0, 120, 7) for b in range(0, 120, 11)]
    whole = coverage(program, batch, mlp_inputs=True)
    parts = [coverage(program, batch[first:last], mlp_inputs=True) for first, last in ((0, 9), (9, 80), (80, None))]
    assert same(whole, parts[0] + (parts[1] + parts[2]))
    assert same(whole, (parts[2] + parts[0]) + parts[1])
    with ProcessPoolExecutor(2) as executor:
        assert same(whole, coverage(program, batch, executor=executor, chunk=20, mlp_inputs=True))
    assert sum(whole.packed.values()) > len(whole.packed) > 100
    with pytest.raises(InputError, match="of one program cannot be added to that of another"):
        whole + coverage(parity.relative(), [["START"]])


def test_coverage_is_saved_and_read_back(tmp_path):
    program = BUNDLED["addition"].build()
    path = tmp_path / "seen.json"
    coverage(program, [addition.encode(95, 7)], mlp_inputs=True).save(path)
    found = coverage(program, [addition.encode(95, 7)], mlp_inputs=True)
    assert same(Coverage.load(path, program), found)
    assert len(found.mlp_inputs) == len(found.packed) > 10
    found = coverage(program, [addition.encode(95, 7)])
    with pytest.raises(InputError, match="MLP inputs were not collected"):
        found.mlp_inputs  # noqa: B018
    found.save(path)
    assert same(Coverage.load(path, program), found)
    with pytest.raises(InputError, match="was begun without MLP inputs"):
        coverage(program, [addition.encode(95, 7)], mlp_inputs=True, checkpoint=path)
    with pytest.raises(InputError, match="holds the coverage of another program"):
        Coverage.load(path, parity.relative())
    data = json.loads(path.read_text())
    for damage in ({"format": "alta-coverage 9"}, {"rules": {"99999": 1}}, {"rules": 3}):
        path.write_text(json.dumps({**data, **damage}))
        with pytest.raises(InputError):
            Coverage.load(path, program)
    path.write_text("{")
    with pytest.raises(InputError, match="no coverage that can be read"):
        Coverage.load(path, program)


def test_a_run_that_was_ended_goes_on_where_it_was(tmp_path):
    program = parity.relative()
    path = tmp_path / "seen.json"
    taken = []

    def inputs(last):
        for number in range(1000):
            if number == last:
                raise KeyboardInterrupt
            taken.append(number)
            yield parity.encode([number >> bit & 1 for bit in range(10)])

    with pytest.raises(KeyboardInterrupt):
        coverage(program, inputs(730), chunk=10, checkpoint=path)
    before = Coverage.load(path, program)
    assert before.inputs == 500  # every 50 chunks
    found = coverage(program, inputs(None), chunk=10, checkpoint=path)
    assert same(found, coverage(program, list(inputs(None))))
    assert same(found, Coverage.load(path, program))


def test_minimal_parity():
    """The paper's figures: 7 rules that hold at all lengths, and 31 that hold up to 20 ones."""
    generator = random.Random(0)
    train = [[generator.randrange(2) for _ in range(n)] for n in range(1, 21) for _ in range(30)]
    train += [[1] * n for n in range(21)]
    test = [[generator.randrange(2) for _ in range(n)] for n in range(1, 41) for _ in range(10)] + [[1] * 40, [1] * 33]
    found = predict(parity.relative(), map(parity.encode, train), map(parity.encode, test))
    assert (found.minimal.core, found.minimal.resets) == (3, 4)
    assert found.accuracy == found.original == 1.0
    found = predict(parity.absolute(), train, test, by=lambda bits: len(bits) <= 20)
    assert found.groups[True][2] == found.groups[True][0]
    assert found.groups[False][2] == 0
    assert all("positions never seen: 20 to" in failure.reasons[0] for failure in found.failures)
    count = lambda tokens: tokens.count("1")  # noqa: E731
    found = predict(parity.by_sum(), map(parity.encode, train), map(parity.encode, test), 1, by=count)
    assert (found.minimal.core, found.minimal.resets) == (10, 21)
    for ones, (number, original, small) in found.groups.items():
        assert original == number
        assert small == (0 if ones > 20 and ones % 2 else number)  # an even count leaves the parity at its 0
    assert all("rules never fired" in failure.reasons[0] for failure in found.failures)


def test_minimal_addition_from_three_digits_adds_fifty():
    generator = random.Random(0)
    pairs = [(a, b) for a in range(100) for b in range(100)]
    pairs += [(generator.randrange(1000), generator.randrange(1000)) for _ in range(10_000)]
    small = minimal(addition.addition(), (addition.encode(*pair) for pair in pairs))
    assert small.core <= 844
    assert small.resets <= 40
    test = [(generator.randrange(10**49, 10**50), generator.randrange(10**49, 10**50)) for _ in range(50)]
    test += [(int("9" * 50), 1)]
    for pair, result in zip(test, run_batch(small.program, [addition.encode(*p) for p in test]), strict=True):
        assert addition.decode(result.outputs) == sum(pair)


def test_the_papers_addition_keeps_884_rules_and_adds_fifty_digits():
    def encode(a, b, digits):
        return [10, *map(int, str(a).zfill(digits)), 11, *map(int, str(b).zfill(digits)), 12]

    generator = random.Random(0)
    train = [encode(a, b, 1) for a in range(10) for b in range(10)]
    train += [encode(a, b, 2) for a in range(100) for b in range(100)]
    train += [encode(generator.randrange(1000), generator.randrange(1000), 3) for _ in range(10_000)]
    small = minimal(addition_as_in_the_paper(), train)
    assert small.core <= 844
    assert small.resets <= 40
    test = [(generator.randrange(10**50), generator.randrange(10**50)) for _ in range(50)] + [(10**50 - 1, 1)]
    for (a, b), result in zip(test, run_batch(small.program, [encode(*pair, 50) for pair in test]), strict=True):
        assert int("".join(map(str, result.outputs[51:102]))) == a + b


def test_a_minimal_program_keeps_every_run_of_its_training_data():
    tried = 0
    for seed in range(300):
        generator = random.Random(seed)
        program = random_programs.program(seed)
        batch = [random_programs.inputs(generator, program) for _ in range(5)]
        small = minimal(program, batch, 4).program
        for one, other in zip(run_batch(program, batch, 4), run_batch(small, batch, 4), strict=True):
            if one.error is None:
                assert (one.outputs, one.layers, one.halted) == (other.outputs, other.layers, other.halted)
                tried += 1
        compiled = small.lowered()
        assert compiled == small
    assert tried > 300


def test_what_was_never_seen_starts_at_the_default():
    small = minimal(BUNDLED["addition"].build(), [addition.encode(1, 2)]).program
    start = small.variables["value"].start
    assert isinstance(start, FromToken)
    values = dict(zip(small.tokens, start.table, strict=True))
    assert (values["1"], values["2"], values["7"], values["9"]) == (1, 2, 0, 0)


def test_minimal_programs_compile_and_verify():
    small = minimal(scan.scan(), [scan.encode(example.command) for example in scan_data.examples()[:102]])
    model = compile(small.program)
    verify(model, [scan.encode("jump around left twice")])
    assert model.weights.layers[0].mlp[-1].weight.shape[1] < 600


def solved(split: str, test_size: int | None = None):
    train, test = (scan_data.split(split, part) for part in ("train", "test"))
    test = random.Random(0).sample(test, min(test_size or len(test), len(test)))
    actions = {tuple(scan.encode(example.command)): [*example.actions] for example in test}
    return predict(
        scan.scan(),
        (scan.encode(example.command) for example in train),
        list(actions),
        right=lambda tokens, outputs: scan.decode(outputs) == actions[tuple(tokens)],
        by=lambda _: split,
    )


@pytest.mark.parametrize("split", ["mcd2", "addprim_jump"])
def test_the_minimal_scan_program_solves_a_split(split):
    found = solved(split, 500)
    assert found.accuracy == 1.0
    assert found.minimal.core + found.minimal.resets < 400


@pytest.mark.slow
@pytest.mark.parametrize("split", scan_data.splits())
def test_the_minimal_scan_program_solves_every_split(split):
    assert solved(split).accuracy == 1.0


def test_there_are_few_rules_for_all_of_scan():
    small = minimal(scan.scan(), [scan.encode(example.command) for example in scan_data.examples()])
    assert small.core + small.resets < 400


SIZES = {
    "simple": (16728, 4182),
    "length": (16990, 3920),
    "addprim_jump": (13204, 7706),
    "addprim_turn_left": (19702, 1208),
    "template_around_right": (15225, 4476),
    "mcd1": (8365, 1045),
    "mcd2": (8365, 1045),
    "mcd3": (8365, 1045),
}


@pytest.mark.parametrize("split", SIZES)
def test_splits(split):
    train, test = (scan_data.split(split, part) for part in ("train", "test"))
    assert (len(train), len(test)) == SIZES[split]
    assert not set(train) & set(test)
    if split == "length":
        assert max(len(example.actions) for example in train) == 22 < min(len(example.actions) for example in test)
    if split == "addprim_jump":
        assert [example.command for example in train if "jump" in example.command] == ["jump"]
    if split == "template_around_right":
        assert all("around right" in example.command for example in test)
        assert not any("around right" in example.command for example in train)


@pytest.mark.skipif(not SCAN_FILE.exists(), reason="the SCAN data is not here")
def test_the_grammar_makes_scan():
    lines = scan_lines()
    made = {example.command: [*example.actions] for example in scan_data.examples()}
    assert made == dict(lines)
    assert len(scan_data.examples()) == len(lines) == 20_910
    with gzip.open(SCAN_FILE.with_name("splits.json.gz")) as file:
        splits = json.load(file)
    for name, parts in splits.items():
        for part, members in parts.items():
            assert {example.command for example in scan_data.split(name, part)} == {lines[i][0] for i in members}


def test_coverage_takes_what_does_not_fit_in_memory():
    def inputs():
        number = 0
        while True:
            yield parity.encode([number >> bit & 1 for bit in range(number % 12)])
            number += 1

    assert coverage(parity.relative(), islice(inputs(), 20_000), chunk=500).inputs == 20_000


MISTAKES = [
    (lambda: scan_data.split("nothing", "train"), "there is no split 'nothing' of SCAN; splits: simple, length"),
    (lambda: scan_data.split("length", "dev"), "a split has the parts train and test; got 'dev'"),
    (lambda: coverage(parity.by_sum(), [["START"]]), "no halting condition, so it needs max_layers"),
    (lambda: coverage(parity.relative(), "101"), "a batch is a sequence of inputs"),
    (lambda: minimal(parity.relative(), [["2"]]), "input 0: '2' at position 0 is not a token"),
]


@pytest.mark.parametrize(("mistake", "message"), MISTAKES, ids=[message[:30] for _, message in MISTAKES])
def test_mistakes(mistake, message):
    with pytest.raises(InputError, match=message):
        mistake()
