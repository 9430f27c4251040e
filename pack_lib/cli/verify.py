"""``cold verify``: read everything back and list every problem."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Any

import click

from pack_lib.cli import ending
from pack_lib.cli.common import Output, Progress, aligned, count, json_option, profile_named, quiet_option

if TYPE_CHECKING:
    from pack_lib.profile import Profile


@click.command("verify", short_help="Read a store or one pack file back, every byte.")
@click.argument("what", metavar="STORE|FILE")
@click.option(
    "--profile",
    "profile_name",
    metavar="NAME|FILE",
    help="Corpus profile for packs that name it.  [default: the built-in one they name]",
)
@json_option
@quiet_option
def command(what: str, profile_name: str | None, as_json: bool, quiet: bool) -> None:
    """Read every committed set of a store, or one pack file, back whole, and list every problem.

    Every body is checked against its leaf hash, every table, pack and sidecar against its digest, every snapshot root
    is recomputed, and so is what the corpus says of itself: document roots, Merkle nodes, the audit chain. One problem
    does not keep the rest from being checked. The exit code tells the worst: 5 if something is damaged, else 4 if
    something is missing, else 6 if the bytes are whole and the corpus contradicts itself.

    A pack that is not the whole snapshot by itself is checked for damage only, and so is a set whose profile is
    neither given nor built in; the output says so.
    """
    from pack_lib.profile import load_profile
    from pack_lib.stores import open_store

    given = None if profile_name is None else load_profile(profile_name)
    output = Output(as_json)
    with Progress(quiet) as progress:
        if Path(what).is_file():
            code = _verify_file(Path(what), given, output, progress)
        else:
            from pack_lib.cli.checking import StoreCheck

            check = StoreCheck(open_store(what, must_exist=True), given, output, progress)
            check.run()
            code = check.exit_code
    if code:
        click.get_current_context().exit(code)


def _verify_file(path: Path, given: Profile | None, output: Output, progress: Progress) -> int:
    from contextlib import closing

    from pack_lib.errors import Damaged, Inconsistent
    from pack_lib.hashing import HEX64
    from pack_lib.pack.blob import FileBlob
    from pack_lib.pack.reader import PackReader
    from pack_lib.verify import verify_pack

    with closing(FileBlob(path)) as blob:
        pack = PackReader(blob).header
        profile = profile_named(pack.profile, given)
        pack_hash, report = verify_pack(blob, profile, progress.step("verify"))
        size = blob.size
    stem = path.name.split(".")[0]
    matches = stem == pack_hash
    problems = [("Inconsistent", finding) for finding in report.findings]
    if not matches and HEX64.match(stem):
        problems.insert(0, ("Damaged", f"{path}: its manifest hashes to {pack_hash}, not to its name"))
    if matches:
        name = "matches the pack hash"
    else:
        name = "is the hash of another pack" if HEX64.match(stem) else "is no pack hash"
    rules = "checked"
    if not report.complete:
        rules = "not checked: they need every pack of the set"
    elif profile is None:
        rules = f"not checked: profile {pack.profile!r} is neither given (--profile) nor built in"
    place = "the whole snapshot" if report.complete else f"number {pack.number} of a set"
    rows: list[tuple[str, str]] = [
        ("pack hash", pack_hash),
        ("file name", name),
        ("shard", f"{pack.corpus}/{pack.shard}"),
        ("snapshot root", pack.snapshot_root),
        ("holds", place),
        ("chunks", f"{report.chunks:,} ({report.body_bytes:,} body bytes)"),
        ("table rows", f"{sum(report.rows.values()):,}"),
        ("bytes", f"{size:,}"),
        ("corpus rules", rules),
    ]
    progress.about("")
    output.text(*aligned(rows), *(f"problem: {text}" for _, text in problems))
    output.text("no problem found" if not problems else f"{count(len(problems), 'problem')} found")
    document: dict[str, Any] = {
        "file": str(path),
        "pack_hash": pack_hash,
        "name_matches": matches,
        "corpus": pack.corpus,
        "shard": pack.shard,
        "profile": pack.profile,
        "snapshot_root": pack.snapshot_root,
        "number": pack.number,
        "whole_snapshot": report.complete,
        "rules_checked": report.complete and profile is not None,
        "chunks": report.chunks,
        "body_bytes": report.body_bytes,
        "rows": report.rows,
        "size": size,
        "problems": [{"kind": kind, "message": text} for kind, text in problems],
    }
    output.document(document)
    if not problems:
        return 0
    ending.say(f"{path}: {count(len(problems), 'problem')} found")
    return Damaged.exit_code if problems[0][0] == "Damaged" else Inconsistent.exit_code
