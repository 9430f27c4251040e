"""What the commands share: their common options, aligned output, the JSON document, the progress bar."""

from __future__ import annotations

import json
import os
import sys
from collections.abc import Callable, Sequence
from contextlib import AbstractContextManager
from typing import TYPE_CHECKING, Any, TypeVar

import click

from pack_lib.cli import signals
from pack_lib.cli.ending import one_line, write

if TYPE_CHECKING:
    from tqdm import tqdm

    from pack_lib.profile import Profile

Command = TypeVar("Command", bound=Callable[..., Any])

json_option = click.option("--json", "as_json", is_flag=True, help="Print one JSON document instead of text.")
quiet_option = click.option("-q", "--quiet", is_flag=True, help="Show no progress bar; a pipe gets none anyway.")
store_option = click.option(
    "--store", "store_url", required=True, metavar="STORE", help="Folder or URL of the store to use."
)


class Output:
    """Stdout of one command: either text, as it comes, or one JSON document."""

    def __init__(self, as_json: bool) -> None:
        self.as_json = as_json

    def text(self, *lines: str) -> None:
        if not self.as_json:
            write("".join(f"{one_line(line)}\n" for line in lines))

    def document(self, value: dict[str, Any]) -> None:
        if self.as_json:
            write(json.dumps(value, indent=2) + "\n")


def count(number: int, noun: str, plural: str = "") -> str:
    """``1 pack``, ``1,200 packs``; ``plural`` where that is not the noun with an s."""
    return f"{number:,} {noun if number == 1 else plural or noun + 's'}"


def aligned(rows: Sequence[Sequence[str | int]], indent: str = "") -> list[str]:
    """Rows as lines of aligned columns: numbers to the right, with thousands separators; a number column's head too."""
    if not rows:
        return []
    numeric = [any(isinstance(row[place], int) for row in rows) for place in range(len(rows[0]))]
    cells = [[f"{cell:,}" if isinstance(cell, int) else cell for cell in row] for row in rows]
    widths = [max(map(len, column)) for column in zip(*cells, strict=True)]
    lines = []
    for row in cells:
        columns = zip(row, widths, numeric, strict=True)
        lines.append(
            (indent + "  ".join(c.rjust(width) if right else c.ljust(width) for c, width, right in columns)).rstrip()
        )
    return lines


class Progress(AbstractContextManager["Progress"]):
    """A progress bar on stderr, if that is a terminal; a reporter of `pack_lib.build`. Leaves nothing behind."""

    def __init__(self, quiet: bool) -> None:
        self._shown = not quiet and sys.stderr is not None and sys.stderr.isatty()
        self._bar: tqdm[Any] | None = None
        self._step = ""
        self._prefix = ""

    def about(self, subject: str) -> None:
        """What the steps from now on are about."""
        self._end()
        self._prefix = subject + ": "

    def __call__(self, step: str, done: int, total: int) -> None:
        signals.check()
        if not self._shown:
            return
        if self._bar is None or step != self._step:
            self._end()
            self._step = step
            self._bar = self._begin(step, done, total)
        self._bar.total = total
        self._bar.update(done - self._bar.n)

    def step(self, name: str) -> Callable[[int, int], None]:
        """A progress of one step, called with (done, total) in bytes."""
        return lambda done, total: self(name, done, total)

    def _begin(self, step: str, done: int, total: int) -> tqdm[Any]:
        from tqdm import tqdm

        tqdm.monitor_interval = 0  # no thread beside ours
        known = os.get_terminal_size(sys.stderr.fileno()).columns > 0  # a serial line may not tell its width
        unit = " rows" if step.startswith("table ") else {"bodies": " chunks"}.get(step, "B")
        scale = unit == "B"
        return tqdm(
            desc=self._prefix + step,
            total=total,
            initial=done,
            unit=unit,
            unit_scale=scale,
            file=sys.stderr,
            leave=False,
            ncols=None if known else 80,
            dynamic_ncols=known,
        )

    def _end(self) -> None:
        if self._bar is not None:
            self._bar.close()
            self._bar = None

    def __exit__(self, *exception: object) -> None:
        self._end()


def profile_named(name: str, given: Profile | None = None) -> Profile | None:
    """The profile that packs name: the one given on the command line if it has that name, else a built-in one.

    None if there is none. The name comes out of a pack, so it is never taken for a path.
    """
    from pack_lib.errors import NotFound
    from pack_lib.profile import load_profile

    if given is not None and given.name == name:
        return given
    if "/" in name or name.endswith(".toml"):
        return None
    try:
        return load_profile(name)
    except NotFound:
        return None
