"""Measure building, verifying and hydrating beside the plain way and what a person does instead; print markdown.

``python -m benchmarks --out benchmarks.md``
"""

from __future__ import annotations

import argparse
import subprocess
import sys
import tempfile
from collections.abc import Iterator
from pathlib import Path

from benchmarks import report
from benchmarks.corpus import cached_corpus
from benchmarks.ours import layouts
from benchmarks.suite import commands, measure_corpus, measure_levels


def _options() -> argparse.Namespace:
    parser = argparse.ArgumentParser(prog="python -m benchmarks", description=__doc__)
    add = parser.add_argument
    add("--chunks", type=int, action="append", help="size of a corpus; give it again for another (100000 and 1000000)")
    add("--repeat", type=int, help="rounds (3; 1 from 1,000,000 chunks on)")
    add("--levels", action="store_true", help="also build the smallest corpus at several levels")
    add("--out", type=Path, help="write the report to this file, too")
    add("--dir", type=Path, help="where corpora are kept and packs are built (a folder under the temp folder)")
    options = parser.parse_args()
    options.dir = (options.dir or Path(tempfile.gettempdir()) / "cold-packs-benchmarks").resolve()
    options.chunks = sorted(set(options.chunks or [100_000, 1_000_000]))
    if min(options.chunks) < 1 or (options.repeat is not None and options.repeat < 1):
        parser.error("--chunks and --repeat are at least 1")
    return options


def _rounds(options: argparse.Namespace, chunks: int) -> int:
    given: int | None = options.repeat
    return given or (3 if chunks < 1_000_000 else 1)


def _report(options: argparse.Namespace) -> Iterator[str]:
    """The report's lines, each section as soon as it is measured."""
    yield from report.head()
    corpora = []
    for chunks in options.chunks:
        print(f"corpus of {chunks:,} chunks", file=sys.stderr)
        facts = cached_corpus(options.dir, chunks)
        corpora.append(measure_corpus(facts, options.dir, _rounds(options, chunks)))
        yield from report.corpus(corpora[-1], layouts())
    yield from report.memory(corpora, layouts())
    if options.levels:
        facts = corpora[0].facts
        made = measure_levels(facts, options.dir, _rounds(options, facts.chunks))
        yield from report.levels(facts, made, layouts()[0])
    yield from report.commands(commands())


def main() -> int:
    options = _options()
    lines = []
    try:
        for line in _report(options):
            print(line, flush=True)
            lines.append(line)
    except subprocess.CalledProcessError as error:
        print(f"a measured call failed with exit code {error.returncode}; its traceback is above", file=sys.stderr)
        return 1
    if options.out is not None:
        options.out.write_text("\n".join(lines) + "\n")
    return 0


if __name__ == "__main__":
    raise SystemExit(main())
