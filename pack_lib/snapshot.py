"""Pinning: one consistent state of a source, copied into staging once, read by every step after."""

from __future__ import annotations

import os
import uuid
from dataclasses import asdict, dataclass
from datetime import UTC, datetime
from pathlib import Path

from pack_lib.errors import BadInput
from pack_lib.fsio import require_space, writing
from pack_lib.progress import Progress, no_progress
from pack_lib.sources.base import PinnedSource, Source
from pack_lib.staging import Staging


@dataclass(frozen=True, slots=True)
class Pin:
    """One pinned state. ``pin_id`` is new with every pin: results of steps are bound to it, nothing hashed is."""

    pin_id: str
    change_token: str
    pinned_at: str
    """UTC, ISO 8601: of two sets of a shard the one pinned later is the newer, whichever was committed last."""
    size: int
    """Bytes of the pinned file."""
    in_place: bool
    """The source was declared immutable and is read where it is."""


def pin_snapshot(
    source: Source,
    staging: Staging,
    *,
    immutable: bool = False,
    room_for_packs: int = 0,
    progress: Progress = no_progress,
) -> Pin:
    """Copy the source's present state into staging, or find the pin this run made before it was interrupted.

    ``room_for_packs``: bytes that the steps after will need besides. Raises BadInput, Busy or StoreTrouble.
    """
    done = staging.recall("pin")
    if done is not None:
        pin = Pin(**done)
        if pin.in_place or (staging.pin.exists() and staging.pin.stat().st_size == pin.size):
            return pin
    size = source.size()
    token = source.change_token()
    now = datetime.now(UTC).isoformat()
    if immutable:
        require_space(staging.folder, room_for_packs, "building its packs")
        source.open_pinned(None).close()
        pin = Pin(uuid.uuid4().hex, token, now, size, in_place=True)
    else:
        require_space(staging.folder, size + room_for_packs, "pinning the source and building its packs")
        temporary = staging.folder / f".tmp-pin-{os.getpid()}"
        try:
            with writing(staging.folder):
                source.pin(temporary, progress)
                temporary.replace(staging.pin)
        finally:
            temporary.unlink(missing_ok=True)
        pin = Pin(uuid.uuid4().hex, token, now, staging.pin.stat().st_size, in_place=False)
    staging.record("pin", asdict(pin))
    return pin


def open_pin(source: Source, staging: Staging, pin: Pin) -> PinnedSource:
    """Read the pinned state. The caller closes it."""
    return source.open_pinned(None if pin.in_place else _existing(staging.pin))


def check_pin(source: Source, staging: Staging, pin: Pin, progress: Progress = no_progress) -> None:
    """Let the source look whether the pinned state contradicts itself. Raises BadInput if it does."""
    source.check(None if pin.in_place else _existing(staging.pin), progress)


def check_unchanged(source: Source, pin: Pin) -> None:
    """A source read in place must not have moved. Raises BadInput if its change token did."""
    if pin.in_place and source.change_token() != pin.change_token:
        raise BadInput(f"source {source.location} was declared immutable and changed while it was read; pack it pinned")


def _existing(path: Path) -> Path:
    if not path.exists():
        raise BadInput(f"the pinned copy {path} is gone; start the run again")
    return path
