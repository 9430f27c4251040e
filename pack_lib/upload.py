"""Putting packs into a store so that doing it again does no harm: put if absent, compare, adopt, never overwrite."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path
from typing import Any

from pack_lib.errors import Damaged, PackError
from pack_lib.pack_set import SetPack, pack_key, sidecar_key
from pack_lib.progress import Progress, no_progress
from pack_lib.stores.base import ObjectBlob, Store
from pack_lib.verify import verify_pack


@dataclass(frozen=True, slots=True)
class Uploaded:
    """A pack as the store now holds it."""

    pack: SetPack
    sent: int
    """Bytes sent; 0 if it was there already."""
    adopted: bool
    """The store holds the same content compressed by another libzstd; it was checked and stays."""

    @classmethod
    def from_json(cls, value: dict[str, Any]) -> Uploaded:
        return cls(SetPack(**value["pack"]), value["sent"], value["adopted"])


def put_pack(store: Store, path: Path, pack: SetPack, first_line: bytes, progress: Progress = no_progress) -> Uploaded:
    """Make sure the store holds this pack and its sidecar, in this order.

    Raises Damaged if what it holds under the pack's hash is neither these bytes nor the same content; it stays as it
    is. Raises StoreTrouble.
    """
    key = pack_key(pack.hash)
    put = store.put_if_absent(key, path, progress)
    adopted = False
    size, digest = store.object_size(key), store.object_sha256(key)
    if size != pack.size or digest not in (None, pack.sha256):
        pack = _adopt(store, key, pack)
        adopted = True
    store.put_if_absent(sidecar_key(pack.hash), first_line)
    return Uploaded(pack, put.sent, adopted)


def _adopt(store: Store, key: str, pack: SetPack) -> SetPack:
    try:
        blob = ObjectBlob(store, key)
        found, report = verify_pack(blob)
        if found != pack.hash or report.chunks != pack.chunks:
            raise Damaged(f"{blob.name}: its manifest hashes to {found}")
    except PackError as error:
        raise Damaged(
            f"{error}; the store holds this damaged object where pack {pack.hash} belongs: "
            "delete it there, then run again"
        ) from error
    digest = store.object_sha256(key)
    if digest is None:
        raise Damaged(f"{blob.name}: the store cannot tell its SHA-256; delete it there, then run again")
    return SetPack(pack.hash, blob.size, digest, pack.chunks, pack.body_bytes)
