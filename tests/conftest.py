"""Corpora built once for all tests; read only."""

from __future__ import annotations

import signal
from pathlib import Path

import pytest
from hypothesis import HealthCheck, settings

from examples.corpus import build_corpus, in_breadth, stdlib_files
from tests.support import Built, build, make_shard

if signal.getsignal(signal.SIGINT) == signal.SIG_IGN:
    # A shell's background job ignores it, and so would every command that a test starts and interrupts.
    signal.signal(signal.SIGINT, signal.default_int_handler)

settings.register_profile(
    "repeatable",
    deadline=None,
    derandomize=True,
    database=None,
    suppress_health_check=[
        HealthCheck.too_slow,
        HealthCheck.data_too_large,
        HealthCheck.function_scoped_fixture,  # those here set nothing that an example changes
    ],
)
settings.load_profile("repeatable")


@pytest.fixture(scope="session", params=[2, 3], ids=["layout2", "layout3"])
def layout(request: pytest.FixtureRequest) -> int:
    """Every layout that is written: what asks for it runs once for each."""
    return int(request.param)


@pytest.fixture
def in_each_layout(layout: int, monkeypatch: pytest.MonkeyPatch) -> None:
    """`tests.support.build` packs in this layout where it is not told another."""
    monkeypatch.setattr("tests.support.LAYOUT", layout)


@pytest.fixture(scope="session")
def small_shard(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Some 300 chunks that hardly compress."""
    return make_shard(tmp_path_factory.mktemp("small") / "shard-0.db", 100, chunk_bytes=2800, noise=True)


@pytest.fixture(scope="session")
def small_set(small_shard: Path, tmp_path_factory: pytest.TempPathFactory, layout: int) -> Built:
    """The small shard in several packs of at most 300 kB."""
    built = build(small_shard, tmp_path_factory.mktemp("small-set"), cap=300_000, layout=layout)
    assert len(built.set.packs) >= 3
    return built


@pytest.fixture(scope="session")
def real_shard(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A part of the standard library in one shard with every table of the live schema."""
    out = tmp_path_factory.mktemp("real")
    return build_corpus(in_breadth(stdlib_files()), out, 1, chunks_at_most=1500)[0].path
