"""The batch interpreter against the plain one: outputs, layers, halting, errors, rules fired, traces."""

from __future__ import annotations

import os
import random
import signal
from collections import Counter
from concurrent.futures import ProcessPoolExecutor, ThreadPoolExecutor
from functools import cache, partial
from itertools import count, islice
from pathlib import Path

import pytest
import random_programs
import test_torch
from test_programs import SCAN_FILE, scan_lines

from alta import (
    Constraint,
    ExecutionError,
    InputError,
    Rule,
    UndefinedError,
    generate,
    generate_batch,
    numeric_var,
    program_spec,
    qkv,
    run,
    run_batch,
    run_stream,
    v_relative,
    var,
)
from alta.interpreter.plan import plan
from alta.parallel import map_chunks
from alta.programs import BUNDLED, addition, parity, scan, subleq

ENGINES = ("numpy", "numba")
PROGRAMS = int(os.environ.get("ALTA_RANDOM_PROGRAMS", "5000")) // 5
CHUNK = 250


def check(program, batch, max_layers=None, *, engine="numpy"):
    """Every input gives what it gives alone in the plain interpreter."""
    trace = engine == "numpy"
    results = run_batch(program, batch, max_layers, fired=True, trace=trace, engine=engine)
    assert len(results) == len(batch)
    for given, found in zip(batch, results, strict=True):
        try:
            wanted = run(program, given, max_layers)
        except ExecutionError as error:
            assert (type(found.error), str(found.error)) == (type(error), str(error)), given
            assert (found.error.layer, found.error.position, found.error.variable) == (
                error.layer,
                error.position,
                error.variable,
            )
            assert found.outputs == ()
            continue
        assert found.error is None, given
        assert (found.outputs, found.layers, found.halted) == (wanted.outputs, wanted.layers, wanted.halted), given
        fired = [[set(rules) for rules in layer.fired] for layer in wanted.trace.layers]
        assert found.fired == Counter(rule for layer in fired for rules in layer for rule in rules), given
        if trace:
            assert found.trace.states == wanted.trace.states, given
            assert [[set(rules) for rules in layer.fired] for layer in found.trace.layers] == fired


@cache
def built(name):
    return BUNDLED[name].build()


@pytest.mark.parametrize("engine", ENGINES)
@pytest.mark.parametrize("name", BUNDLED)
def test_bundled_programs(name, engine):
    batch = test_torch.inputs(name)
    if name == "subleq":
        generator = random.Random(1)
        batch = batch + [subleq.encode([generator.randint(-16, 16) for _ in range(9)]) for _ in range(30)]
    if name == "scan":
        batch = [*batch, scan.encode("jump jump"), scan.encode("and")]
    check(built(name), batch, BUNDLED[name].max_layers, engine=engine)


@pytest.mark.parametrize("engine", ENGINES)
@pytest.mark.parametrize("first", range(0, PROGRAMS, CHUNK))
def test_random_programs(first, engine):
    for seed in range(first, first + CHUNK):
        generator = random.Random(seed)
        program = random_programs.program(seed)
        batch = [random_programs.inputs(generator, program) for _ in range(6)]
        check(program, batch, None if program.halt and seed % 2 else 5, engine=engine)


@pytest.mark.parametrize("engine", ENGINES)
def test_inputs_of_all_lengths_side_by_side(engine):
    generator = random.Random(0)
    batch = [parity.encode([generator.randrange(2) for _ in range(n)]) for n in range(60)] + [[], ["1"], []]
    check(built("parity-relative"), batch, engine=engine)


@pytest.mark.skipif(not SCAN_FILE.exists(), reason="the SCAN data is not here")
@pytest.mark.parametrize("engine", ENGINES)
def test_scan_data_in_part(engine):
    lines = random.Random(0).sample(scan_lines(), 2000)
    results = run_batch(built("scan"), [scan.encode(command) for command, _ in lines], engine=engine)
    for (_, actions), result in zip(lines, results, strict=True):
        assert scan.decode(result.outputs) == actions


def means(values, buckets):
    return program_spec(
        variables={"n": numeric_var(values, input_init_fn=values.__getitem__), "one": var(1), "a": var(len(buckets))},
        heads={"mean": qkv("one", "one", "n", output_spec=numeric_var(buckets))},
        ffn_fn=lambda z: z.__setitem__("a", buckets.index(z["mean"])),
        output_name="a",
        input_range=len(values),
    )


@pytest.mark.parametrize("engine", ENGINES)
@pytest.mark.parametrize("values", [(0.0, 1.0), (0.1, 0.2, 0.30000000000000004), (1e-300, 1.0, 1e300)])
def test_means_are_exact(engine, values):
    """The last need whole numbers of thousands of bits."""
    generator = random.Random(0)
    batch = [[generator.randrange(len(values)) for _ in range(n)] for n in range(1, 40)]
    check(means(values, (0.0, 0.15, 0.2, 0.5, 1.0, 1e299)), batch, 1, engine=engine)


@pytest.mark.parametrize("engine", ENGINES)
def test_wide_domains_with_few_rules(engine):
    """Nodes that are kept sparse."""

    rules = [
        Rule("b", 3, 20, (Constraint("b", 3), Constraint("a", 17), Constraint("left", 900))),
        *(Rule("b", 999, n, (Constraint("b", 999), Constraint("left", n))) for n in (17, 199, 900)),
    ]
    program = program_spec(
        variables={
            "a": var(1000, input_init_fn=lambda t: (17, 900, 199, 0)[t]),
            "b": var(1000, input_init_fn=lambda t: (3, 999, 999, 999)[t]),
        },
        heads={"left": v_relative("a", -1)},
        rules=rules,
        output_name="b",
        input_range=4,
    )
    assert len(plan(program).tries.key)
    generator = random.Random(0)
    check(program, [[generator.randrange(4) for _ in range(5)] for _ in range(80)], 2, engine=engine)


@pytest.mark.parametrize("engine", ENGINES)
@pytest.mark.parametrize("name", ["parity-scratchpad", "addition-decoder"])
def test_generation(name, engine):
    generator = random.Random(0)
    if name == "parity-scratchpad":
        prompts = [parity.encode_scratchpad([generator.randrange(2) for _ in range(n)]) for n in range(9)]
    else:
        prompts = [addition.encode_decoder(*(generator.randrange(10**5) for _ in range(2))) for _ in range(9)]
    found = generate_batch(built(name), prompts, stop="END", max_tokens=8, engine=engine)
    for prompt, one in zip(prompts, found, strict=True):
        wanted = generate(built(name), prompt, stop="END", max_tokens=8)
        assert (one.tokens, one.stopped) == (wanted.tokens, wanted.stopped)
        assert one.layers == tuple(step.layers for step in wanted.runs)
        assert one.error is None


def test_generation_reports_errors_one_by_one():
    program = program_spec(
        variables={"a": var(3, input_init_fn=lambda t: t)},
        heads={},
        ffn_fn=lambda z: z.__setitem__("a", z["a"] + 1),
        output_name="a",
        input_range=3,
        causal=True,
    )
    good, bad = generate_batch(program, [[0], [2]], max_tokens=2, max_layers=1)
    assert (good.tokens, good.error) == ((1, 2), None)
    assert bad.tokens == ()
    assert "'a' is set out of its domain" in str(bad.error)


def test_uniform_variables_are_found():
    columns = {column.name: column.uniform for column in plan(built("addition")).columns}
    assert {name for name, everywhere in columns.items() if everywhere} == {
        "_always",
        "started",
        "carry",
        "done",
        "one",
        "a",
        "b",
    }
    assert not any(column.uniform for column in plan(built("parity-relative")).columns if column.name != "_always")
    assert not any(c.uniform for c in plan(built("parity-scratchpad")).columns if c.name == "ready")  # causal


def test_heads_share_selections():
    how = plan(built("scan"))
    assert (len(how.heads), len(how.selections)) == (11, 5)


def test_a_plan_prints():
    printed = str(plan(built("addition")))
    assert "the neighbour at +1: kind_right, at_a_right, at_b_right, at_sum_right" in printed
    assert "where at_a is one, once for all positions: a" in printed


@pytest.mark.parametrize("pool", [ThreadPoolExecutor, ProcessPoolExecutor])
def test_executors(pool):
    batch = [parity.encode([n >> bit & 1 for bit in range(9)]) for n in range(300)]
    with pool(2) as executor:
        found = run_batch(built("parity-relative"), batch, executor=executor, chunk=32)
    assert [parity.decode(one.outputs) for one in found] == [n.bit_count() % 2 for n in range(300)]


def die_once(marker: Path, chunk: list[int]) -> int:
    """The first worker that meets 17 is killed."""
    if 17 in chunk and not marker.exists():
        marker.touch()
        os.kill(os.getpid(), signal.SIGKILL)
    return sum(chunk)


def test_a_chunk_whose_worker_dies_is_tried_again(tmp_path):
    with ProcessPoolExecutor(2) as executor:
        work = partial(die_once, tmp_path / "died")
        found = list(map_chunks(work, range(100), size=5, executor=executor))
    assert (tmp_path / "died").exists()
    assert found == [(5, sum(range(first, first + 5))) for first in range(0, 100, 5)]


def die(chunk: list[int]) -> int:  # noqa: ARG001
    os.kill(os.getpid(), signal.SIGKILL)
    return 0


def test_a_chunk_that_kills_every_worker_is_given_up():
    with ProcessPoolExecutor(1) as executor, pytest.raises(Exception, match="terminated abruptly"):
        list(map_chunks(die, range(3), size=5, executor=executor))


def test_inputs_may_be_endless():
    endless = (parity.encode([n & 1, n >> 1 & 1]) for n in count())
    first = list(islice(run_stream(built("parity-relative"), endless, chunk=50), 120))
    assert [parity.decode(one.outputs) for one in first] == [(n & 1) ^ (n >> 1 & 1) for n in range(120)]
    with ThreadPoolExecutor(2) as executor:
        endless = (parity.encode([n & 1]) for n in count())
        stream = run_stream(built("parity-relative"), endless, chunk=10, executor=executor)
        assert [one.outputs[-1] for one in islice(stream, 25)] == [n & 1 for n in range(25)]
        stream.close()


@pytest.mark.cluster
def test_a_dask_cluster():
    from dask.distributed import Client, LocalCluster

    batch = [parity.encode([n >> bit & 1 for bit in range(9)]) for n in range(300)]
    with (
        LocalCluster(n_workers=2, threads_per_worker=1, dashboard_address=None) as cluster,
        Client(cluster) as client,
        client.get_executor() as executor,
    ):
        found = run_batch(built("parity-relative"), batch, executor=executor, chunk=32)
    assert [parity.decode(one.outputs) for one in found] == [n.bit_count() % 2 for n in range(300)]


MISTAKES = [
    (lambda program: run_batch(program, [["START", "2"]]), "input 0: '2' at position 1 is not a token"),
    (lambda program: run_batch(program, [["START"], 3]), "input 1: inputs are a sequence of tokens; got 3"),
    (lambda program: run_batch(program, "10"), "a batch is a sequence of inputs"),
    (lambda program: run_batch(program, 3), "a batch is a sequence of inputs"),
    (lambda program: run_batch(program, [], -1), "max_layers is a whole number"),
    (lambda program: run_batch(built("parity-sum"), [["START"]]), "no halting condition, so it needs max_layers"),
    (lambda program: run_batch(program, [], engine="cuda"), "there is no engine 'cuda'; engines: auto, numpy, numba"),
    (lambda program: run_batch(program, [["START"]], chunk=0), "a chunk has 1 input or more; got 0"),
    (lambda program: generate_batch(built("parity-scratchpad"), [["START"], []]), "prompt 1 is empty"),
]


@pytest.mark.parametrize(("mistake", "message"), MISTAKES, ids=[message[:30] for _, message in MISTAKES])
def test_mistakes(mistake, message):
    with pytest.raises(InputError, match=message):
        mistake(built("parity-relative"))


def test_an_empty_batch_gives_nothing():
    assert run_batch(built("parity-relative"), []) == []


def test_an_error_is_one_inputs_own():
    good, bad = run_batch(built("sort-unique"), [[32, 1, 2], [32, 1, 1]])
    assert good.error is None
    assert isinstance(bad.error, UndefinedError)
