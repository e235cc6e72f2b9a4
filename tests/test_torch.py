"""Models in PyTorch against the interpreter: batches, number formats, activations, gradients, hooks, generation."""

from __future__ import annotations

import os
import random
from functools import cache
from itertools import product

import numpy as np
import pytest
import random_programs
from test_compiler import means
from test_programs import EXAMPLES, SCAN_FILE, scan_lines

from alta import (
    CompileError,
    EndlessError,
    InputError,
    TrapError,
    UndefinedError,
    VerificationError,
    compile,
    generate,
    halt_spec,
    load,
    program_spec,
    run,
    run_batch,
    v_relative,
    var,
    verify,
)
from alta.analysis.agreement import compare
from alta.programs import BUNDLED, addition, parity, scan, sort, subleq

torch = pytest.importorskip("torch")

PROGRAMS = int(os.environ.get("ALTA_RANDOM_MODELS", "2000"))
CHUNK = 250
NUMERICAL = ("parity-sum", "parity-count", "sort-unique")


def bits(generator: random.Random, lengths) -> list[list[int]]:
    return [[generator.randrange(2) for _ in range(n)] for n in lengths]


def memories(generator: random.Random, number: int) -> list[list[int]]:
    """Random SUBLEQ programs that halt."""
    program = BUNDLED["subleq"].build()
    found: list[list[int]] = []
    while len(found) < number:
        size = generator.randint(3, 17)
        memory = subleq.encode([generator.choice((-1, *range(size))) for _ in range(size)])
        try:
            run(program, memory)
        except (TrapError, UndefinedError, EndlessError):
            continue
        found.append(memory)
    return found


@cache
def inputs(name: str) -> list[list]:
    """What each bundled program is tried on."""
    generator = random.Random(0)
    strings = [list(b) for n in range(6) for b in product((0, 1), repeat=n)] + bits(generator, (9, 13, 40))
    match name:
        case "parity-absolute":
            return strings
        case "parity-relative" | "parity-sum" | "parity-count":
            return [parity.encode(string) for string in strings]
        case "addition":
            pairs = [(int("9" * n), 1) for n in (1, 2, 20)] + [(0, 0), (7, 5), (8, 123456)]
            pairs += [tuple(generator.randrange(10 ** generator.randint(1, 20)) for _ in range(2)) for _ in range(14)]
            return [addition.encode(*pair) for pair in pairs]
        case "sort-unique":
            return [sort.encode(generator.sample(range(32), length)) for length in (0, 1, 2, 3, 9, 17, 32)]
        case "subleq":
            return memories(generator, 12)
        case "scan":
            return [scan.encode(c) for c in ("jump", "turn left and walk", "run around right after jump twice")]
        case "scan-parser":
            return [scan.encode_parser(c) for c in ("jump", "look opposite left thrice", "run twice after jump")]
        case "parity-scratchpad":
            prompt = parity.encode_scratchpad([1, 0, 1, 1])
            return [prompt, [*prompt, "1"], [*prompt, "1", "1", "0", "1"], prompt[:3]]
        case _:
            prompt = addition.encode_decoder(95, 7)
            return [prompt, [*prompt, "2"], [*prompt, "2", "0", "1"], prompt[:2]]


@cache
def expected(name: str) -> list:
    bundled = BUNDLED[name]
    return [run(bundled.build(), given, bundled.max_layers) for given in inputs(name)]


def check(model, name: str, *, layers: int | None = None) -> None:
    """The same outputs, layers and halting, in one batch of different lengths."""
    results = model.run_batch(inputs(name), BUNDLED[name].max_layers)
    for given, wanted, found in zip(inputs(name), expected(name), results, strict=True):
        if layers is not None and wanted.layers > layers:
            continue
        assert (found.outputs, found.layers, found.halted) == (wanted.outputs, wanted.layers, wanted.halted), given


@cache
def compiled(name: str, dtype: str = "float32", activation: str = "clipped", layers: int | None = None):
    return compile(BUNDLED[name].build(), max_length=64, dtype=dtype, activation=activation, layers=layers)


@pytest.mark.parametrize("activation", ["clipped", "relu"])
@pytest.mark.parametrize("dtype", ["float64", "float32", "bfloat16"])
@pytest.mark.parametrize("name", BUNDLED)
def test_bundled_programs(name, dtype, activation):
    if dtype == "bfloat16" and name in NUMERICAL:
        with pytest.raises(CompileError, match="too close to tell apart in bfloat16"):
            compiled(name, dtype, activation)
        return
    model = compiled(name, dtype, activation)
    check(model.to_torch(dtype), name)
    if dtype != "bfloat16":
        check(model.astype(dtype), name)


@pytest.mark.parametrize("activation", ["clipped", "relu"])
@pytest.mark.parametrize("name", BUNDLED)
def test_unrolled(name, activation):
    """As many layers as the longest run needs, each with parameters of its own."""
    depth = min(max(result.layers for result in expected(name)), 24)
    model = compiled(name, "float32", activation, depth)
    check(model, name, layers=depth)
    twin = model.to_torch()
    assert len(twin.blocks) == depth
    check(twin, name, layers=depth)


@cache
def many_inputs(name: str) -> list[list]:
    """All that the programs themselves are tested on."""
    generator = random.Random(1)
    strings = [list(b) for n in range(13) for b in product((0, 1), repeat=n)]
    strings += [*bits(generator, [generator.randint(13, 199) for _ in range(20)]), [1] * 200, [0] * 200]
    match name:
        case "parity-absolute":
            return strings
        case "parity-relative" | "parity-sum" | "parity-count":
            return [parity.encode(string) for string in strings]
        case "addition":
            pairs = [(int("9" * n), 1) for n in (1, 2, 10, 50)] + [(0, 0), (1, int("9" * 30))]
            pairs += [(a, b) for a in range(0, 130, 7) for b in range(0, 130, 11)]
            pairs += [tuple(generator.randrange(10 ** generator.randint(1, 50)) for _ in range(2)) for _ in range(60)]
            return [addition.encode(*pair) for pair in pairs]
        case "sort-unique":
            return [sort.encode(generator.sample(range(32), length)) for length in range(33)]
        case "subleq":
            return memories(generator, 200)
        case "scan" | "scan-parser":
            encode = scan.encode if name == "scan" else scan.encode_parser
            commands = [*EXAMPLES]
            if SCAN_FILE.exists():
                commands += [command for command, _ in generator.sample(scan_lines(), 20)]
            return [encode(command) for command in commands]
        case _:
            return inputs(name)


@pytest.mark.slow
@pytest.mark.parametrize("activation", ["clipped", "relu"])
@pytest.mark.parametrize("dtype", ["float64", "float32", "bfloat16"])
@pytest.mark.parametrize("name", BUNDLED)
def test_bundled_programs_on_many_inputs(name, dtype, activation):
    """In NumPy and torch, with shared layers and unrolled to the 40 that most of these inputs need at most. All of them
    in the format and with the activation that people get, a part of them in the others."""
    if dtype == "bfloat16" and name in NUMERICAL:
        return
    bundled, depth = BUNDLED[name], 40
    program, batch = bundled.build(), many_inputs(name)
    if (dtype, activation) != ("float32", "clipped"):
        batch = batch[:: max(len(batch) // 100, 1)]
    wanted = run_batch(program, batch, bundled.max_layers)
    for layers in (None, depth):
        model = compile(program, max_length=256, dtype=dtype, activation=activation, layers=layers)
        chosen = [i for i, one in enumerate(wanted) if layers is None or one.layers <= layers]
        for one in (model.to_torch(dtype), *([model] if dtype != "bfloat16" else [])):
            tried = chosen if layers is None else chosen[::10]
            found = one.run_batch([batch[i] for i in tried], bundled.max_layers)
            for i, result in zip(tried, found, strict=True):
                right = wanted[i].outputs, wanted[i].layers, wanted[i].halted
                assert (result.outputs, result.layers, result.halted) == right, batch[i]


@pytest.mark.parametrize("name", ["parity-relative", "parity-sum", "addition", "sort-unique"])
def test_unrolled_and_plain_models_get_certificates(name):
    for activation in ("clipped", "relu"):
        assert verify(compiled(name, "float32", activation, 2)).layers == 2
        assert verify(compiled(name, "float64", activation)).layers is None


def test_a_layer_of_an_unrolled_model_is_its_own():
    model = compiled("parity-relative", "float32", "clipped", 5).to_torch()
    before = model.run(parity.encode([1, 0, 1])).outputs
    with torch.no_grad():
        model.blocks[3].mlp[0].weight.zero_()
    assert model.run(parity.encode([1, 0])).outputs == (0, 1, 1)
    assert model.run(parity.encode([1, 0, 1])).outputs == before
    assert model.run(parity.encode([1, 0, 1, 1])).outputs != (0, 1, 1, 0, 1)
    with pytest.raises(VerificationError, match="no unit makes the update"):
        verify(model)


@pytest.mark.parametrize("first", range(0, PROGRAMS, CHUNK))
def test_random_programs(first):
    """The state after every sub-layer, in a format and with an activation that change from program to program."""
    compared = refused = 0
    for seed in range(first, first + CHUNK):
        generator = random.Random(seed)
        program = random_programs.program(seed)
        dtype = ("float32", "bfloat16", "float64")[seed % 3]
        activation = ("clipped", "relu")[seed % 2]
        depth = (None, None, 4)[seed // 6 % 3]
        try:
            model = compile(program, max_length=8, dtype=dtype, activation=activation, layers=depth)
        except CompileError as error:
            assert "too close to tell apart" in str(error) or "rounds away the difference" in str(error)
            refused += 1
            continue
        twin = model.to_torch(dtype)
        batch = []
        for _ in range(3):
            given = random_programs.inputs(generator, program)
            try:
                batch.append((given, run(program, given, depth or 6)))
            except (TrapError, UndefinedError):
                continue
        if not batch:
            continue
        compare(twin, batch[0][0], max_layers=depth or 6)
        results = twin.run_batch([given for given, _ in batch], depth or 6)
        for (given, wanted), found in zip(batch, results, strict=True):
            assert (found.outputs, found.layers, found.halted) == (wanted.outputs, wanted.layers, wanted.halted), given
            compared += 1
    assert compared > CHUNK / 2
    assert refused < CHUNK / 4


def test_padding_and_neighbours_change_nothing():
    """Each sequence alone gives what it gives in a batch, whatever stands behind it."""
    model = compiled("addition").to_torch()
    rows = model.weights.token_rows
    tokens = [[rows[token] for token in given] for given in inputs("addition")]
    lengths = torch.tensor([len(row) for row in tokens])
    generator = torch.Generator().manual_seed(0)
    padded = torch.randint(0, len(rows), (len(tokens), int(lengths.max())), generator=generator)
    for row, number in zip(padded, tokens, strict=True):
        row[: len(number)] = torch.tensor(number)
    together = model(padded, lengths)
    for index, row in enumerate(tokens):
        alone = model(torch.tensor([row]))
        assert torch.equal(alone.logits[0], together.logits[index, : len(row)])
        assert int(alone.layers) == int(together.layers[index])


def test_gradients():
    """By finite differences, in every parameter, through three layers and every kind of sub-layer."""
    programs = [
        (parity.relative(), [["START", "1", "0"], ["START", "1"]], 3),
        (parity.by_sum(3), [["START", "1", "1", "0"]], 1),
        (sort.sort_unique(3, 4), [[3, 1, 0]], 2),
    ]
    for program, batch, layers in programs:
        model = compile(program, max_length=5, dtype="float64", sharpness=28).to_torch("float64")
        with torch.no_grad():
            generator = torch.Generator().manual_seed(0)
            for parameter in model.parameters():  # off the corners of the activation
                parameter += 1e-3 * torch.randn(parameter.shape, generator=generator, dtype=torch.float64)
            for head in (head for block in model.blocks for head in block.attn.heads.values()):
                head.query.weight *= 0.01  # a softmax with a slope
        names = [name for name, _ in model.named_parameters()]
        tokens = torch.tensor([[program.tokens.index(token) for token in given] for given in batch[:1]])

        def outputs(*values, model=model, names=names, tokens=tokens, layers=layers):
            arguments = dict(zip(names, values, strict=True))
            return torch.func.functional_call(model, arguments, (tokens, None, layers)).logits

        values = [parameter.detach().clone().requires_grad_() for parameter in model.parameters()]
        assert torch.autograd.gradcheck(outputs, values)
        gradients = torch.autograd.grad(outputs(*values).square().sum(), values, allow_unused=True)
        reached = {name for name, gradient in zip(names, gradients, strict=True) if gradient is not None}
        assert reached == {*names} - {"halt.weight"}


def test_a_hook_on_a_named_head_sees_its_output():
    model = compiled("parity-relative").to_torch()
    seen = []
    head = model.get_submodule("blocks.0.attn.heads.parity_left")
    head.register_forward_hook(lambda module, given, output: seen.append(output.detach().clone()))
    whole = []
    model.get_submodule("blocks.0.attn").register_forward_hook(lambda module, given, out: whole.append(out.detach()))
    result = model.run(parity.encode([1, 0]), residual=True)
    assert len(seen) == result.layers == 2
    first = int(model.weights.layers[0].heads[0].output.rows.min())
    expected_run = run(parity.relative(), parity.encode([1, 0]))
    for layer, written in zip(expected_run.trace.layers, seen, strict=True):
        for position in (1, 2):
            value = layer.attention[position]["parity_left"]
            assert written[0, position].nonzero().tolist() == [[first + value]]
            assert written[0, position].sum() == 1
    other = model.get_submodule("blocks.0.attn.heads.done_left")
    assert whole[0].shape == seen[0].shape
    assert other.name == "done_left"
    stream = torch.tensor(result.residual[0], dtype=torch.float32)
    assert torch.equal(whole[0][0], seen[0][0] + other(stream))


def test_a_head_may_have_any_name():
    names = ("keys", "a.b", "a_b", "forward", "query", "values", "training")
    program = program_spec(
        variables={"a": var(2, input_init_fn=lambda token: token), "b": var(2)},
        heads={name: v_relative("a", -number) for number, name in enumerate(names, start=1)},
        ffn_fn=lambda z: z.__setitem__("b", z["a"]),
        output_name="b",
        input_range=2,
    )
    model = compile(program).to_torch()
    assert [head.name for head in model.blocks[0].attn.heads.values()] == list(names)
    compare(model, [1, 0, 1], max_layers=2)
    verify(model)


def test_state_dict_loads_strictly():
    one, other = compiled("addition").to_torch(), compiled("addition").to_torch()
    with torch.no_grad():
        for parameter in other.parameters():
            parameter.zero_()
    with pytest.raises(VerificationError):
        verify(other)
    other.load_state_dict(one.state_dict(), strict=True)
    verify(other, [addition.encode(95, 7)])
    short = dict(one.state_dict())
    del short["output.weight"]
    with pytest.raises(RuntimeError, match=r"Missing key\(s\) in state_dict"):
        other.load_state_dict(short)


def test_names_of_parameters():
    names = [name for name, _ in compiled("parity-relative").to_torch().named_parameters()]
    head = "blocks.0.attn.heads.parity_left."
    parts = ("bias", "query.weight", "key.weight", "value.weight", "output.weight")
    assert names[:6] == ["token_embedding.weight", *(head + part for part in parts)]
    assert {"blocks.0.mlp.0.weight", "blocks.0.mlp.0.bias", "blocks.0.mlp.2.weight", "output.weight"} <= {*names}
    assert "halt.weight" in names


def test_the_residual_stream_is_that_of_numpy():
    model = compiled("sort-unique")
    given = sort.encode([5, 2, 9, 0])
    mine, theirs = (m.run(given, residual=True) for m in (model, model.to_torch()))
    assert len(mine.residual) == len(theirs.residual) == 5
    for one, other in zip(mine.residual, theirs.residual, strict=True):
        np.testing.assert_allclose(one, other, atol=1e-6)


def test_a_torch_model_saves_what_it_is(tmp_path):
    model = compiled("parity-sum").to_torch()
    model.save(tmp_path / "model.safetensors")
    loaded = load(tmp_path / "model.safetensors")
    verify(loaded, [parity.encode([1, 1])], max_layers=1)
    check(loaded, "parity-sum")


def test_cast_models_stay_exact_or_are_refused():
    compile(parity.relative(), dtype="bfloat16").to_torch("float32").run(["START", "1"])
    wide = compiled("parity-sum")
    with pytest.raises(InputError, match="exact in float32 and wider, not in bfloat16"):
        wide.to_torch("bfloat16")
    cast = wide.to_torch().to(torch.bfloat16)
    with pytest.raises(InputError, match="exact in float32 and wider, not in bfloat16"):
        cast.run(parity.encode([1]), 1)


def test_autocast_leaves_the_model_exact():
    program = means(tuple(float(i) for i in range(8)), tuple(i / 7 for i in range(50)))
    model = compile(program, max_length=12).to_torch()
    given = [[generator % 8 for generator in range(n, n + 11)] for n in range(20)]
    with torch.autocast("cpu", dtype=torch.bfloat16):
        results = model.run_batch(given, 1)
    for one, found in zip(given, results, strict=True):
        assert found.outputs == run(program, one, 1).outputs


@pytest.mark.parametrize("name", ["parity-scratchpad", "addition-decoder"])
def test_generation_with_and_without_a_cache(name):
    bundled = BUNDLED[name]
    program = bundled.build()
    generator = random.Random(0)
    models = [compiled(name), compiled(name).to_torch(), compiled(name, "bfloat16").to_torch("bfloat16")]
    for _ in range(4):
        if name == "parity-scratchpad":
            prompt = parity.encode_scratchpad([generator.randrange(2) for _ in range(generator.randint(0, 9))])
        else:
            prompt = addition.encode_decoder(*(generator.randrange(10**6) for _ in range(2)))
        wanted = generate(program, prompt, stop="END")
        for model in models:
            for cached in (True, False):
                found = model.generate(prompt, stop="END", cached=cached)
                assert (found.tokens, found.stopped) == (wanted.tokens, wanted.stopped)
                assert found.layers == tuple(step.layers for step in wanted.runs)


def test_random_causal_programs_generate_alike():
    """With a cache and without, halting after different numbers of layers for different tokens."""
    compared = varied = 0
    for seed in range(3000):
        recipe = random_programs.recipe(seed)
        recipe["causal"] = True
        try:
            program = program_spec(**recipe)
            prompt = random_programs.inputs(random.Random(seed), program) or [program.tokens[0]]
            wanted = generate(program, prompt, max_tokens=5, max_layers=5)
            model = compile(program, max_length=12)
        except (TrapError, UndefinedError, CompileError, InputError, ValueError):
            continue
        for one in (model, model.to_torch()) if seed % 5 == 0 else (model,):
            for cached in (True, False):
                found = one.generate(prompt, max_tokens=5, max_layers=5, cached=cached)
                assert found.tokens == wanted.tokens
                assert found.layers == tuple(step.layers for step in wanted.runs)
        compared += 1
        varied += len(set(found.layers)) > 1
    assert compared > 200
    assert varied >= 3


def test_the_cache_finds_runs_that_never_halt():
    program = program_spec(
        variables={"a": var(2, input_init_fn=lambda token: token), "done": var(2)},
        heads={},
        ffn_fn=lambda z: z.__setitem__("a", 1 - z["a"]),
        output_name="a",
        input_range=2,
        causal=True,
        halt=halt_spec("done", 1),
    )
    for model in (compile(program), compile(program).to_torch()):
        for cached in (True, False):
            with pytest.raises(EndlessError, match="never halts"):
                model.generate([1], cached=cached)


REFUSED = [
    (lambda model: model.run(["START", "2"]), "'2' at position 1 is not a token of this model; tokens: 0, 1, START"),
    (lambda model: model(torch.zeros(3, dtype=torch.long)), "a batch is a tensor of token indices"),
    (lambda model: model(torch.zeros(1, 3)), "a batch is a tensor of token indices"),
    (lambda model: model(torch.zeros(0, 3, dtype=torch.long)), "the batch is empty"),
    (lambda model: model(torch.full((1, 2), 3)), "token indices are 0 to 2; got 3 to 3"),
    (lambda model: model(torch.full((1, 2), -1)), "token indices are 0 to 2; got -1 to -1"),
    (lambda model: model(torch.zeros(1, 2, dtype=torch.long), torch.tensor([3])), "lengths are one for each input"),
    (lambda model: model.run_batch([["START"], ["1", "0"]]), "the residual stream is one that the run has had before"),
]


@pytest.mark.parametrize(("mistake", "message"), REFUSED, ids=[message[:30] for _, message in REFUSED])
def test_what_does_not_fit_is_refused(mistake, message):
    with pytest.raises((InputError, EndlessError), match=message):
        mistake(compiled("parity-relative").to_torch())


def test_packed_heads_compute_the_same():
    """As a framework would: one matrix product for all heads, reshaped, with biases looked up by distance."""
    for name in ("addition", "sort-unique", "scan-parser"):
        model = compiled(name)
        packed = model.packed()
        z = model.embed([model.weights.token_rows[token] for token in inputs(name)[-1]])
        shape = (len(z), len(packed.names), packed.size)
        q, k, v = ((z @ matrix.T).reshape(shape) for matrix in (packed.query, packed.key, packed.value))
        scores = np.einsum("ihd,jhd->hij", q, k)
        if packed.bias is not None:
            far = packed.bias.shape[1] // 2
            offsets = np.arange(len(z)) - np.arange(len(z))[:, None]
            scores = scores + packed.bias[:, np.clip(offsets, -far, far) + far]
        shares = torch.softmax(torch.tensor(scores), dim=-1).numpy()
        written = np.einsum("hij,jhd->ihd", shares, v).reshape(len(z), -1) @ packed.output.T
        np.testing.assert_allclose(written, model.attention(0, z), atol=1e-6)


@pytest.mark.skipif(not torch.cuda.is_available(), reason="no GPU here")
@pytest.mark.parametrize("dtype", ["float64", "float32", "bfloat16"])
@pytest.mark.parametrize("name", BUNDLED)
def test_bundled_programs_on_a_gpu(name, dtype):
    if dtype == "bfloat16" and name in NUMERICAL:
        return
    check(compiled(name, dtype).to_torch(dtype, "cuda"), name)
