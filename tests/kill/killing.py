"""Runs a repack of a small shard in forked processes that kill themselves at a chosen point, and checks what is left.

``python -m tests.kill.killing`` with the arguments of `main` prints one JSON report; the tests here start it. A process
of its own, because it forks: it imports once, holds no threads, and a case costs some hundredths of a second.
"""

from __future__ import annotations

import json
import os
import random
import shutil
import signal
import sys
import time
import traceback
from collections.abc import Callable
from pathlib import Path
from typing import Any

from pack_lib.build import Job, ShardBuild
from pack_lib.catalog import latest_sets, read_catalog
from pack_lib.fsio import HashingFile
from pack_lib.pack.parameters import parameters_for
from pack_lib.pack_set import committed_sets, read_set
from pack_lib.repack import repack
from pack_lib.sources import open_source
from pack_lib.stores.local import LocalStore
from pack_lib.verify import raise_findings, verify_set
from tests.kill.small_shard import CAP, contents, make_shard, profile, temporaries

STEPS = ("pin", "select", "tables", "edges", "build", "upload", "commit", "finish")


class Points:
    """Counts the moments between two writes, and kills the process at the chosen one."""

    def __init__(self, kill_at: int = -1) -> None:
        self.names: list[str] = []
        self._kill_at = kill_at

    def __call__(self, name: str) -> None:
        if len(self.names) == self._kill_at:
            os.kill(os.getpid(), signal.SIGKILL)
        self.names.append(name)

    def patch(self) -> None:
        """Every call that changes a file system passes by here; for this process's rest of life."""
        for name in ("link", "replace", "rename", "unlink", "remove", "mkdir", "rmdir", "fchmod", "fsync"):
            setattr(os, name, self._counted(name, getattr(os, name)))
        really_open = os.open

        def open_counted(path: Any, flags: int, *arguments: Any, **options: Any) -> int:
            if flags & os.O_CREAT:
                self(f"create {Path(path).name[:5]}")
            return really_open(path, flags, *arguments, **options)

        os.open = open_counted  # type: ignore[assignment]
        really_write = HashingFile.write

        def write_in_two(file: HashingFile, data: bytes) -> None:
            """Bytes reach the file at once and by halves, so that a kill leaves it cut."""
            self("write")
            half = len(data) // 2
            really_write(file, data[:half])
            file.file.flush()
            self("half written")
            really_write(file, data[half:])
            file.file.flush()

        HashingFile.write = write_in_two  # type: ignore[method-assign]

    def _counted(self, name: str, really: Callable[..., Any]) -> Callable[..., Any]:
        def counted(*arguments: Any, **options: Any) -> Any:
            self(name)
            return really(*arguments, **options)

        return counted


class Bench:
    """The folders of one kind of case: a source, and a store as it was before the run."""

    def __init__(self, folder: Path, *, other_shard: bool, layout: int, workers: int = 1) -> None:
        """``workers``: with one the points come in the same order each time; with more, steps run at once."""
        self.folder = folder
        self.parameters = parameters_for(CAP, layout=layout)
        self.workers = workers
        self.source = make_shard(folder / "shard.db")
        self.store, self.staging = folder / "store", folder / "staging"
        self.before = folder / "before"
        self.before.mkdir()
        if other_shard:
            self._repack(make_shard(folder / "other.db", "other", 2), self.before, folder / "other-staging")
        self.kept = contents(self.before)
        self.reset()
        result = self._repack(self.source, self.store, self.staging, workers=2)
        assert len(result.set.packs) >= 3
        self.expected = contents(self.store)
        self.catalogued = [entry.key for entry in read_catalog(LocalStore(self.store))]
        self.profile = profile()

    def _repack(self, source: Path, store: Path, staging: Path, workers: int = 1, report: Any = None) -> Any:
        extra = {} if report is None else {"report": report}
        return repack(
            str(source),
            LocalStore(store),
            profile=profile(),
            cap=CAP,
            layout=self.parameters.layout,
            workers=workers,
            staging=staging,
            **extra,
        )

    def reset(self) -> None:
        shutil.rmtree(self.store, ignore_errors=True)
        shutil.rmtree(self.staging, ignore_errors=True)
        shutil.copytree(self.before, self.store)

    def run(self, report: Any = None) -> None:
        self._repack(self.source, self.store, self.staging, self.workers, report)

    def steps(self, pause: Callable[[str], None] = lambda step: None, first: str = "pin") -> None:
        """The same by steps, as a scheduler runs them, under one run's name: from ``first`` on."""
        store = LocalStore(self.store)
        source = open_source(str(self.source))
        job = Job("corpus", "shard", source, self.profile, self.parameters, self.staging, workers=1)
        for step in STEPS[STEPS.index(first) :]:
            build = ShardBuild(job, "run-1")
            with build.held():
                if step == "pin":
                    build.pin()
                elif step == "select":
                    build.select()
                elif step in ("tables", "edges"):
                    build.stage_tables(fanned_in=step == "edges")
                elif step == "build":
                    build.build_packs()
                elif step == "upload":
                    build.upload_staged(store)
                elif step == "commit":
                    build.commit(store, [item.pack for item in build.upload_staged(store)])
                else:
                    build.finish()
            pause(step)

    def check_interrupted(self) -> list[str]:
        """What is wrong with the store that a killed run left. No set may be incomplete."""
        problems = []
        store = LocalStore(self.store)
        for name, digest in contents(self.store).items():
            if self.expected.get(name) != digest:
                problems.append(f"{name} is not as an undisturbed run makes it")
        problems += [f"{name} is gone" for name in self.kept if name not in contents(self.store)]
        sets = list(committed_sets(store))
        for key in sets:
            report = verify_set(store, read_set(store, key), self.profile)
            raise_findings(report)
            if not report.complete:
                problems.append(f"{key} is incomplete")
        named = [entry.key for entry in read_catalog(store)]
        problems += [f"the catalog names {key}, which does not exist" for key in named if key not in sets]
        if self.kept and self.catalogued[0] not in named:
            problems.append("the catalog lost the other shard")
        return problems

    def check_complete(self) -> list[str]:
        """What differs from an undisturbed run after the next one."""
        problems = []
        found = contents(self.store)
        if found != self.expected:
            problems.append(f"the store differs: {sorted(set(found.items()) ^ set(self.expected.items()))}")
        if [entry.key for entry in latest_sets(LocalStore(self.store))] != self.catalogued:
            problems.append("the catalog does not name the sets")
        problems += [f"left in the store: {name}" for name in temporaries(self.store)]
        staged = sorted(str(p.relative_to(self.staging)) for p in self.staging.rglob("*") if p.is_file())
        if staged != ["corpus/shard/lock"]:
            problems.append(f"left in staging: {staged}")
        return problems


def forked(work: Callable[[], None]) -> int:
    """Do it in a forked process; its exit status (negative: the signal that ended it)."""
    child = os.fork()
    if child == 0:
        try:
            work()
        except BaseException:
            traceback.print_exc()
            os._exit(3)
        os._exit(0)
    return os.waitstatus_to_exitcode(os.waitpid(child, 0)[1])


def count(bench: Bench, work: Callable[[Any], None]) -> list[str]:
    """The names of all points of one undisturbed run."""
    told = bench.folder / "points.json"

    def counting() -> None:
        points = Points()
        points.patch()
        work(points)
        with open(told, "w") as file:  # noqa: PTH123 (Path's methods are counted)
            json.dump(points.names, file)

    bench.reset()
    assert forked(counting) == 0
    return list(json.loads(told.read_text()))


def killed_at(point: int, work: Callable[[Any], None]) -> int:
    def killed() -> None:
        points = Points(point)
        points.patch()
        work(points)

    return forked(killed)


def with_report(bench: Bench) -> Callable[[Any], None]:
    return lambda points: bench.run(lambda step, done, total: points(step))


def chosen(names: list[str], first: int, step: int) -> range:
    """Every ``step``-th point from the ``first`` on; a negative ``first`` counts from the end."""
    return range(first % len(names), len(names), step)


def every_point(bench: Bench, first: int, step: int) -> tuple[int, list[str]]:
    """Kill a run at each chosen point once, check, complete it, check."""
    work = with_report(bench)
    names = count(bench, work)
    problems = []
    for point in chosen(names, first, step):
        bench.reset()
        status = killed_at(point, work)
        where = f"point {point} of {len(names)} ({names[point]})"
        if status != -signal.SIGKILL:
            problems.append(f"{where}: the run ended with {status}")
            continue
        problems += [f"{where}, killed: {text}" for text in bench.check_interrupted()]
        status = forked(bench.run)
        if status:
            problems.append(f"{where}: the next run ended with {status}")
        problems += [f"{where}, completed: {text}" for text in bench.check_complete()]
    return len(chosen(names, first, step)), problems


def random_moments(bench: Bench, seed: int, kills: int) -> tuple[int, list[str]]:
    """Kill runs at random moments, one to four in a row on the same folders, then complete."""
    chance = random.Random(seed)
    bench.reset()
    begun = time.monotonic()
    assert forked(bench.run) == 0
    length = time.monotonic() - begun
    problems: list[str] = []
    done = 0
    while done < kills:
        bench.reset()
        for _ in range(chance.randint(1, 4)):
            child = os.fork()
            if child == 0:
                try:
                    bench.run()
                finally:
                    os._exit(0)
            time.sleep(chance.random() * length * 1.05)
            os.kill(child, signal.SIGKILL)
            if os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]) == -signal.SIGKILL:
                done += 1
            problems += [f"seed {seed}, after kill {done}: {text}" for text in bench.check_interrupted()]
        if forked(bench.run):
            problems.append(f"seed {seed}, after kill {done}: the next run failed")
        problems += [f"seed {seed}, after kill {done}, completed: {text}" for text in bench.check_complete()]
    return done, problems


def every_point_of_steps(bench: Bench, first: int, step: int) -> tuple[int, list[str]]:
    """Kill a run by steps at the chosen points and between any two steps; its retry must go on with what was done.

    Retries begin in turn with the first step again, and with the one that was killed.
    """

    def work(points: Any) -> None:
        bench.steps(lambda step: points(f"after {step}"))

    names = count(bench, work)
    problems = []
    staging = bench.staging / "corpus" / "shard"
    kept = bench.folder / "kept"
    points = sorted({*chosen(names, first, step), *(at for at, name in enumerate(names) if name.startswith("after"))})
    for number, point in enumerate(points):
        bench.reset()
        shutil.rmtree(kept, ignore_errors=True)
        done = [name.removeprefix("after ") for name in names[:point] if name.startswith("after")]
        begin = STEPS[min(len(done), len(STEPS) - 1)] if number % 2 else "pin"
        where = f"point {point} of {len(names)} ({names[point]}, {len(done)} steps done, retried from {begin})"
        if killed_at(point, work) != -signal.SIGKILL:
            problems.append(f"{where}: the run was not killed")
        problems += [f"{where}, killed: {text}" for text in bench.check_interrupted()]
        recorded = {} if "commit" in done else _recorded(staging)

        def keep(step: str) -> None:
            if step == "commit":
                shutil.copytree(staging, kept)

        if forked(lambda begin=begin, keep=keep: bench.steps(keep, begin)):  # type: ignore[misc]
            problems.append(f"{where}: the retry failed")
            continue
        if kept.exists():
            now = _recorded(kept)
            problems += [f"{where}: the retry made {name} again" for name in recorded if now[name] != recorded[name]]
        problems += [f"{where}, completed: {text}" for text in bench.check_complete()]
    return len(points), problems


def _recorded(staging: Path) -> dict[str, Any]:
    """What a run has finished: its pin, and the tables with the times of their files."""
    found: dict[str, Any] = {}
    if (staging / "pin.json").exists():
        found["pin"] = (staging / "pin.json").read_bytes()
    for path in [*staging.glob("table-*.json"), *staging.glob("bodies.json")]:
        frames = staging / "tables" / f"{path.stem.removeprefix('table-')}.frames"
        found[path.stem] = frames.stat().st_mtime_ns
    return found


def main(kind: str, folder: str, layout: str, other_shard: str, *numbers: str) -> None:
    """``points|steps FOLDER 2|3 0|1 FIRST STEP`` or ``random FOLDER 2|3 0|1 SEED KILLS``."""
    # What was written survives a killed process; syncing it matters for the machine's end only, and takes time.
    os.fsync = lambda descriptor: None  # type: ignore[assignment]
    workers = 2 if kind == "random" else 1
    bench = Bench(Path(folder), other_shard=other_shard == "1", layout=int(layout), workers=workers)
    run = {"points": every_point, "steps": every_point_of_steps, "random": random_moments}[kind]
    cases, problems = run(bench, *map(int, numbers))
    print(json.dumps({"cases": cases, "problems": problems}))


if __name__ == "__main__":
    main(*sys.argv[1:])
