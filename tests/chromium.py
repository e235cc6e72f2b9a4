"""A headless Chromium, spoken to in its own protocol through a pipe: what the browser tests need, and no more."""

from __future__ import annotations

import base64
import fcntl
import json
import os
import select
import shutil
import subprocess
import tempfile
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

PROGRAM = shutil.which("chromium") or shutil.which("chromium-browser") or shutil.which("google-chrome")
"""Where it is, or None. `make test-browser` installs it."""

PATIENCE = 60
"""Seconds that an answer may take."""

KEYS = {"ArrowLeft": 37, "ArrowUp": 38, "ArrowRight": 39, "ArrowDown": 40, "Home": 36, "End": 35, "Enter": 13, "Tab": 9}


class Chromium:
    """A browser, and the messages that come and go. It ends with its `with` block."""

    def __init__(self) -> None:
        assert PROGRAM is not None
        self._folder = tempfile.TemporaryDirectory(ignore_cleanup_errors=True)
        to_read, self._to = os.pipe()
        self._from, to_write = os.pipe()
        flags = [
            "--headless=new",
            "--no-sandbox",
            "--disable-gpu",
            "--disable-dev-shm-usage",
            "--remote-debugging-pipe",
        ]
        # The browser listens on descriptor 3 and answers on 4, which a shell sets; these are taken from above both.
        ends = [fcntl.fcntl(end, fcntl.F_DUPFD_CLOEXEC, 10) for end in (to_read, to_write)]
        command = f'exec "$@" 3<&{ends[0]} 4>&{ends[1]}'
        self._process = subprocess.Popen(
            ["bash", "-c", command, "chromium", PROGRAM, *flags, f"--user-data-dir={self._folder.name}", "about:blank"],
            pass_fds=ends,
            stdout=subprocess.DEVNULL,
            stderr=subprocess.DEVNULL,
        )
        for end in (to_read, to_write, *ends):
            os.close(end)
        self._number = 0
        self._buffer = b""
        self.events: list[dict[str, Any]] = []

    def __enter__(self) -> Chromium:
        return self

    def __exit__(self, *error: object) -> None:
        self.call("Browser.close")
        self._process.wait(PATIENCE)
        os.close(self._to)
        os.close(self._from)
        self._folder.cleanup()

    def call(self, method: str, session: str | None = None, **parameters: Any) -> dict[str, Any]:
        """The answer to one message; events that come in the meantime are kept."""
        self._number += 1
        message: dict[str, Any] = {"id": self._number, "method": method, "params": parameters}
        if session is not None:
            message["sessionId"] = session
        os.write(self._to, json.dumps(message).encode() + b"\0")
        while True:
            received = self._receive()
            if received.get("id") == self._number:
                assert "error" not in received, f"{method}: {received['error']}"
                return dict(received["result"])
            self.events.append(received)

    def wait(self, method: str, session: str) -> None:
        """Until there is such an event."""
        while not any((event["method"], event.get("sessionId")) == (method, session) for event in self.events):
            self.events.append(self._receive())

    def _receive(self) -> dict[str, Any]:
        end = time.monotonic() + PATIENCE
        while b"\0" not in self._buffer:
            ready, _, _ = select.select([self._from], [], [], max(0.0, end - time.monotonic()))
            assert ready, f"Chromium has not answered for {PATIENCE} seconds"
            read = os.read(self._from, 1 << 20)
            assert read, "Chromium has ended"
            self._buffer += read
        message, _, self._buffer = self._buffer.partition(b"\0")
        return dict(json.loads(message))

    @contextmanager
    def page(self, url: str, *, dark: bool = False, width: int = 1440, height: int = 900) -> Iterator[Page]:
        """A page of its own, loaded, of this size."""
        target = self.call("Target.createTarget", url="about:blank")["targetId"]
        session = self.call("Target.attachToTarget", targetId=target, flatten=True)["sessionId"]
        page = Page(self, session)
        for domain in ("Page", "Runtime", "Log", "Network", "Accessibility"):
            page.call(f"{domain}.enable")
        page.call("Emulation.setDeviceMetricsOverride", width=width, height=height, deviceScaleFactor=1, mobile=False)
        scheme = {"name": "prefers-color-scheme", "value": "dark" if dark else "light"}
        page.call("Emulation.setEmulatedMedia", features=[scheme])
        page.call("Page.navigate", url=url)
        self.wait("Page.loadEventFired", session)
        yield page
        self.call("Target.closeTarget", targetId=target)


class Page:
    """One page: what is on it, what it has done, and hands to use it with."""

    def __init__(self, browser: Chromium, session: str) -> None:
        self._browser = browser
        self._session = session

    def call(self, method: str, **parameters: Any) -> dict[str, Any]:
        """The answer to a message to this page."""
        return self._browser.call(method, self._session, **parameters)

    def events(self, method: str) -> list[dict[str, Any]]:
        """What has happened on this page so far."""
        self.evaluate("0")
        mine = (event for event in self._browser.events if event.get("sessionId") == self._session)
        return [event["params"] for event in mine if event["method"] == method]

    @property
    def complaints(self) -> list[Any]:
        """Exceptions that nobody caught, and whatever was written to the console or the browser's log."""
        kinds = ("Runtime.exceptionThrown", "Runtime.consoleAPICalled", "Log.entryAdded")
        return [event for kind in kinds for event in self.events(kind)]

    @property
    def requests(self) -> list[str]:
        """The addresses that the page has asked for, itself included."""
        return [event["request"]["url"] for event in self.events("Network.requestWillBeSent")]

    def evaluate(self, expression: str) -> Any:
        """The value of a JavaScript expression."""
        found = self.call("Runtime.evaluate", expression=expression, returnByValue=True, awaitPromise=True)
        assert "exceptionDetails" not in found, found["exceptionDetails"]
        return found["result"].get("value")

    def press(self, key: str) -> None:
        """A key, down and up."""
        text = {"text": key} if len(key) == 1 else {"text": "\r"} if key == "Enter" else {}
        code = KEYS.get(key, ord(key[0].upper()))
        self.call("Input.dispatchKeyEvent", type="keyDown", key=key, windowsVirtualKeyCode=code, **text)
        self.call("Input.dispatchKeyEvent", type="keyUp", key=key, windowsVirtualKeyCode=code)

    def click(self, element: str) -> None:
        """The mouse, in the middle of an element: a JavaScript expression for it."""
        self.evaluate(f"({element}).scrollIntoView({{block: 'nearest', inline: 'nearest'}})")
        place = self.evaluate(
            f"(({{x, y, width, height}}) => [x + width / 2, y + height / 2])(({element}).getBoundingClientRect())"
        )
        for kind in ("mousePressed", "mouseReleased"):
            self.call("Input.dispatchMouseEvent", type=kind, x=place[0], y=place[1], button="left", clickCount=1)

    def screenshot(self, path: Path) -> None:
        """What the window shows, as PNG."""
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_bytes(base64.b64decode(self.call("Page.captureScreenshot", format="png")["data"]))
