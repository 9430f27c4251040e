"""Progress of a long step, as a plain callable: whoever watches decides how to show it."""

from __future__ import annotations

from collections.abc import Callable

Progress = Callable[[int, int], None]
"""Called with (done, total) in one unit; total may grow."""


def no_progress(done: int, total: int) -> None:
    """The progress that shows nothing."""


def shifted(progress: Progress, base: int, size: int, total: int) -> Progress:
    """Progress within one of several things (``size`` of them, after ``base``) as progress over all of them."""
    return lambda done, of: progress(base + size * done // max(of, 1), total)
