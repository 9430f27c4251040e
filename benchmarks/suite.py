"""One corpus measured: this project's steps, the plain way, what a person does instead, and the floors."""

from __future__ import annotations

import os
import shutil
import subprocess
import sys
import tempfile
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import replace
from pathlib import Path

from benchmarks import figures as of
from benchmarks.corpus import CorpusFacts
from benchmarks.figures import Figures, Line
from benchmarks.instead import write_bodies
from benchmarks.measure import Measured, measure
from benchmarks.ours import LEVEL, STAGES_BODIES, layouts
from benchmarks.sizes import table_bytes
from pack_lib.pack.frames import usable_cores
from pack_lib.profile import load_profile

LEVELS = (1, 3, 6, 9, 12, 19)

_ABSENT = "not installed"
_ZSTD = ["zstd", f"-{LEVEL}", f"-T{usable_cores()}", "-q", "-f"]


def commands() -> Iterator[tuple[str, str]]:
    """(what, how it is done) of everything measured, without the paths."""
    for layout in layouts():
        yield of.build_of(layout), f"`repack(db, LocalStore(store), cap=None, level={LEVEL}, layout={layout})`"
        yield of.build_of(layout, immutable=True), "the same with `immutable=True`: no pinned copy"
        if _stages_bodies(layout):
            yield of.bodies_of(layout), "`ShardBuild.stage_bodies()` after `pin()`, only the former timed"
        yield of.verify_of(layout), "`verify_set(store, made, profile)`"
        yield of.hydrate_of(layout), "`hydrate_set(store, made, target, profile)`, a new database, synced"
    yield of.PLAIN, "`benchmarks/plain.py`: `tarfile` member by member, one zstd stream, a block flushed a chunk"
    yield of.VACUUM, "`VACUUM INTO 'copy.db'` in Python's `sqlite3`"
    yield of.ZSTD, f"`{' '.join(_ZSTD)} copy.db -o copy.db.zst`"
    yield of.COPY, "both, one after the other: the sums of each round's seconds"
    yield of.RESTIC, "`restic backup --no-cache -q db` into a new repository (its making is not timed)"
    yield of.BORG, "`borg create --compression zstd,3 repository::one db` likewise, `--encryption none`"
    yield of.BODIES_FLOOR, f"`{' '.join(_ZSTD)} bodies -o bodies.zst`; in the order of URI and ordinal"
    yield (
        of.HYDRATE_FLOOR,
        "profile's tables, `INSERT INTO t SELECT * FROM source.t` each, indexes, full-text rebuild, "
        "sync; hydration's own pragmas",
    )


def _stages_bodies(layout: int) -> bool:
    return STAGES_BODIES and layout >= 3


class Suite:
    """Collects rounds of one corpus; everything is made under ``folder`` and removed again."""

    def __init__(self, facts: CorpusFacts, folder: Path) -> None:
        self._facts = facts
        self._db = facts.path
        self._folder = folder
        self._rounds: dict[str, list[Measured]] = {}
        self._figures = Figures(facts)

    def run(self, repeat: int) -> Figures:
        """Raises CalledProcessError if a measured call fails; its traceback is on stderr."""
        _warm(Path(self._db))
        for number in range(repeat):
            print(f"{self._facts.chunks:,} chunks, round {number + 1} of {repeat}", file=sys.stderr)
            for layout in layouts():
                self._ours(layout)
            self._time(of.PLAIN, "benchmarks.plain:plain_build", db=self._db, out=self._path("plain.tar.zst"))
            self._copies()
            self._backups()
            self._bodies()
            self._insert_select()
        self._figures.lines = {what: Line(tuple(rounds)) for what, rounds in self._rounds.items()}
        return self._figures

    def levels(self, repeat: int) -> dict[int, Line]:
        """The build at each of `LEVELS`, in the newest layout."""
        _warm(Path(self._db))
        layout, made = layouts()[0], {}
        for level in LEVELS:
            what = f"level {level}"
            for _ in range(repeat):
                with self._scratch("store", "staging") as (store, staging):
                    arguments = {"store": store, "staging": staging, "layout": layout, "level": level}
                    self._time(what, "benchmarks.ours:repacked", db=self._db, **arguments)
            made[level] = Line(tuple(self._rounds[what]))
        return made

    def _path(self, name: str) -> str:
        return str(self._folder / name)

    @contextmanager
    def _scratch(self, *names: str) -> Iterator[list[str]]:
        """Paths of these names, removed at the end."""
        try:
            yield [self._path(name) for name in names]
        finally:
            for name in names:
                path = self._folder / name
                if path.is_dir():
                    shutil.rmtree(path)
                path.unlink(missing_ok=True)

    def _time(self, what: str, function: str, /, **arguments: object) -> Measured:
        os.sync()  # what the last one left to be written is not this one's
        one = measure(function, **arguments)
        if isinstance(one.result, dict) and "cpu_seconds" in one.result:
            one = replace(one, seconds=one.result["seconds"], cpu_seconds=one.result["cpu_seconds"])
        self._rounds.setdefault(what, []).append(one)
        print(f"  {what}: {one.seconds:.2f} s", file=sys.stderr)
        return one

    def _ours(self, layout: int) -> None:
        build = "benchmarks.ours:repacked"
        with self._scratch("store", "staging") as (store, staging):
            made = {"db": self._db, "store": store, "staging": staging, "layout": layout}
            self._time(of.build_of(layout, immutable=True), build, immutable=True, **made)
        with self._scratch("store", "staging", "hydrated.db") as (store, staging, target):
            made["store"], made["staging"] = store, staging
            done = self._time(of.build_of(layout), build, **made)
            packs = list(Path(store).glob("packs/*.tar.zst"))
            self._figures.body_bytes[layout] = sum(pack.stat().st_size - table_bytes(pack) for pack in packs)
            key = done.result["key"]
            self._time(of.verify_of(layout), "benchmarks.ours:verified", store=store, key=key)
            self._time(of.hydrate_of(layout), "benchmarks.ours:hydrated", store=store, key=key, target=target)
        if not _stages_bodies(layout):
            self._figures.absent[of.bodies_of(layout)] = "-"
            return
        with self._scratch("staging") as (staging,):
            arguments = {"db": self._db, "staging": staging, "layout": layout}
            self._time(of.bodies_of(layout), "benchmarks.ours:bodies_staged", **arguments)

    def _command(self, what: str, argv: list[str], out: str, environment: dict[str, str] | None = None) -> Measured:
        return self._time(what, "benchmarks.instead:command", argv=argv, out=out, environment=environment)

    def _lacks(self, program: str, *whats: str) -> bool:
        if shutil.which(program) is not None:
            return False
        self._figures.absent |= dict.fromkeys(whats, _ABSENT)
        return True

    def _copies(self) -> None:
        with self._scratch("copy.db", "copy.db.zst") as (copy, packed):
            first = self._time(of.VACUUM, "benchmarks.instead:vacuum_into", db=self._db, out=copy)
            if self._lacks("zstd", of.ZSTD, of.COPY):
                return
            then = self._command(of.ZSTD, [*_ZSTD, copy, "-o", packed], packed)
        both = Measured(
            first.seconds + then.seconds,
            first.cpu_seconds + then.cpu_seconds,
            max(first.peak_rss, then.peak_rss),
            then.result,
        )
        self._rounds.setdefault(of.COPY, []).append(both)

    def _backups(self) -> None:
        if not self._lacks("restic", of.RESTIC):
            with self._scratch("restic") as (repository,):
                restic = ["restic", "--no-cache", "-q", "-r", repository]
                environment = {"RESTIC_PASSWORD": "benchmark"}
                subprocess.run([*restic, "init"], check=True, env={**os.environ, **environment}, stdout=sys.stderr)
                self._command(of.RESTIC, [*restic, "backup", self._db], repository, environment)
        if not self._lacks("borg", of.BORG):
            with self._scratch("borg", "borg-home") as (repository, home):
                environment = {"BORG_BASE_DIR": home, "BORG_UNKNOWN_UNENCRYPTED_REPO_ACCESS_IS_OK": "yes"}
                making = ["borg", "init", "--encryption", "none", repository]
                subprocess.run(making, check=True, env={**os.environ, **environment}, stdout=sys.stderr)
                argv = ["borg", "create", "--compression", "zstd,3", f"{repository}::one", self._db]
                self._command(of.BORG, argv, repository, environment)

    def _bodies(self) -> None:
        if self._lacks("zstd", of.BODIES_FLOOR):
            return
        with self._scratch("bodies.zst") as (packed,):
            bodies = self._path("bodies")  # kept for the next round
            if not Path(bodies).exists():
                write_bodies(self._db, bodies)
            self._command(of.BODIES_FLOOR, [*_ZSTD, bodies, "-o", packed], packed)

    def _insert_select(self) -> None:
        profile = load_profile()
        with self._scratch("floor.db") as (out,):
            self._time(
                of.HYDRATE_FLOOR,
                "benchmarks.instead:insert_select",
                db=self._db,
                out=out,
                schema=profile.schema,
                tables=[table.name for table in profile.ship],
                rebuild=list(profile.rebuild),
            )


def measure_corpus(facts: CorpusFacts, folder: Path, repeat: int) -> Figures:
    with tempfile.TemporaryDirectory(prefix="suite-", dir=folder) as made:
        return Suite(facts, Path(made)).run(repeat)


def measure_levels(facts: CorpusFacts, folder: Path, repeat: int) -> dict[int, Line]:
    with tempfile.TemporaryDirectory(prefix="levels-", dir=folder) as made:
        return Suite(facts, Path(made)).levels(repeat)


def _warm(path: Path) -> None:
    """Read the shard once, so that whoever comes first does not pay for the disk."""
    with path.open("rb") as file:
        while file.read(8 << 20):
            pass
