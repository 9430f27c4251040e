"""A made-up corpus shard: the live schema, real text, and the proportions of the real corpus.

About 12 chunks a document, 1.56 edges a chunk, about 45 edges a fan-in group. Text, seed and schema decide
every row, so two runs in one environment make equal shards.
"""

from __future__ import annotations

import hashlib
import json
import platform
import random
import sqlite3
from collections.abc import Sequence
from contextlib import closing
from dataclasses import asdict, dataclass
from datetime import UTC, datetime
from functools import lru_cache
from importlib.resources import files
from pathlib import Path

import zstandard

from benchmarks.text import Cutter
from pack_lib.hashing import leaf_hash, node_hash
from pack_lib.rules import GENESIS, event_hash

EDGES_PER_CHUNK = 1.56
EDGES_PER_GROUP = 45
CHUNKS_PER_DOCUMENT = (6, 18)
REVISION = 1
"""Raise it when what is made changes: it is part of the cached file's name."""

_SEED = 20_240_229
_EPOCH = 1_700_000_000
_BATCH = 20_000
_EDGE_TYPES = ("links_to", "cites", "mentions")

_WIDTHS = {
    "documents": 6,
    "chunks": 5,
    "merkle_nodes": 4,
    "edges": 5,
    "audit_events": 6,
    "derivations": 4,
    "concept_relations": 4,
    "concept_token_idf": 3,
    "providence_cache": 5,
    "citation_aliases": 2,
    "term_aliases": 2,
    "snapshots": 5,
    "document_http_meta": 6,
}
_Value = None | int | float | str


@dataclass(frozen=True)
class CorpusFacts:
    """What was made. ``zstd_ratio``: bytes of all bodies over their size as one level 3 stream, as inserted."""

    path: str
    chunks: int
    distinct: int
    documents: int
    edges: int
    edge_groups: int
    body_bytes: int
    db_bytes: int
    zstd_ratio: float


class _Loader:
    """Rows kept back and written many at a time."""

    def __init__(self, db: sqlite3.Connection) -> None:
        self._db = db
        self._rows: dict[str, list[Sequence[_Value]]] = {table: [] for table in _WIDTHS}
        self._held = 0

    def add(self, table: str, *row: _Value) -> None:
        self._rows[table].append(row)
        self._held += 1

    def flush(self, at_least: int = 1) -> None:
        if self._held < at_least:
            return
        for table, rows in self._rows.items():
            marks = ",".join("?" * _WIDTHS[table])
            # Two documents may share a pair of neighbouring leaves, and with it a node.
            self._db.executemany(f"INSERT OR IGNORE INTO {table} VALUES({marks})", rows)
            rows.clear()
        self._held = 0


def _tree(digests: list[bytes], rows: _Loader) -> bytes:
    """The RFC 6962 tree hash of a document; its interior nodes become rows."""
    count = len(digests)
    if count == 1:
        return digests[0]
    level = (count - 1).bit_length()
    split = 1 << (level - 1)
    left, right = _tree(digests[:split], rows), _tree(digests[split:], rows)
    node = node_hash(left, right)
    rows.add("merkle_nodes", node.hex(), left.hex(), right.hex(), level)
    return node


@lru_cache(maxsize=100_000)
def _target(group: int) -> tuple[str, str | None, str | None, str | None]:
    """edge_type, dst_root, dst_uri, anchor of one group; a third has a root, half of these no URI."""
    digest = hashlib.sha256(f"target {group}".encode()).hexdigest()
    kind = int(digest[:4], 16) % 6
    return (
        _EDGE_TYPES[group % 3],
        digest if kind < 2 else None,
        None if kind == 0 else f"https://example.org/{digest[:2]}/{digest[2:14]}.html",
        None if group % 2 else f"section-{digest[14:18]}",
    )


def _derived(rows: _Loader, number: int, root: str, source: str, name: str, when: str) -> None:
    """A few rows of the small tables."""
    rows.add("derivations", root, source, "translate", '{"to":"en"}')
    rows.add("concept_relations", f"concept {number}", "broader", f"concept {number // 2}", 1 / (1 + number))
    rows.add("concept_token_idf", f"token{number}", 1.5 + number / 7, 1 + number % 97)
    rows.add("providence_cache", hashlib.sha256(name.encode()).hexdigest(), "holds", 0.875, root, when)
    rows.add("citation_aliases", f"doi:10.0000/{number}", root)
    rows.add("term_aliases", f"t{number % 500}", f"term {number % 211}")


def _time(number: int) -> str:
    return datetime.fromtimestamp(_EPOCH + number, UTC).strftime("%Y-%m-%dT%H:%M:%SZ")


def _fill(db: sqlite3.Connection, chunks: int) -> tuple[int, int, int, int, int]:
    """Documents, edges, edge groups, bytes of bodies, compressed bytes of bodies."""
    rng = random.Random(_SEED)
    cutter, rows = Cutter(rng), _Loader(db)
    compressor = zstandard.ZstdCompressor(level=3).compressobj()
    n_groups = max(1, round(chunks * EDGES_PER_CHUNK / EDGES_PER_GROUP))
    groups_met = bytearray(n_groups)
    previous_event, previous_root = GENESIS, GENESIS
    number = made = edges = body_bytes = compressed = 0
    while made < chunks:
        number += 1
        name, bodies = cutter.document(min(rng.randint(*CHUNKS_PER_DOCUMENT), chunks - made))
        digests = [leaf_hash(body) for body in bodies]
        root, when = _tree(digests, rows).hex(), _time(number)
        uri = f"https://example.org/python/{name}?part={number}"
        rows.add("documents", root, uri, name.rpartition("/")[2], "text/x-python", len(bodies), when)
        for ordinal, (body, digest) in enumerate(zip(bodies, digests, strict=True)):
            rows.add("chunks", root, ordinal, digest.hex(), len(body), body.decode())
        text = b"".join(bodies)
        body_bytes += len(text)
        compressed += len(compressor.compress(text))
        made += len(bodies)
        for _ in range(round(made * EDGES_PER_CHUNK) - edges):
            group = int(n_groups * rng.random() ** 2)  # some targets are far more popular than others
            groups_met[group] = 1
            edge_type, *target = _target(group)
            rows.add("edges", root, edge_type, *target)
            edges += 1
        payload = json.dumps({"document_root": root, "uri": uri})
        event = event_hash(previous_event, number, "document_added", payload, when)
        rows.add("audit_events", number, "document_added", payload, previous_event, event, when)
        if number % 3 == 1:
            rows.add("document_http_meta", root, uri, 200, f'"{root[:16]}"', when, '{"server":"example"}')
        if number % 20 == 1:
            _derived(rows, number, root, previous_root, uri, when)
        previous_event, previous_root = event, root
        rows.flush(at_least=_BATCH)
    rows.add("snapshots", 1, previous_root, number, made, _time(number))
    rows.flush()
    return number, edges, sum(groups_met), body_bytes, compressed + len(compressor.flush())


def make_corpus(path: Path, chunks: int) -> CorpusFacts:
    """Make one SQLite shard of ``chunks`` chunks at ``path``, replacing it; full-text tables stay empty."""
    # The one index that no key needs comes last: it is several times faster to build from what is there.
    schema = files("pack_lib").joinpath("profiles/corpus.sql").read_text().split(";\n")
    late = [statement for statement in schema if "CREATE INDEX" in statement]
    unfinished = path.with_name(path.name + ".unfinished")
    unfinished.unlink(missing_ok=True)
    with closing(sqlite3.connect(unfinished, isolation_level=None)) as db:
        db.executescript(
            "PRAGMA journal_mode=OFF; PRAGMA synchronous=OFF; PRAGMA cache_size=-300000;"
            + ";\n".join(statement for statement in schema if statement not in late)
        )
        db.execute("BEGIN")
        documents, edges, groups, body_bytes, compressed = _fill(db, chunks)
        for statement in late:
            db.execute(statement)
        db.execute("COMMIT")
        (distinct,) = db.execute("SELECT count(DISTINCT leaf_hash) FROM chunks").fetchone()
    unfinished.rename(path)
    return CorpusFacts(
        path=str(path),
        chunks=chunks,
        distinct=distinct,
        documents=documents,
        edges=edges,
        edge_groups=groups,
        body_bytes=body_bytes,
        db_bytes=path.stat().st_size,
        zstd_ratio=round(body_bytes / compressed, 3),
    )


def cached_corpus(directory: Path, chunks: int) -> CorpusFacts:
    """The shard of that size in ``directory``; made there at the first call."""
    directory.mkdir(parents=True, exist_ok=True)
    path = directory / f"corpus-r{REVISION}-py{platform.python_version()}-{chunks}.db"
    noted = path.with_suffix(".json")
    if path.exists() and noted.exists():
        facts = CorpusFacts(**json.loads(noted.read_text()))
        if facts.path == str(path) and facts.db_bytes == path.stat().st_size:
            return facts
    path.unlink(missing_ok=True)
    facts = make_corpus(path, chunks)
    noted.write_text(json.dumps(asdict(facts)))
    return facts
