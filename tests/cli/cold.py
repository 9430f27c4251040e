"""Running the command line as a user does: in a process of its own, with captured stdout and stderr."""

from __future__ import annotations

import fcntl
import json
import os
import pty
import struct
import subprocess
import sys
import termios
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

ROOT = Path(__file__).parents[2]
MODULE = ("-m", "pack_lib.cli.main")


@dataclass(frozen=True)
class Run:
    """What a command did."""

    code: int
    out: str
    err: str

    @property
    def document(self) -> Any:
        return json.loads(self.out)


def _environment(extra: dict[str, str]) -> dict[str, str]:
    kept = {name: value for name, value in os.environ.items() if not name.startswith(("COLD_", "PYTHONUNBUFFERED"))}
    return {**kept, "PYTHONPATH": str(ROOT), **extra}


def python(*arguments: object, **environment: str) -> Run:
    done = subprocess.run(
        [sys.executable, *map(str, arguments)],
        capture_output=True,
        text=True,
        timeout=120,
        env=_environment(environment),
    )
    return Run(done.returncode, done.stdout, done.stderr)


def cold(*arguments: object, **environment: str) -> Run:
    """Run ``cold``; it must leave no traceback."""
    done = python(*MODULE, *arguments, **environment)
    assert "Traceback" not in done.err, done.err
    return done


def refused(code: int, *arguments: object) -> str:
    """Run ``cold``, which must fail with this code, print nothing on stdout, and say one line on stderr: returned."""
    done = cold(*arguments)
    assert (done.code, done.out) == (code, ""), done
    assert done.err.startswith("cold: ")
    assert done.err.count("\n") == 1
    return done.err.strip()


def patched(patch: str, *arguments: object, **environment: str) -> Run:
    """Run ``cold`` after some Python statements."""
    code = f"import os, signal, sys, time\n{patch}\nfrom pack_lib.cli.main import main\nsys.exit(main(sys.argv[1:]))"
    return python("-c", code, *arguments, **environment)


def on_terminal(arguments: Sequence[object], columns: int = 100) -> Run:
    """Run ``cold`` with stderr on a terminal of so many columns (0: it does not tell), stdout a pipe."""
    master, slave = pty.openpty()
    fcntl.ioctl(slave, termios.TIOCSWINSZ, struct.pack("HHHH", 30, columns, 0, 0))
    environment = _environment({"TERM": "xterm"})
    process = subprocess.Popen(
        [sys.executable, *MODULE, *map(str, arguments)], stdout=subprocess.PIPE, stderr=slave, env=environment
    )
    os.close(slave)
    shown = b""
    while True:
        try:
            block = os.read(master, 1 << 16)
        except OSError:  # the other side closed
            break
        if not block:
            break
        shown += block
    os.close(master)
    out = process.communicate(timeout=60)[0]
    return Run(process.returncode, out.decode(), shown.decode())


def packs_of(store: Path) -> list[Path]:
    """The pack files of a store, by name."""
    return sorted((store / "packs").glob("*.tar.zst"))


def packs_of_shard(store: Path, shard: str) -> list[Path]:
    """The pack files of a shard's only set, in order."""
    (manifest,) = (store / "sets").glob(f"*/{shard}/*/*.json")
    return [store / "packs" / f"{pack['hash']}.tar.zst" for pack in json.loads(manifest.read_bytes())["packs"]]


BODIES = (
    "SELECT (SELECT count(*) FROM chunks JOIN documents USING (document_root)) + (SELECT count(DISTINCT leaf_hash) "
    "FROM chunks WHERE document_root IS NULL OR document_root NOT IN (SELECT document_root FROM documents))"
)
"""How many bodies layout 3 packs of a shard: each of every document, and the distinct ones of none."""
