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
from itertools import zip_longest

from pack_lib.bodies import derived_tables
from pack_lib.columnar import Derived, decode_rows, parse_header_line
from pack_lib.errors import Damaged, Inconsistent, PackError
from pack_lib.hashing import NODE_LENGTH, TreeHasher
from pack_lib.pack.blob import Blob, sha256_of
from pack_lib.pack.format import PackHeader, split_part_name
from pack_lib.pack.reader import BodyBatch, PackReader, TableData
from pack_lib.pack.tarstream import Document, DocumentBatch
from pack_lib.pack_set import PackSet, SetTable, pack_key, snapshot_root
from pack_lib.profile import Profile
from pack_lib.progress import Progress, no_progress, shifted
from pack_lib.rules import RuleBook
from pack_lib.sorting import RecordSorter, batched
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


class _Table:
    """One table as its parts come by: its uncut bytes' digest and size, its rows, and the place of the last part."""

    def __init__(self) -> None:
        self.digest = hashlib.sha256()
        self.size = self.rows = self.source_rows = 0
        self.header = b""
        self.number: int | None = 0

    def take(self, blocks: Iterable[bytes], where: str) -> Iterator[bytes]:
        """Pass a part's blocks on; its header line counts only in the table's first part. Raises Damaged."""
        start: bytes | None = b""
        for block in blocks:
            if start is None:
                self._count(block)
            else:
                start += block
                cut = start.find(b"\n") + 1
                if cut:
                    if not self.header:
                        self.header = start[:cut]
                        self._count(self.header)
                    if start[:cut] != self.header:
                        raise Damaged(f"{where}: its header line differs from that of the parts before it")
                    self._count(start[cut:])
                    start = None
            yield block

    def _count(self, data: bytes) -> None:
        self.digest.update(data)
        self.size += len(data)


class SnapshotChecker:
    """Reads the packs of one set in order and recomputes everything a snapshot root binds."""

    def __init__(self, what: str, profile: Profile | None) -> None:
        """``profile``: gives the tables' order and the rules; None: only what the packs themselves bind."""
        self.report = Report(what)
        self.first: PackHeader | None = None
        self._profile = profile
        self._bodies = TreeHasher()
        self._leaves = RecordSorter(32)
        """Leaf hashes of layout 3, which come by in the documents' order."""
        self._nodes = RecordSorter(NODE_LENGTH)
        self._roots = TreeHasher()
        self._derived: dict[str, Derived] = {}
        self._unplain: frozenset[str] = frozenset()
        """Documents of which the rows are shipped though they are members."""
        self._chunk_rows = 0
        self._last_hash = ""
        self._tables: dict[str, _Table] = {}
        self._rules = RuleBook(profile)

    def read(self, blob: Blob, progress: Progress = no_progress) -> tuple[str, PackHeader]:
        """Read one pack whole: (pack hash, its first line). Raises Damaged at the first byte that is wrong."""
        with closing(PackReader(blob)) as reader:
            pack = reader.header
            self._check_belongs(pack, reader.name)
            manifest = hashlib.sha256(b"\x00")
            done, total = 0, pack.content_bytes
            for member in reader.members(manifest.update):
                if isinstance(member, TableData):
                    self._table(member, reader.name)
                    done += member.part.size
                elif isinstance(member, DocumentBatch):
                    if self._last_hash:
                        raise Damaged(f"{reader.name}: its documents come after bodies of no document")
                    self._documents(member.documents)
                    done += sum(sum(document.sizes) for document in member.documents)
                else:
                    self._loose(member, pack.layout, reader.name)
                    done += sum(len(body) for _, body in member)
                progress(done, total)
        self.report.packs += 1
        self.report.chunks += pack.chunks
        self.report.body_bytes += pack.body_bytes
        return manifest.hexdigest(), pack

    def _loose(self, member: BodyBatch, layout: int, where: str) -> None:
        digests = [bytes.fromhex(leaf_hash) for leaf_hash, _ in member]
        if member[0][0] <= self._last_hash:
            raise Damaged(f"{where}: its bodies do not follow those of the pack before it")
        self._last_hash = member[-1][0]
        if layout == 2:
            self._bodies.extend(digests)
        else:
            self._leaves.add(digests)
        self._rules.bodies(member, all_of_them=layout == 2)

    def _documents(self, batch: list[Document]) -> None:
        chunks = self._profile is not None and self._profile.bodies.table in self._derived
        for document in batch:
            self._roots.add(bytes.fromhex(document.root))
            self._leaves.add(document.leaves)
            if self._profile is not None and self._profile.nodes is not None:
                self._nodes.add(document.nodes)
            derived = chunks and document.root not in self._unplain
            if derived:
                self._chunk_rows += len(document.leaves)
            self._rules.documents([(document.root, len(document.leaves))], derived=derived)

    def _check_derived(self) -> None:
        """Compare what tables say is derived with what the documents gave. Raises Damaged."""
        profile, what = self._profile, self.report.what
        for name, derived in self._derived.items():
            if profile is not None and name not in derived_tables(profile):
                raise Damaged(f"{what}: table {name} says that rows are derived, and its profile not how")
            if (derived.documents, derived.root) != (self._roots.count, self._roots.root().hex()):
                raise Damaged(f"{what}: its documents are not those from which table {name} derives rows")
            if profile is None:
                continue
            if name == profile.bodies.table:
                found = self._chunk_rows
            else:
                absent = set(derived.absent)
                found = sum(1 for record in self._nodes.sorted() if record[:32].hex() not in absent)
            if found != derived.rows:
                raise Damaged(f"{what}: table {name} derives {derived.rows:,} rows, the documents give {found:,}")

    def _check_belongs(self, pack: PackHeader, where: str) -> None:
        if self.first is None:
            self.first = pack
            self._derived = dict(pack.derived)
            bodies = self._derived.get(self._profile.bodies.table) if self._profile else None
            self._unplain = frozenset(bodies.absent if bodies else ())
            return
        same = ("corpus", "shard", "profile", "snapshot_root", "layout", "derived")
        if any(getattr(pack, name) != getattr(self.first, name) for name in same):
            raise Damaged(f"{where}: it is a pack of another set ({pack.corpus}/{pack.shard} {pack.snapshot_root})")
        if pack.number != self.first.number + self.report.packs:
            raise Damaged(f"{where}: it is number {pack.number} of its set and stands in another place")

    def _table(self, member: TableData, where: str) -> None:
        name, number = split_part_name(member.part.member)
        table = self._tables.get(name)
        if table is None:
            table = self._tables[name] = _Table()
            table.source_rows = self._derived[name].rows if name in self._derived else 0
            # A pack that is read alone may begin in the middle of a table.
            follows = number in (None, 1) or (self.report.packs == 0 and self.first and self.first.number > 1)
        else:
            follows = table.number is not None and number == table.number + 1
        if not follows:
            raise Damaged(f"{where}: {member.part.member} does not follow the part of the table before it")
        table.number = number
        where = f"{where}, {member.part.member}"
        rows = 0
        for header, decoded in decode_rows(table.take(member.blocks, where), where):
            rows += len(decoded)
            parsed = parse_header_line(header, where)
            gathered = parsed.gathered
            if parsed.derived != self._derived.get(name):
                raise Damaged(f"{where}: its header line and the manifest do not derive the same rows")
            table.source_rows += len(decoded) if gathered is None else sum(len(row[-1]) for row in decoded)
            self._rules.rows(name, header, decoded)
        if rows != member.part.rows:
            raise Damaged(f"{where}: it has {rows:,} rows, the manifest says {member.part.rows:,}")
        table.rows += rows
        self.report.rows[name] = table.rows

    def finish(self) -> Report:
        """Compare the recomputed snapshot root with the stated one: equal, if the packs read are the whole snapshot."""
        report = self.report
        if self.first is None:
            raise PackError("nothing was read")
        names = [table.name for table in self._profile.ship] if self._profile else list(self._tables)
        if all(name in self._tables for name in names):
            digests = [self._tables[name].digest.hexdigest() for name in names]
            if self.first.layout != 2:
                for some in batched(self._rules.lacks(self._leaves.sorted()), 4096):
                    self._bodies.extend(some)
            report.complete = snapshot_root(self._bodies.root().hex(), digests) == self.first.snapshot_root
        if report.complete:
            self._check_derived()
            report.findings += self._rules.findings(all_of_them=self.first.layout == 2)
        return report

    def check_set(self, made: PackSet) -> None:
        """Compare all that was read with what the set manifest says. Raises Damaged."""
        what, first = self.report.what, self.first
        if first is None or first.number != 1 or self._bodies.root().hex() != made.bodies_root:
            raise Damaged(f"{what}: its bodies are not all those its bodies root binds")
        for name in ("corpus", "shard", "profile", "snapshot_root"):
            if getattr(first, name) != getattr(made, name):
                raise Damaged(f"{what}: its packs are of {name} {getattr(first, name)}, its manifest says otherwise")
        if first.layout != made.parameters.layout:
            raise Damaged(f"{what}: its packs have layout {first.layout}, its manifest says {made.parameters.layout}")
        found = tuple(
            SetTable(name, table.rows, table.source_rows, table.size, table.digest.hexdigest())
            for name, table in self._tables.items()
        )
        for stated, there in zip_longest(made.tables, found):
            if stated != there:
                name = (stated or there or made.tables[0]).name
                raise Damaged(
                    f"{what}: table {name} is not as the set manifest says (rows, size, SHA-256 or its place)"
                )

    def close(self) -> None:
        self._rules.close()
        self._leaves.close()
        self._nodes.close()


def verify_pack(blob: Blob, profile: Profile | None = None, progress: Progress = no_progress) -> tuple[str, Report]:
    """Check one pack: (pack hash, report). If it is a whole set by itself, the corpus's rules too. Raises Damaged."""
    with closing(SnapshotChecker(blob.name, profile)) as checker:
        pack_hash, _header = checker.read(blob, progress)
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
            digest = store.object_sha256(pack_key(pack.hash)) or sha256_of(blob)
            if digest != pack.sha256:
                raise Damaged(f"{blob.name}: its SHA-256 is {digest}, its set manifest says {pack.sha256}")
            found, header = checker.read(blob, shifted(progress, base, pack.size, total))
            if found != pack.hash:
                raise Damaged(f"{blob.name}: its manifest hashes to {found}, not to its name")
            if (header.chunks, header.body_bytes) != (pack.chunks, pack.body_bytes):
                raise Damaged(f"{blob.name}: it holds {header.chunks:,} bodies, its set manifest says {pack.chunks:,}")
            base += pack.size
        report = checker.finish()
        checker.check_set(made)
    return report


def raise_findings(report: Report) -> None:
    """Raises Inconsistent with the first finding and the number of the others, if there are any."""
    if report.findings:
        more = len(report.findings) - 1
        raise Inconsistent(f"{report.what}: {report.findings[0]}" + (f" (and {more} more)" if more else ""))
