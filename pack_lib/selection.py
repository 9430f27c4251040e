"""Ordered chunk selection: every distinct leaf hash, ascending, and the bodies in that order, each one checked."""

from __future__ import annotations

import hashlib
from collections.abc import Iterator
from dataclasses import asdict, dataclass
from typing import Any

from pack_lib.errors import BadInput
from pack_lib.hashing import TreeHasher
from pack_lib.pack.format import HEX64, ORDER
from pack_lib.profile import Bodies
from pack_lib.sources.base import PinnedSource
from pack_lib.values import shown


@dataclass(frozen=True, slots=True)
class Selection:
    """What will be packed, without the bodies: a descriptor to pass between steps."""

    chunks: int
    """Distinct leaf hashes."""
    rows: int
    """Rows of the table that holds them; a body that several rows share is packed once."""
    bodies_root: str
    """RFC 6962 tree hash, hex, over the distinct leaf hashes in ascending order."""
    order: str = ORDER

    def as_json(self) -> dict[str, Any]:
        return asdict(self)


def select_chunks(pinned: PinnedSource, bodies: Bodies, where: str) -> Selection:
    """Read every distinct leaf hash once. Raises BadInput for one that is not 64 lower-case hex digits."""
    tree = TreeHasher()
    add, fromhex, match = tree.add, bytes.fromhex, HEX64.match
    for batch in pinned.leaf_hashes(bodies.table, bodies.hash):
        for leaf_hash in batch:
            if not match(leaf_hash):
                raise BadInput(
                    f"{where}, {bodies.table}.{bodies.hash}: {shown(leaf_hash)} is no leaf hash "
                    "(64 lower-case hex digits); mend the row in the source"
                )
            add(fromhex(leaf_hash))
    return Selection(tree.count, pinned.count(bodies.table), tree.root().hex())


def selected_bodies(pinned: PinnedSource, bodies: Bodies, where: str) -> Iterator[list[tuple[str, bytes]]]:
    """(leaf hash, body) of each distinct leaf hash, ascending, in batches; each body was checked against its hash.

    Raises BadInput, naming the leaf hash, for a body that does not match it.
    """
    sha256 = hashlib.sha256
    last_hash, last_body = "", b""
    for batch in pinned.bodies(bodies.table, bodies.hash, bodies.content, bodies.type):
        distinct: list[tuple[str, bytes]] = []
        for pair in batch:
            leaf_hash, body = pair
            if leaf_hash == last_hash:
                if body == last_body:
                    continue
            elif sha256(b"\x00" + body).hexdigest() == leaf_hash:
                distinct.append(pair)
                last_hash, last_body = pair
                continue
            found = sha256(b"\x00" + body).hexdigest()
            raise BadInput(
                f"{where}, {bodies.table}: the body stored under leaf hash {leaf_hash} does not match it "
                f"(its {len(body):,} bytes hash to {found}); mend the row in the source"
            )
        if distinct:
            yield distinct
