"""Every public name has an example, and every example gives what it shows."""

from __future__ import annotations

import doctest
import inspect
from collections.abc import Iterator
from functools import cached_property

import pytest

import alta
from alta.model.torch import TorchModel

PARSER = doctest.DocTestParser()
KINDS = (property, cached_property, staticmethod, classmethod)


def documented() -> Iterator[tuple[str, str]]:
    """The public names and the members that users see, each with its docstring."""
    things = {name: getattr(alta, name) for name in alta.__all__} | {"TorchModel": TorchModel}
    for name, thing in things.items():
        yield name, thing.__doc__ or ""
        for member, value in vars(thing).items() if inspect.isclass(thing) else ():
            if not member.startswith("_") and (inspect.isfunction(value) or isinstance(value, KINDS)):
                yield f"{name}.{member}", value.__doc__ or ""


DOCSTRINGS = dict(documented())


@pytest.fixture(scope="module")
def namespace() -> dict[str, object]:
    """What the examples go on from: the lines in the docstring of the package."""
    lines = PARSER.get_doctest(alta.__doc__ or "", {}, "alta", None, None)
    assert run(lines, clear=False).failed == 0
    return dict(lines.globs)


def run(test: doctest.DocTest, clear: bool = True) -> doctest.TestResults:
    return doctest.DocTestRunner(verbose=False).run(test, clear_globs=clear)


@pytest.mark.parametrize("name", DOCSTRINGS)
def test_example(name, namespace, tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    test = PARSER.get_doctest(DOCSTRINGS[name], namespace, name, None, None)
    assert any(example.want for example in test.examples), f"{name} has no example"
    assert run(test).failed == 0
