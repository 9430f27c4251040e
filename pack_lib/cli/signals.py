"""SIGINT and SIGTERM: an exception where the program is, so that everything unfinished is cleaned up on the way out.

SQLite swallows what is raised inside a function of ours that it calls back (a collation, a cell's bytes), so the signal
is also remembered, and raised once more at the next report of progress.
"""

from __future__ import annotations

import signal
from types import FrameType

NOTHING_CHANGED = "nothing was changed"


class Interrupted(KeyboardInterrupt):
    """A signal came that ends the command."""


class _State:
    received: int | None = None
    meaning = NOTHING_CHANGED


def watch() -> None:
    """Take the signals from now on, unless they are ignored already (``nohup``, a shell's background job)."""
    for number in (signal.SIGINT, signal.SIGTERM):
        if signal.getsignal(number) != signal.SIG_IGN:
            signal.signal(number, _take)


def _take(number: int, frame: FrameType | None) -> None:
    if _State.received is not None:
        return  # cleaning up already
    _State.received = number
    raise Interrupted


def received() -> int | None:
    """Number of the signal that came, if one did."""
    return _State.received


def check() -> None:
    """Raises Interrupted if a signal came before."""
    if _State.received is not None:
        raise Interrupted


def means(text: str) -> None:
    """Say what an interruption from now on leaves behind: a clause for the one line it is answered with."""
    _State.meaning = text


def meaning() -> str:
    return _State.meaning
