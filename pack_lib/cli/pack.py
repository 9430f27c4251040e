"""``cold pack``: shards into a store."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

import click

from pack_lib.cli import signals
from pack_lib.cli.common import Output, Progress, aligned, count, json_option, quiet_option, store_option

if TYPE_CHECKING:
    from pack_lib.profile import Profile
    from pack_lib.repack import Result
    from pack_lib.sources import Source


def _cap(context: click.Context, option: click.Parameter, text: str) -> int | None:
    """Bytes of a cap; None for no cap. Raises click.BadParameter."""
    from pack_lib.errors import BadInput
    from pack_lib.pack.parameters import parse_cap

    try:
        return parse_cap(text)
    except BadInput as error:
        raise click.BadParameter(str(error), context, option) from None


@click.command("pack", short_help="Pack shards into a store.")
@click.argument("sources", nargs=-1, required=True, metavar="SOURCE...")
@store_option
@click.option("--corpus", default="corpus", show_default=True, metavar="NAME", help="Name of the corpus.")
@click.option("--shard", metavar="NAME", help="Name of the shard, if one SOURCE is given.  [default: the file's stem]")
@click.option(
    "--profile", "profile_name", default="corpus", show_default=True, metavar="NAME|FILE", help="Corpus profile to use."
)
@click.option(
    "--cap",
    default="dvd",
    show_default=True,
    metavar="SIZE",
    callback=_cap,
    help="Bytes of a pack at most, also with kB, MB, GB, KiB, MiB or GiB; dvd is 4,400,000,000, bd 23,000,000,000, "
    "none puts everything into one pack; 4,096 is the least.",
)
@click.option(
    "--layout",
    type=click.Choice(["2", "3"]),
    default="3",
    show_default=True,
    help="How bodies lie in a pack: 3 a tar member a document, in document order; 2 a member a chunk, by leaf hash.",
)
@click.option("--level", type=int, default=9, show_default=True, metavar="N", help="Level of zstd, 1 to 22.")
@click.option("--workers", type=int, metavar="N", help="Threads that compress.  [default: one a core]")
@click.option(
    "--staging",
    type=click.Path(path_type=Path),
    metavar="DIR",
    help="Folder for the pinned copy and one pack.  [default: $COLD_STAGING, or cold/staging in the cache folder]",
)
@click.option("--immutable", is_flag=True, help="Nobody writes to the sources: read them in place, without a copy.")
@click.option(
    "--leave-behind",
    multiple=True,
    metavar="PATTERN",
    help="Shell pattern of tables unknown to the profile that stay behind; may be given several times.",
)
@json_option
@quiet_option
def command(
    sources: tuple[str, ...],
    store_url: str,
    corpus: str,
    shard: str | None,
    profile_name: str,
    cap: int | None,
    layout: str,
    level: int,
    workers: int | None,
    staging: Path | None,
    immutable: bool,
    leave_behind: tuple[str, ...],
    as_json: bool,
    quiet: bool,
) -> None:
    """Pack each SOURCE, a SQLite database that may be in use, as one shard into a store.

    The source is copied consistently into the staging folder, packed, and its set committed last: until then nothing
    exists for a reader. A shard whose newest set is of this very snapshot and these options is up to date, and nothing
    is sent. Several sources are packed one after the other; the first that fails ends the command.
    """
    if shard is not None and len(sources) > 1:
        raise click.UsageError("--shard names the shard of one SOURCE; several are named by their files' stems")
    from pack_lib.profile import load_profile
    from pack_lib.repack import repack
    from pack_lib.stores import open_store

    profile = load_profile(profile_name)
    named = _named(sources, corpus, shard)
    store = open_store(store_url)
    output = Output(as_json)
    done: list[dict[str, Any]] = []
    try:
        with Progress(quiet) as progress:
            for name, source in named.items():
                signals.means(f"nothing of shard {corpus}/{name} was committed; run again to complete it")
                progress.about(name)
                result = repack(
                    source,
                    store,
                    corpus=corpus,
                    shard=name,
                    profile=profile,
                    cap=cap,
                    level=level,
                    layout=int(layout),
                    workers=workers,
                    staging=staging,
                    immutable=immutable,
                    leave_behind=leave_behind,
                    report=progress,
                )
                done.append(_as_json(source.location, result))
                progress.about("")
                output.text(*_in_words(result, profile, last=len(done) == len(named)))
    finally:
        output.document({"store": store.location, "complete": len(done) == len(named), "shards": done})


def _named(sources: Sequence[str], corpus: str, shard: str | None) -> dict[str, Source]:
    """The sources by their shards' names. Refuses, before anything is done, what could not be packed anyway."""
    from pack_lib.errors import BadInput
    from pack_lib.pack.format import check_name
    from pack_lib.sources import open_source

    check_name(corpus, "corpus")
    named: dict[str, Source] = {}
    for url in sources:
        source = open_source(url)
        source.size()
        name = check_name(source.default_shard if shard is None else shard, "shard")
        if name in named:
            raise BadInput(
                f"sources {named[name].location} and {source.location} would both be shard {name}; "
                "pack them one by one, with --shard"
            )
        named[name] = source
    return named


def _ratio(result: Result) -> float:
    return result.source_size / result.set.size


def _as_json(location: str, result: Result) -> dict[str, Any]:
    from dataclasses import asdict

    made = result.set
    return {
        "corpus": made.corpus,
        "shard": made.shard,
        "source": location,
        "up_to_date": result.up_to_date,
        "snapshot_root": made.snapshot_root,
        "set_hash": made.set_hash,
        "chunks": made.chunks,
        "body_bytes": sum(pack.body_bytes for pack in made.packs),
        "source_bytes": result.source_size,
        "pack_bytes": made.size,
        "ratio": round(_ratio(result), 3),
        "seconds": round(result.seconds, 3),
        "packs_sent": result.packs_sent,
        "bytes_sent": result.bytes_sent,
        "tables": [asdict(table) for table in made.tables],
        "packs": [asdict(pack) for pack in made.packs],
    }


def _in_words(result: Result, profile: Profile, *, last: bool) -> list[str]:
    made = result.set
    fanned = {table.name for table in profile.ship if table.fan_in is not None}
    sent = f"{count(result.packs_sent, 'pack')}, {result.bytes_sent:,} bytes sent"
    rows: list[tuple[str, int, str]] = [("chunks", made.chunks, "")]
    rows += [
        (table.name, table.source_rows, f"-> {table.rows:,} groups") for table in made.tables if table.name in fanned
    ]
    rows += [
        ("source bytes", result.source_size, ""),
        ("pack bytes", made.size, f"ratio {_ratio(result):.2f}"),
    ]
    packs: list[tuple[str | int, ...]] = [
        (f"pack {number}", pack.hash, pack.size, "bytes") for number, pack in enumerate(made.packs, 1)
    ]
    return [
        f"{made.label}  {'up to date' if result.up_to_date else sent}, {result.seconds:,.1f} s",
        *aligned(rows, "  "),
        *aligned([("snapshot root", made.snapshot_root), ("set hash", made.set_hash)], "  "),
        *aligned(packs, "  "),
        *([] if last else [""]),
    ]
