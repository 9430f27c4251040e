"""From files to shards: reads the documents, assigns them by hash range, writes the shards."""

from __future__ import annotations

import os
from collections import defaultdict
from collections.abc import Iterable, Sequence
from dataclasses import replace
from pathlib import Path

from examples.corpus.documents import read_document
from examples.corpus.index import build_index
from examples.corpus.model import CorpusError, Document, ShardSummary, Skipped, SourceFile
from examples.corpus.shard import write_shard
from examples.corpus.tables import ShardContent


def read_documents(
    files: Iterable[SourceFile], *, chunks_at_most: int | None = None
) -> tuple[list[Document], list[Skipped]]:
    """The files' documents in the order given, and what was skipped.

    Stops before the document that would make it more than ``chunks_at_most`` chunks. One process: most of the time
    goes into parsing, and handing the texts between processes costs what a second one saves.
    """
    documents: list[Document] = []
    skipped: list[Skipped] = []
    held = 0
    for item in map(read_document, files):
        if isinstance(item, Skipped):
            skipped.append(item)
            continue
        held += len(item.chunks)
        if chunks_at_most is not None and held > chunks_at_most:
            break
        documents.append(item)
    return documents, skipped


def shard_number(root: str, shards: int) -> int:
    """The shard that holds a document root: equal ranges of its first 8 hex digits."""
    return int(root[:8], 16) * shards >> 32


def _contents(documents: Iterable[Document], shards: int) -> list[ShardContent]:
    ordered = sorted(documents, key=lambda document: document.uri)
    index = build_index(ordered)
    kept: dict[str, Document] = {}
    others: dict[str, list[str]] = defaultdict(list)
    for document in ordered:
        if kept.setdefault(document.root, document) is not document:
            others[document.root].append(document.uri)
    parts: list[list[Document]] = [[] for _ in range(shards)]
    for document in kept.values():
        parts[shard_number(document.root, shards)].append(document)
    return [
        ShardContent(part, {doc.root: others[doc.root] for doc in part if doc.root in others}, index) for part in parts
    ]


def prepare(out: Path, force: bool) -> list[Path]:
    """Makes the folder; the shards that are there already. Raises CorpusError if there are some and not ``force``."""
    try:
        out.mkdir(parents=True, exist_ok=True)
    except OSError as error:
        raise CorpusError(f"cannot make the folder {out}: {error.strerror}") from error
    there = sorted(out.glob("shard-*.db"))
    if there and not force:
        raise CorpusError(f"{there[0]} exists already (--force replaces the corpus in that folder)")
    return there


def _put_in_place(written: Sequence[ShardSummary], out: Path, there: Iterable[Path]) -> list[ShardSummary]:
    finished = []
    for summary in written:
        path = summary.path.with_suffix("")
        summary.path.replace(path)
        finished.append(replace(summary, name=path.stem, path=path))
    for path in set(there) - {summary.path for summary in finished}:
        path.unlink()  # a shard of the replaced corpus beside the new ones would look like one of them
    folder = os.open(out, os.O_RDONLY)
    try:
        os.fsync(folder)
    finally:
        os.close(folder)
    return finished


def write_corpus(
    documents: Iterable[Document], out: Path, shards: int = 4, *, force: bool = False
) -> list[ShardSummary]:
    """Writes ``out/shard-0.db`` ...; all of them get their names only when all are whole.

    Raises CorpusError if shards are there already and ``force`` is not set, or on trouble with writing.
    """
    if shards < 1:
        raise CorpusError(f"a corpus has at least 1 shard, not {shards}")
    there = prepare(out, force)
    contents = _contents(documents, shards)
    written: list[ShardSummary] = []
    try:
        for number, content in enumerate(contents):
            written.append(write_shard(content, out / f"shard-{number}.db.tmp"))
        return _put_in_place(written, out, there)
    except BaseException:
        for summary in written:
            summary.path.unlink(missing_ok=True)
        raise


def build_corpus(
    files: Iterable[SourceFile],
    out: Path,
    shards: int = 4,
    *,
    chunks_at_most: int | None = None,
    force: bool = False,
) -> list[ShardSummary]:
    """Reads the files, in the order given, and writes their corpus: read_documents and write_corpus in one.

    Equal files give equal tables, whatever their order (unless it decides where ``chunks_at_most`` stops) and
    their place on the disk.
    """
    prepare(out, force)  # before the reading, which takes longer
    documents, _ = read_documents(files, chunks_at_most=chunks_at_most)
    return write_corpus(documents, out, shards, force=force)
