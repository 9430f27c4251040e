"""What tests share: a quick synthetic shard in the live schema, building and hydrating it, and exact comparison.

A shard made here obeys the corpus's rules; its roots, nodes and chain are computed here, not by the code under test.
"""

from __future__ import annotations

import base64
import hashlib
import json
import random
import sqlite3
import struct
from collections import Counter
from collections.abc import Iterable
from contextlib import closing
from dataclasses import dataclass
from importlib import resources
from pathlib import Path
from typing import Any

from pack_lib.hydrate import Hydrated, hydrate_set
from pack_lib.pack.format import DEFAULT_LAYOUT
from pack_lib.pack_set import PackSet, pack_key
from pack_lib.profile import Profile, load_profile
from pack_lib.repack import repack
from pack_lib.stores.local import LocalStore

WORDS = [
    "pack",
    "shard",
    "corpus",
    "chunk",
    "leaf",
    "root",
    "merkle",
    "edge",
    "audit",
    "frame",
    "table",
    "member",
    "store",
    "snapshot",
    "body",
    "disc",
    "peer",
]
Rows = dict[str, list[tuple[Any, ...]]]


def sha(data: bytes) -> bytes:
    return hashlib.sha256(data).digest()


def leaf(body: bytes) -> str:
    return sha(b"\x00" + body).hex()


def tree(leaves: list[bytes], nodes: list[tuple[str, str, str, int]] | None = None) -> bytes:
    """RFC 6962, 2.1, as the recursion it is written as; interior nodes are appended to ``nodes``."""
    if not leaves:
        return sha(b"")
    if len(leaves) == 1:
        return leaves[0]
    cut = 1 << (len(leaves) - 1).bit_length() - 1
    left, right = tree(leaves[:cut], nodes), tree(leaves[cut:], nodes)
    node = sha(b"\x01" + left + right)
    if nodes is not None:
        nodes.append((node.hex(), left.hex(), right.hex(), (len(leaves) - 1).bit_length()))
    return node


def schema() -> str:
    return resources.files("pack_lib.profiles").joinpath("corpus.sql").read_text(encoding="utf-8")


def chain(events: Iterable[tuple[int, str, str, str]]) -> list[tuple[Any, ...]]:
    """audit_events rows of (seq, event_type, payload, at)."""
    rows, previous = [], "0" * 64
    for seq, kind, payload, at in events:
        text = json.dumps([previous, seq, kind, payload, at], ensure_ascii=False, separators=(",", ":"))
        digest = sha(text.encode()).hex()
        rows.append((seq, kind, payload, previous, digest, at))
        previous = digest
    return rows


def shard_rows(
    documents: int = 40,
    *,
    chunks: int = 5,
    chunk_bytes: int = 600,
    edges: int = 300,
    seed: int = 1,
    noise: bool = False,
) -> Rows:
    """The rows of every shipped table. ``noise``: bodies that hardly compress; else sentences of a few words."""
    random_ = random.Random(seed)

    def text(size: int) -> str:
        if noise:
            return base64.b64encode(random_.randbytes(size * 3 // 4)).decode()
        return " ".join(random_.choices(WORDS, k=size // 6)) + f" {random_.random()}"

    rows: Rows = {name: [] for name in TABLES}
    shared = text(chunk_bytes)
    nodes: list[tuple[str, str, str, int]] = []
    events = []
    for number in range(documents):
        bodies = [text(random_.randint(chunk_bytes // 2, chunk_bytes * 3 // 2)) for _ in range(1 + number % chunks)]
        if number % 3 == 0:
            bodies.append(shared)  # one body in many documents
        leaves = [leaf(body.encode()) for body in bodies]
        root = tree([bytes.fromhex(digest) for digest in leaves], nodes).hex()
        at = f"2024-01-{1 + number % 28:02d}T00:00:00Z"
        rows["documents"].append((root, f"doc:{number}", f"Title {number} \u00e9\u20ac", "text/plain", len(bodies), at))
        rows["chunks"] += [
            (root, place, digest, len(body.encode()), body)
            for place, (digest, body) in enumerate(zip(leaves, bodies, strict=True))
        ]
        events.append((number + 1, "added", json.dumps({"root": root}), at))
        if number % 4 == 0:
            rows["document_http_meta"].append((root, f"https://x.example/{number}", 200, None, at, '{"a":"b"}'))
        rows["citation_aliases"].append((f"alias {number}", root))
    for place in range(3):  # chunks of no document
        body = text(chunk_bytes)
        rows["chunks"].append((None, place, leaf(body.encode()), len(body.encode()), body))
    roots = [row[0] for row in rows["documents"]]
    rows["merkle_nodes"] = sorted(set(nodes))
    rows["audit_events"] = chain(events)
    for number in range(edges):
        uri = random_.choice([None, "module:os", f"https://x.example/{number % 20}"])
        target = random_.choice([None, random_.choice(roots)])
        anchor = random_.choice([None, "here", ""])
        row = (random_.choice(roots), random_.choice(["links", "imports"]), target, uri, anchor)
        rows["edges"] += [row] * (1 if number % 10 else 3)
    rows["derivations"] = [(root, roots[0], "copy", None) for root in roots[: documents // 3]]
    rows["concept_relations"] = [(random_.choice(WORDS), "near", word, random_.random()) for word in WORDS]
    rows["concept_token_idf"] = [(word, random_.random() * 9, number) for number, word in enumerate(WORDS)]
    rows["providence_cache"] = [(sha(word.encode()).hex(), "holds", 0.1 + 0.2, None, None) for word in WORDS]
    rows["term_aliases"] = [(word[:2], word) for word in WORDS] + [("op", "os.path")] * 3
    snapshot = tree([bytes.fromhex(root) for root in sorted(roots)]).hex()
    rows["snapshots"] = [(1, snapshot, documents, len(rows["chunks"]), "2024-02-01T00:00:00Z")]
    return rows


TABLES = {table.name: table.columns for table in load_profile("corpus").ship}


def write_shard(
    path: Path, rows: Rows, *, encoding: str = "UTF-8", page_size: int = 4096, shuffle: int | None = None
) -> Path:
    """A database with the live schema. ``shuffle``: seed of another insertion order of every table's rows."""
    path.unlink(missing_ok=True)
    with closing(sqlite3.connect(path, isolation_level=None)) as db:
        db.execute(f"PRAGMA encoding='{encoding}'")
        db.execute(f"PRAGMA page_size={page_size}")
        db.execute("PRAGMA synchronous=OFF")
        db.executescript(schema())
        db.execute("CREATE TABLE mesh_peers(peer_id TEXT PRIMARY KEY, address TEXT)")
        db.execute("INSERT INTO mesh_peers VALUES('peer-1', 'peer-1.example:7000')")
        db.execute("BEGIN")
        for table, cells in rows.items():
            if not cells:
                continue
            ordered = list(cells)
            if shuffle is not None:
                random.Random(shuffle).shuffle(ordered)
            db.executemany(f"INSERT INTO {table} VALUES({','.join('?' * len(ordered[0]))})", ordered)
        for name in ("chunks_fts", "documents_fts"):
            db.execute(f"INSERT INTO {name}({name}) VALUES('rebuild')")
        db.execute("COMMIT")
    return path


def make_shard(path: Path, documents: int = 40, **options: Any) -> Path:
    """A synthetic shard; options are those of `shard_rows` and `write_shard`."""
    how = {name: options.pop(name) for name in ("encoding", "page_size", "shuffle") if name in options}
    return write_shard(path, shard_rows(documents, **options), **how)


@dataclass(frozen=True)
class Built:
    """A committed set in a local store."""

    store: LocalStore
    set: PackSet
    source: Path

    @property
    def paths(self) -> list[Path]:
        """The set's pack files, in order."""
        return [self.store.folder / pack_key(pack.hash) for pack in self.set.packs]


LAYOUT = DEFAULT_LAYOUT


def build(source: Path, folder: Path, **options: Any) -> Built:
    """Pack ``source`` into ``folder/store``; options are those of `repack`."""
    options = {"shard": "shard-0", "workers": 2, "staging": folder / "staging", "layout": LAYOUT, **options}
    store = LocalStore(folder / "store")
    return Built(store, repack(str(source), store, **options).set, source)


def hydrate(built: Built, target: Path, profile: Profile | None = None) -> Hydrated:
    return hydrate_set(built.store, built.set, target, profile or load_profile("corpus"))


def _exact(value: Any) -> Any:
    return struct.pack(">d", value) if isinstance(value, float) else value


def exact_rows(path: Path, table: str, columns: Iterable[str]) -> Counter[tuple[Any, ...]]:
    """Each row as (typeof, exact value) of every cell, with how often it occurs; texts as their stored UTF-8 bytes."""
    names = [f'"{column}"' for column in columns]
    wanted = ", ".join(f"typeof({name}), {name}" for name in names)
    with closing(sqlite3.connect(path)) as db:
        db.text_factory = bytes
        return Counter(tuple(map(_exact, row)) for row in db.execute(f"SELECT {wanted} FROM {table}"))


def contents(path: Path, profile: Profile | None = None) -> dict[str, Counter[tuple[Any, ...]]]:
    """Every shipped table with bodies, exactly."""
    made = profile or load_profile("corpus")
    found = {}
    for table in made.ship:
        extra = (made.bodies.content,) if table.name == made.bodies.table else ()
        found[table.name] = exact_rows(path, table.name, (*table.columns, *extra))
    return found
