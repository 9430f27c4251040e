"""A small shard with a profile of three tables, cut into several packs by a small cap: quick to repack, many times."""

from __future__ import annotations

import hashlib
import random
import sqlite3
from collections.abc import Iterable
from contextlib import closing
from pathlib import Path

from pack_lib.hashing import leaf_hash, tree_hash
from pack_lib.profile import Profile, parse_profile

CAP = 45_000
PROFILE = """
name = "small"
rules = ["document_roots"]
exclude = ["mesh_*"]
[bodies]
table = "chunks"
hash = "leaf_hash"
content = "content"
document = "document_root"
ordinal = "ordinal"
size = "n_bytes"
[documents]
table = "documents"
root = "document_root"
order = ["uri"]
[[ship]]
table = "documents"
columns = ["document_root", "uri", "n_chunks"]
merge_key = ["document_root"]
[[ship]]
table = "chunks"
columns = ["document_root", "ordinal", "leaf_hash", "n_bytes"]
merge_key = ["document_root", "ordinal", "leaf_hash"]
[[ship]]
table = "edges"
columns = ["dst_uri", "edge_type", "src_root"]
merge_key = ["dst_uri", "edge_type", "src_root"]
fan_in = "src_root"
"""
SCHEMA = """
CREATE TABLE documents(document_root TEXT PRIMARY KEY, uri TEXT, n_chunks INTEGER);
CREATE TABLE chunks(document_root TEXT, ordinal INTEGER, leaf_hash TEXT, n_bytes INTEGER, content TEXT,
    PRIMARY KEY(document_root, ordinal));
CREATE TABLE edges(dst_uri TEXT, edge_type TEXT, src_root TEXT);
CREATE TABLE mesh_peers(peer_id TEXT);
"""


def profile() -> Profile:
    return parse_profile(PROFILE, "profile small")


def text(seed: str, size: int) -> str:
    """Text that hardly compresses, so that a cap in bytes is reached with few chunks."""
    return "".join(
        random.Random(seed).choices("0123456789abcdefghijklmnopqrstuvwxyzABCDEFGHIJKLMNOPQRSTUVWXYZ+-", k=size)
    )


def add_documents(db: sqlite3.Connection, documents: Iterable[tuple[str, list[str]]]) -> None:
    """Add (URI, chunks) documents with their edges, in the caller's transaction."""
    for uri, chunks in documents:
        leaves = [leaf_hash(chunk.encode()) for chunk in chunks]
        root = tree_hash(leaves).hex()
        db.execute("INSERT INTO documents VALUES (?, ?, ?)", (root, uri, len(chunks)))
        db.executemany(
            "INSERT INTO chunks VALUES (?, ?, ?, ?, ?)",
            [
                (root, ordinal, leaf.hex(), len(chunk.encode()), chunk)
                for ordinal, (leaf, chunk) in enumerate(zip(leaves, chunks, strict=True))
            ],
        )
        db.executemany("INSERT INTO edges VALUES (?, 'cites', ?)", [("doc:0", root), (None, root)])


def make_shard(path: Path, seed: str = "a", documents: int = 4, size: int = 12_000, *, pragma: str = "") -> Path:
    """A shard of ``documents`` documents of three chunks of ``size`` bytes (about; each differs)."""
    path.parent.mkdir(parents=True, exist_ok=True)
    with closing(sqlite3.connect(path, isolation_level=None)) as db:
        db.executescript(pragma + SCHEMA)
        db.execute("BEGIN")
        add_documents(
            db,
            (
                (f"doc:{number}", [text(f"{seed}-{number}-{chunk}", size + 40 * chunk) for chunk in range(3)])
                for number in range(documents)
            ),
        )
        db.execute("COMMIT")
    return path


def files_below(folder: Path) -> dict[str, str]:
    """Every file below a folder, with its SHA-256."""
    return {
        str(path.relative_to(folder)): hashlib.sha256(path.read_bytes()).hexdigest()
        for path in sorted(folder.rglob("*"))
        if path.is_file()
    }


def contents(store: Path) -> dict[str, str]:
    """The packs, sidecars and set manifests of a local store, with their SHA-256."""
    return {name: digest for name, digest in files_below(store).items() if name.startswith(("packs/", "sets/"))}


def temporaries(folder: Path) -> list[str]:
    """Unfinished files anywhere below a folder."""
    return sorted(str(path.relative_to(folder)) for path in folder.rglob(".tmp-*")) if folder.exists() else []
