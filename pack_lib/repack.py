"""The whole way of one shard into a store, in one call."""

from __future__ import annotations

import time
import uuid
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

from pack_lib.build import Job, Reporter, ShardBuild, no_report
from pack_lib.pack.format import DEFAULT_CAP, DEFAULT_LAYOUT, DEFAULT_LEVEL
from pack_lib.pack.frames import usable_cores
from pack_lib.pack.parameters import parameters_for
from pack_lib.pack_set import PackSet
from pack_lib.profile import Profile, load_profile
from pack_lib.sources import Source, open_source
from pack_lib.staging import default_staging
from pack_lib.stores.base import Store
from pack_lib.upload import Uploaded


@dataclass(frozen=True, slots=True)
class Result:
    """What a repack did."""

    set: PackSet
    up_to_date: bool
    """The store held this very set as the shard's newest before, and nothing was sent."""
    packs_sent: int
    bytes_sent: int
    source_size: int
    """Bytes of the pinned source."""
    seconds: float


def repack(
    source: str | Source,
    store: Store,
    *,
    corpus: str = "corpus",
    shard: str | None = None,
    profile: str | Profile = "corpus",
    cap: int | None = DEFAULT_CAP,
    level: int = DEFAULT_LEVEL,
    layout: int = DEFAULT_LAYOUT,
    workers: int | None = None,
    staging: Path | None = None,
    immutable: bool = False,
    leave_behind: Sequence[str] = (),
    report: Reporter = no_report,
) -> Result:
    """Pack one shard into a store and commit the set, or find that the store's newest set is of this very snapshot.

    Each pack goes to the store as it is finished, so staging holds the pin and one pack at a time. ``cap`` in bytes,
    None for one pack of any size. Raises any `PackError`; then nothing is committed, and running again completes it.
    """
    begun = time.monotonic()
    opened = open_source(source) if isinstance(source, str) else source
    job = Job(
        corpus,
        opened.default_shard if shard is None else shard,
        opened,
        load_profile(profile) if isinstance(profile, str) else profile,
        parameters_for(cap, level, layout),
        staging or default_staging(),
        usable_cores() if workers is None else workers,
        immutable,
        tuple(leave_behind),
    )
    build = ShardBuild(job, uuid.uuid4().hex, report)
    uploads: list[Uploaded] = []
    build.check_apart(store)
    with build.held():
        try:
            pin = build.pin()
            build.stage()
            made = build.committed(store)
            up_to_date = made is not None
            if made is None:
                build.build_packs(lambda pack: uploads.extend(build.upload(store, [pack])))
                made = build.commit(store, [upload.pack for upload in uploads])
        finally:
            build.finish()
    return Result(
        made,
        up_to_date,
        sum(1 for upload in uploads if upload.sent),
        sum(upload.sent for upload in uploads),
        pin.size,
        time.monotonic() - begun,
    )
