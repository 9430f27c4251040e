"""``cold list``: the packs of a store. Reads no pack."""

from __future__ import annotations

from dataclasses import asdict, dataclass, field
from typing import TYPE_CHECKING

import click

from pack_lib.cli.common import Output, aligned, count, json_option

if TYPE_CHECKING:
    from pack_lib.pack_set import PackSet
    from pack_lib.stores import Store


@dataclass(slots=True)
class Listed:
    """One pack. What comes from its sidecar is None if that is not there, not readable or not asked for."""

    hash: str
    size: int
    chunks: int | None = None
    corpus: str | None = None
    shard: str | None = None
    number: int | None = None
    sets: list[str] = field(default_factory=list)
    """Hashes of the committed sets that name it."""
    sidecar: str | None = None
    """``read``, ``missing``, ``damaged``; None if not asked for."""


def list_packs(store: Store) -> list[Listed]:
    """Hash and compressed bytes of every pack, ascending by hash: one listing, one size request a pack."""
    from pack_lib.cli.sets import packs_beginning
    from pack_lib.pack_set import pack_key

    sizes = ((name, store.object_size(pack_key(name))) for name in packs_beginning(store))
    return [Listed(name, size) for name, size in sizes if size is not None]


def read_sidecars(store: Store, packs: list[Listed], sets: list[PackSet]) -> None:
    """Add what sidecars and set manifests say."""
    from pack_lib.errors import Damaged, NotFound
    from pack_lib.pack.format import MAX_FIRST_LINE, parse_header
    from pack_lib.pack_set import sidecar_key

    by_hash = {pack.hash: pack for pack in packs}
    for made in sets:
        for number, named in enumerate(made.packs, 1):
            pack = by_hash.get(named.hash)
            if pack is not None:
                pack.corpus, pack.shard, pack.number = made.corpus, made.shard, number
                pack.sets.append(made.set_hash)
    for pack in packs:
        key = sidecar_key(pack.hash)
        try:
            header = parse_header(store.get(key, MAX_FIRST_LINE), f"{store.location}/{key}")
        except NotFound:
            pack.sidecar = "missing"
        except Damaged:
            pack.sidecar = "damaged"
        else:
            pack.sidecar = "read"
            pack.chunks, pack.corpus, pack.shard = header.chunks, header.corpus, header.shard
            pack.number = header.number


@click.command("list", short_help="List the packs of a store.")
@click.argument("store_url", metavar="STORE")
@click.option("--no-manifest", is_flag=True, help="Read no sidecar and no set manifest: hash and size only.")
@json_option
def command(store_url: str, no_manifest: bool, as_json: bool) -> None:
    """List the packs of a store: hash, compressed bytes, chunks, shard, number in its set, set.

    No pack is read: sizes come from the store, the rest from the small sidecar of each pack and from the set manifests.
    A pack that no committed set names is marked; an interrupted `pack` leaves such packs, and the next run uses them.
    """
    from pack_lib.cli.sets import readable_sets
    from pack_lib.stores import open_store

    store = open_store(store_url, must_exist=True)
    packs = list_packs(store)
    output = Output(as_json)
    total = f"{count(len(packs), 'pack')}, {sum(pack.size for pack in packs):,} bytes"
    if no_manifest:
        rows: list[tuple[str | int, ...]] = [("pack", "bytes"), *((pack.hash, pack.size) for pack in packs)]
        output.text(*(aligned(rows) if packs else []), total)
        output.document({"store": store.location, "packs": [{"hash": p.hash, "size": p.size} for p in packs]})
        return
    sets, problems = readable_sets(store)
    read_sidecars(store, packs, sets)
    there = {pack.hash for pack in packs}
    absent = sorted({pack.hash for made in sets for pack in made.packs} - there)
    rows = [("pack", "bytes", "chunks", "shard", "number", "set")]
    for pack in packs:
        label = f"{pack.corpus}/{pack.shard}" if pack.corpus else "-"
        chunks = pack.chunks if pack.chunks is not None else "-"
        rows.append((pack.hash, pack.size, chunks, label, pack.number or "-", _sets_in_words(pack)))
    lone = sum(1 for pack in packs if not pack.sets)
    output.text(
        *(aligned(rows) if packs else []), total + (f", {count(lone, 'pack')} in no committed set" if lone else "")
    )
    output.text(*(f"missing: pack {name}, which a committed set names" for name in absent))
    output.text(*(f"problem: {problem}" for problem in problems))
    output.document(
        {
            "store": store.location,
            "packs": [asdict(pack) for pack in packs],
            "missing": absent,
            "problems": [str(problem) for problem in problems],
        }
    )


def _sets_in_words(pack: Listed) -> str:
    words = pack.sets[0][:12] if pack.sets else "in no set"
    if len(pack.sets) > 1:
        words += f" and {len(pack.sets) - 1} more"
    return words if pack.sidecar == "read" else f"{words}, sidecar {pack.sidecar}"
