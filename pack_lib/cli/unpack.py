"""``cold unpack``: a set, or one pack, into a database."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Any

import click

from pack_lib.cli import signals
from pack_lib.cli.common import (
    Output,
    Progress,
    aligned,
    count,
    json_option,
    profile_named,
    quiet_option,
    store_option,
)

if TYPE_CHECKING:
    from pack_lib.hydrate import Hydrated
    from pack_lib.pack_set import PackSet
    from pack_lib.profile import Profile
    from pack_lib.stores import Store


@click.command("unpack", short_help="Fill a database from a shard's newest set, or from one pack.")
@click.argument("what", required=False, metavar="[PACK_HASH|SHARD|CORPUS/SHARD]")
@store_option
@click.option(
    "--into", "target", required=True, type=click.Path(path_type=Path), metavar="DB", help="SQLite database to fill."
)
@click.option(
    "--all",
    "every",
    is_flag=True,
    help="Merge the newest set of every shard, one after the other. Tables that are numbered or computed shard by "
    "shard (audit chain, token statistics, snapshots) conflict then; the first shard's rows stay.",
)
@click.option(
    "--profile",
    "profile_name",
    metavar="NAME|FILE",
    help="Corpus profile the packs were made with.  [default: the built-in one they name]",
)
@json_option
@quiet_option
def command(
    what: str | None,
    store_url: str,
    target: Path,
    every: bool,
    profile_name: str | None,
    as_json: bool,
    quiet: bool,
) -> None:
    """Fill a database from a shard's newest set, or from one pack.

    A pack is named by its hash or at least the first 8 digits of it; a shard by its name, with its corpus before it
    where two corpora have one of that name. Without either the store's only shard is taken.

    A database that does not exist is made. One that does gets what it lacks and keeps what it has: a row of another
    content under the same merge key is a conflict: it is left alone and counted, and the first of each table are named;
    the exit code stays 0. Each set, or the pack, goes in whole or not at all.
    """
    if every and what is not None:
        raise click.UsageError("--all takes every shard: name none")
    from pack_lib.cli.sets import find, newest_set, only_shard, shards_of
    from pack_lib.errors import NotFound
    from pack_lib.profile import load_profile
    from pack_lib.stores import open_store

    given = None if profile_name is None else load_profile(profile_name)
    store = open_store(store_url, must_exist=True)
    if every:
        sets = [newest_set(store, shard) for shard in shards_of(store)]
        if not sets:
            raise NotFound(f"store {store.location} holds no committed set")
    else:
        found = only_shard(store) if what is None else find(store, what)
        if isinstance(found, str):
            with Progress(quiet) as progress:
                entry, words = _unpack_pack(store, found, target, given, progress)
            Output(as_json).text(*words)
            Output(as_json).document(_document(store, target, [entry], complete=True))
            return
        sets = [newest_set(store, found)]
    _unpack_sets(store, sets, target, given, Output(as_json), quiet)


def _document(store: Store, target: Path, unpacked: list[dict[str, Any]], *, complete: bool) -> dict[str, Any]:
    return {"store": store.location, "target": str(target), "complete": complete, "unpacked": unpacked}


def _profile(name: str, given: Profile | None) -> Profile:
    """The user's word goes before the name in the packs. Raises NotFound."""
    from pack_lib.errors import NotFound

    profile = given or profile_named(name)
    if profile is None:
        raise NotFound(f"profile {name!r}, which the packs name, is not built in; give its file with --profile")
    return profile


def _unpack_sets(
    store: Store, sets: list[PackSet], target: Path, given: Profile | None, output: Output, quiet: bool
) -> None:
    from pack_lib.hydrate import hydrate_set

    profiles = [_profile(made.profile, given) for made in sets]
    done: list[dict[str, Any]] = []
    try:
        with Progress(quiet) as progress:
            for made, profile in zip(sets, profiles, strict=True):
                signals.means(f"nothing of {made.label} was put into {target}; run again to complete it")
                progress.about(made.label)
                report = hydrate_set(store, made, target, profile, progress.step("unpack"))
                done.append(
                    {
                        "corpus": made.corpus,
                        "shard": made.shard,
                        "snapshot_root": made.snapshot_root,
                        "set_hash": made.set_hash,
                        "pack": None,
                        **report.as_json(),
                    }
                )
                progress.about("")
                output.text(
                    f"{made.label}, set {made.set_hash[:12]}, {count(report.packs, 'pack')} into {_target(report)}",
                    *_in_words(report),
                    *([] if len(done) == len(sets) else [""]),
                )
    finally:
        output.document(_document(store, target, done, complete=len(done) == len(sets)))


def _unpack_pack(
    store: Store, pack_hash: str, target: Path, given: Profile | None, progress: Progress
) -> tuple[dict[str, Any], list[str]]:
    from pack_lib.hydrate import hydrate_pack
    from pack_lib.pack.reader import PackReader
    from pack_lib.pack_set import pack_key
    from pack_lib.stores import ObjectBlob

    blob = ObjectBlob(store, pack_key(pack_hash))
    pack = PackReader(blob).header
    profile = _profile(pack.profile, given)
    signals.means(f"nothing of the pack was put into {target}; run again to complete it")
    report = hydrate_pack(blob, target, profile, progress.step("unpack"), pack_hash=pack_hash)
    entry = {
        "corpus": pack.corpus,
        "shard": pack.shard,
        "snapshot_root": pack.snapshot_root,
        "set_hash": None,
        "pack": {"hash": pack_hash, "number": pack.number},
        **report.as_json(),
    }
    head = f"{pack.corpus}/{pack.shard}, pack {pack_hash[:12]}, number {pack.number} of its set, into {_target(report)}"
    return entry, [head, *_in_words(report)]


def _target(report: Hydrated) -> str:
    return f"{report.target} ({'new' if report.fresh else 'existed'})"


def _in_words(report: Hydrated) -> list[str]:
    rows: list[tuple[str | int, ...]] = [("table", "rows", "inserted", "present", "conflicts")]
    rows += [(name, fill.rows, fill.inserted, fill.present, fill.conflicts) for name, fill in report.tables.items()]
    lines = aligned(rows, "  ") if report.tables else []
    lines.append(f"  bodies: {report.bodies:,} read, {report.filled:,} rows filled")
    if report.rebuilt:
        lines.append(f"  rebuilt: {', '.join(report.rebuilt)}")
    missing = []
    if report.tables_missing:
        missing.append(f"all or part of table {', '.join(report.tables_missing)}")
    if report.unplaced:
        missing.append(f"rows for {count(report.unplaced, 'body', 'bodies')}")
    if report.without_body:
        missing.append(f"bodies of {count(report.without_body, 'row')}")
    lines.append("  missing: nothing" if not missing else f"  missing: {'; '.join(missing)}")
    lines += [f"  conflict: {conflict}" for conflict in report.conflicts]
    unnamed = report.conflict_count - len(report.conflicts)
    if unnamed > 0:
        lines.append(f"  and {count(unnamed, 'more conflict')}")
    return lines
