"""Conformance suite for stores. A store that passes it can hold packs.

Use it with pytest, in a test module of your own::

    class TestMyStore(StoreSuite):
        def make_store(self, folder: Path) -> Store:
            return MyStore(...)
"""

from __future__ import annotations

import hashlib
import threading
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from urllib.parse import urlsplit

import pytest

from pack_lib.errors import BadInput, Damaged, NotFound, PackError
from pack_lib.stores.base import Put, Store

HOSTILE_KEYS = (
    "",
    "/",
    "/x",
    "../x",
    "a/../../x",
    "a//b",
    "a/",
    ".",
    "..",
    "a/.",
    ".hidden",
    "a/.tmp-1",
    "a\\b",
    "a\0b",
)
ODD_KEY = "sets/with space/ü+%41&=~/x.json"


class StoreSuite:
    """Subclass it as ``Test...``, implement `make_store`, and state what the class attributes say."""

    secrets: tuple[str, ...] = ()
    """Credentials the store was opened with: they must not show in its location, its repr or its messages."""
    large = 3_000_000
    """Bytes of the larger objects, for example more than one part of a multipart upload."""
    many = 1_100
    """Keys of the listing test: more than the store lists in one page (S3: 1,000)."""
    threads = 6
    """Threads that work on one key at once."""
    increments = 15
    """Compare-and-swap increments of each of them."""
    rounds = 8
    """Keys over which the threads race."""

    def make_store(self, folder: Path) -> Store:
        """A new, empty, writable store. ``folder`` is an empty folder of the test's own, to use or not."""
        raise NotImplementedError

    @pytest.fixture
    def store(self, tmp_path: Path) -> Store:
        folder = tmp_path / "store"
        folder.mkdir()
        return self.make_store(folder)

    def _pattern(self, size: int, seed: int = 0) -> bytes:
        block = b"".join(hashlib.sha256(b"%d %d" % (seed, n)).digest() for n in range(2048))
        return (block * (size // len(block) + 1))[:size]

    def _at_once(self, work: Callable[[int], object]) -> list[object]:
        start = threading.Barrier(self.threads)

        def begin(number: int) -> object:
            start.wait(30)
            return work(number)

        with ThreadPoolExecutor(self.threads) as pool:
            return list(pool.map(begin, range(self.threads)))

    # What a store is called

    def test_is_a_store(self, store: Store) -> None:
        assert isinstance(store, Store)
        assert store.location and "\n" not in store.location

    def test_names_no_secret(self, store: Store) -> None:
        assert urlsplit(store.location).password is None
        with pytest.raises(NotFound) as absent:
            store.get("absent")
        for secret in self.secrets:
            assert secret not in store.location
            assert secret not in repr(store)
            assert secret not in str(absent.value)

    # Reading

    def test_get_absent(self, store: Store) -> None:
        for key in ("absent", "packs/absent"):
            with pytest.raises(NotFound, match="absent"):
                store.get(key)
            with pytest.raises(NotFound, match="absent"):
                store.get_range(key, 0, 1)
            assert store.get_versioned(key) is None
            assert store.object_size(key) is None

    @pytest.mark.parametrize("size", [0, 1, 70_000])
    def test_get_whole(self, store: Store, size: int) -> None:
        body = self._pattern(size)
        store.put_if_absent("packs/x", body)
        assert store.get("packs/x") == body
        assert store.object_size("packs/x") == size
        assert store.object_sha256("packs/x") in (None, hashlib.sha256(body).hexdigest())
        found = store.get_versioned("packs/x")
        assert found is not None
        assert found[0] == body

    def test_get_limit(self, store: Store) -> None:
        store.put_if_absent("x", b"12345")
        assert store.get("x", limit=5) == b"12345"
        with pytest.raises(Damaged):
            store.get("x", limit=4)

    @pytest.mark.parametrize(
        ("offset", "length"), [(0, 1), (0, 5000), (4999, 1), (1234, 2000), (4990, 10), (0, 0), (17, 0), (5000, 0)]
    )
    def test_get_range_is_exact(self, store: Store, offset: int, length: int) -> None:
        body = self._pattern(5000)
        store.put_if_absent("x", body)
        assert store.get_range("x", offset, length) == body[offset : offset + length]

    @pytest.mark.parametrize(("offset", "length"), [(0, 5001), (4999, 2), (5000, 1), (9000, 1), (0, 1 << 40)])
    def test_get_range_beyond_the_end(self, store: Store, offset: int, length: int) -> None:
        store.put_if_absent("x", self._pattern(5000))
        with pytest.raises(Damaged):
            store.get_range("x", offset, length)

    @pytest.mark.parametrize(("offset", "length"), [(-1, 1), (0, -1), (-5, 5)])
    def test_get_range_of_no_range(self, store: Store, offset: int, length: int) -> None:
        store.put_if_absent("x", self._pattern(5000))
        with pytest.raises(PackError):
            store.get_range("x", offset, length)

    # Putting

    def test_put_bytes_once(self, store: Store) -> None:
        assert store.put_if_absent("packs/x", b"first") == Put(created=True, sent=5)
        assert store.put_if_absent("packs/x", b"second!") == Put(created=False, sent=0)
        assert store.put_if_absent("packs/x", b"first") == Put(created=False, sent=0)
        assert store.get("packs/x") == b"first"

    def test_put_file_once(self, store: Store, tmp_path: Path) -> None:
        body = self._pattern(self.large)
        (tmp_path / "body").write_bytes(body)
        assert store.put_if_absent("packs/x", tmp_path / "body") == Put(created=True, sent=len(body))
        (tmp_path / "other").write_bytes(b"other")
        assert store.put_if_absent("packs/x", tmp_path / "other") == Put(created=False, sent=0)
        assert store.get("packs/x") == body
        assert store.get_range("packs/x", self.large - 7, 7) == body[-7:]
        assert (tmp_path / "body").read_bytes() == body

    def test_put_empty_file(self, store: Store, tmp_path: Path) -> None:
        (tmp_path / "body").write_bytes(b"")
        assert store.put_if_absent("packs/x", tmp_path / "body").created
        assert store.object_size("packs/x") == 0

    def test_put_tells_progress(self, store: Store, tmp_path: Path) -> None:
        (tmp_path / "body").write_bytes(self._pattern(self.large))
        told: list[tuple[int, int]] = []
        store.put_if_absent("packs/x", tmp_path / "body", lambda done, total: told.append((done, total)))
        assert told[-1] == (self.large, self.large)
        assert [done for done, _ in told] == sorted(done for done, _ in told)
        assert {total for _, total in told} == {self.large}

    def test_put_that_is_interrupted(self, store: Store, tmp_path: Path) -> None:
        """The object is whole or absent, and can be put again."""
        body = self._pattern(self.large)
        (tmp_path / "body").write_bytes(body)

        def stop(done: int, total: int) -> None:
            raise KeyboardInterrupt

        with pytest.raises(KeyboardInterrupt):
            store.put_if_absent("packs/x", tmp_path / "body", stop)
        assert store.object_size("packs/x") in (None, len(body))
        assert list(store.list("")) in ([], ["packs/x"])
        store.put_if_absent("packs/x", tmp_path / "body")
        assert store.get("packs/x") == body

    @pytest.mark.parametrize("from_file", [False, True])
    def test_put_by_several_at_once(self, store: Store, tmp_path: Path, from_file: bool) -> None:
        bodies = [self._pattern(100_000 + number, number) for number in range(self.threads)]
        for number, body in enumerate(bodies):
            (tmp_path / f"body-{number}").write_bytes(body)
        for turn in range(self.rounds):
            key = f"packs/{turn}"

            def put(number: int, key: str = key) -> Put:
                return store.put_if_absent(key, tmp_path / f"body-{number}" if from_file else bodies[number])

            puts = self._at_once(put)
            created = [number for number, made in enumerate(puts) if isinstance(made, Put) and made.created]
            assert len(created) == 1
            assert store.get(key) == bodies[created[0]]

    def test_put_of_one_body_by_several_at_once(self, store: Store) -> None:
        body = self._pattern(1000)
        for turn in range(self.rounds):
            puts = self._at_once(lambda _number, key=f"packs/{turn}": store.put_if_absent(key, body))  # type: ignore[misc]
            assert sum(isinstance(made, Put) and made.created for made in puts) == 1

    def test_put_is_never_seen_in_part(self, store: Store, tmp_path: Path) -> None:
        body = self._pattern(self.large)
        (tmp_path / "body").write_bytes(body)
        done = threading.Event()
        seen: set[int | None] = set()

        def watch() -> None:
            while not done.is_set():
                seen.add(store.object_size("packs/x"))
                for key in store.list("packs/"):
                    seen.add(len(store.get(key)))

        with ThreadPoolExecutor(1) as pool:
            watching = pool.submit(watch)
            store.put_if_absent("packs/x", tmp_path / "body")
            done.set()
            watching.result()
        assert seen <= {None, len(body)}

    # Compare and swap

    def test_replace_needs_the_version(self, store: Store) -> None:
        assert store.replace_if("catalog.json", b"one", None)
        assert not store.replace_if("catalog.json", b"two", None)
        found = store.get_versioned("catalog.json")
        assert found is not None
        assert found[0] == b"one"
        assert not store.replace_if("catalog.json", b"two", found[1] + "x")
        assert store.get("catalog.json") == b"one"
        assert store.replace_if("catalog.json", b"two", found[1])
        assert not store.replace_if("catalog.json", b"three", found[1])
        again = store.get_versioned("catalog.json")
        assert again is not None
        assert again[0] == b"two"
        assert again[1] != found[1]

    def test_replace_of_an_absent_object(self, store: Store) -> None:
        store.replace_if("catalog.json", b"one", None)
        found = store.get_versioned("catalog.json")
        assert found is not None
        store.delete("catalog.json")
        assert not store.replace_if("catalog.json", b"two", found[1])
        assert store.object_size("catalog.json") is None
        assert store.replace_if("catalog.json", b"two", None)

    def test_replace_loses_no_increment(self, store: Store) -> None:
        def increment(_number: int) -> int:
            tries = 0
            for _ in range(self.increments):
                while True:
                    tries += 1
                    found = store.get_versioned("counter")
                    value = int(found[0]) if found else 0
                    if store.replace_if("counter", b"%d" % (value + 1), found[1] if found else None):
                        break
            return tries

        self._at_once(increment)
        assert store.get("counter") == b"%d" % (self.threads * self.increments)

    # Listing

    def test_list_by_prefix(self, store: Store) -> None:
        keys = ["a.json", "packs/a.json", "packs/a.tar.zst", "packs/b", "packs-old/x", "sets/c/s/1.json", "sets/c/t/1"]
        for key in reversed(keys):
            store.put_if_absent(key, key.encode())
        assert list(store.list("")) == sorted(keys)
        for prefix in ("packs", "packs/", "packs/a", "packs/a.json", "sets/c", "sets/c/", "sets/c/s/", "z", "packs/z/"):
            assert list(store.list(prefix)) == sorted(key for key in keys if key.startswith(prefix))

    def test_list_below_an_object(self, store: Store) -> None:
        store.put_if_absent("packs/a", b"")
        assert list(store.list("packs/a/")) == []

    def test_list_of_nothing(self, store: Store) -> None:
        assert list(store.list("")) == []
        assert list(store.list("sets/")) == []

    def test_list_many(self, store: Store) -> None:
        keys = [f"sets/c/s/{number:05d}.json" for number in range(self.many)]

        def put(number: int) -> None:
            for key in keys[number :: self.threads]:
                store.put_if_absent(key, b"x")

        self._at_once(put)
        assert list(store.list("sets/")) == keys

    # Deleting

    def test_delete(self, store: Store) -> None:
        store.put_if_absent("packs/x", b"one")
        store.put_if_absent("packs/y", b"two")
        store.delete("packs/x")
        assert store.object_size("packs/x") is None
        with pytest.raises(NotFound):
            store.get("packs/x")
        assert list(store.list("")) == ["packs/y"]
        assert store.put_if_absent("packs/x", b"three").created
        assert store.get("packs/x") == b"three"

    def test_delete_absent(self, store: Store) -> None:
        store.put_if_absent("packs/x", b"one")
        for key in ("absent", "packs/absent", "other/absent", "packs/x/absent"):
            store.delete(key)
        assert list(store.list("")) == ["packs/x"]

    # Keys

    def test_a_folder_is_no_object(self, store: Store) -> None:
        store.put_if_absent("packs/x", b"one")
        assert store.object_size("packs") is None
        assert store.get_versioned("packs") is None
        with pytest.raises(NotFound):
            store.get("packs")
        with pytest.raises(NotFound):
            store.get_range("packs", 0, 1)
        store.delete("packs")
        assert store.get("packs/x") == b"one"

    def test_odd_key(self, store: Store) -> None:
        assert store.put_if_absent(ODD_KEY, b"one").created
        assert store.get(ODD_KEY) == b"one"
        assert store.get_range(ODD_KEY, 1, 2) == b"ne"
        assert store.object_size(ODD_KEY) == 3
        assert list(store.list("")) == [ODD_KEY]
        found = store.get_versioned(ODD_KEY)
        assert found is not None
        assert store.replace_if(ODD_KEY, b"two!", found[1])
        store.delete(ODD_KEY)
        assert store.object_size(ODD_KEY) is None

    @pytest.mark.parametrize("key", HOSTILE_KEYS)
    def test_hostile_key(self, store: Store, tmp_path: Path, key: str) -> None:
        before = sorted(tmp_path.rglob("*"))
        calls: list[Callable[[], object]] = [
            lambda: store.get(key),
            lambda: store.get_range(key, 0, 1),
            lambda: store.put_if_absent(key, b"x"),
            lambda: store.get_versioned(key),
            lambda: store.replace_if(key, b"x", None),
            lambda: store.object_size(key),
            lambda: store.object_sha256(key),
            lambda: store.delete(key),
        ]
        for call in calls:
            with pytest.raises(BadInput):
                call()
        assert list(store.list("")) == []
        assert [path for path in sorted(tmp_path.rglob("*")) if path.is_file()] == [p for p in before if p.is_file()]

    @pytest.mark.parametrize("prefix", ["../", "../outside", "/", "/etc/", "a/../../", "./", "packs//", ".lock"])
    def test_hostile_prefix(self, store: Store, tmp_path: Path, prefix: str) -> None:
        """Lists nothing (or refuses), in no case what lies outside of the store."""
        (tmp_path / "outside").write_bytes(b"not of the store")
        store.put_if_absent("packs/x", b"one")
        store.replace_if("catalog.json", b"one", None)
        try:
            found = list(store.list(prefix))
        except BadInput:
            return
        assert found == []
