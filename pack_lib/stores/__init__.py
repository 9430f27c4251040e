"""Stores, opened by URL."""

from __future__ import annotations

from pathlib import Path
from urllib.parse import unquote, urlsplit

from pack_lib.errors import BadInput, NotFound
from pack_lib.stores.base import ObjectBlob, Put, Store
from pack_lib.stores.local import LocalStore
from pack_lib.stores.memory import MemoryStore

__all__ = ["LocalStore", "MemoryStore", "ObjectBlob", "Put", "Store", "open_store"]

_memory: dict[str, MemoryStore] = {}


def open_store(url: str, *, must_exist: bool = False) -> Store:
    """A store by a folder's path, a ``file:///`` URL or ``memory://name`` (shared within this process).

    Raises BadInput for any other scheme, NotFound if it must exist and the folder does not.
    """
    if not url:
        raise BadInput("the store is an empty name; give a folder or a URL")
    path = Path(url)
    if "://" in url:
        parts = urlsplit(url)
        if parts.scheme == "memory":
            return _memory.setdefault(parts.netloc, MemoryStore(parts.netloc))
        if parts.scheme != "file" or parts.netloc not in ("", "localhost"):
            raise BadInput(f"store {parts.scheme}://... is not supported; give a folder or a file:/// URL")
        path = Path(unquote(parts.path))
    if path.exists() and not path.is_dir():
        raise BadInput(f"store {path} is a file; give a folder")
    if must_exist and not path.exists():
        raise NotFound(f"store {path} does not exist; check the path")
    return LocalStore(path)
