"""Packs made to do harm: every checksum in them is right, and what they say is not. They are refused, in bounded
memory, and by `PackError`, wherever they go."""

from __future__ import annotations

import contextlib
import json
import struct
from pathlib import Path
from typing import Any

import pytest

from pack_lib.errors import PackError
from pack_lib.hydrate import hydrate_pack
from pack_lib.pack.blob import FileBlob
from pack_lib.profile import load_profile
from pack_lib.verify import verify_pack
from tests.damaged.craft import contents, frame, member, pack, seek_table, sha256, with_seek_table
from tests.support import TABLES, exact_rows

PROFILE = load_profile()
DOCUMENTS = b'{"_columns":["document_root","uri","title","mime","n_chunks","added_at"]}\n'
EDGES = b'{"_columns":["dst_uri","edge_type","anchor","dst_root","src_roots"],"fan_in":{"src_roots":"src_root"}}\n'
CHUNKS = b'{"_columns":["document_root","ordinal","leaf_hash","n_bytes"]}\n'
BODIES = [b"one", b"two" * 300, b"three"]


def refused_everywhere(data: bytes, folder: Path) -> None:
    """Neither verification nor hydration takes it, and hydration leaves nothing."""
    path = folder / "x.tar.zst"
    path.write_bytes(data)
    with pytest.raises(PackError):
        verify_pack(FileBlob(path), PROFILE)
    with pytest.raises(PackError):
        hydrate_pack(FileBlob(path), folder / "target.db", PROFILE)
    assert sorted(item.name for item in folder.iterdir()) == ["x.tar.zst"]


@pytest.mark.parametrize(
    "cell",
    [
        b"[1]",
        b"[]",
        b"true",
        b"9223372036854775808",
        b"-9223372036854775809",
        b"1" * 400,
        b'"\\ud800"',
        b'"a\\udfffb"',
        b"1e999",
    ],
)
@pytest.mark.parametrize("place", [0, 4])
def test_cells_that_no_source_holds_are_refused(tmp_path: Path, cell: bytes, place: int) -> None:
    cells = [b'"root"', b"null", b"null", b"null", b"1", b"null"]
    cells[place] = cell
    refused_everywhere(pack([("tables/documents.jsonl", DOCUMENTS + b"[" + b",".join(cells) + b"]\n")]), tmp_path)


@pytest.mark.parametrize(
    ("cell", "kind", "value"),
    [
        (b"1.00", b"text", b"1.0"),
        (b"1E5", b"text", b"100000.0"),
        (b'"\\u0041"', b"text", b"A"),
        (b'"\\/"', b"text", b"/"),
        (b'{"$b":"FF"}', b"blob", b"\xff"),
        (b'{"$t":"61"}', b"text", b"a"),
        (b' "x" ', b"text", b"x"),
    ],
)
def test_cells_spelled_otherwise_are_refused_or_taken_as_what_they_say(
    tmp_path: Path, cell: bytes, kind: bytes, value: bytes
) -> None:
    row = b'["root",' + cell + b",null,null,1,null]\n"
    path = tmp_path / "x"
    path.write_bytes(pack([("tables/documents.jsonl", DOCUMENTS + row)]))
    try:
        hydrate_pack(FileBlob(path), tmp_path / "target.db", PROFILE)
    except PackError:
        return
    assert list(exact_rows(tmp_path / "target.db", "documents", ["uri"])) == [(kind, value)]


@pytest.mark.parametrize("cell", [b"[1]", b"true", b"9223372036854775808", b'"\\ud800"', b"1e999", b"[]"])
def test_cells_that_no_source_holds_are_refused_in_a_group(tmp_path: Path, cell: bytes) -> None:
    for row in (b'["u",1,null,null,["a",' + cell + b"]]\n", b'["u",' + cell + b',null,null,["a"]]\n'):
        refused_everywhere(pack([("tables/edges.jsonl", EDGES + row)]), tmp_path)


@pytest.mark.parametrize(
    "rows",
    [
        b'["r",0,"' + b"a" * 64 + b'",1],["s",0,"' + b"b" * 64 + b'",1]\n',
        b'["r",0,"aa",[1]]\n',
        b'["r",0,null,1]\n["r",1,5,1]\n',
        b'["r",0,"aa"]\n',
        b"[" * 5000 + b"\n",
    ],
)
def test_rows_of_chunks_end_in_a_report_or_an_error_of_ours(tmp_path: Path, rows: bytes) -> None:
    path = tmp_path / "x"
    path.write_bytes(pack([("tables/chunks.jsonl", CHUNKS + rows)]))
    for attempt in (lambda: verify_pack(FileBlob(path), PROFILE), lambda: hydrate_pack(FileBlob(path), path, PROFILE)):
        with contextlib.suppress(PackError):
            attempt()


@pytest.mark.parametrize(
    ("name", "head"),
    [
        ("tables/documents.jsonl", CHUNKS),
        ("tables/documents.jsonl", b'{"_columns":["document_root"]}\n'),
        ("tables/sqlite_master.jsonl", b'{"_columns":["sql"]}\n'),
        ("tables/chunks_fts_data.jsonl", b'{"_columns":["id","block"]}\n'),
        ("tables/meta.jsonl", b'{"_columns":["key"]}\n'),
        ("tables/documents.00002.jsonl", b"not json\n"),
        ("tables/edges.jsonl", EDGES.replace(b'src_root"}', b'dst_root"}')),
        ("tables/edges.jsonl", EDGES.replace(b',"fan_in":{"src_roots":"src_root"}', b"")),
    ],
)
def test_tables_that_do_not_fit_the_profile_are_not_hydrated(tmp_path: Path, name: str, head: bytes) -> None:
    path = tmp_path / "x"
    path.write_bytes(pack([(name, head)]))
    with pytest.raises(PackError):
        hydrate_pack(FileBlob(path), tmp_path / "target.db", PROFILE)
    assert [item.name for item in tmp_path.iterdir()] == ["x"]


@pytest.mark.parametrize(
    "name",
    ["../evil", "/etc/evil", "tables/../../evil.jsonl", "tables/a/b.jsonl", "blobs/aa/bb", "tables/x.jsonl\x00", ""],
)
def test_member_names_that_lead_elsewhere_are_refused(tmp_path: Path, name: str) -> None:
    made = contents([("tables/documents.jsonl", DOCUMENTS)], change=lambda v: v["tables"][0].update(member=name))
    refused_everywhere(with_seek_table([frame(part) for part in made], [len(part) for part in made]), tmp_path)


FIRST_LINES: dict[str, dict[str, Any]] = {
    "chunks too many": {"chunks": 4},
    "chunks too few": {"chunks": 2},
    "chunks huge": {"chunks": 2**63 - 1},
    "chunks larger than a word": {"chunks": 2**70},
    "chunks negative": {"chunks": -1},
    "chunks as float": {"chunks": 3.0},
    "chunks as text": {"chunks": "3"},
    "chunks as truth": {"chunks": True},
    "body bytes": {"body_bytes": 5},
    "body bytes as list": {"body_bytes": []},
    "number": {"number": 0},
    "number as text": {"number": "1"},
    "corpus": {"corpus": "../../etc"},
    "corpus as number": {"corpus": 5},
    "shard": {"shard": ""},
    "root": {"snapshot_root": "0" * 63},
    "root in capitals": {"snapshot_root": "A" * 64},
    "profile as list": {"profile": ["corpus"]},
    "profile as number": {"profile": 1.5},
    "order": {"order": "other"},
    "a key more": {"more": 1},
    "tables as object": {"tables": {}},
    "tables as text": {"tables": "abc"},
    "a table as list": {"tables": [[]]},
    "a table as null": {"tables": [None]},
    "no tables": {"tables": None},
    "columns": {"_columns": ["leaf_hash"]},
}


@pytest.mark.parametrize("case", FIRST_LINES)
def test_first_lines_that_lie(tmp_path: Path, case: str) -> None:
    refused_everywhere(pack([], BODIES, change=lambda value: value.update(FIRST_LINES[case])), tmp_path)


PARTS: list[dict[str, Any]] = [
    {"rows": 9},
    {"rows": -1},
    {"rows": 1.0},
    {"rows": None},
    {"size": 0},
    {"size": 2**62},
    {"size": -5},
    {"size": "9"},
    {"offset": 0},
    {"offset": -512},
    {"offset": 2**63},
    {"sha256": "0" * 64},
    {"sha256": 5},
    {"sha256": None},
    {"member": 7},
    {"member": "tables/chunks.jsonl"},
    {"more": 1},
]


@pytest.mark.parametrize("part", PARTS, ids=[str(part) for part in PARTS])
def test_table_parts_that_lie(tmp_path: Path, part: dict[str, Any]) -> None:
    refused_everywhere(
        pack([("tables/documents.jsonl", DOCUMENTS)], BODIES, change=lambda value: value["tables"][0].update(part)),
        tmp_path,
    )


def test_first_lines_nested_to_the_limit_of_the_parser(tmp_path: Path) -> None:
    path = tmp_path / "x"
    for depth in (*range(300, 1010, 1), 5_000, 200_000):
        line = b'{"_columns":' + b"[" * depth + b"]" * depth + b"}\n"
        good = contents([], change=lambda value: None)[0][512:]
        nested = good.replace(b'"profile":"corpus"', b'"profile":' + b"[" * depth + b"]" * depth)
        for text in (line, nested):
            path.write_bytes(pack([], line=text))
            with pytest.raises(PackError):
                verify_pack(FileBlob(path))


CATALOGUES = [
    '["{hash}",{offset},[]]\n',
    '["{hash}",{offset},{{}}]\n',
    '["{hash}",{offset},{size}.0]\n',
    '["{hash}",{offset}.0,{size}]\n',
    '["{hash}",{offset},-{size}]\n',
    '["{hash}",-{offset},{size}]\n',
    '["{hash}",{offset},null]\n',
    '["{hash}",{offset},"{size}"]\n',
    '["{hash}",{offset}]\n',
    '["{hash}",{offset},{size},0]\n',
    "[null,{offset},{size}]\n",
    '["{upper}",{offset},{size}]\n',
    '["{hash}", {offset},{size}]\n',
    '["{hash}",0,{size}]\n',
    '["{hash}",{offset},0]\n',
    '["{hash}",{offset},1e400]\n',
    '["{hash}",{offset},99999999999999999999]\n',
    '["{hash}",{offset},{size}]\n["{hash}",{offset},{size}]\n',
    "\n",
    "{{}}\n",
    "[" * 3000 + "\n",
    '["{hash}",{offset},{size}]',
]


@pytest.mark.parametrize("line", CATALOGUES, ids=range(len(CATALOGUES)))
@pytest.mark.parametrize("place", [0, 2])
def test_catalogues_that_lie(tmp_path: Path, line: str, place: int) -> None:
    def change(lines: list[str]) -> None:
        leaf_hash, offset, size = json.loads(lines[place])
        if line == "[" * 3000 + "\n":
            lines[place] = line
        else:
            lines[place] = line.format(hash=leaf_hash, upper=leaf_hash.upper(), offset=offset, size=size)

    path = tmp_path / "x.tar.zst"
    path.write_bytes(pack([], BODIES, catalogue=change))
    refused_everywhere(path.read_bytes(), tmp_path)


def test_catalogue_lines_in_another_order_or_dropped(tmp_path: Path) -> None:
    refused_everywhere(pack([], BODIES, catalogue=lambda lines: lines.reverse()), tmp_path)
    refused_everywhere(pack([], BODIES, catalogue=lambda lines: lines.pop(1)), tmp_path)
    refused_everywhere(
        pack([], BODIES, catalogue=lambda lines: lines.pop(), change=lambda v: v.update(chunks=2, body_bytes=0)),
        tmp_path,
    )


def test_a_body_that_does_not_match_its_name(tmp_path: Path) -> None:
    made = contents([], BODIES)
    for number, part in enumerate(made):
        if part.startswith(b"blobs/"):
            changed = [*made]
            changed[number] = part[:512] + bytes([part[512] ^ 1]) + part[513:]
            refused_everywhere(with_seek_table([frame(p) for p in changed], [len(p) for p in changed]), tmp_path)


def test_members_that_the_manifest_does_not_name(tmp_path: Path) -> None:
    made = contents([], BODIES)
    extra = member("blobs/00/" + "0" * 62, b"extra")
    for place in range(1, len(made) + 1):
        changed = [*made[:place], extra, *made[place:]]
        refused_everywhere(with_seek_table([frame(p) for p in changed], [len(p) for p in changed]), tmp_path)


def test_padding_that_is_not_zeros(tmp_path: Path) -> None:
    made = contents([("tables/documents.jsonl", DOCUMENTS)], BODIES)
    for number, part in enumerate(made):
        if part.endswith(b"\0") and number != 0:
            changed = [*made]
            changed[number] = part[:-1] + b"x"
            data = with_seek_table([frame(p) for p in changed], [len(p) for p in changed])
            if number == 2:  # after the manifest: nobody reads it, and it must not be taken for more
                path = tmp_path / "x.tar.zst"
                path.write_bytes(data)
                with contextlib.suppress(PackError):
                    verify_pack(FileBlob(path))
                path.unlink()
            else:
                refused_everywhere(data, tmp_path)


# -- seek tables --


def test_seek_tables_that_promise_too_much(tmp_path: Path) -> None:
    made = contents([], BODIES)
    frames = [frame(part) for part in made]
    body = b"".join(frames)
    right = [(len(f), len(p), int.from_bytes(f[-4:], "little")) for f, p in zip(frames, made, strict=True)]
    most = 2**32 - 1
    wrong = [
        seek_table(right, count=most),
        seek_table(right, count=most // 12),
        seek_table(right, count=0),
        seek_table(right, count=len(right) - 1),
        seek_table(right, flags=0),
        seek_table(right, flags=0xFF),
        seek_table([]),
        seek_table([(most, most, most)] * 1000),
        seek_table([(len(body), most, right[-1][2])]),
        seek_table([(0, most, 0)] * 100 + right),
        seek_table([*right, (0, 1, 0)]),
        struct.pack("<IBI", most, 0x80, 0x8F92EAB1),
        struct.pack("<IBI", 0, 0x80, 0x8F92EAB1),
    ]
    for table in wrong:
        refused_everywhere(body + table, tmp_path)
        refused_everywhere(table, tmp_path)


def test_a_sound_pack_made_by_hand_is_taken(tmp_path: Path) -> None:
    rows = b'["r","u","t",null,1,null]\n'
    digest = sha256(b"\0one")
    tables = [
        ("tables/documents.jsonl", DOCUMENTS + rows),
        ("tables/chunks.jsonl", CHUNKS + f'["r",0,"{digest}",3]\n'.encode()),
        ("tables/edges.jsonl", EDGES + b'[null,"1",null,{"$b":"00"},["a","a",{"$t":"ff"}]]\n'),
    ]
    path = tmp_path / "x"
    path.write_bytes(pack(tables, [b"one"]))
    verify_pack(FileBlob(path), PROFILE)
    report = hydrate_pack(FileBlob(path), tmp_path / "target.db", PROFILE)
    assert (report.filled, report.tables["edges"].inserted) == (1, 3)
    assert len(report.tables_missing) == 10
    assert set(exact_rows(tmp_path / "target.db", "edges", TABLES["edges"])) == {
        (b"null", None, b"text", b"1", b"null", None, b"blob", b"\0", b"text", b"a"),
        (b"null", None, b"text", b"1", b"null", None, b"blob", b"\0", b"text", b"\xff"),
    }
