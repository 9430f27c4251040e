"""The source tests pin many databases that were written a moment ago."""

from __future__ import annotations

import pytest

import pack_lib.sources.sqlite


@pytest.fixture(autouse=True)
def settle_quickly(monkeypatch: pytest.MonkeyPatch) -> None:
    """Local file systems count in nanoseconds, moved on by the kernel's tick of some milliseconds."""
    monkeypatch.setattr(pack_lib.sources.sqlite, "_SETTLED_SECONDS", 0.05)
