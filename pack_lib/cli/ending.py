"""How a command ends: every exception becomes at most one line on stderr and an exit code."""

from __future__ import annotations

import io
import os
import signal
import sys
import traceback

from pack_lib.cli import signals
from pack_lib.errors import PackError, StoreTrouble

BROKEN_PIPE = 128 + signal.SIGPIPE
CODES = {
    0: "done; of `verify`: and no problem was found",
    PackError.exit_code: "a bug of ours; `COLD_TRACEBACK=1` in the environment shows where",
    2: "the command line cannot be understood",
    128 + signal.SIGINT: "interrupted (SIGINT)",
    BROKEN_PIPE: "the reader of stdout went away (SIGPIPE)",
    128 + signal.SIGTERM: "interrupted (SIGTERM)",
}
"""Exit codes and what they mean, besides those that error classes own."""


class StdoutTrouble(StoreTrouble):
    """Stdout cannot be written (a full disk, a reader that went away): what the command did is done all the same."""

    broken_pipe = False


class _Stdout(io.TextIOWrapper):
    """Stdout whose errors can be told from those of any other file."""

    def write(self, text: str, /) -> int:
        try:
            return super().write(text)
        except OSError as error:
            raise self._trouble(error) from error

    def flush(self) -> None:
        try:
            super().flush()
        except OSError as error:
            raise self._trouble(error) from error

    def _trouble(self, error: OSError) -> StdoutTrouble:
        # The interpreter flushes once more at its end, and would complain on stderr.
        devnull = os.open(os.devnull, os.O_WRONLY)
        os.dup2(devnull, self.fileno())
        os.close(devnull)
        trouble = StdoutTrouble(f"stdout cannot be written: {error.strerror}")
        trouble.broken_pipe = isinstance(error, BrokenPipeError)
        return trouble


def take_stdout() -> None:
    """Make the process's stdout one that names its own trouble. Raises StdoutTrouble if it is closed."""
    if sys.stdout is None:
        raise StdoutTrouble("stdout is closed; give it somewhere to go (/dev/null)")
    if type(sys.stdout) is io.TextIOWrapper:
        encoding = sys.stdout.encoding
        # A file name may be no text of this locale.
        sys.stdout = _Stdout(sys.stdout.detach(), encoding, "backslashreplace")


def one_line(text: str) -> str:
    """The text without line breaks and without what a terminal would obey."""
    return "".join(mark if mark.isprintable() else _escaped(mark) for mark in text)


def _escaped(mark: str) -> str:
    return " " if mark in "\r\n\t" else mark.encode("unicode_escape").decode("ascii")


def say(text: str) -> None:
    """One line on stderr; if that is gone, nothing can be said."""
    if sys.stderr is None:
        return  # print would turn to stdout
    try:
        print(f"cold: {one_line(text)}", file=sys.stderr, flush=True)
    except (OSError, ValueError):
        return


def write(text: str) -> None:
    """Text for stdout, written through at once: what cannot be written is known here and not after the end."""
    sys.stdout.write(text)
    sys.stdout.flush()


def exit_code_of(error: BaseException) -> int:
    """Say what happened and return the exit code."""
    number = signals.received()
    if number is None and isinstance(error, KeyboardInterrupt):
        number = signal.SIGINT
    if number is not None:
        say(f"interrupted; {signals.meaning()}")
        return 128 + number
    if isinstance(error, StdoutTrouble) and error.broken_pipe:
        return BROKEN_PIPE
    if isinstance(error, PackError) and type(error) is not PackError:
        say(str(error))
        return error.exit_code
    if os.environ.get("COLD_TRACEBACK") == "1":
        traceback.print_exception(error)
    if isinstance(error, OSError):  # the system's refusal of something in the user's hands: a path, a limit, a device
        say(str(error))
        return StoreTrouble.exit_code
    if isinstance(error, MemoryError):
        say(f"out of memory; {signals.meaning()}. Give it more, or let it use less (--workers 1)")
        return StoreTrouble.exit_code
    words = f"{type(error).__name__}: {error}" if str(error) else type(error).__name__
    say(f"internal error: {words}; this is a bug")
    return PackError.exit_code
