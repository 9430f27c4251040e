"""Hydration: fill a SQLite database from packs, by the profile's merge keys, and leave alone what it already has."""

from __future__ import annotations

import hashlib
from contextlib import closing
from dataclasses import asdict, dataclass, field
from pathlib import Path
from typing import Any

from pack_lib.columnar import decode_rows, parse_header_line
from pack_lib.deriver import Deriver, in_batches
from pack_lib.errors import BadInput, Damaged
from pack_lib.fanin import fan_out
from pack_lib.fit import Fit
from pack_lib.merge import NAMED, Merge
from pack_lib.pack.blob import Blob
from pack_lib.pack.reader import BodyBatch, PackReader, TableData
from pack_lib.pack.tarstream import Document, DocumentBatch
from pack_lib.pack_set import PackSet, pack_key
from pack_lib.profile import Profile, ShippedTable
from pack_lib.progress import Progress, no_progress, shifted
from pack_lib.sources.sqlite_file import quoted, sqlite_errors
from pack_lib.stores.base import ObjectBlob, Store
from pack_lib.target import Target


@dataclass(slots=True)
class TableFill:
    """What became of one table's rows (edges: after fan-out)."""

    rows: int = 0
    inserted: int = 0
    present: int = 0
    conflicts: int = 0
    """Keys that the target has with other values; they were kept as they are."""


@dataclass(slots=True)
class Hydrated:
    """What a hydration did."""

    target: str
    fresh: bool
    packs: int = 0
    tables: dict[str, TableFill] = field(default_factory=dict)
    bodies: int = 0
    filled: int = 0
    """Rows whose body was missing and is now there."""
    unplaced: int = 0
    """Bodies whose leaf hash no row of the target has (their rows are in another pack of the set)."""
    without_body: int = 0
    """Rows of the target that still have no body."""
    tables_missing: list[str] = field(default_factory=list)
    """Shipped tables of which the packs read held nothing, or not all."""
    rebuilt: list[str] = field(default_factory=list)
    conflicts: list[str] = field(default_factory=list)
    """The first conflicts of each table, in words."""

    @property
    def changed(self) -> bool:
        return self.filled > 0 or any(table.inserted for table in self.tables.values())

    @property
    def conflict_count(self) -> int:
        return sum(table.conflicts for table in self.tables.values())

    def as_json(self) -> dict[str, Any]:
        return {**asdict(self), "changed": self.changed}


class Hydrator:
    """Fills one target from packs given in order. ``finish`` makes it durable; without it nothing changed."""

    def __init__(self, target: Target) -> None:
        self._target = target
        self._profile = target.profile
        self.report = Hydrated(str(target.path), target.fresh)
        self._merges: dict[str, Merge] = {}
        self._rows_before: dict[str, int] = {}
        """Of each table that is written to."""
        self._at_end = False
        self._fits: dict[str, Fit] = {}
        self._body_conflicts = 0
        self._ready_for_bodies = False
        self._deriver = Deriver(target)
        with sqlite_errors(target.where):
            self._virtual_there = {name for name in self._profile.rebuild if name.lower() in target.tables()}
            target.create(("table",))

    def read(self, blob: Blob, progress: Progress = no_progress) -> str:
        """Take in one pack and return its pack hash. Raises Damaged, UnknownVersion, BadInput or StoreTrouble."""
        with closing(PackReader(blob)) as reader:
            total = reader.header.content_bytes
            for name, derived in reader.header.derived:
                self._deriver.begin(name, derived, reader.name)
                self.report.tables.setdefault(name, TableFill())
            manifest = hashlib.sha256(b"\x00")
            done = 0
            for member in reader.members(manifest.update):
                if isinstance(member, TableData):
                    self._table(member, reader.name)
                    done += member.part.size
                elif isinstance(member, DocumentBatch):
                    with sqlite_errors(self._target.where):
                        self._documents(member.documents)
                    done += sum(sum(document.sizes) for document in member.documents)
                else:
                    with sqlite_errors(self._target.where):
                        self._bodies(member)
                    done += sum(len(body) for _, body in member)
                progress(done, total)
        self.report.packs += 1
        return manifest.hexdigest()

    def _table(self, member: TableData, where: str) -> None:
        name = f"{where}, {member.part.member}"
        table = self._profile.table(member.part.table)
        if table is None:
            raise Damaged(
                f"{name}: profile {self._profile.name} ships no such table; give the profile it was packed with"
            )
        fill = self.report.tables.setdefault(table.name, TableFill())
        lines = 0
        for header, rows in decode_rows(member.blocks, name):
            lines += len(rows)
            parsed = parse_header_line(header, name)
            columns, gathered = parsed.columns, parsed.gathered
            if parsed.derived != self._deriver.tables.get(table.name):
                raise Damaged(f"{name}: its header line and the manifest do not derive the same rows")
            if columns != table.file_columns or gathered != table.fan_in:
                raise Damaged(f"{name}: its columns are {', '.join(columns)}; give the profile it was packed with")
            if gathered is not None:
                rows = [flat for row in rows for flat in fan_out(row)]
            fill.rows += len(rows)
            with sqlite_errors(self._target.where):
                self._insert(table, rows, fill)
        if lines != member.part.rows:
            raise Damaged(f"{name}: it has {lines:,} rows, the manifest says {member.part.rows:,}")

    def _had(self, table: str) -> int:
        """Rows of a table before anything was written to it."""
        if table not in self._rows_before:
            self._rows_before[table] = self._target.count(table)
        return self._rows_before[table]

    def _merge_of(self, table: ShippedTable) -> Merge | None:
        """The merge of a table that had rows before; None for one that had none."""
        merge = self._merges.get(table.name)
        if self._had(table.name) and (merge is None or merge.finished):
            merge = self._merges[table.name] = Merge(self._target, table)
        return merge

    def _insert(self, table: ShippedTable, rows: list[Any], fill: TableFill) -> None:
        if table.name not in self._fits:
            self._fits[table.name] = Fit(self._target, table)
        self._fits[table.name].check(rows)
        merge = self._merge_of(table)
        if merge is None:
            inserted = self._target.insert(quoted(table.name), table.columns, rows)
            fill.inserted += inserted
            if inserted != len(rows):
                fill.conflicts += len(rows) - inserted
                self.report.conflicts.append(f"{table.name}: a trigger of the target kept rows out")
        else:
            merge.add(rows)

    def _finish_tables(self) -> None:
        """Merge what was collected, and make the indexes that bodies are placed by."""
        nodes = self._profile.nodes
        for name, merge in self._merges.items():
            # Derived nodes come at the end, and count together with the shipped ones: of equal rows one is derived.
            if not merge.finished and (self._at_end or nodes is None or name != nodes.table):
                self._finish_merge(name, merge)
        self._target.create(("index",))

    def _finish_merge(self, name: str, merge: Merge) -> None:
        merge.finish()
        fill = self.report.tables[name]
        fill.inserted += merge.inserted
        fill.present += merge.present
        fill.conflicts += merge.conflicts
        self.report.conflicts += merge.named

    def _check_kept(self) -> None:
        """Raises BadInput if rows went again that were inserted, or that were there before."""
        for name, before in self._rows_before.items():
            expected = before + self.report.tables.get(name, TableFill()).inserted
            found = self._target.count(name)
            if found < expected:
                raise BadInput(
                    f"{self._target.where}: table {name} has {found:,} rows where {expected:,} should be: a trigger or "
                    "a constraint of its schema (ON CONFLICT REPLACE) removes rows; nothing was changed. Give a "
                    "database without it, or a new file"
                )

    def _make_ready(self) -> None:
        if not self._ready_for_bodies:
            self._finish_tables()
            self._ready_for_bodies = True

    def _documents(self, documents: list[Document]) -> None:
        """Documents' derived rows with their bodies; where rows are there already, or shipped, the bodies alone."""
        self._make_ready()
        self._had(self._profile.bodies.table)
        left = self._deriver.insert(documents, self.report.tables)
        placed = (
            [document for document in documents if document.root not in {other.root for other in left}]
            if left
            else documents
        )
        count = sum(len(document.leaves) for document in placed)
        self.report.bodies += count
        self.report.filled += count
        for document in left:
            names = [leaf.hex() for leaf in document.leaves]
            for some in in_batches(zip(names, document.bodies, strict=True)):
                self._bodies(some)

    def _bodies(self, batch: BodyBatch) -> None:
        self._make_ready()
        bodies = self._profile.bodies
        table, content, key = quoted(bodies.table), quoted(bodies.content), quoted(bodies.hash)
        values: list[tuple[Any, str]] = []
        mark = "?"
        if bodies.type == "text":
            try:
                values = [(str(body, "utf-8"), leaf_hash) for leaf_hash, body in batch]
            except UnicodeDecodeError:
                if not self._target.utf8:
                    raise Damaged(
                        f"{self._target.where} is a UTF-16 database and cannot hold a body that is not UTF-8"
                    ) from None
                mark = "CAST(? AS TEXT)"
        if not values:
            values = [(body, leaf_hash) for leaf_hash, body in batch]
        self._target.check_texts(value for value, _ in values)
        run = self._target.connection.execute
        fill = f"UPDATE {table} SET {content} = {mark} WHERE {key} = ? AND {content} IS NULL"
        query = f"SELECT count(*), sum({content} IS NOT {mark}) FROM {table} WHERE {key} = ?"
        self.report.bodies += len(batch)
        for value, leaf_hash in values:
            filled = run(fill, (value, leaf_hash)).rowcount
            self.report.filled += filled
            if filled and self._target.fresh:
                continue  # no row can have had another body before
            rows, other = run(query, (value, leaf_hash)).fetchone()
            self.report.unplaced += not rows
            if other:
                self._body_conflicts += other
                if self._body_conflicts <= NAMED:
                    self.report.conflicts.append(f"{bodies.table} {bodies.hash}={leaf_hash}: another body is there")

    def check_whole(self, whole: PackSet) -> None:
        """Raises Damaged if packs that were all read lack rows."""
        for table in whole.tables:
            found = self.report.tables.get(table.name, TableFill()).rows
            if found != table.source_rows:
                raise Damaged(
                    f"set {whole.set_hash}: its packs hold {found:,} rows of {table.name}, "
                    f"its manifest says {table.source_rows:,}"
                )

    def incomplete(self) -> list[str]:
        """Tables of which rows follow from documents that were not in the packs read."""
        return self._deriver.incomplete()

    def finish(self, whole: PackSet | None = None) -> Hydrated:
        """Rebuild the full-text tables if anything changed, count what is still missing, and commit.

        ``whole``: the set of which all packs were read. Raises Damaged, and commits nothing, if they lack rows.
        """
        report, bodies = self.report, self._profile.bodies
        run = self._target.connection.execute
        with sqlite_errors(self._target.where):
            self._at_end = True
            report.conflicts += self._deriver.finish(report.tables, self._merge_of)
            self._finish_tables()
            self._check_kept()
            if whole is not None:
                self.check_whole(whole)
            if self._body_conflicts:
                report.tables.setdefault(bodies.table, TableFill()).conflicts += self._body_conflicts
            self._target.create(("virtual", "view", "trigger"))
            there = self._target.tables()
            for name in self._profile.rebuild:
                if name.lower() in there and (report.changed or name not in self._virtual_there):
                    run(f"INSERT INTO {quoted(name)}({quoted(name)}) VALUES ('rebuild')")
                    report.rebuilt.append(name)
            report.without_body = run(
                f"SELECT count(*) FROM {quoted(bodies.table)} WHERE {quoted(bodies.content)} IS NULL"
            ).fetchone()[0]
        order = [table.name for table in self._profile.ship]
        report.tables = dict(sorted(report.tables.items(), key=lambda item: order.index(item[0])))
        self._target.commit()
        return report


def hydrate_set(
    store: Store, made: PackSet, target: Path, profile: Profile, progress: Progress = no_progress
) -> Hydrated:
    """Fill a database from every pack of a committed set.

    An absent or empty file is made anew with the profile's schema; an existing database gets what it lacks, in one
    transaction. Raises NotFound, Damaged, BadInput, Busy or StoreTrouble; then the target is as it was.
    """
    base, total = 0, sum(pack.size for pack in made.packs)
    with Target(target, profile) as opened:
        hydrator = Hydrator(opened)
        for pack in made.packs:
            blob = ObjectBlob(store, pack_key(pack.hash))
            found = hydrator.read(blob, shifted(progress, base, pack.size, total))
            if found != pack.hash:
                raise Damaged(f"{blob.name}: its manifest hashes to {found}, not to its name; take another copy")
            base += pack.size
        return hydrator.finish(made)


def hydrate_pack(
    blob: Blob, target: Path, profile: Profile, progress: Progress = no_progress, *, pack_hash: str | None = None
) -> Hydrated:
    """Fill a database from one pack: its table parts and the bodies for rows the target has; the report says what is
    missing. ``pack_hash``: what it must be, if that is known. Raises as `hydrate_set` does."""
    with Target(target, profile) as opened:
        hydrator = Hydrator(opened)
        header = PackReader(blob).header
        found = hydrator.read(blob, progress)
        if pack_hash not in (None, found):
            raise Damaged(f"{blob.name}: its manifest hashes to {found}, not to {pack_hash}; take another copy")
        whole = {part.table for part in header.tables if part.member == f"tables/{part.table}.jsonl"}
        report = hydrator.finish()
        whole -= set(hydrator.incomplete())
        report.tables_missing = [table.name for table in profile.ship if table.name not in whole]
        return report
