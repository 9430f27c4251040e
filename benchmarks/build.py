"""Build a shard's packs with this project and in the plain way, in one run, and print a table.

``python -m benchmarks.build --chunks 100000 --chunks 1000000``
"""

from __future__ import annotations

import argparse
import os
import shutil
import statistics
import subprocess
import sys
import tempfile
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

from benchmarks.corpus import CorpusFacts, cached_corpus
from benchmarks.measure import Measured, measure

MIB = 1 << 20


@dataclass(frozen=True)
class Line:
    """One line of the table: medians of the rounds, and the largest peak of them. Bytes and seconds."""

    what: str
    seconds: float
    cpu_seconds: float
    chunks_per_second: float
    bytes_out: float
    peak_rss: float

    def cells(self) -> tuple[str, ...]:
        return (
            self.what,
            f"{self.seconds:.2f}",
            f"{self.cpu_seconds:.2f}",
            f"{self.chunks_per_second:,.0f}",
            f"{self.bytes_out / 1e6:.1f}",
            f"{self.peak_rss / MIB:.0f}",
        )

    def ratio_cells(self, plain: Line) -> tuple[str, ...]:
        ratios = (
            self.seconds / plain.seconds,
            self.cpu_seconds / plain.cpu_seconds,
            self.chunks_per_second / plain.chunks_per_second,
            self.bytes_out / plain.bytes_out,
            self.peak_rss / plain.peak_rss,
        )
        return ("ours / plain", *(f"{ratio:.3f}" for ratio in ratios))


def _line(what: str, facts: CorpusFacts, rounds: list[Measured]) -> Line:
    seconds = statistics.median(one.seconds for one in rounds)
    return Line(
        what=what,
        seconds=seconds,
        cpu_seconds=statistics.median(one.cpu_seconds for one in rounds),
        chunks_per_second=facts.distinct / seconds,
        bytes_out=statistics.median(one.result["bytes_out"] for one in rounds),
        peak_rss=max(one.peak_rss for one in rounds),
    )


def _once(what: str, facts: CorpusFacts, directory: Path, workers: int) -> Measured:
    """One measured build; what it wrote is removed again."""
    workdir = Path(tempfile.mkdtemp(prefix=f"{what}-", dir=directory))
    try:
        if what == "ours":
            return measure("benchmarks.ours:build", db=facts.path, workdir=str(workdir), workers=workers)
        return measure("benchmarks.plain:plain_build", db=facts.path, out=str(workdir / "plain.tar.zst"))
    finally:
        shutil.rmtree(workdir)


def _warm(path: Path) -> None:
    """Read the shard once, so that whoever comes first does not pay for the disk."""
    with path.open("rb") as file:
        while file.read(8 * MIB):
            pass


def _rounds(facts: CorpusFacts, ways: list[str], options: argparse.Namespace) -> dict[str, list[Measured]]:
    _warm(Path(facts.path))
    measured: dict[str, list[Measured]] = {what: [] for what in ways}
    for number in range(options.rounds):
        for what in ways if number % 2 == 0 else reversed(ways):
            one = _once(what, facts, options.dir, options.workers)
            print(f"  round {number + 1}, {what}: {one.seconds:.2f} s, {one.result}", file=sys.stderr)
            measured[what].append(one)
    return measured


def _build_alone(measured: list[Measured], plain: Line) -> Iterator[str]:
    """What of our time is the work that the plain way does as well, and the split of all of it."""
    seconds = statistics.median(one.result["build_seconds"] for one in measured)
    times = plain.seconds / seconds
    yield f"build alone (select, tables, edges, packs): {seconds:.2f} s, {times:.1f} times as fast as the plain way"
    names = measured[0].result["steps"]
    split = {name: statistics.median(one.result["steps"][name] for one in measured) for name in names}
    yield "steps, seconds: " + ", ".join(f"{name} {value:.2f}" for name, value in split.items())


def _table(lines: dict[str, Line]) -> Iterator[str]:
    heads = ("what", "seconds", "CPU s", "chunks/s", "MB out", "peak RSS MiB")
    yield f"| {' | '.join(heads)} |"
    yield f"|---{'|---:' * (len(heads) - 1)}|"
    rows = [line.cells() for line in lines.values()]
    if len(lines) == 2:
        rows.append(lines["ours"].ratio_cells(lines["plain"]))
    for row in rows:
        yield f"| {' | '.join(row)} |"


def _describe(facts: CorpusFacts) -> str:
    return (
        f"{facts.chunks:,} chunks ({facts.distinct:,} distinct) of {facts.documents:,} documents, "
        f"{facts.edges:,} edges in {facts.edge_groups:,} groups; bodies {facts.body_bytes / 1e6:.1f} MB, "
        f"zstd -3 of them in one stream 1:{facts.zstd_ratio}; database {facts.db_bytes / 1e6:.1f} MB"
    )


def _growth(tables: dict[int, dict[str, Line]]) -> Iterator[str]:
    """How peak memory grows from the smallest shard to each larger one."""
    smallest, *larger = sorted(tables)
    for chunks in larger:
        for what, line in tables[chunks].items():
            ratio = line.peak_rss / tables[smallest][what].peak_rss
            yield f"peak RSS of {what}, {chunks:,} against {smallest:,} chunks: x{ratio:.2f}"


def _options() -> argparse.Namespace:
    parser = argparse.ArgumentParser(prog="python -m benchmarks.build", description=__doc__)
    add = parser.add_argument
    add("--chunks", type=int, action="append", help="size of the shard; give it again for another (100000)")
    add("--dir", type=Path, help="where shards are kept and packs are built (a folder under the temp folder)")
    add(
        "--workers",
        type=int,
        default=os.cpu_count() or 1,
        help="threads of this project's builder (all CPUs)",
    )
    add("--rounds", type=int, default=2, help="how often each is measured, in alternating order (2)")
    only = parser.add_mutually_exclusive_group()
    only.add_argument("--no-plain", action="store_true", help="leave the plain way out")
    only.add_argument("--no-ours", action="store_true", help="leave this project's builder out")
    options = parser.parse_args()
    options.dir = (options.dir or Path(tempfile.gettempdir()) / "cold-packs-benchmarks").resolve()
    options.chunks = sorted(set(options.chunks or [100_000]))
    if min(options.chunks) < 1 or options.rounds < 1 or options.workers < 1:
        parser.error("--chunks, --rounds and --workers are at least 1")
    return options


def main() -> int:
    options = _options()
    ways = [what for what, out in (("ours", options.no_ours), ("plain", options.no_plain)) if not out]
    tables: dict[int, dict[str, Line]] = {}
    for chunks in options.chunks:
        facts = cached_corpus(options.dir, chunks)
        print(f"\n{_describe(facts)}\n", flush=True)
        try:
            measured = _rounds(facts, ways, options)
        except subprocess.CalledProcessError as error:
            print(f"a build failed with exit code {error.returncode}; its traceback is above", file=sys.stderr)
            return 1
        tables[chunks] = {what: _line(what, facts, rounds) for what, rounds in measured.items()}
        print("\n".join(_table(tables[chunks])), flush=True)
        if len(ways) == 2:
            print("\n" + "\n".join(_build_alone(measured["ours"], tables[chunks]["plain"])), flush=True)
    print()
    for text in _growth(tables):
        print(text)
    return 0


if __name__ == "__main__":
    raise SystemExit(main())
