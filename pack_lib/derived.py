"""Tables of which a reader derives rows from the documents' bodies: the rest is shipped, the header line says which.

docs/format.md, "Derived rows".
"""

from __future__ import annotations

import hashlib
from collections.abc import Iterable, Iterator
from dataclasses import dataclass, field
from itertools import chain
from operator import itemgetter
from pathlib import Path
from typing import Any

from pack_lib.columnar import MAX_ABSENT, Derived, TableHeader
from pack_lib.lines import line_blocks
from pack_lib.pack.format import Parameters
from pack_lib.pack.layout3 import StagedBodies
from pack_lib.profile import Bodies, Nodes, Profile, ShippedTable
from pack_lib.progress import Progress, no_progress
from pack_lib.sorting import RecordSorter, batched
from pack_lib.sources.base import PinnedSource
from pack_lib.tables import StagedTable, stage_lines, stage_table

Rows = Iterable[list[tuple[Any, ...]]]


def derives_chunks(profile: Profile) -> bool:
    """Whether the bodies' table has no other columns than those that follow from documents and bodies."""
    bodies, table = profile.bodies, profile.table(profile.bodies.table)
    names = {bodies.document, bodies.ordinal, bodies.hash, bodies.size}
    return profile.documents is not None and table is not None and set(table.columns) == names


def chunk_rows(bodies: Bodies, columns: tuple[str, ...], root: str, leaves: list[bytes], sizes: list[int]) -> list[Any]:
    """The derived rows of one document, in order, each in the order of ``columns``."""
    cells: dict[str | None, list[Any]] = {
        bodies.document: [root] * len(leaves),
        bodies.ordinal: list(range(len(leaves))),
        bodies.hash: [leaf.hex() for leaf in leaves],
        bodies.size: sizes,
    }
    return list(zip(*(cells[column] for column in columns), strict=True))


def node_rows(nodes: Nodes, columns: tuple[str, ...], records: Iterable[bytes]) -> list[tuple[Any, ...]]:
    """The derived rows of nodes' records (`pack_lib.hashing.tree_nodes`), each in the order of ``columns``."""
    texts = [(record[:96].hex(), record[96]) for record in records]
    rows: list[tuple[Any, ...]] = [(text[:64], text[64:128], text[128:], level) for text, level in texts]
    own = (nodes.node, nodes.left, nodes.right, nodes.level)
    return rows if columns == own else list(map(itemgetter(*map(own.index, columns)), rows))


def stage_chunks(
    pinned: PinnedSource,
    profile: Profile,
    staged: StagedBodies,
    folder: Path,
    parameters: Parameters,
    workers: int,
    progress: Progress = no_progress,
) -> StagedTable:
    """Stage the bodies' table without the rows that follow from ``staged``, if enough do. Raises as `stage_table`."""
    table = next(table for table in profile.ship if table.name == profile.bodies.table)
    documents = profile.documents
    if documents is None or not staged.derived or not derives_chunks(profile) or len(staged.shipped) > MAX_ABSENT:
        return stage_table(pinned, table, folder, parameters, workers, progress)
    total = pinned.count(table.name)
    derived = Derived(staged.documents, staged.root, staged.derived, tuple(sorted(staged.shipped)))
    rows: Rows = ()
    if total > staged.derived:
        rows = pinned.rows_apart(profile.bodies, documents, table.columns, [*staged.apart, *staged.shipped])
    header = TableHeader(table.columns, derived=derived)
    return stage_lines(
        line_blocks(rows), table, header, (total, total - staged.derived), folder, parameters, workers, progress
    )


@dataclass(slots=True)
class _Left:
    """What comparing the nodes' table with the derived nodes left over."""

    rows: int = 0
    """Rows of the table that no document's tree has."""
    absent: list[str] = field(default_factory=list)
    """Nodes of documents' trees that the table lacks, up to one more than a header line may name."""


def stage_nodes(
    pinned: PinnedSource,
    profile: Profile,
    staged: StagedBodies,
    sorter: RecordSorter,
    folder: Path,
    parameters: Parameters,
    workers: int,
    lines: str,
    progress: Progress = no_progress,
) -> StagedTable | None:
    """Stage the nodes' table without the rows that are in ``sorter``; None if the profile names none.

    ``lines``: the table's `lines_digest`.
    """
    nodes = profile.nodes
    if nodes is None:
        return None
    table = next(table for table in profile.ship if table.name == nodes.table)
    total = pinned.count(table.name)
    left = _Left()
    # Mostly the rows are exactly the derived ones: that is seen by their lines, without work on cells.
    if total and lines == _derived_digest(table, nodes, sorter):
        header = TableHeader(table.columns, derived=Derived(staged.documents, staged.root, total))
        return stage_lines((), table, header, (total, 0), folder, parameters, workers, progress)
    for batch in _left_over(pinned.rows(table.name, table.columns), nodes, table.columns, sorter, left):
        left.rows += len(batch)
    derived = total - left.rows
    if not derived or len(left.absent) > MAX_ABSENT:
        return stage_table(pinned, table, folder, parameters, workers, progress)
    rows: Rows = ()
    if left.rows:
        rows = _left_over(pinned.rows(table.name, table.columns), nodes, table.columns, sorter, _Left())
    header = TableHeader(table.columns, derived=Derived(staged.documents, staged.root, derived, tuple(left.absent)))
    return stage_lines(line_blocks(rows), table, header, (total, left.rows), folder, parameters, workers, progress)


def lines_digest(pinned: PinnedSource, profile: Profile, table: str) -> str:
    """SHA-256 over all lines of a shipped table, none but rows."""
    digest = hashlib.sha256()
    for block in pinned.lines(table, next(shipped.columns for shipped in profile.ship if shipped.name == table)):
        digest.update(block.data)
    return digest.hexdigest()


def _derived_digest(table: ShippedTable, nodes: Nodes, sorter: RecordSorter) -> str:
    """What `lines_digest` would be of the derived rows."""
    cells = {nodes.node: '"{0}"', nodes.left: '"{1}"', nodes.right: '"{2}"', nodes.level: "{3}"}
    line = f"[{','.join(cells[column] for column in table.columns)}]\n".format
    digest = hashlib.sha256()
    for records in batched(sorter.sorted(), 4096):
        texts = [(record[:96].hex(), record[96]) for record in records]
        lines = [line(text[:64], text[64:128], text[128:], level) for text, level in texts]
        digest.update("".join(lines).encode())
    return digest.hexdigest()


def _left_over(
    batches: Rows, nodes: Nodes, columns: tuple[str, ...], sorter: RecordSorter, left: _Left
) -> Iterator[list[tuple[Any, ...]]]:
    """The rows, ascending by node hash, that are not derived. Only the first of repeated rows is."""
    derived = chain.from_iterable(node_rows(nodes, columns, some) for some in batched(sorter.sorted(), 4096))
    key = columns.index(nodes.node)
    nearest = next(derived, None)
    for batch in batches:
        kept: list[tuple[Any, ...]] = []
        for row in batch:
            name = row[key]
            # Numbers and NULL come before text, and what is no UTF-8 text or a blob is no node of ours.
            while nearest is not None and type(name) is str and nearest[key] < name:
                if len(left.absent) <= MAX_ABSENT:
                    left.absent.append(nearest[key])
                nearest = next(derived, None)
            if nearest is not None and row == nearest and list(map(type, row)) == list(map(type, nearest)):
                nearest = next(derived, None)
            else:
                kept.append(row)
        yield kept
    while nearest is not None and len(left.absent) <= MAX_ABSENT:
        left.absent.append(nearest[key])
        nearest = next(derived, None)
