"""The whole way of one shard into a store, as steps that can be run one by one, in other processes, and again.

pin -> check, select, stage tables, stage edges -> build packs -> upload -> commit. Each step leaves its result in the
staging folder (`Staging.record`) when all its files are durable; a retry of the same run finds what is complete and
belongs to the same pin and parameters. Nothing exists for a reader before the last step has put the set manifest.
"""

from __future__ import annotations

import os
from collections.abc import Callable, Iterable, Iterator, Sequence
from contextlib import closing, contextmanager
from dataclasses import asdict, dataclass, replace
from functools import partial
from pathlib import Path
from typing import Any

from pack_lib.bodies import BODIES_FILE, derived_tables, stage_bodies
from pack_lib.catalog import add_to_catalog, latest_sets
from pack_lib.errors import BadInput, Damaged, NotFound
from pack_lib.pack.format import PackHeader, Parameters, check_name, parse_header
from pack_lib.pack.frames import check_workers
from pack_lib.pack.layout2 import write_bodies
from pack_lib.pack.layout3 import StagedBodies
from pack_lib.pack.writer import BuiltPack, PackSetWriter
from pack_lib.pack_set import PackSet, SetPack, SetTable, pack_key, read_set, sidecar_key, snapshot_root
from pack_lib.profile import Profile, ShippedTable
from pack_lib.readback import read_back
from pack_lib.selection import Selection, select_chunks, selected_bodies
from pack_lib.snapshot import Pin, check_pin, check_unchanged, open_pin, pin_snapshot
from pack_lib.sources import PinnedSource, Source
from pack_lib.staging import Staging
from pack_lib.stores import LocalStore, Store
from pack_lib.tables import StagedTable, stage_table
from pack_lib.together import checkpoint, leads, together
from pack_lib.upload import Uploaded, put_pack

Reporter = Callable[[str, int, int], None]
"""Called with (step, done, total): bytes for pin, check, read back and upload, rows for a table, chunks for bodies."""


def no_report(step: str, done: int, total: int) -> None:
    """The reporter that shows nothing."""


@dataclass(frozen=True, slots=True)
class Job:
    """What to pack, how, and where to stage it."""

    corpus: str
    shard: str
    source: Source
    profile: Profile
    parameters: Parameters
    staging_root: Path
    workers: int
    immutable: bool = False
    leave_behind: tuple[str, ...] = ()


class ShardBuild:
    """The steps of one run over one shard. Every method but `held` needs the lock that `held` takes.

    ``run`` names the run: the same name finds what an interrupted run left, another one starts anew.
    """

    def __init__(self, job: Job, run: str, report: Reporter = no_report) -> None:
        check_name(job.corpus, "corpus")
        check_name(job.shard, "shard")
        check_workers(job.workers)
        self.job = job
        self.run = run
        self.staging = Staging(job.staging_root, job.corpus, job.shard)
        self.where = f"source {job.source.location}"
        self._report = report

    @contextmanager
    def held(self) -> Iterator[None]:
        """The shard's lock in the staging folder. Raises Busy."""
        self.staging.check_apart(Path(self.job.source.location), "source")
        # SQLite's sorter spills into its temporary folder; staging is where the room for it was checked.
        os.environ.setdefault("SQLITE_TMPDIR", str(self.job.staging_root.absolute()))
        with self.staging.held():
            yield

    def check_apart(self, store: Store) -> None:
        """Raises BadInput if the store lies in the staging folder. Call it before the first step."""
        if isinstance(store, LocalStore):
            self.staging.check_apart(store.folder, "store")

    def _progress(self, step: str) -> Callable[[int, int], None]:
        def progress(done: int, total: int) -> None:
            checkpoint()
            if leads():
                self._report(step, done, total)

        return progress

    def _recall(self, step: str, pin: Pin) -> dict[str, Any] | None:
        """A step's recorded result, if it is of this pin and these parameters."""
        found = self.staging.recall(step)
        if found is None or found["pin_id"] != pin.pin_id or found["parameters"] != self.job.parameters.as_json():
            return None
        return found

    def _record(self, step: str, pin: Pin, value: dict[str, Any]) -> None:
        self.staging.record(step, {"pin_id": pin.pin_id, "parameters": self.job.parameters.as_json(), **value})

    def pin(self, *, keep_packs: bool = False) -> Pin:
        """Pin the source and compare it with the profile. The first step; clears what other runs left.

        ``keep_packs``: all packs will wait in staging (`build_packs` without ``on_pack``), so that much room is asked.
        Raises BadInput, Busy or StoreTrouble.
        """
        job = self.job
        size = job.source.size()  # a source that is no database is refused before anything is made
        self.staging.begin(self.run)
        cap = size if keep_packs else job.parameters.cap or size
        # Layout 3 has all bodies in staging besides, compressed: half the source's size is much for them.
        room = min(size, 2 * cap) if job.parameters.layout == 2 else size // 2 + min(size // 2, cap)
        pin = pin_snapshot(
            job.source, self.staging, immutable=job.immutable, room_for_packs=room, progress=self._progress("pin")
        )
        with closing(open_pin(job.source, self.staging, pin)) as pinned:
            job.profile.check(pinned.tables(), self.where, job.leave_behind)
        return pin

    def _pinned(self) -> Pin:
        self.staging.require(self.run)
        found = self.staging.recall("pin")
        if found is None:
            raise NotFound(
                f"{self.staging.label} is not pinned in {self.staging.folder}; start the run from its first step"
            )
        return Pin(**found)

    @contextmanager
    def _reading(self) -> Iterator[tuple[Pin, PinnedSource]]:
        pin = self._pinned()
        with closing(open_pin(self.job.source, self.staging, pin)) as pinned:
            yield pin, pinned
        check_unchanged(self.job.source, pin)

    def check(self) -> None:
        """Let the source look whether what was pinned contradicts itself. Raises BadInput if it does."""
        pin = self._pinned()
        if self._recall("check", pin) is None:
            check_pin(self.job.source, self.staging, pin, self._progress("check"))
            self._record("check", pin, {})

    def stage(self) -> None:
        """`check`, `select` and `stage_tables`: all that comes before the packs.

        At once, where there are workers and the source gains by that. Raises what they raise.
        """
        steps = self.check, self.select, lambda: self._stage_tables(self.job.profile.ship), self.stage_bodies
        if self._at_once:
            together(steps)
        else:
            for step in steps:
                step()

    def select(self) -> Selection:
        """The ordered selection of chunks. Raises BadInput."""
        with self._reading() as (pin, pinned):
            done = self._recall("selection", pin)
            if done is not None:
                return Selection(**done["selection"])
            selection = select_chunks(pinned, self.job.profile.bodies, self.where)
            self._record("selection", pin, {"selection": selection.as_json()})
        return selection

    @property
    def _at_once(self) -> bool:
        """Whether the pinned state is read by several threads."""
        return self.job.workers > 1 and self.job.source.concurrent

    @property
    def _derived(self) -> tuple[str, ...]:
        """The tables that are staged with the bodies."""
        return derived_tables(self.job.profile) if self.job.parameters.layout == 3 else ()

    def stage_bodies(self) -> list[StagedTable]:
        """In layout 3 stage all bodies, with the tables of which rows follow from them; in layout 2 nothing.

        `select` refuses what is no leaf hash: before this, or beside it. Raises BadInput or StoreTrouble.
        """
        if not self._derived:
            return []
        job = self.job
        with self._reading() as (pin, pinned):
            done = self._recall("bodies", pin)
            files = [self.staging.tables / name for name in (BODIES_FILE, *map("{}.frames".format, self._derived))]
            if done is not None and all(file.exists() for file in files):
                return [StagedTable.from_json(table) for table in done["tables"]]
            settings = self.staging.tables, job.parameters, job.workers
            again = partial(open_pin, job.source, self.staging, pin) if self._at_once else None
            progress = self._progress("bodies")
            staged, tables = stage_bodies(pinned, job.profile, *settings, self.where, progress, again)
            # One record: a retry finds the bodies and what was derived from them, or neither.
            found = [table.as_json() for table in tables]
            self._record("bodies", pin, {"bodies": staged.as_json(), "tables": found})
        return tables

    def stage_tables(self, *, fanned_in: bool) -> list[StagedTable]:
        """Stage the shipped tables, either those that are fanned in or all others. Raises BadInput or StoreTrouble."""
        staged = [] if fanned_in else self.stage_bodies()
        return staged + self._stage_tables([t for t in self.job.profile.ship if (t.fan_in is not None) == fanned_in])

    def _stage_tables(self, tables: Iterable[ShippedTable]) -> list[StagedTable]:
        """Of these tables those that are not staged with the bodies."""
        staged = []
        with self._reading() as (pin, pinned):
            for table in tables:
                if table.name in self._derived:
                    continue
                done = self._recall(f"table-{table.name}", pin)
                if done is not None and (self.staging.tables / f"{table.name}.frames").exists():
                    staged.append(StagedTable.from_json(done["table"]))
                    continue
                settings = self.staging.tables, self.job.parameters, self.job.workers
                made = stage_table(pinned, table, *settings, self._progress(f"table {table.name}"))
                self._record(f"table-{table.name}", pin, {"table": made.as_json()})
                staged.append(made)
        return staged

    def _staged(self, pin: Pin) -> list[StagedTable]:
        tables = []
        bodies = self._recall("bodies", pin) if self._derived else None
        derived = {table["name"]: {"table": table} for table in (bodies["tables"] if bodies else [])}
        for table in self.job.profile.ship:
            done = derived.get(table.name) or self._recall(f"table-{table.name}", pin)
            if done is None:
                raise NotFound(
                    f"{self.staging.label}: table {table.name} is not staged; start the run from its first step"
                )
            tables.append(StagedTable.from_json(done["table"]))
        return tables

    def plan(self) -> PackSet:
        """The set this run will make, but for its packs. Needs the selection and all tables staged."""
        self.check()
        pin = self._pinned()
        selection = self.select()
        tables = self._staged(pin)
        root = snapshot_root(selection.bodies_root, (table.sha256 for table in tables))
        listed = tuple(
            SetTable(table.name, table.rows, table.source_rows, table.size, table.sha256) for table in tables
        )
        job = self.job
        return PackSet(
            job.corpus, job.shard, job.profile.name, root, selection.bodies_root, job.parameters, listed, packs=()
        )

    def committed(self, store: Store) -> PackSet | None:
        """The shard's newest set in the store, if it is of this snapshot and these parameters and whole; else None."""
        plan = self.plan()
        for entry in latest_sets(store):
            if (entry.corpus, entry.shard, entry.snapshot_root) != (plan.corpus, plan.shard, plan.snapshot_root):
                continue
            try:
                made = read_set(store, entry.key)
            except (NotFound, Damaged):
                return None  # it will be made again; a damaged set manifest is found when that is put
            alike = (made.parameters, made.tables, made.profile) == (plan.parameters, plan.tables, plan.profile)
            if alike and all(self._is_held(store, pack) for pack in made.packs):
                if not entry.when:  # the catalog was made anew since: now its time is known again
                    add_to_catalog(store, made, self._pinned().pinned_at, self._pinned().change_token)
                return made
        return None

    @staticmethod
    def _is_held(store: Store, pack: SetPack) -> bool:
        """Whether the store has this pack with its sidecar, as far as it can tell without sending it."""
        key = pack_key(pack.hash)
        if store.object_size(key) != pack.size or store.object_size(sidecar_key(pack.hash)) is None:
            return False
        return store.object_sha256(key) in (None, pack.sha256)

    def build_packs(self, on_pack: Callable[[BuiltPack], None] | None = None) -> list[BuiltPack]:
        """Build all packs, each read back from its finished file before ``on_pack`` gets it.

        With ``on_pack`` a pack's file is removed after the call (only one is on disk at a time); without, all stay in
        staging for a later `upload`. Raises BadInput, CapTooSmall or StoreTrouble.
        """
        plan = self.plan()
        job = self.job
        with self._reading() as (pin, pinned):
            done = None if on_pack else self._built(pin)
            if done is not None:
                return done
            built: list[BuiltPack] = []

            def take(pack: BuiltPack) -> None:
                read_back(pack, job.workers, self._progress("read back"))
                if on_pack is not None:
                    on_pack(pack)
                    pack.path.unlink()
                built.append(pack)

            tables = self._staged(pin)
            derived = sorted((table.name, table.derived) for table in tables if table.derived is not None)
            shared = PackHeader(plan.corpus, plan.shard, plan.profile, plan.snapshot_root, 1, 0, 0, ())
            header = replace(shared, derived=tuple(derived))
            with PackSetWriter(self.staging.packs, header, job.parameters, take) as writer:
                for table in tables:
                    for part in table.parts:
                        writer.add_part(part, self.staging.tables / f"{table.name}.frames")
                if job.parameters.layout == 2:
                    self._write_layout2(pinned, writer)
                else:
                    for unit in self._staged_bodies(pin).units:
                        writer.add_unit(unit, self.staging.tables / BODIES_FILE)
                writer.finish()
            if on_pack is None:
                packs = [{**asdict(SetPack.of(pack)), "first_line": pack.first_line.decode()} for pack in built]
                self._record("packs", pin, {"packs": packs})
        return built

    def _write_layout2(self, pinned: PinnedSource, writer: PackSetWriter) -> None:
        job, total = self.job, self.select().chunks
        bodies = selected_bodies(pinned, job.profile.bodies, self.where)
        written = write_bodies(bodies, writer, job.parameters, job.workers, total, self._progress("bodies"))
        if written != total:
            raise BadInput(f"{self.where} gave {written:,} of {total:,} bodies; an index is damaged: REINDEX it")

    def _staged_bodies(self, pin: Pin) -> StagedBodies:
        done = self._recall("bodies", pin)
        if done is None:
            raise NotFound(f"{self.staging.label}: its bodies are not staged; start the run from its first step")
        return StagedBodies.from_json(done["bodies"])

    def _built(self, pin: Pin) -> list[BuiltPack] | None:
        """The finished packs in staging, if all of them are there."""
        done = self._recall("packs", pin)
        if done is None:
            return None
        packs = []
        for item in done["packs"]:
            path = self.staging.packs / f"{item['hash']}.tar.zst"
            header = parse_header(item["first_line"].encode(), str(path))
            packs.append(BuiltPack(item["hash"], path, item["size"], item["sha256"], header))
        return packs if all(pack.path.exists() and pack.path.stat().st_size == pack.size for pack in packs) else None

    def upload(self, store: Store, packs: Sequence[BuiltPack]) -> list[Uploaded]:
        """Put finished packs and their sidecars into the store. Raises Damaged or StoreTrouble."""
        progress = self._progress("upload")
        return [put_pack(store, pack.path, SetPack.of(pack), pack.first_line, progress) for pack in packs]

    def upload_staged(self, store: Store) -> list[Uploaded]:
        """`upload` the packs that `build_packs` left in staging, note that for `uploaded`, and remove their files.

        Called again, it returns what was noted. Raises NotFound if staging lacks a pack, Damaged or StoreTrouble.
        """
        done = self.uploaded()
        if done is not None:
            return done
        pin = self._pinned()
        packs = self._built(pin)
        if packs is None:
            raise NotFound(f"{self.staging.label}: its packs are not staged; start the run from its first step")
        uploads = self.upload(store, packs)
        self._record("uploads", pin, {"uploads": [asdict(item) for item in uploads]})
        for pack in packs:
            pack.path.unlink()
        return uploads

    def uploaded(self) -> list[Uploaded] | None:
        """What `upload_staged` noted in this run; None if it has not ended yet."""
        done = self._recall("uploads", self._pinned())
        return None if done is None else [Uploaded.from_json(item) for item in done["uploads"]]

    def commit(self, store: Store, packs: Sequence[SetPack]) -> PackSet:
        """Put the set manifest, then name it in the catalog. The packs must be in the store.

        Raises NotFound if one is not, Damaged if the store holds another manifest of this name, StoreTrouble.
        """
        plan = self.plan()
        made = replace(plan, packs=tuple(packs))
        for pack in made.packs:
            size = store.object_size(pack_key(pack.hash))
            if size != pack.size:
                raise NotFound(
                    f"{store.location}: pack {pack.hash} has {size} bytes there instead of {pack.size}; upload it again"
                )
        if not store.put_if_absent(made.key, made.encode()).created:
            read_set(store, made.key)
        pin = self._pinned()
        add_to_catalog(store, made, pin.pinned_at, pin.change_token)
        return made

    def finish(self) -> None:
        """Remove the run's staging; what matters is committed."""
        self.staging.clear()
