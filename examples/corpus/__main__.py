"""``python -m examples.corpus [FOLDER] OUT_DIR``: builds a corpus and prints what is in it."""

from __future__ import annotations

import argparse
import sys
import time
from collections import Counter
from collections.abc import Sequence
from pathlib import Path

from examples.corpus.build import prepare, read_documents, write_corpus
from examples.corpus.files import folder_files, in_breadth, stdlib_files
from examples.corpus.model import CorpusError, ShardSummary, Skipped

_SHOWN = ("documents", "chunks", "edges", "merkle_nodes", "audit_events", "term_aliases")


def _count(text: str) -> int:
    number = int(text)
    if number < 1:
        raise argparse.ArgumentTypeError("must be at least 1")
    return number


def parser() -> argparse.ArgumentParser:
    """The command's options."""
    options = argparse.ArgumentParser(
        prog="python -m examples.corpus",
        description="Build a corpus of sharded SQLite databases from real text files.",
    )
    options.add_argument("folder", nargs="?", type=Path, help="folder of .py, .md, .txt and .html files")
    options.add_argument("out", type=Path, metavar="OUT_DIR", help="folder for shard-0.db ...")
    options.add_argument(
        "--stdlib", action="store_true", help="use this Python's standard library (so too without FOLDER)"
    )
    options.add_argument("--name", help="scheme of the uris (default: the folder's name, or stdlib)")
    options.add_argument("--shards", type=_count, default=4, help="default 4")
    options.add_argument("--limit", type=_count, metavar="N", help="take N files at most")
    options.add_argument(
        "--chunks-at-most",
        type=_count,
        metavar="N",
        help="stop before the document that would exceed N chunks (orphans not counted)",
    )
    options.add_argument("--force", action="store_true", help="replace a corpus that is there already")
    return options


def table(summaries: Sequence[ShardSummary]) -> str:
    """The shards, a line each, and their sum."""
    numbers = [[*(summary.rows[name] for name in _SHOWN), summary.n_bytes] for summary in summaries]
    numbers.append([sum(column) for column in zip(*numbers, strict=True)])
    names = [*(summary.name for summary in summaries), "all"]
    lines = [["shard", *_SHOWN, "bytes"]]
    lines += [[name, *(f"{n:,}" for n in row)] for name, row in zip(names, numbers, strict=True)]
    widths = [max(map(len, column)) for column in zip(*lines, strict=True)]
    return "\n".join("  ".join(map(str.rjust, line, widths)) for line in lines)


def _report_skipped(skipped: Sequence[Skipped]) -> None:
    for reason, n in sorted(Counter(item.reason for item in skipped).items()):
        print(f"skipped {n} file{'s' if n > 1 else ''}: {reason}")


def main(arguments: Sequence[str] | None = None) -> int:
    """Runs the command; returns its exit code."""
    options = parser().parse_args(arguments)
    if options.stdlib and options.folder is not None:
        parser().error("give FOLDER or --stdlib, not both")
    started = time.monotonic()
    try:
        if options.folder is None:
            files = stdlib_files(options.name or "stdlib")
        else:
            files = folder_files(options.folder, options.name)
        if options.limit or options.chunks_at_most:
            files = in_breadth(files)[: options.limit]
        prepare(options.out, options.force)  # before the reading, which takes longer
        documents, skipped = read_documents(files, chunks_at_most=options.chunks_at_most)
        summaries = write_corpus(documents, options.out, options.shards, force=options.force)
    except CorpusError as error:
        print(f"error: {error}", file=sys.stderr)
        return 1
    print(table(summaries))
    _report_skipped(skipped)
    print(f"{len(documents)} files in {time.monotonic() - started:.1f} s")
    return 0


if __name__ == "__main__":
    sys.exit(main())
