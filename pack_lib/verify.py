"""Verification: every byte of packs against their digests, and the corpus they hold against its own arithmetic.

A pack is checked alone for structure, digests and leaf hashes (Damaged). Over a whole set, tables are also put together
again, and roots, nodes, chain and completeness recomputed (`Inconsistent`): what the source held, packed faithfully,
may contradict itself, and that is another message than damage.
"""

from __future__ import annotations

import hashlib
from collections.abc import Iterable, Iterator
from contextlib import closing
from dataclasses import dataclass, field
from typing import Any

from pack_lib.columnar import decode_rows
from pack_lib.errors import Damaged, Inconsistent, PackError
from pack_lib.hashing import TreeHasher
from pack_lib.pack.blob import Blob
from pack_lib.pack.format import PackHeader, TablePart, split_part_name
from pack_lib.pack.reader import PackReader, TableData
from pack_lib.pack_set import PackSet, pack_key, snapshot_root
from pack_lib.profile import Profile
from pack_lib.progress import Progress, no_progress, shifted
from pack_lib.rules import RuleBook
from pack_lib.stores.base import ObjectBlob, Store


@dataclass(slots=True)
class Report:
    """What a verification covered and what it found. Damage is raised, not reported."""

    what: str
    packs: int = 0
    chunks: int = 0
    body_bytes: int = 0
    rows: dict[str, int] = field(default_factory=dict)
    complete: bool = False
    """Whether the packs read make up the whole snapshot, so that the corpus's rules could be checked."""
    findings: list[str] = field(default_factory=list)
    """Contradictions of the corpus, the first of each kind and table."""


class SnapshotChecker:
    """Reads the packs of one set in order and recomputes everything a snapshot root binds."""

    def __init__(self, what: str, profile: Profile | None) -> None:
        """``profile``: gives the tables' order and the rules; None: only what the packs themselves bind."""
        self.report = Report(what)
        self.first: PackHeader | None = None
        self._profile = profile
        self._bodies = TreeHasher()
        self._last_hash = ""
        self._digests: dict[str, Any] = {}
        self._headers: dict[str, bytes] = {}
        self._numbers: dict[str, int | None] = {}
        self._rules = RuleBook(profile)

    def read(self, blob: Blob, progress: Progress = no_progress) -> str:
        """Read one pack whole and return its pack hash. Raises Damaged at the first byte that is wrong."""
        with closing(PackReader(blob)) as reader:
            pack = reader.header
            self._check_belongs(pack, reader.name)
            manifest = hashlib.sha256(b"\x00")
            done = 0
            for member in reader.members(manifest.update):
                if isinstance(member, TableData):
                    self._table(member, reader.name)
                    done += member.part.size
                else:
                    for leaf_hash, body in member:
                        done += len(body)
                        self._bodies.add(bytes.fromhex(leaf_hash))
                    if member[0][0] <= self._last_hash:
                        raise Damaged(f"{reader.name}: its bodies do not follow those of the pack before it")
                    self._last_hash = member[-1][0]
                    self._rules.bodies(member)
                progress(done, pack.body_bytes + sum(part.size for part in pack.tables))
        self.report.packs += 1
        self.report.chunks += pack.chunks
        self.report.body_bytes += pack.body_bytes
        return manifest.hexdigest()

    def _check_belongs(self, pack: PackHeader, where: str) -> None:
        if self.first is None:
            self.first = pack
            return
        same = ("corpus", "shard", "profile", "snapshot_root", "layout")
        if any(getattr(pack, name) != getattr(self.first, name) for name in same):
            raise Damaged(f"{where}: it is a pack of another set ({pack.corpus}/{pack.shard} {pack.snapshot_root})")
        if pack.number != self.first.number + self.report.packs:
            raise Damaged(f"{where}: it is number {pack.number} of its set and stands in another place")

    def _table(self, member: TableData, where: str) -> None:
        table, number = split_part_name(member.part.member)
        self._check_follows(member.part, table, number, where)
        digest = self._digests.setdefault(table, hashlib.sha256())
        name = f"{where}, {member.part.member}"
        rows = 0
        for header, decoded in decode_rows(_without_header(member.blocks, table, self._headers, digest, name), name):
            rows += len(decoded)
            self._rules.rows(table, header, decoded)
        if rows != member.part.rows:
            raise Damaged(f"{name}: it has {rows:,} rows, the manifest says {member.part.rows:,}")
        self.report.rows[table] = self.report.rows.get(table, 0) + rows

    def _check_follows(self, part: TablePart, table: str, number: int | None, where: str) -> None:
        before = self._numbers.get(table, 0)
        if number != (before or 0) + 1 and not (number is None and table not in self._numbers):
            # A pack alone may begin in the middle of a table; the second part read must follow the first.
            if table not in self._numbers and self.report.packs == 0 and self.first and self.first.number > 1:
                self._numbers[table] = number
                return
            raise Damaged(f"{where}: {part.member} does not follow part {before} of the table")
        self._numbers[table] = number

    def finish(self) -> Report:
        """Compare the recomputed snapshot root with the stated one: equal, if the packs read are the whole snapshot."""
        report = self.report
        if self.first is None:
            raise PackError("nothing was read")
        names = [table.name for table in self._profile.ship] if self._profile else list(self._digests)
        known = all(name in self._digests for name in names)
        if known:
            digests = [self._digests[name].hexdigest() for name in names]
            report.complete = snapshot_root(self._bodies.root().hex(), digests) == self.first.snapshot_root
        if report.complete:
            report.findings += self._rules.findings()
        self._rules.close()
        return report

    @property
    def bodies_root(self) -> str:
        return self._bodies.root().hex()

    def table_digest(self, name: str) -> str | None:
        """SHA-256, hex, of a table's uncut bytes as read; None if no part of it was."""
        digest = self._digests.get(name)
        return None if digest is None else str(digest.hexdigest())

    def close(self) -> None:
        self._rules.close()


def _without_header(
    blocks: Iterable[bytes], table: str, headers: dict[str, bytes], digest: Any, where: str
) -> Iterator[bytes]:
    """Pass blocks on while digesting the table's uncut bytes: the header line of its first part only."""
    start: bytes | None = b""
    for block in blocks:
        if start is None:
            digest.update(block)
        else:
            start += block
            cut = start.find(b"\n") + 1
            if cut:
                if headers.setdefault(table, start[:cut]) != start[:cut]:
                    raise Damaged(f"{where}: its header line differs from that of the parts before it")
                if digest.digest() == hashlib.sha256().digest():
                    digest.update(start[:cut])
                digest.update(start[cut:])
                start = None
        yield block


def verify_pack(blob: Blob, profile: Profile | None = None, progress: Progress = no_progress) -> tuple[str, Report]:
    """Check one pack: (pack hash, report). If it is a whole set by itself, the corpus's rules too. Raises Damaged."""
    with closing(SnapshotChecker(blob.name, profile)) as checker:
        pack_hash = checker.read(blob, progress)
        return pack_hash, checker.finish()


def verify_set(store: Store, made: PackSet, profile: Profile | None, progress: Progress = no_progress) -> Report:
    """Read a committed set back, every byte. Raises NotFound for a pack that is gone, Damaged for one that is wrong.

    Contradictions of the corpus itself are in the report's findings (`raise_findings`).
    """
    base, total = 0, sum(pack.size for pack in made.packs)
    with closing(SnapshotChecker(f"{made.label} {made.set_hash}", profile)) as checker:
        for pack in made.packs:
            blob = ObjectBlob(store, pack_key(pack.hash))
            if blob.size != pack.size:
                raise Damaged(f"{blob.name}: it has {blob.size:,} bytes, its set manifest says {pack.size:,}")
            digest = store.object_sha256(pack_key(pack.hash)) or _sha256_of(blob)
            if digest != pack.sha256:
                raise Damaged(f"{blob.name}: its SHA-256 is {digest}, its set manifest says {pack.sha256}")
            found = checker.read(blob, shifted(progress, base, pack.size, total))
            if found != pack.hash:
                raise Damaged(f"{blob.name}: its manifest hashes to {found}, not to its name")
            base += pack.size
        report = checker.finish()
        for table in made.tables:
            if checker.table_digest(table.name) != table.sha256:
                raise Damaged(f"{report.what}: table {table.name} does not have the SHA-256 of the set manifest")
        if checker.bodies_root != made.bodies_root or (checker.first and checker.first.number != 1):
            raise Damaged(f"{report.what}: its bodies are not all those its bodies root binds")
        if checker.first is not None and checker.first.snapshot_root != made.snapshot_root:
            raise Damaged(f"{report.what}: its packs are of snapshot {checker.first.snapshot_root}")
    return report


def raise_findings(report: Report) -> None:
    """Raises Inconsistent with the first finding and the number of the others, if there are any."""
    if report.findings:
        more = len(report.findings) - 1
        raise Inconsistent(f"{report.what}: {report.findings[0]}" + (f" (and {more} more)" if more else ""))


def _sha256_of(blob: Blob) -> str:
    digest = hashlib.sha256()
    for at in range(0, blob.size, 1 << 20):
        digest.update(blob.read(at, min(1 << 20, blob.size - at)))
    return digest.hexdigest()
