"""A small folder with every kind of file and every oddity, and corpora built once for all tests here."""

from __future__ import annotations

from pathlib import Path

import pytest

from examples.corpus import build_corpus, folder_files, in_breadth, stdlib_files

LICENCE = (
    "".join(f"# Line {n} of a licence text that several files begin with, word for word.\n" for n in range(6)) + "\n"
)
GUIDE = """# The guide

See [the page](site/index.html) and [the page](site/index.html), or [nothing](gone.md).
An application programming interface (API) is described at <https://api.example/v1>.
"""
PAGE = """<html><head><title>A &amp; B</title></head><body><p>First paragraph about
packing texts carefully.</p><a href="../guide.md#top">guide</a><a href="deep/other.html"><img src=x></a>
<a href=''>here</a><a href="mailto:a@b.example">mail<p>unclosed"""
FILES: dict[str, bytes] = {
    "pkg/__init__.py": b"",
    "pkg/empty.txt": b"",
    "pkg/a.py": (
        LICENCE + '"""Adds numbers and prints them.\n\nMore.\n"""\nimport os, os\nimport os.path as op\n'
        "from . import b\nfrom .b import thing as renamed\nfrom .... import far\n\n\ndef f():\n    import json\n"
        "    return os.getcwd(), json.dumps(1), os.getcwd()\n"
    ).encode(),
    "pkg/b.py": (LICENCE + "thing = 1\n").encode(),
    "copy/b.py": (LICENCE + "thing = 1\n").encode(),
    "pkg/broken.py": b"import sys, re as r\nfrom pkg import a\ndef (:\n",
    "latin.py": "# caf\u00e9\n".encode("latin-1"),
    "bom.py": b'\xef\xbb\xbf"""With a byte order mark."""\r\nx = 1\r\n',
    "nul.txt": b"before\x00after",
    "long.txt": ("\u20ac" * 3000 + "\n" + "\U0001f600" * 700).encode(),
    "notes.txt": b"Notes\n=====\n\nA first paragraph of notes. And https://site.example/a.\n\nrest\n",
    "guide.md": GUIDE.encode(),
    "site/index.html": PAGE.encode(),
    "site/deep/other.html": b"<h1>Other</h1>",
    "image.png": b"\x89PNG",
    "__pycache__/x.py": b"x",
}


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    for name, data in FILES.items():
        path = tmp_path / "texts" / name
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_bytes(data)
    return tmp_path / "texts"


@pytest.fixture
def shard(folder: Path, tmp_path: Path) -> Path:
    """The folder's corpus in a single shard."""
    return build_corpus(folder_files(folder), tmp_path / "one", 1)[0].path


@pytest.fixture(scope="session")
def stdlib_corpus(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A part of the standard library in four shards; read only."""
    out = tmp_path_factory.mktemp("stdlib")
    build_corpus(in_breadth(stdlib_files()), out, 4, chunks_at_most=5000)
    return out
