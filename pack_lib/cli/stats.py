"""``cold stats``: what a store holds and how much room it takes. Reads set manifests only."""

from __future__ import annotations

from collections import defaultdict
from typing import TYPE_CHECKING, Any

import click

from pack_lib.cli.common import Output, aligned, json_option

if TYPE_CHECKING:
    from pack_lib.pack_set import PackSet
    from pack_lib.stores import Store


def gather(store: Store) -> dict[str, Any]:
    """Everything `cold stats` tells, as its JSON document has it."""
    from pack_lib.catalog import latest_sets
    from pack_lib.cli.sets import readable_sets
    from pack_lib.pack_set import pack_key

    sizes = {key: store.object_size(key) or 0 for key in store.list("")}
    sets, problems = readable_sets(store)
    named = {pack.hash: pack for made in sets for pack in made.packs}
    in_store = {key: size for key, size in sizes.items() if key.startswith("packs/") and key.endswith(".tar.zst")}
    in_sets = {key: pack for key, pack in ((pack_key(name), pack) for name, pack in named.items()) if key in in_store}
    lone = {key: size for key, size in in_store.items() if key not in in_sets}
    others = [size for key, size in sizes.items() if key not in in_store]
    by_shard: dict[tuple[str, str], list[PackSet]] = defaultdict(list)
    for made in sets:
        by_shard[made.corpus, made.shard].append(made)
    newest = {(entry.corpus, entry.shard): entry for entry in latest_sets(store)}
    shards = []
    for (corpus, shard), own in sorted(by_shard.items()):
        entry = newest.get((corpus, shard))
        latest = next((made for made in own if entry and made.set_hash == entry.set_hash), None)
        if latest is None and entry is None and len(own) == 1:
            latest = own[0]
        shards.append(
            {
                "corpus": corpus,
                "shard": shard,
                "sets": len(own),
                "set_hash": latest.set_hash if latest else None,
                "snapshot_root": latest.snapshot_root if latest else None,
                "committed_at": (entry.committed_at or None) if entry and latest else None,
                "packs": len(latest.packs) if latest else None,
                "chunks": latest.chunks if latest else None,
                "body_bytes": sum(pack.body_bytes for pack in latest.packs) if latest else None,
                "pack_bytes": latest.size if latest else None,
            }
        )
    return {
        "store": store.location,
        "corpora": len({corpus for corpus, _ in by_shard}),
        "shards": len(by_shard),
        "sets": len(sets),
        "packs": len(in_store),
        "chunks": sum(pack.chunks for pack in in_sets.values()),
        "body_bytes": sum(pack.body_bytes for pack in in_sets.values()),
        "pack_bytes": sum(in_store.values()),
        "packs_in_no_set": len(lone),
        "bytes_in_no_set": sum(lone.values()),
        "packs_missing": len(named) - len(in_sets),
        "other_objects": len(others),
        "other_bytes": sum(others),
        "store_bytes": sum(sizes.values()),
        "latest": shards,
        "problems": [str(problem) for problem in problems],
    }


_LABELS = (
    ("corpora", "corpora"),
    ("shards", "shards"),
    ("sets", "committed sets"),
    ("packs", "packs"),
    ("packs_in_no_set", "  in no committed set"),
    ("packs_missing", "packs missing"),
    ("chunks", "chunks"),
    ("body_bytes", "body bytes"),
    ("pack_bytes", "compressed bytes"),
    ("bytes_in_no_set", "  in no committed set"),
    ("other_bytes", "other objects' bytes"),
    ("store_bytes", "all bytes of the store"),
)


@click.command("stats", short_help="Count what a store holds and the room it takes.")
@click.argument("store_url", metavar="STORE")
@json_option
def command(store_url: str, as_json: bool) -> None:
    """Count what a store holds and the room it takes, and show each shard's newest set.

    No pack is read. Chunks and body bytes are those of all packs that committed sets name, each pack counted once: a
    chunk that stands in the packs of two snapshots counts twice, as its bytes do.
    """
    from pack_lib.stores import open_store

    found = gather(open_store(store_url, must_exist=True))
    output = Output(as_json)
    output.text(*aligned([(label, found[key]) for key, label in _LABELS]))
    rows: list[tuple[str | int, ...]] = [
        ("shard", "sets", "newest set", "committed at", "packs", "chunks", "body bytes", "compressed bytes")
    ]
    for shard in found["latest"]:
        numbers = [
            shard[key] if shard[key] is not None else "-" for key in ("packs", "chunks", "body_bytes", "pack_bytes")
        ]
        newest = shard["set_hash"][:12] if shard["set_hash"] else "not known"
        at = shard["committed_at"] or "not known"
        rows.append((f"{shard['corpus']}/{shard['shard']}", shard["sets"], newest, at, *numbers))
    if len(rows) > 1:
        output.text("", *aligned(rows))
    output.text(*(f"problem: {problem}" for problem in found["problems"]))
    output.document(found)
