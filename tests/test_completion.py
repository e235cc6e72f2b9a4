"""Completion, in a shell as people use it."""

from __future__ import annotations

import os
import pty
import select
import shutil
import subprocess
import sys
import time
from collections.abc import Callable, Iterator

import pytest

from alta.cli.completion import complete_data, complete_program
from alta.programs import BUNDLED, scan_data

PROMPT = "ready> "


@pytest.fixture(scope="module")
def completed(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Callable[[str], str]]:
    """What bash makes of a line when Tab is pressed."""
    bash = shutil.which("bash")
    if bash is None:
        pytest.skip("there is no bash")
    folder = tmp_path_factory.mktemp("shell")
    (folder / "alta").write_text(f"#!/bin/sh\nexec {sys.executable} -c 'from alta.cli import main; main()' \"$@\"\n")
    (folder / "alta").chmod(0o755)
    (folder / "mine.py").touch()
    terminal, theirs = pty.openpty()
    environment = {
        **os.environ,
        "PATH": f"{folder}:{os.environ['PATH']}",
        "PS1": PROMPT,
        "TERM": "dumb",
        "INPUTRC": os.devnull,
    }
    command = [bash, "--norc", "--noprofile", "-i"]
    shell = subprocess.Popen(
        command, stdin=theirs, stdout=theirs, stderr=theirs, cwd=folder, env=environment, start_new_session=True
    )
    os.close(theirs)
    unread = ""

    def read(until: str) -> str:
        nonlocal unread
        end = time.monotonic() + 60
        while until not in unread and time.monotonic() < end:
            if select.select([terminal], [], [], 0.1)[0]:
                unread += os.read(terminal, 65536).decode()
        assert until in unread, unread
        seen, _, unread = unread.partition(until)
        return seen

    def press(line: str) -> str:
        read(PROMPT)
        os.write(terminal, f"{line}\t#end".encode())
        seen = read("#end")
        os.write(terminal, b"\x15\n")  # Ctrl-U empties the line
        return seen.rpartition(PROMPT)[2].replace("\a", "")

    os.write(terminal, b"eval \"$(alta --show-completion bash)\"; echo lo''aded\n")
    read("loaded\r\n")
    yield press
    shell.kill()
    shell.wait()
    os.close(terminal)


@pytest.mark.parametrize(
    ("typed", "expected"),
    [
        ("alta gener", "alta generate "),
        ("alta run parity-abs", "alta run parity-absolute "),
        ("alta run min", "alta run mine.py "),
        ("alta coverage scan len", "alta coverage scan length:t"),
        ("alta coverage scan length:tr", "alta coverage scan length:train "),
        (
            "alta minimal scan --train mcd1:train --test mcd2:te",
            "alta minimal scan --train mcd1:train --test mcd2:test ",
        ),
    ],
)
def test_bash_completes(completed, typed, expected):
    assert completed(typed) == expected


@pytest.mark.parametrize("shell", ["bash", "zsh", "fish", "pwsh"])
def test_there_is_a_script_for_each_shell(shell):
    """Whatever shell the tests were started from, which is what typer would look at."""
    environment = {**os.environ, "_TYPER_COMPLETE_TEST_DISABLE_SHELL_DETECTION": "1"}
    command = [sys.executable, "-c", "from alta.cli import main; main()", "--show-completion", shell]
    done = subprocess.run(command, capture_output=True, text=True, env=environment)
    assert done.returncode == 0, done.stderr
    assert "_ALTA_COMPLETE" in done.stdout


def test_all_names_are_known():
    assert [name for name, _ in complete_program("")] == list(BUNDLED)
    assert len(complete_data("")) == 2 * len(scan_data.splits())
    assert complete_program("x") == complete_data("x") == []
