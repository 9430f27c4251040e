"""The memory store: the conformance suite."""

from __future__ import annotations

from pathlib import Path

from pack_lib.stores.base import Store
from pack_lib.stores.memory import MemoryStore
from pack_lib.testing.stores import StoreSuite


class TestMemoryStore(StoreSuite):
    rounds = 60
    increments = 60

    def make_store(self, folder: Path) -> Store:
        return MemoryStore("test")


class _SlowDict(dict[str, bytes]):
    """Lets another thread in between the look and the put."""

    def __contains__(self, key: object) -> bool:
        import time

        found = super().__contains__(key)
        time.sleep(0.002)
        return found


class TestMemoryStoreSlowly(TestMemoryStore):
    rounds = 5
    increments = 5
    many = 30

    def make_store(self, folder: Path) -> Store:
        store = MemoryStore("test")
        store._objects = _SlowDict()
        return store
