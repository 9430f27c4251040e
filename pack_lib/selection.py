"""Ordered chunk selection: every distinct leaf hash, ascending, and the bodies in that order, each one checked."""

from __future__ import annotations

import hashlib
import re
from collections.abc import Iterable, Iterator
from dataclasses import asdict, dataclass
from typing import Any

from pack_lib.errors import BadInput
from pack_lib.hashing import HEX64, TreeHasher
from pack_lib.profile import Bodies
from pack_lib.sources.base import ChunkBatch, PinnedSource
from pack_lib.values import shown

_HEX = re.compile("[0-9a-f]*")


@dataclass(frozen=True, slots=True)
class Selection:
    """What will be packed, without the bodies: a descriptor to pass between steps."""

    chunks: int
    """Distinct leaf hashes."""
    rows: int
    """Rows of the table that holds them; a body that several rows share is packed once."""
    bodies_root: str
    """RFC 6962 tree hash, hex, over the distinct leaf hashes in ascending order."""

    def as_json(self) -> dict[str, Any]:
        return asdict(self)


def select_chunks(pinned: PinnedSource, bodies: Bodies, where: str) -> Selection:
    """Read every distinct leaf hash once. Raises BadInput for one that is not 64 lower-case hex digits."""
    tree = TreeHasher()
    for batch in pinned.leaf_hashes(bodies.table, bodies.hash):
        together = "".join(batch)
        if set(map(len, batch)) == {64} and _HEX.fullmatch(together):
            digests = bytes.fromhex(together)
            tree.extend([digests[at : at + 32] for at in range(0, len(digests), 32)])
            continue
        for leaf_hash in batch:
            if not HEX64.match(leaf_hash):
                raise BadInput(
                    f"{where}, {bodies.table}.{bodies.hash}: {shown(leaf_hash)} is no leaf hash "
                    "(64 lower-case hex digits); mend the row in the source"
                )
    return Selection(tree.count, pinned.count(bodies.table), tree.root().hex())


def selected_bodies(pinned: PinnedSource, bodies: Bodies, where: str) -> Iterator[list[tuple[str, bytes]]]:
    """(leaf hash, body) of each distinct leaf hash, ascending, in batches; each body was checked against its hash.

    Raises BadInput, naming the leaf hash, for a body that does not match it.
    """
    return distinct_bodies(pinned.bodies(bodies.table, bodies.hash, bodies.content, bodies.type), bodies, where)


def distinct_bodies(
    batches: Iterable[list[tuple[str, bytes]]], bodies: Bodies, where: str
) -> Iterator[list[tuple[str, bytes]]]:
    """Of (leaf hash, body) ascending the first of each hash, every one checked. Raises BadInput."""
    sha256 = hashlib.sha256
    last_hash, last_body = "", b""
    for batch in batches:
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
            raise _mismatch(bodies, where, leaf_hash, len(body), sha256(b"\x00" + body).hexdigest())
        if distinct:
            yield distinct


def check_chunks(batch: ChunkBatch, bodies: Bodies, where: str) -> list[bytes]:
    """The leaf hashes of a batch, computed from its bodies and found as stated. Raises BadInput for one that is not."""
    digests = batch.bodies.digests()
    found = b"".join(digests).hex()
    if found == batch.leaf_hashes:
        return digests
    for place, digest in enumerate(digests):
        stated = batch.leaf_hashes[64 * place : 64 * place + 64]
        if digest.hex() != stated:
            raise _mismatch(bodies, where, stated, batch.bodies.sizes[place], digest.hex())
    raise BadInput(f"{where}, {bodies.table}: rows changed while they were read; pack the source pinned")


def _mismatch(bodies: Bodies, where: str, stated: str, size: int, found: str) -> BadInput:
    return BadInput(
        f"{where}, {bodies.table}: the body stored under leaf hash {stated} does not match it "
        f"(its {size:,} bytes hash to {found}); mend the row in the source"
    )
