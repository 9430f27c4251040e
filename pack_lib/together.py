"""Steps of one run at the same time, in threads, with the errors they would give one after the other."""

from __future__ import annotations

import threading
from collections.abc import Callable, Sequence
from concurrent.futures import Future, ThreadPoolExecutor, wait


class CalledOff(Exception):
    """A step before this one failed. Raised at `checkpoint`; no caller of `together` sees it."""


class _Step(threading.local):
    """Which step this thread is at work on; None outside `together`."""

    place: int | None = None
    called_off: Sequence[threading.Event] = ()
    ended: Sequence[threading.Event] = ()


_step = _Step()


def checkpoint() -> None:
    """Raises CalledOff if this thread's step need not go on."""
    if _step.place is not None and _step.called_off[_step.place].is_set():
        raise CalledOff


def leads() -> bool:
    """Whether this thread's step is the last of those at work: the one whose progress is shown."""
    return _step.place is None or all(ended.is_set() for ended in _step.ended[_step.place + 1 :])


def together(steps: Sequence[Callable[[], object]]) -> None:
    """Run steps that share nothing but files of different names; return when all have ended.

    Of several errors the first step's in the list is raised, as if they had run one after the other; a step that fails
    calls off those after it, and a signal all of them, at their next `checkpoint`.
    """
    called_off = [threading.Event() for _ in steps]
    ended = [threading.Event() for _ in steps]
    begin = threading.Event()  # a signal may come while the threads are made

    def run(place: int) -> None:
        _step.place, _step.called_off, _step.ended = place, called_off, ended
        begin.wait()
        try:
            checkpoint()
            steps[place]()
        except BaseException:
            for event in called_off[place + 1 :]:
                event.set()
            raise
        finally:
            ended[place].set()

    with ThreadPoolExecutor(len(steps), thread_name_prefix="step") as threads:
        try:
            futures: list[Future[None]] = [threads.submit(run, place) for place in range(len(steps))]
            begin.set()
            wait(futures)
        except BaseException:
            for event in called_off:
                event.set()
            begin.set()
            raise
    for future in futures:
        future.result()
