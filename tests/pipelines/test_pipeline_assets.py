"""A shard's run in this process: what it commits, what it reports, and how it fails."""

from __future__ import annotations

import sqlite3
from collections.abc import Callable
from contextlib import closing
from pathlib import Path
from typing import Any

import dagster as dg
import pytest

from pack_lib.build import ShardBuild
from pack_lib.catalog import read_catalog
from pack_lib.errors import Busy, PackError, StoreTrouble
from pack_lib.pack_set import PackSet, committed_sets, pack_key, read_set
from pack_lib.profile import load_profile
from pack_lib.stores import LocalStore
from pack_lib.verify import raise_findings, verify_set
from pipelines.assets import build_assets
from pipelines.checks import build_checks
from pipelines.definitions import build_defs
from pipelines.partitions import shard_partitions
from pipelines.resources import Cold
from pipelines.settings import Settings
from pipelines.steps import RETRY_TAG, Observer

Execute = Callable[..., dg.ExecuteInProcessResult]
STEPS = [
    "corpus_snapshot",
    "chunk_selection",
    "shard_tables",
    "fan_in_edges",
    "cold_packs",
    "bucket_objects",
    "pack_set",
]


def materialized(result: dg.ExecuteInProcessResult, asset: str) -> dg.AssetMaterialization:
    (event,) = result.asset_materializations_for_node(asset)
    assert isinstance(event, dg.AssetMaterialization)
    return event


def facts(result: dg.ExecuteInProcessResult, asset: str) -> dict[str, Any]:
    return {name: value.value for name, value in materialized(result, asset).metadata.items()}


def version(result: dg.ExecuteInProcessResult, asset: str) -> str:
    return (materialized(result, asset).tags or {})["dagster/data_version"]


def failure(result: dg.ExecuteInProcessResult) -> tuple[str, str]:
    """(step, reason) of the one step that failed."""
    assert not result.success
    (event,) = [event for event in result.all_events if event.is_step_failure]
    user = event.step_failure_data.user_failure_data
    assert user is not None, event.step_failure_data.error
    return str(event.step_key), str(user.description)


def sets(settings: Settings) -> list[PackSet]:
    store = LocalStore(Path(settings.store))
    return [read_set(store, key) for key in committed_sets(store)]


def change(settings: Settings, shard: str) -> None:
    with closing(sqlite3.connect(settings.sources[shard])) as db:
        db.execute("INSERT INTO term_aliases VALUES('new', 'newer')")
        db.commit()


def test_assets_materialize(settings: Settings, instance: dg.DagsterInstance) -> None:
    partitions = shard_partitions(settings)
    result = dg.materialize(
        [*build_assets(partitions), *build_checks(partitions)],
        partition_key="alpha",
        resources={"cold": Cold(settings)},
        instance=instance,
    )
    assert result.success
    (made,) = sets(settings)
    assert (made.corpus, made.shard) == ("small", "alpha")
    raise_findings(verify_set(LocalStore(Path(settings.store)), made, load_profile()))
    assert sorted(str(event.step_key) for event in result.all_events if event.is_step_materialization) == sorted(STEPS)
    told = facts(result, "pack_set")
    assert told["snapshot_root"] == made.snapshot_root
    assert told["set_hash"] == made.set_hash
    assert told["up_to_date"] is False
    assert told["pack_bytes"] == made.size
    assert [record.data["pack"] for record in told["packs"].records] == [pack.hash for pack in made.packs]
    assert facts(result, "bucket_objects")["bytes_sent"] == made.size
    edges = facts(result, "fan_in_edges")
    assert edges["edges"] > edges["groups"] > 0
    assert 0 < facts(result, "chunk_selection")["chunks"] <= made.chunks  # one that documents share is in each
    (check,) = result.get_asset_check_evaluations()
    assert check.passed and check.blocking and check.partition == "alpha"
    assert [path.name for path in (settings.staging / "small" / "alpha").iterdir()] == ["lock"]


def test_a_second_run_is_up_to_date(settings: Settings, execute: Execute) -> None:
    first, second = execute("repack", "alpha"), execute("repack", "alpha")
    assert first.success and second.success
    for asset in ("cold_packs", "bucket_objects", "pack_set"):
        assert facts(first, asset)["up_to_date"] is False
        assert facts(second, asset)["up_to_date"] is True
        assert version(first, asset) == version(second, asset)
    assert version(first, "pack_set") == version(first, "cold_packs")
    assert facts(second, "bucket_objects")["packs_sent"] == facts(second, "bucket_objects")["bytes_sent"] == 0
    assert facts(second, "pack_set")["set_hash"] == facts(first, "pack_set")["set_hash"]
    assert len(sets(settings)) == 1
    change(settings, "alpha")
    third = execute("repack", "alpha")
    assert facts(third, "pack_set")["up_to_date"] is False
    assert version(third, "pack_set") != version(first, "pack_set")
    assert len(sets(settings)) == 2


def test_shards_are_apart(settings: Settings, execute: Execute) -> None:
    assert execute("repack", "alpha").success and execute("repack", "beta").success
    entries = read_catalog(LocalStore(Path(settings.store)))
    assert [entry.shard for entry in entries] == ["alpha", "beta"]


@pytest.mark.parametrize(
    ("shard", "reason"), [("gamma", "no shard 'gamma' in COLD_SOURCES"), (None, "the run has no partition")]
)
def test_an_unknown_partition_stops_the_first_step(
    settings: Settings, execute: Execute, shard: str | None, reason: str
) -> None:
    result = execute("repack", shard)
    step, told = failure(result)
    assert step == "corpus_snapshot"
    assert told.startswith(reason) and told.endswith("alpha, beta")
    assert not settings.staging.exists() and not Path(settings.store).exists()


def test_materialize_refuses_an_unknown_partition(settings: Settings, instance: dg.DagsterInstance) -> None:
    with pytest.raises(dg.DagsterUnknownPartitionError):
        dg.materialize(
            build_assets(shard_partitions(settings)),
            partition_key="gamma",
            resources={"cold": Cold(settings)},
            instance=instance,
        )


def _damage(path: Path) -> str:
    path.write_bytes(b"this is no database")
    return "is not a SQLite database"


def _remove(path: Path) -> str:
    path.unlink()
    return "does not exist"


def _wrong_body(path: Path) -> str:
    with closing(sqlite3.connect(path)) as db:
        db.execute("UPDATE chunks SET content = content || '!' WHERE rowid = 5")
        db.commit()
    return "does not match it"


def _stray_table(path: Path) -> str:
    with closing(sqlite3.connect(path)) as db:
        db.execute("CREATE TABLE surprise(x)")
        db.commit()
    return "table unknown to the profile: surprise"


@pytest.mark.parametrize(
    ("breaking", "at"),
    [
        (_damage, "corpus_snapshot"),
        (_remove, "corpus_snapshot"),
        (_stray_table, "corpus_snapshot"),
        (_wrong_body, "shard_tables"),
    ],
)
def test_a_broken_source_fails_in_one_line(
    settings: Settings, execute: Execute, instance: dg.DagsterInstance, breaking: Callable[[Path], str], at: str
) -> None:
    reason = breaking(Path(settings.sources["alpha"]))
    result = execute("repack", "alpha")
    step, told = failure(result)
    assert step == at
    assert reason in told and "\n" not in told
    store = LocalStore(Path(settings.store))
    assert list(committed_sets(store)) == [] and read_catalog(store) == []
    run = instance.get_run_by_id(result.run_id)
    assert run is not None and run.tags[RETRY_TAG] == "false"
    assert execute("repack", "beta").success


@pytest.mark.parametrize(
    ("error", "again"), [(StoreTrouble("the store is away"), "true"), (PackError("a bug"), "false")]
)
def test_only_what_may_pass_is_tried_again(
    execute: Execute, instance: dg.DagsterInstance, monkeypatch: pytest.MonkeyPatch, error: PackError, again: str
) -> None:
    def refuse(*_: object) -> None:
        raise error

    monkeypatch.setattr(ShardBuild, "upload_staged", refuse)
    result = execute("repack", "alpha")
    assert failure(result) == ("bucket_objects", str(error))
    run = instance.get_run_by_id(result.run_id)
    assert run is not None and run.tags[RETRY_TAG] == again


def test_a_retry_after_the_upload_builds_nothing(
    settings: Settings, execute: Execute, monkeypatch: pytest.MonkeyPatch
) -> None:
    cold = Cold(settings)
    build, store = cold.build("alpha", "a run", lambda *_: None), cold.store()
    with build.held():
        build.pin()
        build.select()
        build.stage_tables(fanned_in=False)
        build.stage_tables(fanned_in=True)
        assert build.uploaded() is None
        build.build_packs()
        sent = build.upload_staged(store)
        assert list(build.staging.packs.iterdir()) == []
        assert build.uploaded() == sent
    monkeypatch.setattr("pipelines.steps.first_run", lambda _: "a run")
    monkeypatch.setattr(ShardBuild, "build_packs", None)
    result = execute("repack", "alpha")
    assert result.success
    assert facts(result, "pack_set")["up_to_date"] is False
    assert facts(result, "bucket_objects")["bytes_sent"] == sent[0].sent


def test_a_shard_being_built_is_busy(settings: Settings, execute: Execute) -> None:
    with Cold(settings).build("alpha", "another", lambda *_: None).held():
        step, told = failure(execute("repack", "alpha"))
    assert step == "corpus_snapshot" and "is being built by another process" in told
    assert issubclass(Busy, PackError)


def test_the_check_fails_for_one_flipped_byte(settings: Settings, execute: Execute) -> None:
    assert execute("repack", "alpha").success and execute("repack", "beta").success
    made = next(made for made in sets(settings) if made.shard == "alpha")
    path = Path(settings.store) / pack_key(made.packs[0].hash)
    data = bytearray(path.read_bytes())
    data[len(data) // 2] ^= 1
    path.write_bytes(data)
    result = execute("verify", "alpha")
    (check,) = result.get_asset_check_evaluations()
    assert not check.passed and check.severity == dg.AssetCheckSeverity.ERROR and check.partition == "alpha"
    assert "SHA-256" in str(check.description)
    assert not result.success
    assert execute("verify", "beta").success


def test_the_check_fails_without_a_set(execute: Execute) -> None:
    (check,) = execute("verify", "alpha").get_asset_check_evaluations()
    assert not check.passed and "holds no set of shard small/alpha" in str(check.description)


def test_a_corpus_that_contradicts_itself_is_a_warning(settings: Settings, execute: Execute) -> None:
    with closing(sqlite3.connect(settings.sources["alpha"])) as db:
        db.execute("UPDATE audit_events SET payload = '{}' WHERE seq = 3")
        db.commit()
    result = execute("repack", "alpha")
    assert result.success
    (check,) = result.get_asset_check_evaluations()
    assert not check.passed and check.severity == dg.AssetCheckSeverity.WARN
    assert "audit" in str(check.description)


def repack_job() -> dg.JobDefinition:
    """For `dg.reconstructable`: settings from the environment."""
    return build_defs().resolve_job_def("repack")


def test_a_retry_goes_on_and_a_new_try_pins_anew(
    env: dict[str, str], settings: Settings, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    for name, value in env.items():
        monkeypatch.setenv(name, value)
    job, tags = dg.reconstructable(repack_job), {"dagster/partition": "alpha"}

    def refuse(*_: object) -> None:
        raise StoreTrouble("the store is away")

    def interrupted() -> tuple[str, str]:
        """(run id, snapshot root) of a run that got as far as its packs; the source changes after it."""
        with monkeypatch.context() as patched:
            patched.setattr(ShardBuild, "upload_staged", refuse)
            with dg.execute_job(job, instance=instance, tags=tags) as result:
                assert list(result.get_failed_step_keys()) == ["bucket_objects"]
                run_id = str(result.run_id)
        root = Cold(settings).build("alpha", run_id, lambda *_: None).plan().snapshot_root
        change(settings, "alpha")
        return run_id, root

    def again(options: dg.ReexecutionOptions, **more: str) -> set[str]:
        """The steps that ran."""
        with dg.execute_job(job, instance=instance, reexecution_options=options, tags={**tags, **more}) as result:
            assert result.success
            return {str(event.step_key) for event in result.all_events if event.is_step_success}

    (tmp_path / "home").mkdir()
    with dg.DagsterInstance.local_temp(str(tmp_path / "home"), overrides={"telemetry": {"enabled": False}}) as instance:
        run_id, root = interrupted()
        ran = again(dg.ReexecutionOptions.from_failure(run_id, instance))
        assert ran == {"bucket_objects", "pack_set", "pack_set_reads_back_whole"}
        assert [made.snapshot_root for made in sets(settings)] == [root]

        run_id, second = interrupted()
        assert "corpus_snapshot" in again(dg.ReexecutionOptions(run_id), **{"dagster/retry_number": "1"})
        assert {made.snapshot_root for made in sets(settings)} == {root, second}

        run_id, other = interrupted()
        assert "corpus_snapshot" in again(dg.ReexecutionOptions(run_id))
        roots = {made.snapshot_root for made in sets(settings)}
        assert len(roots) == 3 and other not in roots


def test_observations_come_once_a_minute() -> None:
    now = [0.0]
    seen: list[dg.AssetObservation] = []
    observer = Observer(seen.append, dg.AssetKey("cold_packs"), "alpha", lambda: now[0])
    for second in range(200):
        now[0] = float(second)
        observer("bodies", second, 200)
    assert [item.metadata["done"].value for item in seen] == [60, 120, 180]
    assert {item.partition for item in seen} == {"alpha"}
