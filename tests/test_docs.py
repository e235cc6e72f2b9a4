"""What the README and the documentation show is what happens."""

from __future__ import annotations

import re
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[1]


def blocks(file: str) -> list[tuple[str, str]]:
    """The fenced blocks: their language and their text."""
    return re.findall(r"^```(\w*)\n(.*?)^```$", (ROOT / file).read_text(), re.DOTALL | re.MULTILINE)


@pytest.mark.parametrize(
    "file", ["README.md", "docs/language.md", "docs/transformers.md", "docs/performance.md", "docs/learning.md"]
)
def test_the_python_blocks_run_and_print_what_is_shown(file, capsys):
    namespace: dict[str, object] = {}
    ran = 0
    for language, text in blocks(file):
        if language == "python":
            exec(compile(text, file, "exec"), namespace)
            ran += 1
        elif language == "":
            assert capsys.readouterr().out == text
    assert ran
