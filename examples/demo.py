"""``python -m examples.demo``: a real corpus of four shards through Dagster into a store, and back again.

Everything is under ``.demo``. A second run finds every shard up to date. ``--ui`` opens Dagster's UI on what ran.
"""

from __future__ import annotations

import argparse
import contextlib
import platform
import shutil
import signal
import sys
import time
from collections.abc import Iterable, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from itertools import combinations
from pathlib import Path

from examples.corpus import CorpusError, build_corpus, in_breadth, stdlib_files
from examples.demo_check import Checked, check_shard
from examples.demo_dagster import (
    WORKSPACE,
    DemoError,
    Ended,
    cancel_unfinished,
    daemon,
    environment,
    open_instance,
    program,
    running,
    submit_all,
    wait,
)
from pack_lib.errors import PackError

SHARDS = tuple(f"shard-{number}" for number in range(4))
CORPUS = "stdlib"
CHUNKS = 26_000
LEAST = 20_000
PORT = 3000
LONGEST = 300.0


@dataclass(frozen=True, slots=True)
class Places:
    """Where everything of the demonstration lies."""

    root: Path

    @property
    def sources(self) -> dict[str, Path]:
        folder = self.root / f"corpus-{platform.python_version()}"
        return {shard: folder / f"{shard}.db" for shard in SHARDS}

    @property
    def home(self) -> Path:
        """DAGSTER_HOME."""
        return self.root / "dagster"

    @property
    def store(self) -> Path:
        return self.root / "store"

    @property
    def log(self) -> Path:
        return self.root / "daemon.log"

    def hydrated(self, shard: str) -> Path:
        return self.root / "hydrated" / f"{shard}.db"

    @property
    def settings(self) -> dict[str, str]:
        """What pipelines.settings reads."""
        return {
            "COLD_CORPUS": CORPUS,
            "COLD_SOURCES": "\n".join(f"{shard}={path}" for shard, path in self.sources.items()),
            "COLD_STORE": str(self.store),
            "COLD_STAGING": str(self.root / "staging"),
        }


class Screen:
    """Lines of output, and one live line of status that the next one replaces."""

    def __init__(self) -> None:
        self._begun = time.monotonic()
        self._live = sys.stdout.isatty()
        self._shown = ""

    @property
    def seconds(self) -> float:
        return time.monotonic() - self._begun

    def say(self, line: str = "") -> None:
        if self._live and self._shown:
            print("\r\x1b[K", end="")
        print(line, flush=True)
        self._shown = ""

    def status(self, line: str) -> None:
        """Shown at once on a terminal; elsewhere a line for each change."""
        if self._live:
            width = shutil.get_terminal_size().columns - 1
            print("\r\x1b[K" + f"{self.seconds:5.1f} s  {line}"[:width], end="", flush=True)
        elif line != self._shown:
            print(f"{self.seconds:5.1f} s  {line}", flush=True)
        self._shown = line


def make_corpus(places: Places, screen: Screen) -> None:
    """The corpus, unless this interpreter's is there. Raises CorpusError."""
    folder = next(iter(places.sources.values())).parent
    if all(path.exists() for path in places.sources.values()):
        screen.say(f"corpus: {folder} is there")
        return
    screen.status(f"corpus: reading the standard library of Python {platform.python_version()}")
    files = in_breadth(stdlib_files(CORPUS))
    made = build_corpus(files, folder, len(SHARDS), chunks_at_most=CHUNKS, force=True)
    chunks = sum(shard.rows["chunks"] for shard in made)
    if chunks < LEAST:
        screen.say(f"this Python's standard library gives {chunks:,} chunks only")
    screen.say(f"corpus: {chunks:,} chunks in {len(made)} shards, made in {screen.seconds:.1f} s")


def run_all(places: Places, screen: Screen) -> tuple[list[Ended], list[Checked]]:
    """Make the corpus, submit, wait; each shard's set is checked as soon as its run ends. Nothing is left running."""
    with contextlib.ExitStack() as stack:
        pool = ThreadPoolExecutor(2)  # SQLite and zstd do the work, and let other threads run meanwhile
        stack.callback(pool.shutdown, cancel_futures=True)
        instance = stack.enter_context(open_instance(places.home))
        stack.callback(cancel_unfinished, instance)
        env = environment(places.home, places.settings)
        submitted = pool.submit(submit_all, env)  # nothing takes the runs from the queue before the corpus is made
        make_corpus(places, screen)
        screen.status("submitting one run a shard to the queue")
        backfill = submitted.result()
        dagster = stack.enter_context(contextlib.ExitStack())
        at_work = dagster.enter_context(daemon(env, places.log))
        ended, checks = [], []
        for run in wait(instance, backfill, lambda: at_work.poll() is None, screen.status, seconds=LONGEST):
            source, target = places.sources[run.shard], places.hydrated(run.shard)
            checks.append(pool.submit(check_shard, places.store, CORPUS, run.shard, source, target))
            ended.append(run)
        screen.say(f"runs: all {len(ended)} succeeded by {screen.seconds:.1f} s")
        screen.status("stopping the daemon; verifying, hydrating, comparing")
        dagster.close()
        return ended, [check.result() for check in checks]


def table(ended: Iterable[Ended], checked: Iterable[Checked]) -> list[str]:
    """A line a shard."""
    head = ["shard", "chunks", "edges -> groups", "source bytes", "pack bytes", "ratio", "seconds", "pack hash"]
    lines = [head]
    for run, shard in sorted(zip(ended, checked, strict=True), key=lambda pair: pair[0].shard):
        more = f" and {len(shard.packs) - 1} more" if len(shard.packs) > 1 else ""
        lines.append(
            [
                shard.shard,
                f"{shard.chunks:,}",
                f"{shard.edges:,} -> {shard.groups:,}",
                f"{shard.source_bytes:,}",
                f"{shard.pack_bytes:,}",
                f"{shard.source_bytes / shard.pack_bytes:.1f}",
                f"{run.end - run.start:.1f}",
                shard.packs[0] + more,
            ]
        )
    widths = [max(map(len, column)) for column in zip(*lines, strict=True)]
    padded = []
    for line in lines:
        cells = [cell.rjust(width) for cell, width in zip(line, widths, strict=True)]
        padded.append("  ".join([line[0].ljust(widths[0]), *cells[1:-1], line[-1]]))
    return padded


def parallel(ended: Sequence[Ended]) -> str:
    """Which runs overlapped in time, and by how much."""
    overlaps = []
    for one, two in combinations(sorted(ended, key=lambda run: run.start), 2):
        seconds = min(one.end, two.end) - max(one.start, two.start)
        if seconds > 0:
            overlaps.append(f"{one.shard} and {two.shard} for {seconds:.1f} s")
    return f"shards ran in parallel: {', '.join(overlaps) or 'none, on this machine'}"


def demonstrate(places: Places) -> None:
    """All of it. Raises DemoError, CorpusError or PackError."""
    screen = Screen()
    ended, checked = run_all(places, screen)
    screen.say(f"sets verified; {len(checked)} fresh databases hydrated, equal to their sources in every cell")
    screen.say()
    for line in table(ended, checked):
        screen.say(line)
    screen.say()
    screen.say(parallel(ended))
    sent = sum(run.bytes_sent for run in ended)
    if all(run.up_to_date for run in ended):
        screen.say(f"every shard was up to date: nothing was built, {sent:,} bytes were uploaded")
    else:
        screen.say(f"{sent:,} bytes were uploaded; run it again and every shard will be up to date")
    screen.say(f"all in {screen.seconds:.1f} s, under {places.root}")
    option = "" if places.root == Path(".demo").absolute() else f" --dir {places.root}"
    screen.say(
        f"Dagster's UI on what just ran: {_python()} -m examples.demo{option} --ui   then http://127.0.0.1:{PORT}"
    )


def show_ui(places: Places) -> None:
    """Dagster's web server and a daemon, until interrupted. Raises DemoError."""
    if not places.store.exists():
        raise DemoError(f"there is nothing in {places.root}; run make demo first")
    env = environment(places.home, places.settings)
    command = [program("dagster-webserver"), "-w", str(WORKSPACE), "-h", "127.0.0.1", "-p", str(PORT)]
    with open_instance(places.home), daemon(env, places.log), running(command, env) as server:
        print(f"http://127.0.0.1:{PORT}   (Ctrl-C ends it)", flush=True)
        if server.wait():
            raise DemoError(f"dagster-webserver ended; is port {PORT} taken?")


def _python() -> str:
    """How to call this interpreter from here."""
    with contextlib.suppress(ValueError):
        return str(Path(sys.executable).relative_to(Path.cwd()))
    return sys.executable


def main(arguments: Sequence[str] | None = None) -> int:
    """Runs the command; returns its exit code."""
    options = argparse.ArgumentParser(
        prog="python -m examples.demo", description="Pack a real corpus through Dagster, and bring it back."
    )
    options.add_argument("--dir", type=Path, default=Path(".demo"), help="folder for everything (default: .demo)")
    options.add_argument("--ui", action="store_true", help="open Dagster's UI on what ran, until Ctrl-C")
    given = options.parse_args(arguments)
    places = Places(given.dir.absolute())
    for sign in (signal.SIGTERM, signal.SIGHUP):
        signal.signal(sign, signal.default_int_handler)  # so that these too leave nothing running
    try:
        (show_ui if given.ui else demonstrate)(places)
    except (CorpusError, DemoError, PackError, OSError) as error:
        print(f"\nerror: {error}", file=sys.stderr)
        return 1
    except Exception as error:
        print(f"\nerror: {type(error).__name__}: {error}; this is a bug", file=sys.stderr)
        return 1
    except KeyboardInterrupt:
        print("\ninterrupted", file=sys.stderr)
        return 130
    return 0


if __name__ == "__main__":
    sys.exit(main())
