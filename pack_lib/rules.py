"""The corpus's own arithmetic: what a document root, a Merkle node and an audit event's hash are made of.

Verification recomputes them from shipped rows; `docs/format.md`, "Corpus rules", is the normative text.
"""

from __future__ import annotations

import hashlib
import sqlite3
from collections.abc import Iterator
from typing import Any

from pack_lib.columnar import parse_header_line
from pack_lib.hashing import EMPTY_TREE, TreeHasher
from pack_lib.profile import Profile
from pack_lib.values import Cell, encode_row

GENESIS = "0" * 64
"""``prev_hash`` of the first audit event of a chain."""


def event_hash(prev_hash: Cell, seq: Cell, event_type: Cell, payload: Cell, at: Cell) -> str:
    """SHA-256, in hex, over the canonical row ``[prev_hash,seq,event_type,payload,at]`` (UTF-8, without line feed)."""
    return hashlib.sha256(encode_row((prev_hash, seq, event_type, payload, at)).encode()).hexdigest()


class _Tally:
    """Counts contradictions of one kind and keeps the first in words."""

    def __init__(self) -> None:
        self.count = 0
        self.first = ""

    def note(self, text: str) -> None:
        if not self.count:
            self.first = text
        self.count += 1

    def words(self) -> list[str]:
        if not self.count:
            return []
        return [self.first + (f" ({self.count - 1:,} more of this kind)" if self.count > 1 else "")]


class RuleBook:
    """Recomputes what a corpus says of itself, row by row as tables and bodies stream by in the packs' order.

    Memory is bounded: what must be remembered (documents' roots, chunks' leaf hashes) goes into a temporary file.
    """

    def __init__(self, profile: Profile | None) -> None:
        self._rules = set(profile.rules) if profile else set()
        self._bodies = profile.bodies if profile else None
        self._tallies = {kind: _Tally() for kind in ("document", "node", "chain", "complete")}
        # A private on-disk database, deleted by the system when closed (sqlite.org/lang_attach, "empty filename").
        self._ledger = sqlite3.connect("", isolation_level=None, check_same_thread=False)
        self._ledger.execute("PRAGMA temp_store=FILE")
        self._ledger.execute("PRAGMA synchronous=OFF")
        self._ledger.execute("PRAGMA journal_mode=OFF")
        self._ledger.execute("PRAGMA cache_size=-16384")
        self._ledger.execute("CREATE TABLE document(root TEXT PRIMARY KEY, n_chunks, seen INT) WITHOUT ROWID")
        self._ledger.execute("CREATE TABLE leaf(hash BLOB)")
        self._ledger.execute("BEGIN")
        self._open: tuple[Cell, TreeHasher] | None = None
        self._documents_matched = 0
        self._chain: Cell = None
        self._wanted: Iterator[tuple[bytes]] | None = None
        self._next: bytes | None = None

    def close(self) -> None:
        self._ledger.close()

    def rows(self, table: str, header: bytes, rows: list[list[Any]]) -> None:
        """Rows of a shipped table, in order. Columns that the rule needs and the table lacks switch the rule off."""
        columns = parse_header_line(header, table).columns
        picker = _PICKED.get(table)
        if picker is not None and picker[0] in self._rules and set(picker[1]) <= set(columns):
            places = [columns.index(name) for name in picker[1]]
            getattr(self, f"_{table}")([[row[place] for place in places] for row in rows])
        if self._bodies and table == self._bodies.table and self._bodies.hash in columns:
            place = columns.index(self._bodies.hash)
            self._ledger.executemany("INSERT INTO leaf VALUES (?)", [(_digest(row[place]),) for row in rows])

    def _documents(self, rows: list[list[Any]]) -> None:
        # A count of any other type is remembered as its form, and is then no number that fits.
        values = [(root, encode_row((count,))[1:-1]) for root, count in rows if isinstance(root, str)]
        self._ledger.executemany("INSERT OR IGNORE INTO document VALUES (?, ?, 0)", values)

    def _chunks(self, rows: list[list[Any]]) -> None:
        for root, _ordinal, leaf in rows:
            if self._open is None or self._open[0] != root:
                self._close_document()
                self._open = (root, TreeHasher())
            self._open[1].add(_digest(leaf))

    def _close_document(self) -> None:
        opened, self._open = self._open, None
        if opened is None or not isinstance(opened[0], str):
            return
        root, tree = str(opened[0]), opened[1]
        known = self._ledger.execute("SELECT n_chunks FROM document WHERE root = ?", (opened[0],)).fetchone()
        if known is None:
            return  # chunks of no document: each is bound by its leaf hash alone
        self._documents_matched += 1
        if tree.root().hex() != root:
            self._tallies["document"].note(f"document {root}: the tree hash of its chunks is {tree.root().hex()}")
        elif known[0] not in ("null", str(tree.count)):
            self._tallies["document"].note(f"document {root}: n_chunks is {known[0]}, it has {tree.count:,}")

    def _merkle_nodes(self, rows: list[list[Any]]) -> None:
        sha256 = hashlib.sha256
        for node, left, right in rows:
            try:
                found = sha256(b"\x01" + bytes.fromhex(left) + bytes.fromhex(right)).hexdigest()
            except (TypeError, ValueError):
                found = "not computable: a child is no hex digest"
            if found != node:
                self._tallies["node"].note(f"Merkle node {node}: the hash of its children is {found}")

    def _audit_events(self, rows: list[list[Any]]) -> None:
        for seq, event_type, payload, prev_hash, event, at in rows:
            if self._chain is not None and prev_hash != self._chain:
                self._tallies["chain"].note(f"audit event {seq}: prev_hash is not the event_hash before it")
            if event_hash(prev_hash, seq, event_type, payload, at) != event:
                self._tallies["chain"].note(f"audit event {seq}: event_hash does not recompute")
            self._chain = event

    def documents(self, batch: list[tuple[str, int]], *, derived: bool) -> None:
        """(root, number of bodies) of documents that are members; ``derived``: their chunks are not among the rows."""
        if "document_roots" not in self._rules:
            return
        for root, bodies in batch:
            known = self._ledger.execute("SELECT n_chunks, seen FROM document WHERE root = ?", (root,)).fetchone()
            if known is None:
                self._tallies["document"].note(f"document {root}: it is in the packs and no row of the set has it")
                continue
            if known[1]:
                self._tallies["document"].note(f"document {root}: it is in the packs more than once")
            self._ledger.execute("UPDATE document SET seen = 1 WHERE root = ?", (root,))
            if derived:
                self._documents_matched += 1
                if known[0] not in ("null", str(bodies)):
                    self._tallies["document"].note(f"document {root}: n_chunks is {known[0]}, it has {bodies:,}")

    def lacks(self, present: Iterator[bytes]) -> Iterator[bytes]:
        """Pass on all bodies' leaf hashes, ascending, and note those of shipped chunks that are not among them."""
        wanted = iter(self._ledger.execute("SELECT DISTINCT hash FROM leaf ORDER BY hash"))
        nearest = next(wanted, None)
        for digest in present:
            while nearest is not None and nearest[0] < digest:
                self._tallies["complete"].note(f"chunk {nearest[0].hex()}: its body is in no pack of the set")
                nearest = next(wanted, None)
            if nearest is not None and nearest[0] == digest:
                nearest = next(wanted, None)
            yield digest
        while nearest is not None:
            self._tallies["complete"].note(f"chunk {nearest[0].hex()}: its body is in no pack of the set")
            nearest = next(wanted, None)

    def bodies(self, batch: list[tuple[str, bytes]], *, all_of_them: bool = True) -> None:
        """Bodies in ascending order, after all tables: chunks must name each, and, if these are all, no other."""
        if self._bodies is None:
            return
        if self._wanted is None:
            self._wanted = iter(self._ledger.execute("SELECT DISTINCT hash FROM leaf ORDER BY hash"))
            self._advance()
        for leaf_hash, _body in batch:
            digest = bytes.fromhex(leaf_hash)
            while self._next is not None and self._next < digest:
                if all_of_them:
                    self._tallies["complete"].note(f"chunk {self._next.hex()}: its body is in no pack of the set")
                self._advance()
            if self._next == digest:
                self._advance()
            else:
                self._tallies["complete"].note(f"body {leaf_hash}: no chunk of the set has it")

    def _advance(self) -> None:
        row = next(self._wanted, None) if self._wanted is not None else None
        self._next = None if row is None else row[0]

    def findings(self, *, all_of_them: bool = True) -> list[str]:
        """What contradicts itself, once everything was given: one line a kind, with the first and the number.

        ``all_of_them``: the bodies given to `bodies` were all.
        """
        self._close_document()
        if all_of_them:
            self.bodies([])
        while all_of_them and self._next is not None:
            self._tallies["complete"].note(f"chunk {self._next.hex()}: its body is in no pack of the set")
            self._advance()
        if "document_roots" in self._rules:
            empty = EMPTY_TREE.hex()
            lone = self._ledger.execute("SELECT count(*) FROM document WHERE root <> ?", (empty,)).fetchone()[0]
            if lone > self._documents_matched:
                self._tallies["document"].note(f"{lone - self._documents_matched:,} documents have no chunks")
        return [text for tally in self._tallies.values() for text in tally.words()]


_PICKED = {
    "documents": ("document_roots", ("document_root", "n_chunks")),
    "chunks": ("document_roots", ("document_root", "ordinal", "leaf_hash")),
    "merkle_nodes": ("merkle_nodes", ("node_hash", "left_hash", "right_hash")),
    "audit_events": ("audit_chain", ("seq", "event_type", "payload", "prev_hash", "event_hash", "at")),
}


def _digest(value: Any) -> bytes:
    """A hex digest's bytes; of anything else its canonical form, which is no digest and matches none."""
    try:
        return bytes.fromhex(value)
    except (TypeError, ValueError):
        return encode_row((value,)).encode()
