"""Small shards and settings for the pipelines; each test has a store and a staging folder of its own."""

from __future__ import annotations

import os
from collections.abc import Callable, Iterator
from pathlib import Path

import dagster as dg
import pytest

from pipelines.settings import Settings
from tests.support import make_shard

SHARDS = ("alpha", "beta")


@pytest.fixture
def env(tmp_path: Path) -> dict[str, str]:
    """Variables of a corpus of two small shards."""
    (tmp_path / "sources").mkdir()
    for number, name in enumerate(SHARDS):
        make_shard(tmp_path / "sources" / f"{name}.db", 30 - number, seed=number)
    return {
        "COLD_CORPUS": "small",
        "COLD_SOURCES": str(tmp_path / "sources" / "*.db"),
        "COLD_STORE": str(tmp_path / "store"),
        "COLD_STAGING": str(tmp_path / "staging"),
        "COLD_WORKERS": "2",
    }


@pytest.fixture(autouse=True)
def clean_environment(monkeypatch: pytest.MonkeyPatch) -> None:
    """No test sees the caller's settings."""
    for name in list(os.environ):
        if name.startswith(("COLD_", "DAGSTER_")):
            monkeypatch.delenv(name)
    monkeypatch.setenv("DAGSTER_DISABLE_TELEMETRY", "yes")


@pytest.fixture
def settings(env: dict[str, str]) -> Settings:
    return Settings.from_env(env)


@pytest.fixture
def instance() -> Iterator[dg.DagsterInstance]:
    with dg.DagsterInstance.ephemeral() as made:
        yield made


Execute = Callable[..., dg.ExecuteInProcessResult]


@pytest.fixture
def execute(settings: Settings, instance: dg.DagsterInstance) -> Execute:
    """Runs a job for one shard in this process: ``execute("repack", "alpha")``."""
    from pipelines.definitions import build_defs

    def run(job: str, shard: str | None, given: Settings | None = None) -> dg.ExecuteInProcessResult:
        made = build_defs(given or settings).resolve_job_def(job)
        tags = {"dagster/partition": shard} if shard is not None else {}
        return made.execute_in_process(instance=instance, tags=tags, raise_on_error=False)

    return run
