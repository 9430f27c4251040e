"""What the environment says: which shards, which store, how to pack. The only module here that reads it.

Nothing is read at import: `Settings.from_env` is called when definitions are built.
"""

from __future__ import annotations

import glob
import os
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import TypeVar

from pack_lib.errors import BadInput, PackError
from pack_lib.pack.format import DEFAULT_LAYOUT, DEFAULT_LEVEL, NAME, check_name
from pack_lib.pack.frames import check_level, check_workers, usable_cores
from pack_lib.pack.parameters import check_layout, parse_cap
from pack_lib.profile import Profile, load_profile
from pack_lib.sources import open_source
from pack_lib.staging import default_staging
from pack_lib.stores import open_store

NIGHTLY = "0 2 * * *"
Value = TypeVar("Value")


@dataclass(frozen=True, slots=True)
class Settings:
    """One corpus, its shards and how they are packed. URLs stay out of ``repr``: they might hold a credential."""

    corpus: str
    sources: Mapping[str, str] = field(repr=False)
    """Shard name -> path or URL of its source, the biggest first."""
    store: str = field(repr=False)
    """Folder or URL."""
    staging: Path
    cap: int | None
    """Bytes of a pack at most; None: one pack of any size."""
    level: int
    layout: int
    """Of the packs, 2 or 3: docs/format.md."""
    workers: int
    """Threads that compress, in each run."""
    profile: Profile
    schedule: str
    """Cron expression, UTC."""

    @classmethod
    def from_env(cls, env: Mapping[str, str] | None = None) -> Settings:
        """Settings from the variables ``COLD_*`` (docs/dagster.md lists them).

        Raises BadInput, naming the variable, for one that is missing or wrong; NotFound for an unknown profile.
        """
        given = os.environ if env is None else env
        store = _needed(given, "COLD_STORE", "a folder or the URL of a store")
        staging = given.get("COLD_STAGING", "")
        workers = given.get("COLD_WORKERS", "")
        made = cls(
            corpus=_named("COLD_CORPUS", lambda: check_name(given.get("COLD_CORPUS") or "corpus", "corpus")),
            sources=_named("COLD_SOURCES", lambda: read_sources(_needed(given, "COLD_SOURCES", "a list of sources"))),
            store=store,
            staging=Path(staging) if staging else default_staging(),
            cap=_cap(given.get("COLD_CAP") or "dvd"),
            level=_whole("COLD_LEVEL", given.get("COLD_LEVEL") or str(DEFAULT_LEVEL)),
            layout=_whole("COLD_LAYOUT", given.get("COLD_LAYOUT") or str(DEFAULT_LAYOUT)),
            workers=_whole("COLD_WORKERS", workers) if workers else usable_cores(),
            profile=load_profile(given.get("COLD_PROFILE") or "corpus"),
            schedule=given.get("COLD_SCHEDULE") or NIGHTLY,
        )
        _named("COLD_STORE", lambda: open_store(store))
        _named("COLD_LEVEL", lambda: check_level(made.level))
        _named("COLD_LAYOUT", lambda: check_layout(made.layout))
        _named("COLD_WORKERS", lambda: check_workers(made.workers))
        return made


def read_sources(text: str) -> dict[str, str]:
    """Shard name -> source of a list separated by commas or line ends, the biggest source first.

    An entry is ``name=source``, a source (its stem is the shard's name) or a pattern of paths like ``/data/*.db``.
    Raises BadInput for a wrong name, a pattern that matches nothing, and two shards of one name.
    """
    found: dict[str, str] = {}
    for name, location in _entries(text):
        shard = check_name(name or open_source(location).default_shard, "shard")
        if shard in found:
            raise BadInput(f"{found[shard]} and {location} are both shard {shard}; give one another name (name=source)")
        found[shard] = location
    if not found:
        raise BadInput("it names no source; give paths, name=path or a pattern")
    return dict(sorted(found.items(), key=lambda item: (-_size(item[1]), item[0])))


def _entries(text: str) -> Iterator[tuple[str, str]]:
    for line in text.replace(",", "\n").splitlines():
        entry = line.strip()
        if not entry:
            continue
        name, equals, location = (part.strip() for part in entry.partition("="))
        if not equals or not NAME.match(name):
            name, location = "", entry
        if not location:
            raise BadInput(f"{entry!r} names no source")
        if "://" in location or not glob.has_magic(location) or Path(location).exists():
            yield name, location
            continue
        paths = sorted(glob.glob(location))  # noqa: PTH207 - Path.glob takes no absolute pattern
        if not paths or (name and len(paths) > 1):
            raise BadInput(f"{len(paths)} files match {location}; {'one' if name else 'some'} must")
        yield from ((name, path) for path in paths)


def _size(location: str) -> int:
    """Bytes of a source; 0 for one that cannot be read, whose run will say why: the other shards go on."""
    try:
        return open_source(location).size()
    except PackError:
        return 0


def _needed(env: Mapping[str, str], variable: str, what: str) -> str:
    value = env.get(variable, "").strip()
    if not value:
        raise BadInput(f"{variable} is not set; give {what}")
    return value


def _named(variable: str, read: Callable[[], Value]) -> Value:
    try:
        return read()
    except BadInput as error:
        text = str(error)
        raise BadInput(text if text.startswith(variable) else f"{variable}: {text}") from None


def _whole(variable: str, text: str) -> int:
    try:
        return int(text)
    except ValueError:
        raise BadInput(f"{variable}: {text!r} is no whole number") from None


def _cap(text: str) -> int | None:
    try:
        return parse_cap(text)
    except BadInput as error:
        raise BadInput(f"COLD_CAP: {error}") from None
