"""What every refusal has in common: one clear line, the right class, nothing committed, the source untouched."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from pack_lib.errors import PackError
from pack_lib.repack import repack
from pack_lib.stores.local import LocalStore
from tests.kill.small_shard import CAP, files_below, profile, temporaries


def arguments(tmp_path: Path, **options: Any) -> dict[str, Any]:
    given: dict[str, Any] = {"profile": profile(), "cap": CAP, "workers": 1, "staging": tmp_path / "staging"}
    return {**given, **options}


def objects(store: Path) -> dict[str, str]:
    """The files of a local store but for its lock, with their SHA-256."""
    return {name: digest for name, digest in files_below(store).items() if name != ".lock"}


def refused(tmp_path: Path, source: Path, kind: type[PackError], *words: str, **options: Any) -> str:
    """Repack ``source`` into ``tmp_path/store``, which must be refused as ``kind`` with these words in the message."""
    store = options.pop("store", None) or LocalStore(tmp_path / "store")
    folder = source.parent
    before = files_below(folder)
    held = objects(tmp_path / "store")
    with pytest.raises(kind) as caught:
        repack(str(source), store, **arguments(tmp_path, **options))
    message = str(caught.value)
    assert type(caught.value) is kind, f"{type(caught.value).__name__}: {message}"
    assert message
    assert "\n" not in message
    assert len(message) < 600, message
    for word in words:
        assert word in message, message
    assert files_below(folder) == before, "the source was changed"
    after = objects(tmp_path / "store")
    assert {name: after.get(name) for name in held} == held, "the store lost something"
    assert not [name for name in after if name not in held and name.startswith(("sets/", "catalog"))], "committed"
    assert temporaries(tmp_path / "store") == []
    staged = [name for name in files_below(tmp_path / "staging") if not name.endswith("lock")]
    assert staged == [], f"left in staging: {staged}"
    return message


def refused_and_empty(tmp_path: Path, source: Path, kind: type[PackError], *words: str, **options: Any) -> str:
    """`refused`, and not even a pack was put."""
    message = refused(tmp_path, source, kind, *words, **options)
    assert files_below(tmp_path / "store") == {}
    return message
