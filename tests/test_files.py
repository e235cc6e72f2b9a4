"""Saving and loading: programs as data, and models in one file."""

from __future__ import annotations

import json
import random
from pathlib import Path

import numpy as np
import pytest
import random_programs
from safetensors.numpy import save_file

from alta import ModelFileError, ProgramError, compile, load, verify
from alta.language.record import from_data, to_data
from alta.programs import BUNDLED, parity


@pytest.mark.parametrize("name", BUNDLED)
def test_bundled_programs_survive_json(name):
    program = BUNDLED[name].build()
    assert from_data(json.loads(json.dumps(to_data(program)))) == program.lowered()


def test_random_programs_survive_json():
    for seed in range(500):
        program = random_programs.program(seed)
        assert from_data(json.loads(json.dumps(to_data(program)))) == program.lowered()


def test_a_program_of_another_version_is_refused():
    with pytest.raises(ProgramError, match="saved in format 99"):
        from_data({**to_data(parity.relative()), "version": 99})


@pytest.mark.parametrize("name", BUNDLED)
def test_models_survive_files(name, tmp_path):
    bundled = BUNDLED[name]
    model = compile(bundled.build(), max_length=300)
    path = tmp_path / "model.safetensors"
    model.save(path)
    loaded = load(path)
    inputs = bundled.encode(bundled.example)
    before, after = (m.run(inputs, bundled.max_layers) for m in (model, loaded))
    assert (before.outputs, before.layers, before.halted) == (after.outputs, after.layers, after.halted)
    assert np.array_equal(before.logits, after.logits)
    assert path.stat().st_size < 10_000_000
    if name in ("parity-relative", "parity-scratchpad"):
        assert verify(loaded).rules == len(bundled.build().rules)


def damaged(path: Path, **changes: object) -> None:
    from safetensors import safe_open

    with safe_open(path, framework="numpy") as file:
        metadata = json.loads(file.metadata()["alta"])
        arrays = {name: file.get_tensor(name) for name in file.keys()}  # noqa: SIM118
    for name in changes.pop("drop", ()):  # type: ignore[attr-defined]
        del arrays[name]
    save_file(arrays, path, {"alta": json.dumps({**metadata, **changes})})


def test_files_that_are_no_models_give_one_clear_error(tmp_path):
    path = tmp_path / "model.safetensors"
    with pytest.raises(ModelFileError, match="there is no file"):
        load(path)
    path.write_bytes(b"")
    with pytest.raises(ModelFileError, match="is no model, or is damaged"):
        load(path)
    path.write_bytes(random.Random(0).randbytes(5000))
    with pytest.raises(ModelFileError, match="is no model, or is damaged"):
        load(path)
    save_file({"x": np.zeros(3)}, path)
    with pytest.raises(ModelFileError, match="no alta model"):
        load(path)
    save_file({"x": np.zeros(3)}, path, {"alta": "[1"})
    with pytest.raises(ModelFileError, match="no alta model"):
        load(path)


def test_damaged_models_give_one_clear_error(tmp_path):
    path = tmp_path / "model.safetensors"
    compile(parity.relative()).save(path)
    whole = path.read_bytes()
    for length in range(0, len(whole), 97):
        path.write_bytes(whole[:length])
        with pytest.raises(ModelFileError):
            load(path)
    for changes, message in (
        ({"version": 2}, "is in format alta-model 2; this alta reads alta-model 1"),
        ({"format": "other"}, "is in format other 1"),
        ({"layers": 9}, "is damaged"),
        ({"shapes": {}}, "is damaged"),
        ({"drop": ["tokens.rows"]}, "is damaged"),
        ({"heads": 3}, "is damaged"),
    ):
        path.write_bytes(whole)
        damaged(path, **changes)
        with pytest.raises(ModelFileError, match=message):
            load(path)


def test_altered_weights_load_but_are_not_certified(tmp_path):
    """A flipped bit in a weight is still a number; only verify can tell."""
    from alta import VerificationError

    path = tmp_path / "model.safetensors"
    model = compile(parity.relative())
    model.weights.layers[0].mlp[0].weight.values[0] = 0.5
    model.save(path)
    with pytest.raises(VerificationError):
        verify(load(path))
