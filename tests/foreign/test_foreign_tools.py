"""Other people's tools read every pack of a set: tar, zstd, bsdtar, 7-Zip, a shell script, pyarrow, duckdb."""

from __future__ import annotations

import hashlib
import importlib
import json
import os
import shutil
import sqlite3
import subprocess
from collections.abc import Sequence
from contextlib import closing
from pathlib import Path
from typing import Any

import pytest

from tests.foreign.minireader import MiniReader
from tests.support import Built, build, make_shard, tree

PACKAGE = {"bsdtar": "libarchive-tools", "7zz": "7zip", "zstd": "zstd", "tar": "tar", "jq": "jq"}


def run(*command: str | Path, **options: Any) -> subprocess.CompletedProcess[str]:
    tool = str(command[0])
    if shutil.which(tool) is None:
        pytest.skip(f"{tool} is not installed (Debian package {PACKAGE.get(tool, tool)})")
    done = subprocess.run(command, capture_output=True, text=True, check=False, **options)
    assert done.returncode == 0, done.stderr
    return done


@pytest.fixture(scope="module")
def whole_set(tmp_path_factory: pytest.TempPathFactory, layout: int) -> Built:
    """Several packs, tables in parts."""
    folder = tmp_path_factory.mktemp("whole")
    source = make_shard(folder / "shard.db", 120, edges=3000, chunk_bytes=1500, noise=True)
    built = build(source, folder, cap=150_000, layout=layout)
    assert len(built.set.packs) > 2
    return built


def check_extracted(pack: Path, folder: Path) -> None:
    """Every file there is what the pack's manifest says, and there is no other file."""
    reader = MiniReader(pack)
    files = {path.relative_to(folder).as_posix(): path for path in folder.rglob("*") if path.is_file()}
    assert files.pop("manifest.jsonl").read_bytes() == reader.manifest
    for part in reader.header["tables"]:
        assert hashlib.sha256(files.pop(part["member"]).read_bytes()).hexdigest() == part["sha256"]
    at = {offset: (leaf_hash, size) for leaf_hash, offset, size in reader.catalogue}
    for name, offset, size in reader.members:
        data = files.pop(name).read_bytes()
        leaves, place = [], 0
        while place < size or not leaves:
            leaf_hash, length = at[offset + place]
            leaves.append(hashlib.sha256(b"\0" + data[place : place + length]).digest())
            assert leaves[-1].hex() == leaf_hash
            place += length
        assert place == size == len(data) and tree(leaves).hex() == name.split("/", 1)[1].replace("/", "")
    assert not files


@pytest.mark.parametrize(
    "command",
    [
        ("tar", "--zstd", "-xf", "{pack}", "-C", "{out}"),
        ("tar", "-xf", "{pack}", "-C", "{out}"),
        ("bsdtar", "-xf", "{pack}", "-C", "{out}"),
    ],
    ids=["tar --zstd", "tar", "bsdtar"],
)
def test_tar_extracts_every_member(whole_set: Built, tmp_path: Path, command: Sequence[str]) -> None:
    for number, pack in enumerate(whole_set.paths):
        out = tmp_path / str(number)
        out.mkdir()
        done = run(*(word.format(pack=pack, out=out) for word in command))
        assert not done.stderr
        check_extracted(pack, out)


def test_tar_lists_members_in_order(whole_set: Built) -> None:
    for pack in whole_set.paths:
        reader = MiniReader(pack)
        names = ["manifest.jsonl", *(part["member"] for part in reader.header["tables"])]
        names += [name for name, _, _ in reader.members]
        assert run("tar", "-tf", pack).stdout.split() == names
        long = run("tar", "--utc", "-tvf", pack).stdout.splitlines()
        assert all(line.startswith("-rw-r--r-- 0/0 ") and " 1970-01-01 00:00 " in line for line in long)


def test_7zip_extracts_every_member(whole_set: Built, tmp_path: Path) -> None:
    for number, pack in enumerate(whole_set.paths):
        outer, inner = tmp_path / f"{number}-tar", tmp_path / f"{number}-files"
        run("7zz", "t", pack)
        run("7zz", "x", "-y", f"-o{outer}", pack)
        (tar,) = outer.iterdir()
        run("7zz", "x", "-y", f"-o{inner}", tar)
        check_extracted(pack, inner)


def test_zstd_tests_lists_and_decompresses(whole_set: Built) -> None:
    for pack in whole_set.paths:
        reader = MiniReader(pack)
        run("zstd", "-tq", pack)
        listed = run("zstd", "-lv", pack).stdout
        assert f"# Zstandard Frames: {len(reader.frames)}\n# Skippable Frames: 1\n" in listed
        assert "Check: XXH64" in listed
        tar = subprocess.run(["zstd", "-dcq", pack], capture_output=True, check=True).stdout
        assert tar == b"".join(reader.frame(number) for number in range(len(reader.frames)))


def test_any_frame_alone_is_a_zstd_file(whole_set: Built, tmp_path: Path) -> None:
    pack = whole_set.paths[1]
    reader, data = MiniReader(pack), pack.read_bytes()
    for number in range(len(reader.frames)):
        frame = tmp_path / f"{number}.zst"
        frame.write_bytes(data[reader.at[number] : reader.at[number + 1]])
    run("zstd", "-tq", *sorted(tmp_path.glob("*.zst")))


CHECK = r"""
set -eu
pack=$1 name=$(basename "$1" .tar.zst)
tar --zstd -xf "$pack"
test "$( (printf '\000'; cat manifest.jsonl) | sha256sum | cut -d' ' -f1)" = "$name" || { echo "pack hash"; exit 1; }
head -n 1 manifest.jsonl | jq -r '.tables[] | "\(.sha256)  \(.member)"' > tables.sums
sha256sum --quiet --strict -c tables.sums || { echo "table"; exit 1; }
size=$(stat -c %s manifest.jsonl)
base=$((512 + (size + 511) / 512 * 512))
zstd -dcq "$pack" > pack.tar
count=0
tail -n +2 manifest.jsonl | jq -r '"\(.[0]) \(.[1]) \(.[2])"' > catalogue
while read -r hash offset length; do
    blob=blobs/$(printf %s "$hash" | cut -c1-2)/$(printf %s "$hash" | cut -c3-)
    test "$( (printf '\000'; cat "$blob") | sha256sum | cut -d' ' -f1)" = "$hash" || { echo "body $hash"; exit 1; }
    tail -c +$((base + offset + 1)) pack.tar | head -c "$length" | cmp -s - "$blob" || { echo "offset $hash"; exit 1; }
    count=$((count + 1))
done < catalogue
test "$(head -n 1 manifest.jsonl | jq .chunks)" = "$count"
test "$(find blobs -type f | wc -l)" = "$count"
"""


@pytest.fixture(scope="module")
def one_set(tmp_path_factory: pytest.TempPathFactory) -> Built:
    """A single pack with uncut tables."""
    folder = tmp_path_factory.mktemp("one")
    return build(make_shard(folder / "shard.db", 25, chunk_bytes=900, noise=True), folder, layout=2)


def test_a_shell_script_verifies_a_pack(one_set: Built, tmp_path: Path) -> None:
    for tool in ("jq", "zstd", "tar"):
        if shutil.which(tool) is None:
            pytest.skip(f"{tool} is not installed")
    (pack,) = one_set.paths
    done = subprocess.run(["sh", "-c", CHECK, "check", pack], cwd=tmp_path, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stdout + done.stderr
    other = tmp_path / "other" / ("0" * 64 + ".tar.zst")
    other.parent.mkdir()
    shutil.copy(pack, other)
    done = subprocess.run(["sh", "-c", CHECK, "check", other], cwd=other.parent, capture_output=True, check=False)
    assert done.returncode == 1 and done.stdout.strip() == b"pack hash"


def optional(name: str) -> Any:
    try:
        return importlib.import_module(name)
    except ImportError:
        pytest.skip(f"{name} is not installed (pip install {name})")


@pytest.fixture
def table_file(one_set: Built, tmp_path: Path) -> Path:
    run("tar", "-xf", one_set.paths[0], "-C", tmp_path, "tables/documents.jsonl")
    return tmp_path / "tables" / "documents.jsonl"


def documents(built: Built) -> list[tuple[Any, ...]]:
    with closing(sqlite3.connect(built.source)) as db:
        return db.execute(
            "SELECT document_root, uri, title, mime, n_chunks, added_at FROM documents ORDER BY 1"
        ).fetchall()


def test_duckdb_reads_a_table(one_set: Built, table_file: Path) -> None:
    duckdb = optional("duckdb")
    found = duckdb.sql(
        f"SELECT json->>0, json->>1, json->>2, json->>3, CAST(json->>4 AS BIGINT), json->>5 "
        f"FROM read_json_objects('{table_file}', format='newline_delimited') WHERE json_type(json) = 'ARRAY'"
    ).fetchall()
    assert sorted(found) == documents(one_set)


def test_pyarrow_reads_a_table(one_set: Built, table_file: Path) -> None:
    optional("pyarrow")
    csv = importlib.import_module("pyarrow.csv")
    compute = importlib.import_module("pyarrow.compute")
    # pyarrow's JSON reader wants objects; a line read as one text column and parsed by json is what arrays take.
    lines = csv.read_csv(
        table_file,
        read_options=csv.ReadOptions(column_names=["line"], skip_rows=1),
        parse_options=csv.ParseOptions(delimiter="\x01", quote_char=False),
    )["line"]
    assert compute.all(compute.starts_with(lines, "[")).as_py()
    assert [tuple(json.loads(line)) for line in lines.to_pylist()] == documents(one_set)


def test_pyarrow_decompresses_a_pack(whole_set: Built) -> None:
    pyarrow = optional("pyarrow")
    pack = whole_set.paths[0]
    with pyarrow.input_stream(str(pack), compression="zstd") as stream:
        tar = stream.read()
    assert tar == b"".join(MiniReader(pack).frame(number) for number in range(len(MiniReader(pack).frames)))


def test_curl_like_ranges_read_one_body(whole_set: Built) -> None:
    """One body needs the seek table, the manifest and one frame: three places of the file."""
    pack = next(path for path in whole_set.paths if len(MiniReader(path).catalogue) > 20)
    reader = MiniReader(pack)
    leaf_hash, offset, size = reader.catalogue[17]
    at = reader.base + offset
    number = max(n for n in range(len(reader.frames)) if reader.start[n] <= at)
    frame = os.pread(reader.file.fileno(), reader.frames[number][0], reader.at[number])
    content = subprocess.run(["zstd", "-dcq"], input=frame, capture_output=True, check=True).stdout
    body = content[at - reader.start[number] :][:size]
    assert hashlib.sha256(b"\0" + body).hexdigest() == leaf_hash
