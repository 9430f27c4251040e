"""The real thing: queue, daemon, run workers as processes, and the command as documented."""

from __future__ import annotations

import os
import re
import shutil
import signal
import subprocess
import sys
import time
import uuid
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from itertools import combinations
from pathlib import Path

import dagster as dg
import pytest

from examples.demo_check import newest_set
from examples.demo_dagster import DONE, daemon, environment, open_instance, submit_all
from pack_lib.profile import load_profile
from pack_lib.stores import LocalStore
from pack_lib.verify import raise_findings, verify_set
from tests.support import make_shard

ROOT = Path(__file__).resolve().parents[2]
SHARDS = [f"shard-{number}" for number in range(4)]
KILLED = "shard-3"
LONGEST = 240.0


@dataclass(frozen=True)
class Ran:
    """What a queue of six runs, and the retry of one, became."""

    store: LocalStore
    asked: str
    """Id of the run the documented command asked for."""
    queued: dg.DagsterRunStatus
    killed: str
    """Id of the run whose worker was killed."""
    records: Mapping[str, dg.RunRecord]
    steps: Mapping[str, list[str]]
    """Steps that succeeded in each run."""


def documented_command() -> str:
    """The command that docs/dagster.md shows for one shard."""
    (found,) = re.findall(
        r"^\$ (dagster job launch .*-j repack .*)$", (ROOT / "docs/dagster.md").read_text(), re.MULTILINE
    )
    return str(found)


def _records(instance: dg.DagsterInstance) -> dict[str, dg.RunRecord]:
    return {record.dagster_run.run_id: record for record in instance.get_run_records()}


def _steps(instance: dg.DagsterInstance, run_id: str) -> list[str]:
    return [str(entry.step_key) for entry in instance.all_logs(run_id, of_type=dg.DagsterEventType.STEP_SUCCESS)]


def _killed(instance: dg.DagsterInstance, run_id: str) -> bool:
    """Kill the run's worker, if it has begun to build packs."""
    for entry in instance.all_logs(run_id, of_type=dg.DagsterEventType.STEP_START):
        if entry.step_key == "cold_packs" and entry.dagster_event and entry.dagster_event.pid:
            os.kill(entry.dagster_event.pid, signal.SIGKILL)
            return True
    return False


@pytest.fixture(scope="module")
def ran(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Ran]:
    folder = tmp_path_factory.mktemp("instance")
    first = make_shard(folder / f"{SHARDS[0]}.db", 500, chunk_bytes=2800, noise=True)
    for name in SHARDS[1:]:
        shutil.copyfile(first, folder / f"{name}.db")
    settings = {
        "COLD_CORPUS": "noise",
        "COLD_SOURCES": str(folder / "shard-*.db"),
        "COLD_STORE": str(folder / "store"),
        "COLD_STAGING": str(folder / "staging"),
        "COLD_LEVEL": "19",  # slow, so that runs last
        "COLD_WORKERS": "1",
    }
    home = folder / "home"
    with pytest.MonkeyPatch.context() as patched:
        patched.setenv("DAGSTER_HOME", str(home))
        with open_instance(home) as instance:
            env = environment(home, {**settings, "HOME": str(folder)})
            env["PATH"] = f"{Path(sys.executable).parent}{os.pathsep}{env['PATH']}"
            command = documented_command()
            (asked,) = re.findall(r"--run-id (\S+)", command)
            victim = str(uuid.uuid4())
            for line in (command, command.replace(asked, victim).replace(SHARDS[0], KILLED)):
                subprocess.run(["bash", "-c", line], cwd=ROOT, env=env, capture_output=True, check=True)
            queued = _records(instance)[asked].dagster_run.status
            submit_all(env)
            killed = False
            until = time.monotonic() + LONGEST
            with daemon(env, folder / "daemon.log"):
                while True:
                    killed = killed or _killed(instance, victim)
                    records = _records(instance)
                    if len(records) == 7 and all(record.dagster_run.status in DONE for record in records.values()):
                        break
                    assert time.monotonic() < until, (folder / "daemon.log").read_text()[-4000:]
                    time.sleep(0.25)
            steps = {run_id: _steps(instance, run_id) for run_id in records}
            yield Ran(LocalStore(folder / "store"), asked, queued, victim, records, steps)


def _span(record: dg.RunRecord) -> tuple[float, float]:
    assert record.start_time is not None and record.end_time is not None
    return record.start_time, record.end_time


def test_the_documented_command_queues_a_run_that_succeeds(ran: Ran) -> None:
    assert ran.queued == dg.DagsterRunStatus.QUEUED
    assert ran.records[ran.asked].dagster_run.status == dg.DagsterRunStatus.SUCCESS
    assert ran.steps[ran.asked][-2:] == ["pack_set", "pack_set_reads_back_whole"]
    assert "dagster/max_runtime" in ran.records[ran.asked].dagster_run.tags


def test_every_shard_has_a_committed_set(ran: Ran) -> None:
    for shard in SHARDS:
        raise_findings(verify_set(ran.store, newest_set(ran.store, "noise", shard), load_profile()))


def test_two_shards_run_at_once_and_never_three(ran: Ran) -> None:
    spans = [_span(record) for run_id, record in ran.records.items() if run_id != ran.killed]
    together = [max(one[0], two[0]) < min(one[1], two[1]) for one, two in combinations(spans, 2)]
    assert any(together)
    for moment, _ in spans:
        assert sum(start <= moment < end for start, end in spans) <= 2


def test_runs_of_one_shard_follow_each_other(ran: Ran) -> None:
    spans = sorted(
        _span(record) for record in ran.records.values() if record.dagster_run.tags["dagster/partition"] == SHARDS[0]
    )
    assert len(spans) == 2 and spans[0][1] <= spans[1][0]


def test_a_killed_run_is_retried_even_if_another_run_of_its_shard_comes_first(ran: Ran) -> None:
    killed = ran.records[ran.killed].dagster_run
    assert killed.status == dg.DagsterRunStatus.FAILURE
    (retry,) = [record.dagster_run for record in ran.records.values() if record.dagster_run.root_run_id == ran.killed]
    assert retry.status == dg.DagsterRunStatus.SUCCESS
    assert len(ran.steps[retry.run_id]) == 8


def test_nothing_is_left_running(ran: Ran) -> None:
    assert all(record.dagster_run.status in DONE for record in ran.records.values())
    home = str(ran.store.folder.parent)
    for status in Path("/proc").glob("[0-9]*/environ"):
        try:
            inside = f"DAGSTER_HOME={home}".encode() in status.read_bytes()
        except OSError:
            continue
        assert not inside or int(status.parent.name) == os.getpid(), status
