"""One shard of the demonstration after its run: what the store holds is verified, hydrated and compared."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path

from examples.compare import compare
from pack_lib.catalog import latest_sets
from pack_lib.errors import Inconsistent, NotFound
from pack_lib.hydrate import hydrate_set
from pack_lib.pack_set import PackSet, read_set
from pack_lib.profile import load_profile
from pack_lib.stores import LocalStore
from pack_lib.verify import raise_findings, verify_set


@dataclass(frozen=True, slots=True)
class Checked:
    """A shard whose committed set was verified and whose hydrated copy is equal to its source."""

    shard: str
    chunks: int
    edges: int
    groups: int
    source_bytes: int
    pack_bytes: int
    packs: tuple[str, ...]
    """Pack hashes."""


def newest_set(store: LocalStore, corpus: str, shard: str) -> PackSet:
    """The shard's newest committed set. Raises NotFound if there is none."""
    for entry in latest_sets(store):
        if (entry.corpus, entry.shard) == (corpus, shard):
            return read_set(store, entry.key)
    raise NotFound(f"{store.location} holds no set of {corpus}/{shard}")


def check_shard(store_folder: Path, corpus: str, shard: str, source: Path, target: Path) -> Checked:
    """Verify the shard's newest set, hydrate a fresh database from it, and compare that with the source.

    Raises any PackError; Inconsistent for a database that is not equal.
    """
    profile = load_profile()
    store = LocalStore(store_folder)
    made = newest_set(store, corpus, shard)
    raise_findings(verify_set(store, made, profile))
    target.parent.mkdir(parents=True, exist_ok=True)
    target.unlink(missing_ok=True)
    hydrate_set(store, made, target, profile)
    different = [item.table for item in compare(source, target) if not item.equal]
    if different:
        raise Inconsistent(f"{target} differs from {source} in {', '.join(different)}")
    edges = next(table for table in made.tables if table.name == "edges")
    return Checked(
        shard,
        made.chunks,
        edges.source_rows,
        edges.rows,
        source.stat().st_size,
        made.size,
        tuple(pack.hash for pack in made.packs),
    )
