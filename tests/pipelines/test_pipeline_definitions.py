"""The code location loads, says what it should, and stands on pack_lib without pack_lib knowing of it."""

from __future__ import annotations

import os
import re
import subprocess
import sys
from datetime import UTC, datetime
from pathlib import Path

import dagster as dg
import pytest

from pipelines.assets import GROUP
from pipelines.definitions import build_defs
from pipelines.settings import Settings

ROOT = Path(__file__).resolve().parents[2]
_IMPORTS = re.compile(r"^\s*(?:import|from)\s+(\w+)", re.MULTILINE)


def _python(code: str, **env: str) -> str:
    kept = {name: value for name, value in os.environ.items() if not name.startswith(("COLD_", "DAGSTER_"))}
    command = [sys.executable, "-c", code]
    done = subprocess.run(command, env={**kept, **env}, cwd=ROOT, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr
    return done.stdout


_LOAD_ALL = """
import importlib, pkgutil, sys
import {package} as package
for module in pkgutil.walk_packages(package.__path__, package.__name__ + "."):
    importlib.import_module(module.name)
print("\\n".join(sys.modules))
"""


def test_pack_lib_knows_no_dagster() -> None:
    for path in (ROOT / "pack_lib").rglob("*.py"):
        assert not {"dagster", "pipelines"} & set(_IMPORTS.findall(path.read_text())), path
    loaded = {name.partition(".")[0] for name in _python(_LOAD_ALL.format(package="pack_lib")).split()}
    assert "pack_lib" in loaded
    assert not {name for name in loaded if name.startswith("dagster") or name == "pipelines"}


def test_importing_the_pipelines_needs_no_settings() -> None:
    assert "pipelines.definitions" in _python(_LOAD_ALL.format(package="pipelines")).split()


def test_the_layer_is_thin() -> None:
    for path in (ROOT / "pipelines").glob("*.py"):
        imported = set(_IMPORTS.findall(path.read_text()))
        assert not imported & {"sqlite3", "duckdb", "zstandard", "hashlib", "tarfile", "boto3"}, path
        assert path.read_text().startswith('"""'), f"{path} does not say what belongs there"


def test_definitions_validate(env: dict[str, str], tmp_path: Path) -> None:
    home = tmp_path / "home"
    home.mkdir()
    (home / "dagster.yaml").write_bytes((ROOT / "dagster.yaml").read_bytes())
    command = [
        str(Path(sys.executable).with_name("dagster")),
        "definitions",
        "validate",
        "-w",
        str(ROOT / "workspace.yaml"),
    ]
    given = {**os.environ, **env, "DAGSTER_HOME": str(home), "HOME": str(home), "PYTHONPATH": str(ROOT)}
    done = subprocess.run(command, env=given, cwd=tmp_path, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stdout + done.stderr
    assert "Validation successful for code location cold" in done.stdout + done.stderr


def test_every_asset_is_described(settings: Settings) -> None:
    defs = build_defs(settings)
    dg.Definitions.validate_loadable(defs)
    specs = {spec.key.to_user_string(): spec for spec in defs.resolve_all_asset_specs()}
    assert sorted(specs) == sorted(
        [
            "corpus_snapshot",
            "chunk_selection",
            "shard_tables",
            "fan_in_edges",
            "cold_packs",
            "bucket_objects",
            "pack_set",
        ]
    )
    for spec in specs.values():
        assert spec.description and spec.group_name == GROUP and spec.kinds
        assert spec.partitions_def is not None and spec.partitions_def.get_partition_keys() == ["alpha", "beta"]
    assert {dep.asset_key.to_user_string() for dep in specs["cold_packs"].deps} == {
        "chunk_selection",
        "shard_tables",
        "fan_in_edges",
    }


def test_jobs_run_in_process_and_end(settings: Settings) -> None:
    defs = build_defs(settings)
    for name in ("repack", "verify"):
        job = defs.resolve_job_def(name)
        assert job.executor_def.name == "in_process"
        assert int(job.tags["dagster/max_runtime"]) > 0
    assert defs.resolve_implicit_global_asset_job_def().executor_def.name == "in_process"


def test_a_tick_requests_every_shard(settings: Settings) -> None:
    defs = build_defs(settings)
    schedule = defs.resolve_schedule_def("every_shard")
    assert schedule.default_status == dg.DefaultScheduleStatus.STOPPED
    assert schedule.cron_schedule == "0 2 * * *"
    with dg.DagsterInstance.ephemeral() as instance:
        keys = []
        for day in (1, 2):
            context = dg.build_schedule_context(
                instance,
                scheduled_execution_time=datetime(2026, 1, day, 2, tzinfo=UTC),
                repository_def=defs.get_repository_def(),
            )
            ticked = schedule.evaluate_tick(context).run_requests or []
            assert [request.partition_key for request in ticked] == ["alpha", "beta"]
            keys += [request.run_key for request in ticked]
    assert len(set(keys)) == 4


def test_the_schedule_follows_the_environment(env: dict[str, str]) -> None:
    made = build_defs(Settings.from_env({**env, "COLD_SCHEDULE": "30 4 * * 0"}))
    assert made.resolve_schedule_def("every_shard").cron_schedule == "30 4 * * 0"
    with pytest.raises(dg.DagsterInvalidDefinitionError, match="cron"):
        build_defs(Settings.from_env({**env, "COLD_SCHEDULE": "nightly"}))
