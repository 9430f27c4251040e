"""A corpus of two shards and its store, made once through the command line itself."""

from __future__ import annotations

import shutil
from pathlib import Path

import pytest

from examples.corpus import build_corpus, in_breadth, stdlib_files
from tests.cli.cold import Run, cold

CAP = 100_000


@pytest.fixture(scope="session")
def corpus(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Folder of shard-0.db and shard-1.db; read only."""
    out = tmp_path_factory.mktemp("cli-corpus")
    build_corpus(in_breadth(stdlib_files()), out, 2, chunks_at_most=2000)
    return out


@pytest.fixture(scope="session")
def first_pack_run(corpus: Path, tmp_path_factory: pytest.TempPathFactory) -> tuple[Run, Path]:
    """What packing both shards said, and the store; read only."""
    folder = tmp_path_factory.mktemp("cli-store")
    sources = [corpus / "shard-0.db", corpus / "shard-1.db"]
    options = ["--store", folder / "store", "--cap", f"{CAP // 1000}kB", "--staging", folder / "staging"]
    return cold("pack", *sources, *options), folder / "store"


@pytest.fixture(scope="session")
def store(first_pack_run: tuple[Run, Path]) -> Path:
    """A store of both shards, each in several packs; read only."""
    run, folder = first_pack_run
    assert run.code == 0, run.err
    return folder


@pytest.fixture
def own_store(store: Path, tmp_path: Path) -> Path:
    """A copy of the store, to be damaged."""
    return shutil.copytree(store, tmp_path / "own-store")
