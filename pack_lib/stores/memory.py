"""A store in this process's memory: for tests and for trying things out."""

from __future__ import annotations

import hashlib
import threading
from collections.abc import Iterator
from pathlib import Path

from pack_lib.errors import Damaged, NotFound
from pack_lib.progress import Progress, no_progress
from pack_lib.stores.base import Put, check_key, check_prefix


class MemoryStore:
    """Objects in a dict, safe for threads."""

    def __init__(self, name: str = "") -> None:
        self.location = f"memory://{name}"
        self._objects: dict[str, bytes] = {}
        self._lock = threading.Lock()

    def _found(self, key: str) -> bytes:
        try:
            return self._objects[check_key(key)]
        except KeyError:
            raise NotFound(f"{self.location}/{key} does not exist") from None

    def get(self, key: str, limit: int = 1 << 30) -> bytes:
        body = self._found(key)
        if len(body) > limit:
            raise Damaged(f"{self.location}/{key} has {len(body):,} bytes, more than the {limit:,} it may have")
        return body

    def get_range(self, key: str, offset: int, length: int) -> bytes:
        body = self._found(key)
        if offset < 0 or length < 0 or offset + length > len(body):
            raise Damaged(f"{self.location}/{key}: ends at byte {len(body):,}; it was cut")
        return body[offset : offset + length]

    def put_if_absent(self, key: str, body: Path | bytes, progress: Progress = no_progress) -> Put:
        check_key(key)
        if key in self._objects:
            return Put(created=False, sent=0)
        data = body if isinstance(body, bytes) else body.read_bytes()
        with self._lock:
            created = key not in self._objects
            self._objects.setdefault(key, data)
        progress(len(data), len(data))
        return Put(created, len(data))

    def get_versioned(self, key: str) -> tuple[bytes, str] | None:
        body = self._objects.get(check_key(key))
        return None if body is None else (body, hashlib.sha256(body).hexdigest())

    def replace_if(self, key: str, body: bytes, version: str | None) -> bool:
        with self._lock:
            present = self.get_versioned(key)
            if (present[1] if present else None) != version:
                return False
            self._objects[key] = body
        return True

    def object_size(self, key: str) -> int | None:
        body = self._objects.get(check_key(key))
        return None if body is None else len(body)

    def object_sha256(self, key: str) -> str | None:
        return hashlib.sha256(self._found(key)).hexdigest()

    def list(self, prefix: str) -> Iterator[str]:
        check_prefix(prefix)
        yield from sorted(key for key in list(self._objects) if key.startswith(prefix))

    def delete(self, key: str) -> None:
        with self._lock:
            self._objects.pop(check_key(key), None)
