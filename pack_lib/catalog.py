"""``catalog.json``: the latest committed sets of every shard, with their times, for readers that cannot list.

It is an index of what set manifests say, never the authority: it can be rebuilt from them.
"""

from __future__ import annotations

import json
import random
import time
from dataclasses import asdict, dataclass, replace
from datetime import UTC, datetime, timedelta
from typing import Any

from pack_lib.errors import Damaged, StoreTrouble, UnknownVersion
from pack_lib.pack_set import SET_KEY, PackSet, committed_sets, read_set
from pack_lib.stores.base import Store

KEY = "catalog.json"
FORMAT = "cold-catalog"
VERSION = 1
KEPT = 16
"""Entries a shard, newest first; older sets stay in the store and are found by listing."""
_TRIES = 50


@dataclass(frozen=True, slots=True)
class CatalogEntry:
    corpus: str
    shard: str
    snapshot_root: str
    set_hash: str
    committed_at: str
    """UTC, ISO 8601, seconds. It stands here only, in nothing that is hashed."""
    packs: int
    chunks: int
    size: int
    pinned_at: str = ""
    """UTC, ISO 8601, of the pin: it orders a shard's sets. Empty if it is not known (a catalog made anew)."""
    change_token: str | None = None
    """Of the source when it was pinned: tells cheaply that it probably did not change since."""

    @property
    def when(self) -> str:
        """What orders a shard's sets: the time of the pin, or of the commit if that is not known; '' if neither is."""
        return self.pinned_at or self.committed_at

    @property
    def key(self) -> str:
        return f"sets/{self.corpus}/{self.shard}/{self.snapshot_root}/{self.set_hash}.json"


def _parse(data: bytes, where: str) -> list[CatalogEntry]:
    try:
        value: Any = json.loads(data)
        if value.get("format") != FORMAT or value.get("version") != VERSION:
            raise UnknownVersion(f"{where}: catalog version {value.get('version')!r}; this build reads {VERSION}")
        entries = [CatalogEntry(**entry) for entry in value["sets"]]
        for entry in entries:
            if not SET_KEY.match(entry.key) or type(entry.corpus) is not str or type(entry.shard) is not str:
                raise ValueError("an entry names no set")
            if (
                type(entry.committed_at) is not str
                or type(entry.pinned_at) is not str
                or type(entry.change_token) not in (str, type(None))
            ):
                raise ValueError(f"times or token of {entry.key}")
            if not all(type(n) is int and n >= 0 for n in (entry.packs, entry.chunks, entry.size)):
                raise ValueError(f"counts of {entry.key}")
    except (ValueError, KeyError, TypeError, AttributeError, RecursionError) as error:
        raise Damaged(
            f"{where}: the catalog is damaged ({error}); delete it and run 'cold pack' of any shard, which rebuilds it"
        ) from None
    return entries


def read_catalog(store: Store) -> list[CatalogEntry]:
    """Entries by corpus and shard, newest first within one. Empty if the store has no catalog. Raises Damaged."""
    found = store.get_versioned(KEY)
    return _parse(found[0], f"{store.location.rstrip('/')}/{KEY}") if found else []


def sets_by_shard(store: Store) -> dict[tuple[str, str], list[CatalogEntry]]:
    """(corpus, shard) -> entries, newest first; those of unknown time come last, in no order that means anything."""
    found: dict[tuple[str, str], list[CatalogEntry]] = {}
    for entry in read_catalog(store):
        found.setdefault((entry.corpus, entry.shard), []).append(entry)
    return found


def latest_sets(store: Store) -> list[CatalogEntry]:
    """The newest entry of every shard of which it is known, by corpus and shard."""
    found = sets_by_shard(store)
    return [entries[0] for _, entries in sorted(found.items()) if entries[0].when or len(entries) == 1]


def add_to_catalog(store: Store, made: PackSet, pinned_at: str, change_token: str | None) -> CatalogEntry:
    """Name a committed set among its shard's, ordered by the time of their pins. Safe against others at the same.

    Raises StoreTrouble if the catalog keeps changing under it.
    """
    now = datetime.now(UTC).replace(microsecond=0).isoformat()
    entry = CatalogEntry(
        made.corpus,
        made.shard,
        made.snapshot_root,
        made.set_hash,
        now,
        len(made.packs),
        made.chunks,
        made.size,
        pinned_at,
        change_token,
    )
    for attempt in range(_TRIES):
        found = store.get_versioned(KEY)
        entries = _parse(found[0], f"{store.location.rstrip('/')}/{KEY}") if found else _from_sets(store)
        others = [other for other in entries if (other.corpus, other.shard) != (made.corpus, made.shard)]
        own = [other for other in entries if (other.corpus, other.shard) == (made.corpus, made.shard)]
        placed = replace(entry, pinned_at=_place(entry, own))
        own = [placed, *(other for other in own if other.set_hash != entry.set_hash)]
        own = sorted(own, key=lambda item: item.when, reverse=True)[:KEPT]
        together = sorted([*others, *own], key=lambda item: (item.corpus, item.shard))  # stable: newest stays first
        value = {"format": FORMAT, "version": VERSION, "sets": [asdict(item) for item in together]}
        body = (json.dumps(value, ensure_ascii=False, indent=1) + "\n").encode()
        if store.replace_if(KEY, body, found[1] if found else None):
            return placed
        time.sleep(random.uniform(0, 0.02 * (attempt + 1)))
    raise StoreTrouble(f"{store.location}: the catalog changed under {_TRIES} tries to update it; run again")


def _place(entry: CatalogEntry, own: list[CatalogEntry]) -> str:
    """The pin time under which a set is entered among its shard's.

    Never earlier than the same set had before; and after a newest one that lies in the future: then a clock was wrong,
    and the order of commits decides.
    """
    pinned = max([entry.pinned_at, *(other.pinned_at for other in own if other.set_hash == entry.set_hash)])
    newest = max((other.when for other in own), default="")
    if newest > max(pinned, datetime.now(UTC).isoformat()):
        return (datetime.fromisoformat(newest) + timedelta(microseconds=1)).isoformat()
    return pinned


def _from_sets(store: Store) -> list[CatalogEntry]:
    """What the catalog would say if it had to be made anew: times are unknown, so every set has none ('')."""
    entries = []
    for key in committed_sets(store):
        made = read_set(store, key)
        entries.append(
            CatalogEntry(
                made.corpus, made.shard, made.snapshot_root, made.set_hash, "", len(made.packs), made.chunks, made.size
            )
        )
    return entries
