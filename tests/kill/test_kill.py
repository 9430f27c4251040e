"""A run killed with SIGKILL leaves no incomplete set, and the next one ends with the bytes of an undisturbed run."""

from __future__ import annotations

import json
import os
import random
import subprocess
import sys
from pathlib import Path

import pytest

ROOT = Path(__file__).resolve().parents[2]


def killing(kind: str, folder: Path, layout: int, other_shard: bool, *numbers: int) -> int:
    """Run the driver; the number of kills, of which none may have been a problem."""
    arguments = [kind, str(folder), *map(str, (layout, int(other_shard), *numbers))]
    command = [sys.executable, "-m", "tests.kill.killing", *arguments]
    environment = {**os.environ, "PYTHONPATH": str(ROOT)}
    done = subprocess.run(command, cwd=ROOT, env=environment, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr
    report = json.loads(done.stdout)
    problems = report["problems"]
    assert not problems, (
        f"{len(problems)} problems of {report['cases']} kills:\n" + "\n".join(problems[:40]) + done.stderr
    )
    return int(report["cases"])


@pytest.mark.parametrize("stripe", range(4))
def test_killed_between_any_two_writes(tmp_path: Path, layout: int, stripe: int) -> None:
    """Another shard was committed before, so the catalog is replaced; its entry must never be lost."""
    assert killing("points", tmp_path, layout, True, stripe, 4) > 50


@pytest.mark.parametrize("first", [0, -70], ids=["some", "the end"])
def test_killed_in_the_first_run_of_a_store(tmp_path: Path, layout: int, first: int) -> None:
    """Every seventh point, and every one around the commit, with a store that has no catalog yet."""
    assert killing("points", tmp_path, layout, False, first, 1 if first else 7) > 40


@pytest.mark.parametrize("stripe", range(2))
def test_killed_in_a_step_and_retried(tmp_path: Path, layout: int, stripe: int) -> None:
    """The retry of the same run goes on with its pin and finished tables: every fourth point, and between all steps."""
    assert killing("steps", tmp_path, layout, True, 2 * stripe, 4) > 50


def test_killed_at_random_moments(tmp_path: Path, layout: int) -> None:
    """With two workers, so that a kill finds several steps at work."""
    seed = int(os.environ.get("KILL_SEED") or random.randrange(1 << 30))
    print(f"KILL_SEED={seed}")
    assert killing("random", tmp_path, layout, True, seed, 100) >= 100
