"""Random rows of every stored type go from a source through packs into databases and are the same there."""

from __future__ import annotations

import sqlite3
import tempfile
from contextlib import closing
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from tests.property.cells import CELLS, FEW, TEXTS, insert, write_profile, write_source
from tests.support import build, contents, hydrate, leaf

pytestmark = pytest.mark.usefixtures("in_each_layout")

THINGS = st.lists(st.tuples(CELLS, CELLS, FEW), max_size=15)
LINKS = st.lists(st.tuples(FEW, FEW, FEW | CELLS), max_size=25)
BODIES = st.lists(TEXTS, max_size=6)
CAPS = st.sampled_from([4_500, 20_000, None])


@settings(max_examples=60)
@given(THINGS, LINKS, BODIES, CAPS, st.data())
def test_source_packs_target_are_equal(things: Any, links: Any, bodies: Any, cap: int | None, data: Any) -> None:
    with tempfile.TemporaryDirectory() as name:
        folder = Path(name)
        profile = write_profile(folder)
        # A key names a row: with two rows of one key a partial target cannot tell which of them it has.
        things = list({repr(row[0]): row for row in things if row[0] == row[0]}.values())
        keys = [row[0] for row in things]
        things = [row for place, row in enumerate(things) if row[0] not in keys[:place]]
        # Nor with rows that compare equal and are not the same (1 and 1.0): the one it lacks conflicts.
        links = [row for at, row in enumerate(links) if all(row != one or repr(row) == repr(one) for one in links[:at])]
        source = write_source(folder / "source.db", things, links, bodies)
        built = build(source, folder, profile=profile, cap=cap, workers=1)
        wanted = contents(source, profile)

        fresh = folder / "fresh.db"
        assert hydrate(built, fresh, profile).changed == bool(things or links or bodies)
        assert contents(fresh, profile) == wanted
        before = fresh.read_bytes()
        again = hydrate(built, fresh, profile)
        assert not again.changed and not again.conflict_count
        assert contents(fresh, profile) == wanted and fresh.read_bytes() == before

        def some(rows: list[Any]) -> list[Any]:
            return [row for row in rows if data.draw(st.booleans())]

        partial = write_source(folder / "partial.db", some(things), some(links), [])
        with closing(sqlite3.connect(partial, isolation_level=None)) as db:
            chosen = some(list(enumerate(bodies)))
            insert(
                db, "items", [(place, leaf(t.encode()), t if data.draw(st.booleans()) else None) for place, t in chosen]
            )
        report = hydrate(built, partial, profile)
        assert not report.conflict_count, report.conflicts
        assert contents(partial, profile) == wanted
