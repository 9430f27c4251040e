"""Cells: their one spelling, and that they survive from a source through packs into a fresh database."""

from __future__ import annotations

import random
import sqlite3
from pathlib import Path
from typing import Any

import pytest

from pack_lib.errors import Damaged
from pack_lib.values import RawText, decode_lines, encode_row, text_cell
from tests.property.cells import PROFILE, write_profile, write_source
from tests.support import build, contents, exact_rows, hydrate, leaf

INF = float("inf")
SPELLINGS: list[tuple[Any, str]] = [
    (None, "null"),
    (0, "0"),
    (-(2**63), "-9223372036854775808"),
    (2**63 - 1, "9223372036854775807"),
    (1.0, "1.0"),
    (-0.0, "-0.0"),
    (1e300, "1e+300"),
    (0.1 + 0.2, "0.30000000000000004"),
    (5e-324, "5e-324"),
    (INF, '{"$f":"inf"}'),
    (-INF, '{"$f":"-inf"}'),
    ("", '""'),
    ("a\x00b", '"a\\u0000b"'),
    ("\u00e9\u2028\U0001f600\x7f", '"\u00e9\u2028\U0001f600\x7f"'),
    ('"\\/\b\f\n\r\t\x1f', '"\\"\\\\/\\b\\f\\n\\r\\t\\u001f"'),
    (RawText(b"\xc3"), '{"$t":"c3"}'),
    (b"", '{"$b":""}'),
    (b"\x00\xff", '{"$b":"00ff"}'),
]
MEGABYTE = random.Random(3).randbytes(500_000).hex()
EXTREMES = [cell for cell, _ in SPELLINGS] + [
    MEGABYTE,
    MEGABYTE.encode(),
    RawText(b"\xff" * 100_000),
    RawText(b"\xed\xa0\x80"),
    RawText(b"a\x00\xfe\x00"),
]


@pytest.mark.parametrize(("cell", "spelling"), SPELLINGS)
def test_spelling(cell: Any, spelling: str) -> None:
    assert encode_row([cell, cell]) == f"[{spelling},{spelling}]"
    assert repr(decode_lines([f"[{spelling}]"], 1, "here")) == repr([[cell]])


def test_nan_keeps_its_place_beside_finite_cells() -> None:
    assert encode_row([float("nan"), 1.5, b"\x01", [INF]]) == '[{"$f":"nan"},1.5,{"$b":"01"},[{"$f":"inf"}]]'


@pytest.mark.parametrize("value", [object(), {1}, ["a", object()], bytearray(b"a")])
def test_what_is_no_cell_is_refused(value: Any) -> None:
    with pytest.raises((TypeError, ValueError)):
        encode_row([value])


@pytest.mark.parametrize(
    "line",
    [
        "",
        "1",
        "{}",
        "[1",
        "[1]]",
        "[NaN]",
        "[Infinity]",
        "[{}]",
        '[{"$b":"0g"}]',
        '[{"$b":1}]',
        '[{"$x":"00"}]',
        '[{"$f":"1.0"}]',
        '[{"$b":"00","$t":"00"}]',
        "[1],[2]",
        "[1,2]",
        "[" * 100_000,
    ],
)
def test_lines_that_are_no_row_are_damage(line: str) -> None:
    with pytest.raises(Damaged, match="here"):
        decode_lines([line], 1, "here")


def test_text_is_utf8_or_raw() -> None:
    assert text_cell("\u00e9".encode()) == "\u00e9"
    assert text_cell(b"\xe9") == RawText(b"\xe9") != "\ufffd"
    assert text_cell(b"\xed\xa0\x80") == RawText(b"\xed\xa0\x80")  # a surrogate is no UTF-8
    assert len({RawText(b"a"), RawText(b"a"), "a", b"a"}) == 3


def test_every_stored_value_survives(tmp_path: Path) -> None:
    profile = write_profile(tmp_path / "profile")
    things = [(place, cell, None) for place, cell in enumerate(EXTREMES)]
    links = [("group", place % 3, cell) for place, cell in enumerate(EXTREMES) if type(cell) is not RawText]
    bodies = ["", "a\x00b", MEGABYTE, "\U0001f600", "\n"]
    source = write_source(tmp_path / "source.db", things, links, bodies)
    stored = {row[1::2][0]: (row[2], row[3]) for row in exact_rows(source, "things", ("a", "b"))}
    assert [stored[place][0] for place in range(3)] == [b"null", b"integer", b"integer"]
    assert stored[5] == (b"real", b"\x80" + bytes(7))  # the sign of the zero is in the source itself
    built = build(source, tmp_path, profile=profile)
    hydrate(built, tmp_path / "target.db", profile)
    assert contents(tmp_path / "target.db", profile) == contents(source, profile)


def test_text_that_is_not_utf8_survives_in_a_fanned_in_table_that_has_numbers(tmp_path: Path) -> None:
    profile = write_profile(tmp_path / "profile")
    links = [(RawText(b"\xff"), 1, "a"), (RawText(b"\xff"), 1.0, RawText(b"\xfe")), ("a\x00b", 2, "a\x00c")]
    source = write_source(tmp_path / "source.db", [], links, [])
    hydrate(build(source, tmp_path, profile=profile), tmp_path / "target.db", profile)
    assert contents(tmp_path / "target.db", profile) == contents(source, profile)


def test_bodies_that_are_not_utf8_survive(tmp_path: Path) -> None:
    profile = write_profile(tmp_path / "profile")
    source = write_source(tmp_path / "source.db", [], [], ["plain"])
    raws = [b"\xff\x00\xfe", b"\xed\xa0\x80", b"\xc3"]
    with sqlite3.connect(source) as db:
        for place, raw in enumerate(raws):
            digest = leaf(raw)
            db.execute("INSERT INTO items VALUES(?, ?, CAST(? AS TEXT))", (100 + place, digest, raw))
    db.close()
    built = build(source, tmp_path, profile=profile)
    report = hydrate(built, tmp_path / "target.db", profile)
    assert (report.bodies, report.filled) == (4, 4)
    assert contents(tmp_path / "target.db", profile) == contents(source, profile)
    assert not hydrate(built, tmp_path / "target.db", profile).changed


def test_bodies_stored_as_blobs_survive(tmp_path: Path) -> None:
    profile = write_profile(
        tmp_path / "profile", profile=PROFILE.replace('content = "body"', 'content = "body"\ntype = "blob"')
    )
    source = write_source(tmp_path / "source.db", [], [], [])
    raws = [b"", b"\x00", b"\xff" * 1000, bytes(range(256))]
    with sqlite3.connect(source) as db:
        db.executemany("INSERT INTO items VALUES(?, ?, ?)", [(n, leaf(raw), raw) for n, raw in enumerate(raws)])
    db.close()
    hydrate(build(source, tmp_path, profile=profile), tmp_path / "target.db", profile)
    assert contents(tmp_path / "target.db", profile) == contents(source, profile)
