"""What a store holds, as the commands need it: its shards with their newest sets, and its readable set manifests."""

from __future__ import annotations

from collections import defaultdict
from dataclasses import dataclass

from pack_lib.catalog import sets_by_shard
from pack_lib.errors import BadInput, Damaged, NotFound
from pack_lib.hashing import HEX64
from pack_lib.pack_set import SET_KEY, PackSet, committed_sets, pack_key, read_set
from pack_lib.stores import Store

PREFIX = 8
"""Hex digits at least by which a pack may be named."""
_HEX = frozenset("0123456789abcdef")
_PACK_TAIL = ".tar.zst"


@dataclass(frozen=True, slots=True)
class Shard:
    """One shard of a store. ``keys``: its newest set; without a catalog, all its committed sets."""

    corpus: str
    shard: str
    keys: tuple[str, ...]

    @property
    def label(self) -> str:
        return f"{self.corpus}/{self.shard}"


def shards_of(store: Store) -> list[Shard]:
    """By corpus and shard; from the catalog, or, if there is none, from the set manifests."""
    entries = sets_by_shard(store)
    if entries:
        known = {key: of[:1] if of[0].when else of for key, of in sorted(entries.items())}
        return [Shard(*key, tuple(entry.key for entry in of)) for key, of in known.items()]
    found: dict[tuple[str, str], list[str]] = defaultdict(list)
    for key in committed_sets(store):
        match = SET_KEY.match(key)
        if match:
            found[match[1], match[2]].append(key)
    return [Shard(corpus, shard, tuple(keys)) for (corpus, shard), keys in sorted(found.items())]


def newest_set(store: Store, shard: Shard) -> PackSet:
    """Raises NotFound if the store cannot tell which of several sets is the newest."""
    if len(shard.keys) > 1:
        raise NotFound(
            f"store {store.location} has {len(shard.keys)} sets of shard {shard.label} and no catalog that knows their "
            "times, so which is the newest is not known; copy catalog.json from where the store came from, "
            "or pack the shard again"
        )
    return read_set(store, shard.keys[0])


def _names(shards: list[Shard]) -> str:
    return ", ".join(shard.label for shard in shards)


def only_shard(store: Store) -> Shard:
    """The store's shard, if it has just one. Raises NotFound or BadInput."""
    shards = shards_of(store)
    if not shards:
        raise NotFound(f"store {store.location} holds no committed set")
    if len(shards) > 1:
        raise BadInput(f"store {store.location} has {len(shards)} shards; name one or give --all: {_names(shards)}")
    return shards[0]


def find(store: Store, what: str) -> Shard | str:
    """What a user names: a shard as SHARD or CORPUS/SHARD, or a pack by its hash or the first digits of it.

    Returns the shard or the pack hash. Raises NotFound if there is none, BadInput if there are several.
    """
    if HEX64.match(what):
        if store.object_size(pack_key(what)) is None:
            raise NotFound(f"store {store.location} holds no pack {what}; 'cold list' shows those it has")
        return what
    shards = shards_of(store)
    fitting = [shard for shard in shards if what in (shard.shard, shard.label)]
    packs = packs_beginning(store, what) if len(what) >= PREFIX and set(what) <= _HEX else []
    if len(fitting) > 1:
        raise BadInput(f"several corpora have a shard {what}; name one: {_names(fitting)}")
    if fitting and packs:
        raise BadInput(f"{what} is a shard and begins the hash of a pack; name {fitting[0].label} or the whole hash")
    if fitting:
        return fitting[0]
    if len(packs) > 1:
        raise BadInput(f"{len(packs)} packs begin with {what}; give more digits: {', '.join(packs)}")
    if packs:
        return packs[0]
    hint = f" (a pack is named by at least {PREFIX} digits of its hash)" if set(what) <= _HEX else ""
    known = f"its shards are {_names(shards)}" if shards else "it holds no committed set"
    raise NotFound(f"store {store.location} has no shard or pack {what}{hint}; {known}")


def packs_beginning(store: Store, prefix: str = "") -> list[str]:
    """Hashes of the packs in a store that begin so, ascending."""
    start, tail = len("packs/"), _PACK_TAIL
    names = (key[start : -len(tail)] for key in store.list(f"packs/{prefix}") if key.endswith(tail))
    return [name for name in names if HEX64.match(name)]


def readable_sets(store: Store) -> tuple[list[PackSet], list[Damaged]]:
    """Every committed set, and what is wrong with those whose manifest cannot be read."""
    sets, problems = [], []
    for key in committed_sets(store):
        try:
            sets.append(read_set(store, key))
        except Damaged as error:
            problems.append(error)
    return sets, problems
