"""Set manifests: the canonical JSON that makes a number of packs one set. A set exists when its manifest does."""

from __future__ import annotations

import json
import re
from collections.abc import Iterable, Iterator
from dataclasses import asdict, dataclass
from typing import Any

from pack_lib.errors import Damaged, NotFound, UnknownVersion
from pack_lib.hashing import HEX64, leaf_hash, tree_hash
from pack_lib.pack.format import NAME, Parameters
from pack_lib.pack.writer import BuiltPack
from pack_lib.stores.base import Store
from pack_lib.values import canonical_json

FORMAT = "cold-pack-set"
VERSION = 1
SET_KEY = re.compile(r"sets/([^/]+)/([^/]+)/([0-9a-f]{64})/([0-9a-f]{64})\.json\Z")


def pack_key(pack_hash: str) -> str:
    return f"packs/{pack_hash}.tar.zst"


def sidecar_key(pack_hash: str) -> str:
    return f"packs/{pack_hash}.json"


@dataclass(frozen=True, slots=True)
class SetPack:
    """One pack as the store holds it."""

    hash: str
    size: int
    sha256: str
    chunks: int
    body_bytes: int

    @classmethod
    def of(cls, built: BuiltPack) -> SetPack:
        """A pack as it was built, which is how the store will hold it unless it has the same content already."""
        return cls(built.hash, built.size, built.sha256, built.header.chunks, built.header.body_bytes)


@dataclass(frozen=True, slots=True)
class SetTable:
    """One shipped table, over all its parts."""

    name: str
    rows: int
    """Lines; a fanned-in table has fewer than ``source_rows``."""
    source_rows: int
    size: int
    sha256: str


@dataclass(frozen=True, slots=True)
class PackSet:
    corpus: str
    shard: str
    profile: str
    snapshot_root: str
    bodies_root: str
    parameters: Parameters
    tables: tuple[SetTable, ...]
    packs: tuple[SetPack, ...]

    @property
    def chunks(self) -> int:
        return sum(pack.chunks for pack in self.packs)

    @property
    def size(self) -> int:
        """Compressed bytes of all packs."""
        return sum(pack.size for pack in self.packs)

    @property
    def label(self) -> str:
        return f"{self.corpus}/{self.shard}"

    def encode(self) -> bytes:
        value = {
            "bodies_root": self.bodies_root,
            "corpus": self.corpus,
            "format": FORMAT,
            "packs": [asdict(pack) for pack in self.packs],
            "parameters": self.parameters.as_json(),
            "profile": self.profile,
            "shard": self.shard,
            "snapshot_root": self.snapshot_root,
            "tables": [asdict(table) for table in self.tables],
            "version": VERSION,
        }
        return canonical_json(value)

    @property
    def set_hash(self) -> str:
        return leaf_hash(self.encode()).hex()

    @property
    def key(self) -> str:
        return f"sets/{self.corpus}/{self.shard}/{self.snapshot_root}/{self.set_hash}.json"


def snapshot_root(bodies_root: str, table_digests: Iterable[str]) -> str:
    """The tree hash, hex, over the bodies root and the tables' SHA-256 in profile order, each as a leaf's hash."""
    return tree_hash(bytes.fromhex(digest) for digest in (bodies_root, *table_digests)).hex()


def parse_set(data: bytes, where: str) -> PackSet:
    """A set manifest from its bytes. Raises UnknownVersion or Damaged, naming ``where``."""
    try:
        value: Any = json.loads(data)
        if value.get("format") != FORMAT or value.get("version") != VERSION:
            raise UnknownVersion(
                f"{where}: set manifest {value.get('format')!r} version {value.get('version')!r}; "
                f"this build reads {FORMAT} version {VERSION}: use a newer one"
            )
        made = PackSet(
            corpus=value["corpus"],
            shard=value["shard"],
            profile=value["profile"],
            snapshot_root=value["snapshot_root"],
            bodies_root=value["bodies_root"],
            parameters=Parameters(**value["parameters"]),
            tables=tuple(SetTable(**table) for table in value["tables"]),
            packs=tuple(SetPack(**pack) for pack in value["packs"]),
        )
        digests = [made.snapshot_root, made.bodies_root, *(table.sha256 for table in made.tables)]
        digests += [digest for pack in made.packs for digest in (pack.hash, pack.sha256)]
        if not all(HEX64.match(digest) for digest in digests) or not made.packs:
            raise ValueError("a digest")
        if not all(NAME.match(name) for name in (made.corpus, made.shard, made.profile)):
            raise ValueError("corpus, shard or profile")
        if not all(type(n) is int and n >= 0 for pack in made.packs for n in (pack.size, pack.chunks, pack.body_bytes)):
            raise ValueError("a count")
        if made.encode() != data:
            raise ValueError("it is not in canonical form")
        if snapshot_root(made.bodies_root, (table.sha256 for table in made.tables)) != made.snapshot_root:
            raise ValueError("its snapshot root is not the tree hash of its digests")
    except (ValueError, KeyError, TypeError, AttributeError, RecursionError) as error:
        raise Damaged(f"{where}: the set manifest is damaged ({error})") from None
    return made


def read_set(store: Store, key: str) -> PackSet:
    """A committed set by its key, checked against its hash. Raises NotFound, UnknownVersion or Damaged."""
    where = f"{store.location.rstrip('/')}/{key}"
    match = SET_KEY.match(key)
    if not match:
        raise NotFound(f"{key!r} is no key of a set")
    data = store.get(key)
    if leaf_hash(data).hex() != match[4]:
        raise Damaged(f"{where}: its bytes do not hash to its name; copy it again from another store")
    made = parse_set(data, where)
    if made.key != key:
        raise Damaged(f"{where}: it describes {made.key}")
    return made


def committed_sets(store: Store, prefix: str = "sets/") -> Iterator[str]:
    """Keys of the set manifests a store holds, ascending."""
    for key in store.list(prefix):
        if SET_KEY.match(key):
            yield key
