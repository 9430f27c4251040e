"""The demonstration's Dagster: a daemon of its own, runs submitted to its queue, and what became of them.

Nothing here is needed to run the pipelines; it only does from a script what an operator does by hand.
"""

from __future__ import annotations

import contextlib
import os
import re
import shutil
import signal
import subprocess
import sys
import time
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import dagster as dg

ROOT = Path(__file__).resolve().parents[1]
WORKSPACE = ROOT / "workspace.yaml"
DONE = (dg.DagsterRunStatus.SUCCESS, dg.DagsterRunStatus.FAILURE, dg.DagsterRunStatus.CANCELED)


class DemoError(Exception):
    """What went wrong, in one line."""


@dataclass(frozen=True, slots=True)
class Ended:
    """One shard's run, which succeeded. Times are seconds since the epoch."""

    shard: str
    run_id: str
    start: float
    end: float
    up_to_date: bool
    bytes_sent: int


def environment(home: Path, settings: Mapping[str, str]) -> dict[str, str]:
    """The environment of every process started here: these settings alone, whatever ``COLD_*`` the caller has."""
    kept = {name: value for name, value in os.environ.items() if not name.startswith("COLD_")}
    paths = [str(ROOT), *filter(None, [kept.get("PYTHONPATH")])]
    return {**kept, "PYTHONPATH": os.pathsep.join(paths), "DAGSTER_HOME": str(home), **settings}


def program(name: str) -> str:
    """The path of one of Dagster's programs. Raises DemoError if it is not installed."""
    beside = Path(sys.executable).with_name(name)
    found = str(beside) if beside.exists() else shutil.which(name)
    if found is None:
        raise DemoError(f"{name} is not installed; run: pip install -e '.[pipelines]'")
    return found


def open_instance(home: Path) -> dg.DagsterInstance:
    """The instance in this folder, with the project's dagster.yaml. Runs an earlier demonstration left are ended."""
    home.mkdir(parents=True, exist_ok=True)
    shutil.copyfile(ROOT / "dagster.yaml", home / "dagster.yaml")
    os.environ["DAGSTER_HOME"] = str(home)  # dagster.yaml refers to it
    instance = dg.DagsterInstance.from_config(str(home))
    cancel_unfinished(instance)
    return instance


def cancel_unfinished(instance: dg.DagsterInstance) -> None:
    """Mark runs that nobody works on any more as cancelled, so that they keep no place of the queue's limits."""
    for run in instance.get_runs():
        if run.status not in DONE:
            instance.report_run_canceled(run, message="the demonstration was ended")


@contextlib.contextmanager
def running(command: list[str], env: Mapping[str, str], log: Path | None = None) -> Iterator[subprocess.Popen[bytes]]:
    """A process with all it starts, in a group of their own; ended, by its id, when the block is left."""
    with contextlib.ExitStack() as files:
        output = files.enter_context(log.open("wb")) if log else None
        process = subprocess.Popen(
            command, env=dict(env), stdin=subprocess.DEVNULL, stdout=output, stderr=output, start_new_session=True
        )
        try:
            yield process
        finally:
            stop(process)


def stop(process: subprocess.Popen[bytes]) -> None:
    """Ask it to end and wait; then end what is left of its group, asking first."""
    if process.poll() is None:
        process.send_signal(signal.SIGINT)
        with contextlib.suppress(subprocess.TimeoutExpired):
            process.wait(10)
    for sign, seconds in ((signal.SIGTERM, 5.0), (signal.SIGKILL, 5.0)):
        until = time.monotonic() + seconds
        with contextlib.suppress(ProcessLookupError):
            os.killpg(process.pid, sign)
            while time.monotonic() < until:
                process.poll()
                os.killpg(process.pid, 0)
                time.sleep(0.05)


def daemon(env: Mapping[str, str], log: Path) -> contextlib.AbstractContextManager[subprocess.Popen[bytes]]:
    """``dagster-daemon run``, which takes runs from the queue and starts them."""
    return running([program("dagster-daemon"), "run", "-w", str(WORKSPACE)], env, log)


def submit_all(env: Mapping[str, str]) -> str:
    """Put one run a shard into the queue; the backfill's id, by which they are found. Raises DemoError."""
    command = [program("dagster"), "job", "backfill", "-w", str(WORKSPACE), "-j", "repack", "--all", "true"]
    done = subprocess.run(
        [*command, "--noprompt"], env=dict(env), stdin=subprocess.DEVNULL, capture_output=True, text=True, check=False
    )
    match = re.search(r"Launched backfill job `(\w+)`", done.stdout)
    if done.returncode or not match:
        lines = [line for line in (done.stdout + done.stderr).splitlines() if line.strip()]
        raise DemoError(f"dagster job backfill failed: {lines[-1] if lines else done.returncode}")
    return match[1]


def _reason(instance: dg.DagsterInstance, run_id: str) -> str:
    """Why a run failed, in one line."""
    failed: Any
    for entry in instance.all_logs(run_id, of_type=dg.DagsterEventType.STEP_FAILURE):
        failed = entry.dagster_event.step_failure_data if entry.dagster_event else None
        if failed is None:
            continue
        if failed.user_failure_data and failed.user_failure_data.description:
            return f"{entry.step_key}: {failed.user_failure_data.description}"
        return f"{entry.step_key}: {failed.error.message.strip().splitlines()[0]}"
    for entry in instance.all_logs(run_id, of_type=dg.DagsterEventType.RUN_FAILURE):
        return str(entry.message or "no reason was given").strip().splitlines()[0]
    return "no reason was given"


def _facts(instance: dg.DagsterInstance, run_id: str) -> dict[str, Any]:
    """The metadata of all that a run materialized, by name; a later asset's value counts."""
    facts: dict[str, Any] = {}
    for entry in instance.all_logs(run_id, of_type=dg.DagsterEventType.ASSET_MATERIALIZATION):
        made = entry.asset_materialization
        facts.update({name: value.value for name, value in made.metadata.items()} if made else {})
    return facts


def _state(instance: dg.DagsterInstance, run: dg.DagsterRun) -> str:
    if run.status != dg.DagsterRunStatus.STARTED:
        return "done" if run.status == dg.DagsterRunStatus.SUCCESS else str(run.status.value).lower()
    steps = instance.get_run_step_stats(run.run_id)
    at_work = [step.step_key for step in steps if step.end_time is None]
    return at_work[-1] if at_work else f"{len(steps)} steps done"


def wait(
    instance: dg.DagsterInstance,
    backfill: str,
    alive: Callable[[], bool],
    show: Callable[[str], None],
    *,
    seconds: float,
) -> Iterator[Ended]:
    """Each run as it ends well. ``show`` gets a line of what all are doing.

    Raises DemoError for a run that fails, with its id and the reason, if the daemon ends, and after ``seconds``.
    """
    seen: set[str] = set()
    until = time.monotonic() + seconds
    while True:
        records = instance.get_run_records(dg.RunsFilter(tags={"dagster/backfill": backfill}))
        runs = sorted((record.dagster_run.tags["dagster/partition"], record) for record in records)
        show("   ".join(f"{shard} {_state(instance, record.dagster_run)}" for shard, record in runs))
        for shard, record in runs:
            run = record.dagster_run
            if run.status not in DONE or run.run_id in seen:
                continue
            if run.status != dg.DagsterRunStatus.SUCCESS:
                raise DemoError(f"{shard}: run {run.run_id} {run.status.value}: {_reason(instance, run.run_id)}")
            seen.add(run.run_id)
            facts = _facts(instance, run.run_id)
            yield Ended(
                shard,
                run.run_id,
                record.start_time or 0.0,
                record.end_time or 0.0,
                bool(facts["up_to_date"]),
                int(facts["bytes_sent"]),
            )
        if len(seen) == len(runs):
            return
        if not alive():
            raise DemoError("dagster-daemon ended by itself; daemon.log says why")
        if time.monotonic() > until:
            waiting = ", ".join(shard for shard, record in runs if record.dagster_run.run_id not in seen)
            raise DemoError(f"after {seconds:.0f} s there is no end of {waiting}")
        time.sleep(0.5)
