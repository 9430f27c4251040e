"""The staging folder of one shard: its lock, the pin and the steps' results with which a retry goes on.

``<root>/<corpus>/<shard>/``: ``lock``; ``run.json``, which run the rest belongs to; ``pin.sqlite``; ``tables/``;
``packs/``; one descriptor a finished step. What another run left is removed when a new run begins: everything in the
folder, so a folder counts as ours only with the lock file that we put into it when it was empty.
"""

from __future__ import annotations

import contextlib
import os
import shutil
from collections.abc import Iterator
from pathlib import Path
from typing import Any

from pack_lib.errors import BadInput, NotFound
from pack_lib.fsio import locked, make_folder, read_json, remove_temporaries, write_json, writing
from pack_lib.pack.format import check_name
from pack_lib.values import shown

_MARKER = b"the lock of a staging folder of cold's; everything beside it is deleted by the next run\n"


def default_staging() -> Path:
    """``$COLD_STAGING``, else ``cold/staging`` in the user's cache folder (XDG Base Directory specification)."""
    named = os.environ.get("COLD_STAGING")
    if named:
        return Path(named)
    cache = os.environ.get("XDG_CACHE_HOME")
    try:
        return (Path(cache) if cache else Path.home() / ".cache") / "cold" / "staging"
    except RuntimeError:
        raise BadInput("there is no home folder to stage in; give --staging, or set COLD_STAGING") from None


class Staging:
    """See the module. Everything but construction needs the lock (`held`)."""

    def __init__(self, root: Path, corpus: str, shard: str) -> None:
        check_name(corpus, "corpus")
        check_name(shard, "shard")
        self.folder = root / corpus / shard
        self.label = f"shard {corpus}/{shard}"
        self.tables = self.folder / "tables"
        self.packs = self.folder / "packs"
        self.pin = self.folder / "pin.sqlite"

    def check_apart(self, place: Path, what: str) -> None:
        """Raises BadInput if a source or a store lies in this folder, which is cleared."""
        own, other = self.folder.resolve(), place.resolve()
        if own == other or own in other.parents:
            raise BadInput(
                f"{what} {place} lies in the staging folder {self.folder}, which is cleared; choose another --staging"
            )

    @contextlib.contextmanager
    def held(self) -> Iterator[None]:
        """Hold the shard's lock. Raises Busy if another build of this shard is at work in this staging folder."""
        lock = self.folder / "lock"
        with writing(self.folder):
            make_folder(self.folder)
            strangers = [path.name for path in self.folder.iterdir() if path != lock]
            marked = lock.read_bytes() if lock.is_file() else b""
            if marked != _MARKER:
                # A lock that was cut short while it was made counts, where nothing or our own run stands beside it.
                if strangers and not (lock.is_file() and _MARKER.startswith(marked) and "run.json" in strangers):
                    raise BadInput(
                        f"{self.folder} is no staging folder of cold's, it holds {shown(strangers[0])}; choose another "
                        "--staging (COLD_STAGING), what lies there would be deleted"
                    )
                lock.write_bytes(_MARKER)
        with locked(lock, f"{self.label} is being built by another process"):
            yield

    def begin(self, run: str) -> None:
        """Make the folder this run's. What the same run left is kept for its retry, all else is removed."""
        with writing(self.folder):
            left = read_json(self.folder / "run.json")
            if left is None or left.get("run") != run:
                self.clear()
                write_json(self.folder / "run.json", {"run": run})
            for folder in (self.folder, self.tables, self.packs):
                folder.mkdir(exist_ok=True)
                remove_temporaries(folder)

    def require(self, run: str) -> None:
        """Raises NotFound unless the folder is this run's: a step that needs the steps before it calls this."""
        left = read_json(self.folder / "run.json")
        if left is None or left.get("run") != run:
            raise NotFound(
                f"staging of {self.label} ({self.folder}) holds nothing of run {run}; start the run from its first step"
            )

    def clear(self) -> None:
        """Remove everything but the lock."""
        with writing(self.folder):
            for path in self.folder.iterdir():
                if path.is_dir() and not path.is_symlink():
                    shutil.rmtree(path)
                elif path.name != "lock":
                    path.unlink(missing_ok=True)

    def record(self, step: str, value: dict[str, Any]) -> None:
        """Note that a step is complete; written last, when all its files are durable."""
        write_json(self.folder / f"{step}.json", value)

    def recall(self, step: str) -> dict[str, Any] | None:
        """What `record` noted, or None if the step is not complete."""
        return read_json(self.folder / f"{step}.json")
