"""One snapshot, the same bytes: whatever the copy's layout on disk, the workers, the process's settings."""

from __future__ import annotations

import hashlib
import os
import shutil
import sqlite3
import subprocess
import sys
from contextlib import closing
from pathlib import Path

import pytest

from pack_lib.pack_set import committed_sets
from pack_lib.values import RawText
from tests.property.cells import SCHEMA, write_profile, write_source
from tests.support import Built, build, contents, shard_rows, write_shard

pytestmark = pytest.mark.usefixtures("in_each_layout")
CAP = 250_000


def objects(built: Built) -> dict[str, str]:
    """Every object of a set by its key with its SHA-256; the catalog, which has times, left out."""
    folder = built.store.folder
    return {
        path.relative_to(folder).as_posix(): hashlib.sha256(path.read_bytes()).hexdigest()
        for path in folder.rglob("*")
        if path.is_file() and path.parent.name != ".tmp" and path.name not in ("catalog.json", ".lock")
    }


@pytest.fixture(scope="module")
def rows() -> dict[str, list[tuple[object, ...]]]:
    made = shard_rows(120, chunk_bytes=2000, noise=True, edges=2000)
    # Ties, NULLs and texts that sort differently by locale, case, UTF-16 units and bytes.
    texts = ["a", "A", "\u00e4", "z", "Z", "\ue000", "\U00010000", "\ufffd", "", "a\x00", "a ", None]
    made["term_aliases"] += [(one, other) for one in texts for other in texts]
    made["concept_relations"] += [("c", "r", "o", weight) for weight in (1.0, 0.5, -1.0, None, 1e300, float("inf"))]
    return made


@pytest.fixture(scope="module")
def first(rows: dict[str, list[tuple[object, ...]]], tmp_path_factory: pytest.TempPathFactory, layout: int) -> Built:
    folder = tmp_path_factory.mktemp("first")
    built = build(write_shard(folder / "shard.db", rows), folder, cap=CAP, workers=1, layout=layout)
    assert len(built.set.packs) >= 3
    return built


@pytest.mark.parametrize("workers", [1, 2, 4])
@pytest.mark.parametrize("how", ["vacuum", "order", "page", "wal"])
def test_other_copies_and_workers_give_the_same_bytes(
    first: Built, rows: dict[str, list[tuple[object, ...]]], tmp_path: Path, how: str, workers: int
) -> None:
    path = tmp_path / "shard.db"
    if how == "order":
        write_shard(path, rows, shuffle=workers)
    elif how == "page":
        write_shard(path, rows, page_size=512 * 2**workers, shuffle=11)
    else:
        shutil.copy(first.source, path)
        with closing(sqlite3.connect(path, isolation_level=None)) as db:
            if how == "wal":
                db.execute("PRAGMA journal_mode=WAL")
            db.execute("DELETE FROM mesh_peers")
            db.execute("UPDATE documents SET title = title")
            db.execute("VACUUM")
    assert path.read_bytes() != first.source.read_bytes()
    built = build(path, tmp_path, cap=CAP, workers=workers)
    assert built.set == first.set
    assert objects(built) == objects(first)


@pytest.mark.parametrize("encoding", ["UTF-16le", "UTF-16be"])
def test_a_utf16_copy_gives_the_same_bytes(
    first: Built, rows: dict[str, list[tuple[object, ...]]], tmp_path: Path, encoding: str
) -> None:
    path = write_shard(tmp_path / "shard.db", rows, encoding=encoding, shuffle=3)
    with closing(sqlite3.connect(path)) as db:
        assert db.execute("PRAGMA encoding").fetchone()[0] == encoding
    built = build(path, tmp_path, cap=CAP)
    assert built.set.snapshot_root == first.set.snapshot_root
    assert objects(built) == objects(first)


BUILD = """
import locale, sys
from pathlib import Path
from tests.support import build
try:
    locale.setlocale(locale.LC_ALL, "")
except locale.Error:
    pass
cap, layout = int(sys.argv[3]), int(sys.argv[4])
print(build(Path(sys.argv[1]), Path(sys.argv[2]), cap=cap, workers=3, layout=layout).set.set_hash)
"""


@pytest.mark.parametrize(
    "settings",
    [
        {"LC_ALL": "C", "PYTHONHASHSEED": "1", "TZ": "Pacific/Kiritimati", "PYTHONUTF8": "0"},
        {"LC_ALL": "tr_TR.UTF-8", "LANG": "tr_TR.UTF-8", "PYTHONHASHSEED": "77", "TZ": "America/St_Johns"},
        {"LC_ALL": "C.UTF-8", "PYTHONHASHSEED": "4294967295", "PYTHONOPTIMIZE": "2", "SOURCE_DATE_EPOCH": "1"},
    ],
)
def test_the_process_settings_change_nothing(first: Built, tmp_path: Path, settings: dict[str, str]) -> None:
    root = Path(__file__).parents[1]
    kept = {name: value for name, value in os.environ.items() if not name.startswith(("LC_", "LANG", "PYTHON"))}
    done = subprocess.run(
        [sys.executable, "-c", BUILD, first.source, tmp_path, str(CAP), str(first.set.parameters.layout)],
        env={**kept, **settings, "PYTHONPATH": str(root)},
        cwd=tmp_path,
        capture_output=True,
        text=True,
        check=False,
    )
    assert done.returncode == 0, done.stderr
    assert done.stdout.strip() == first.set.set_hash
    made = Built(type(first.store)(tmp_path / "store"), first.set, first.source)
    assert objects(made) == objects(first)


def test_ties_and_types_in_any_insertion_order(tmp_path: Path) -> None:
    profile = write_profile(tmp_path / "profile")
    few = [None, 1, 1.0, 0.0, -0.0, 0, "1", b"1", "", RawText(b"\xff"), float("inf"), 2**53, float(2**53), 2**53 + 1]
    things = [(a, b, None) for a in few for b in few]
    made = []
    for turn in (1, -1):
        source = write_source(tmp_path / f"{turn}.db", things[::turn], [], ["b", "a"][::turn])
        made.append(build(source, tmp_path / str(turn), profile=profile))
    numbers = [cell for cell in few if type(cell) is not RawText]
    links = [(a, b, c) for a in numbers for b in numbers for c in (1, 1.0, "x", "x")]
    for turn in (1, -1):
        source = write_source(tmp_path / f"l{turn}.db", [], links[::turn], [])
        made.append(build(source, tmp_path / f"l{turn}", profile=profile))
    assert objects(made[0])  # rows went in with other places
    assert [table.sha256 for table in made[0].set.tables][1] == [table.sha256 for table in made[1].set.tables][1]
    assert objects(made[2]) == objects(made[3])


@pytest.mark.parametrize("collation", ["NOCASE", "RTRIM"])
@pytest.mark.parametrize("table", ["things", "links"])
def test_a_columns_collation_does_not_decide_the_order(tmp_path: Path, collation: str, table: str) -> None:
    columns = "a, b, c" if table == "things" else "x, y, z"
    schema = SCHEMA.replace(columns, columns.replace(",", f" COLLATE {collation},") + f" COLLATE {collation}")
    profile = write_profile(tmp_path / "profile", schema)
    texts = ["a", "A", "a ", "b", "B", "B  ", "ab", "Ab"]
    rows = [(one, other, one) for one in texts for other in texts]
    made = []
    for turn in (1, -1):
        given = {"things": [], "links": [], table: rows[::turn]}
        source = write_source(tmp_path / f"{turn}.db", given["things"], given["links"], [], schema)
        made.append(build(source, tmp_path / str(turn), profile=profile))
    assert objects(made[0]) == objects(made[1])
    plain = write_profile(tmp_path / "plain")
    source = write_source(tmp_path / "plain.db", given["things"], given["links"], [])
    other = build(source, tmp_path / "none", profile=plain)
    assert other.set.snapshot_root == made[0].set.snapshot_root


def test_a_changed_audit_row_gives_another_pack(first: Built, tmp_path: Path) -> None:
    path = Path(shutil.copy(first.source, tmp_path / "shard.db"))
    with closing(sqlite3.connect(path)) as db, db:
        db.execute("UPDATE audit_events SET at = at || '' WHERE seq = 3")
    assert build(path, tmp_path / "same", cap=CAP).set == first.set
    with closing(sqlite3.connect(path)) as db, db:
        db.execute("UPDATE audit_events SET at = '2030-01-01' WHERE seq = 3")
    built = build(path, tmp_path / "other", cap=CAP)
    assert built.set.bodies_root == first.set.bodies_root
    assert built.set.snapshot_root != first.set.snapshot_root
    assert not {pack.hash for pack in built.set.packs} & {pack.hash for pack in first.set.packs}


def test_the_cap_and_the_level_change_packs_but_not_the_snapshot(first: Built, tmp_path: Path) -> None:
    for number, options in enumerate(({"cap": CAP, "level": 4}, {"cap": CAP + 1}, {"cap": None})):
        built = build(first.source, tmp_path / str(number), **options)
        assert built.set.snapshot_root == first.set.snapshot_root
        assert built.set.set_hash != first.set.set_hash


def test_a_second_build_sends_nothing(first: Built) -> None:
    before = objects(first)
    again = build(first.source, first.store.folder.parent, cap=CAP)
    assert again.set == first.set and objects(first) == before
    assert list(committed_sets(first.store)) == [first.set.key]


def listing(folder: Path) -> dict[str, tuple[int, str]]:
    return {
        path.name: (path.stat().st_mtime_ns, hashlib.sha256(path.read_bytes()).hexdigest()) for path in folder.iterdir()
    }


@pytest.mark.parametrize("mode", ["delete", "wal", "wal in use"])
@pytest.mark.parametrize("immutable", [False, True])
def test_building_leaves_the_source_as_it_is(first: Built, tmp_path: Path, mode: str, immutable: bool) -> None:
    folder = tmp_path / "source"
    folder.mkdir()
    path = Path(shutil.copy(first.source, folder / "shard.db"))
    db = sqlite3.connect(path, isolation_level=None)
    if mode != "delete":
        assert db.execute("PRAGMA journal_mode=WAL").fetchone() == ("wal",)
        db.execute("UPDATE documents SET title = title")
    if mode == "wal in use":
        if immutable:
            db.close()
            pytest.skip("a source in use is not immutable")
        assert {item.name for item in folder.iterdir()} == {"shard.db", "shard.db-wal", "shard.db-shm"}
    else:
        db.close()
        assert {item.name for item in folder.iterdir()} == {"shard.db"}
    before = listing(folder)
    built = build(path, tmp_path, cap=CAP, immutable=immutable)
    after = listing(folder)
    if mode == "wal in use":
        # The shared-memory file holds read marks: readers write there, and only there.
        before.pop("shard.db-shm"), after.pop("shard.db-shm")
        db.close()
    assert after == before
    assert built.set == first.set
    assert contents(path) == contents(first.source)


def test_a_read_only_folder_can_be_packed(first: Built, tmp_path: Path) -> None:
    folder = tmp_path / "source"
    folder.mkdir()
    path = Path(shutil.copy(first.source, folder / "shard.db"))
    with closing(sqlite3.connect(path)) as db:
        db.execute("PRAGMA journal_mode=WAL")
    path.chmod(0o444)
    folder.chmod(0o555)
    try:
        assert build(path, tmp_path, cap=CAP).set == first.set
    finally:
        folder.chmod(0o755)
    assert [item.name for item in folder.iterdir()] == ["shard.db"]
