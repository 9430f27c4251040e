"""The protocol of a store: where packs live. ``pack_lib.testing.stores`` is its conformance suite."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Protocol, runtime_checkable

from pack_lib.errors import BadInput, Damaged, NotFound
from pack_lib.progress import Progress, no_progress
from pack_lib.values import shown


@dataclass(frozen=True, slots=True)
class Put:
    """What ``put_if_absent`` did."""

    created: bool
    """False: an object of this key was there already and was left as it is."""
    sent: int
    """Bytes of body sent; 0 if nothing was."""


@runtime_checkable
class Store(Protocol):
    """Keys are relative paths of plain names joined by ``/``. Objects are whole or absent, never half-written.

    Every method raises StoreTrouble if the store cannot be reached or refuses; further errors are named below.
    """

    location: str
    """What to call it in messages: without credentials."""

    def get(self, key: str, limit: int = 1 << 30) -> bytes:
        """A small object, whole. Raises NotFound; Damaged if it is larger than ``limit`` bytes."""
        ...

    def get_range(self, key: str, offset: int, length: int) -> bytes:
        """Exactly these bytes of an object. Raises NotFound; Damaged if the object ends before them."""
        ...

    def put_if_absent(self, key: str, body: Path | bytes, progress: Progress = no_progress) -> Put:
        """Make a new object, durably, unless one of this key exists; of several at once one makes it."""
        ...

    def get_versioned(self, key: str) -> tuple[bytes, str] | None:
        """An object with the tag ``replace_if`` compares; None if there is none."""
        ...

    def replace_if(self, key: str, body: bytes, version: str | None) -> bool:
        """Replace an object if it has this version still (None: if it is absent still); else False and nothing done."""
        ...

    def object_size(self, key: str) -> int | None:
        """Bytes of an object; None if there is none. Reads no body."""
        ...

    def object_sha256(self, key: str) -> str | None:
        """SHA-256, hex, of the bytes an object has now, if the store can tell without sending them; else None.

        Raises NotFound.
        """
        ...

    def list(self, prefix: str) -> Iterator[str]:
        """Every key that begins with ``prefix``, ascending."""
        ...

    def delete(self, key: str) -> None:
        """Remove an object; one that is not there is no error."""
        ...


def is_key(key: str) -> bool:
    """Whether this is a relative path of plain names, in UTF-8, which cannot leave the store's folder."""
    bad = any(part.startswith(".") or "\x00" in part or "\\" in part or not part for part in key.split("/"))
    return not bad and not any("\ud800" <= letter <= "\udfff" for letter in key)


def check_key(key: str) -> str:
    """Raises BadInput for a key that is no relative path of plain names (or could leave the store's folder)."""
    if not is_key(key):
        raise BadInput(f"{shown(key)} is no key of a store")
    return key


def check_prefix(prefix: str) -> str:
    """Raises BadInput for a prefix that no key could begin with."""
    check_key(prefix + "x")
    return prefix


_AHEAD = 1 << 20


class ObjectBlob:
    """An object of a store as bytes read by ranges, for the pack reader. Small reads are served from one larger."""

    def __init__(self, store: Store, key: str) -> None:
        """Raises NotFound if there is no such object."""
        self.name = f"{store.location.rstrip('/')}/{key}"
        size = store.object_size(key)
        if size is None:
            raise NotFound(f"{self.name} does not exist")
        self.size = size
        self._store = store
        self._key = key
        self._held = b""
        self._held_at = 0

    def read(self, offset: int, length: int) -> bytes:
        start = offset - self._held_at
        if start >= 0 and start + length <= len(self._held):
            return self._held[start : start + length]
        if offset < 0 or offset + length > self.size:
            raise Damaged(f"{self.name}: ends at byte {self.size:,}; it was cut")
        self._held = self._store.get_range(self._key, offset, min(max(length, _AHEAD), self.size - offset))
        self._held_at = offset
        return self._held[:length]

    def close(self) -> None:
        self._held = b""
