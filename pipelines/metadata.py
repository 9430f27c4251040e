"""Results of ``pack_lib`` as Dagster metadata, which the UI shows and plots. No credential and no row is in it.

Counts and sizes are numbers under the same names everywhere; sizes are bytes.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from typing import Any

import dagster as dg

from pack_lib.hashing import tree_hash
from pack_lib.pack.format import ORDERS
from pack_lib.pack_set import PackSet, SetPack
from pack_lib.selection import Selection
from pack_lib.snapshot import Pin
from pack_lib.tables import StagedTable
from pack_lib.upload import Uploaded
from pack_lib.verify import Report

Metadata = dict[str, dg.MetadataValue[Any]]
_PACK_COLUMNS = (("pack", "string"), ("bytes", "int"), ("chunks", "int"), ("sha256", "string"))
_TABLE_COLUMNS = (("table", "string"), ("rows", "int"), ("lines", "int"), ("bytes", "int"), ("sha256", "string"))


def _table(columns: Sequence[tuple[str, str]], rows: Iterable[Sequence[str | int]]) -> dg.MetadataValue[Any]:
    names = [name for name, _ in columns]
    schema = dg.TableSchema([dg.TableColumn(name, kind) for name, kind in columns])
    return dg.MetadataValue.table([dg.TableRecord(dict(zip(names, row, strict=True))) for row in rows], schema)


def packs_version(packs: Sequence[SetPack]) -> str:
    """The data version of packs: the tree hash over their pack hashes, so unchanged content is seen as unchanged."""
    return tree_hash(bytes.fromhex(pack.hash) for pack in packs).hex()


def tables_version(tables: Sequence[StagedTable]) -> str:
    """The data version of staged tables: the tree hash over their digests, in profile order."""
    return tree_hash(bytes.fromhex(table.sha256) for table in tables).hex()


def of_pin(pin: Pin, source: str) -> Metadata:
    return {
        "source": dg.MetadataValue.text(source),
        "source_bytes": dg.MetadataValue.int(pin.size),
        "change_token": dg.MetadataValue.text(pin.change_token),
        "in_place": dg.MetadataValue.bool(pin.in_place),
    }


def of_selection(selection: Selection, layout: int) -> Metadata:
    return {
        "chunks": dg.MetadataValue.int(selection.chunks),
        "rows": dg.MetadataValue.int(selection.rows),
        "order": dg.MetadataValue.text(ORDERS[layout]),
        "bodies_root": dg.MetadataValue.text(selection.bodies_root),
    }


def of_tables(tables: Sequence[StagedTable]) -> Metadata:
    rows = [(table.name, table.source_rows, table.rows, table.size, table.sha256) for table in tables]
    return {
        "tables": _table(_TABLE_COLUMNS, rows),
        "rows": dg.MetadataValue.int(sum(table.source_rows for table in tables)),
        "bytes": dg.MetadataValue.int(sum(table.size for table in tables)),
    }


def of_fanned(tables: Sequence[StagedTable]) -> Metadata:
    """``edges``: rows of the source; ``groups``: lines they became."""
    return {
        **of_tables(tables),
        "edges": dg.MetadataValue.int(sum(table.source_rows for table in tables)),
        "groups": dg.MetadataValue.int(sum(table.rows for table in tables)),
    }


def of_packs(plan: PackSet, packs: Sequence[SetPack], source_bytes: int, *, up_to_date: bool) -> Metadata:
    """``plan``: what is known of the set before, and whether or not, its packs are built. Ratio: source to packs."""
    uncut = sum(pack.body_bytes for pack in packs) + sum(table.size for table in plan.tables)
    size = sum(pack.size for pack in packs)
    return {
        "up_to_date": dg.MetadataValue.bool(up_to_date),
        "snapshot_root": dg.MetadataValue.text(plan.snapshot_root),
        "packs": _table(_PACK_COLUMNS, [(pack.hash, pack.size, pack.chunks, pack.sha256) for pack in packs]),
        "pack_count": dg.MetadataValue.int(len(packs)),
        "chunks": dg.MetadataValue.int(sum(pack.chunks for pack in packs)),
        "content_bytes": dg.MetadataValue.int(uncut),
        "pack_bytes": dg.MetadataValue.int(size),
        "source_bytes": dg.MetadataValue.int(source_bytes),
        "ratio": dg.MetadataValue.float(round(source_bytes / size, 3)),
    }


def of_uploads(uploads: Sequence[Uploaded], store: str, *, up_to_date: bool) -> Metadata:
    return {
        "up_to_date": dg.MetadataValue.bool(up_to_date),
        "store": dg.MetadataValue.text(store),
        "packs_sent": dg.MetadataValue.int(sum(1 for item in uploads if item.sent)),
        "bytes_sent": dg.MetadataValue.int(sum(item.sent for item in uploads)),
        "adopted": dg.MetadataValue.int(sum(item.adopted for item in uploads)),
    }


def of_set(made: PackSet, store: str, source_bytes: int, *, up_to_date: bool) -> Metadata:
    return {
        **of_packs(made, made.packs, source_bytes, up_to_date=up_to_date),
        "store": dg.MetadataValue.text(store),
        "set_hash": dg.MetadataValue.text(made.set_hash),
        "set_key": dg.MetadataValue.text(made.key),
        "libzstd": dg.MetadataValue.text(made.parameters.libzstd),
    }


def of_report(made: PackSet, report: Report) -> Metadata:
    return {
        "set_hash": dg.MetadataValue.text(made.set_hash),
        "snapshot_root": dg.MetadataValue.text(made.snapshot_root),
        "packs": dg.MetadataValue.int(report.packs),
        "chunks": dg.MetadataValue.int(report.chunks),
        "body_bytes": dg.MetadataValue.int(report.body_bytes),
        "rows": dg.MetadataValue.int(sum(report.rows.values())),
        "findings": dg.MetadataValue.text("; ".join(report.findings) or "none"),
    }
