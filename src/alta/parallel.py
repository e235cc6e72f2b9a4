"""Work on many inputs, chunk by chunk: in this process, or on whatever a `concurrent.futures.Executor` runs on."""

from __future__ import annotations

import sys
from collections import deque
from collections.abc import Callable, Iterable, Iterator
from concurrent.futures import BrokenExecutor, Executor, Future, ProcessPoolExecutor
from contextlib import contextmanager
from itertools import islice
from typing import Any, TypeVar

from alta.errors import AltaError, InputError

In = TypeVar("In")
Out = TypeVar("Out")

TRIES = 3
"""How often a chunk is tried before the failure of its workers counts as its own."""

AHEAD = 4
"""Chunks that are given out for each worker, beyond those whose results have been taken."""


def map_chunks(
    work: Callable[[list[In]], Out], inputs: Iterable[In], *, size: int, executor: Executor | None = None
) -> Iterator[tuple[int, Out]]:
    """The work's result for each chunk of inputs, in order, with how many inputs it had.

    The inputs are taken as they are needed, so they may be more than memory holds. With an executor, a chunk whose
    worker dies is tried again; a process pool that breaks of it is replaced by another of its size.
    """
    if isinstance(size, bool) or not isinstance(size, int) or size < 1:
        raise InputError(f"a chunk has 1 input or more; got {size!r}")
    chunks = _chunks(inputs, size)
    if executor is None:
        for chunk in chunks:
            yield len(chunk), work(chunk)
        return
    yield from _Pool(executor).map(work, chunks)


def _chunks(inputs: Iterable[In], size: int) -> Iterator[list[In]]:
    source = iter(inputs)
    while chunk := list(islice(source, size)):
        yield chunk


class _Pool:
    """An executor, and the one that takes its place if it breaks."""

    def __init__(self, executor: Executor) -> None:
        self.executor = executor
        self.own: ProcessPoolExecutor | None = None
        self.workers = int(getattr(executor, "_max_workers", 16))

    def map(self, work: Callable[[list[In]], Out], chunks: Iterator[list[In]]) -> Iterator[tuple[int, Out]]:
        waiting: deque[tuple[list[In], Future[Out]]] = deque()
        try:
            for chunk in islice(chunks, AHEAD * self.workers):
                waiting.append((chunk, self._submit(work, chunk)))
            while waiting:
                chunk, future = waiting.popleft()
                result = self._result(work, chunk, future)
                yield len(chunk), result
                for more in islice(chunks, 1):
                    waiting.append((more, self._submit(work, more)))
        finally:
            for _, future in waiting:
                future.cancel()
            if self.own is not None:
                self.own.shutdown(wait=False, cancel_futures=True)

    def _submit(self, work: Callable[[list[In]], Out], chunk: list[In]) -> Future[Out]:
        try:
            return self.executor.submit(work, chunk)
        except BrokenExecutor:
            self._replace()
            return self.executor.submit(work, chunk)

    def _result(self, work: Callable[[list[In]], Out], chunk: list[In], future: Future[Out]) -> Out:
        for tried in range(1, TRIES + 1):
            try:
                return future.result()
            except AltaError:
                raise
            except Exception as error:
                if tried == TRIES or not _is_death(error):
                    raise
                future = self._submit(work, chunk)
        raise AssertionError

    def _replace(self) -> None:
        if not isinstance(self.executor, ProcessPoolExecutor):
            raise
        if self.own is not None:
            self.own.shutdown(wait=False)
        context = getattr(self.executor, "_mp_context", None)
        self.executor = self.own = ProcessPoolExecutor(self.workers, mp_context=context)


def _is_death(error: Exception) -> bool:
    """Whether an error tells that a worker was lost: a broken pool, or Dask's word for it."""
    return isinstance(error, BrokenExecutor) or type(error).__name__ in ("KilledWorker", "CancelledError")


def _ignore(_: int) -> None:
    pass


@contextmanager
def progress_bar(what: str, total: int | None, shown: bool | None) -> Iterator[Callable[[int], None]]:
    """A bar with rate and time left on standard error, if that is a terminal (or as `shown` says). Yields what to call
    with the number of inputs that are done."""
    if not (sys.stderr.isatty() if shown is None else shown):
        yield _ignore
        return
    from rich.console import Console
    from rich.progress import (
        BarColumn,
        MofNCompleteColumn,
        Progress,
        ProgressColumn,
        Task,
        TextColumn,
        TimeRemainingColumn,
    )
    from rich.text import Text

    class Rate(ProgressColumn):
        def render(self, task: Task) -> Text:
            speed = task.finished_speed or task.speed
            return Text("" if speed is None else f"{speed:,.0f}/s")

    columns: tuple[Any, ...] = (
        TextColumn("{task.description}"),
        BarColumn(),
        MofNCompleteColumn(),
        Rate(),
        TimeRemainingColumn(),
    )
    with Progress(*columns, console=Console(stderr=True), transient=True) as bar:
        task = bar.add_task(what, total=total)
        yield lambda done: bar.advance(task, done)
