"""What the figures depend on besides the code: the machine and the versions. Names no host and no path."""

from __future__ import annotations

import os
import platform
import re
import shutil
import sqlite3
import subprocess
from datetime import UTC, datetime
from pathlib import Path

from pack_lib.pack.frames import LIBZSTD, usable_cores

_ROOT = Path(__file__).resolve().parent.parent


def _said(*argv: str) -> str | None:
    """What a command prints; None if it is not there or fails."""
    if shutil.which(argv[0]) is None:
        return None
    done = subprocess.run(argv, capture_output=True, text=True, cwd=_ROOT, check=False)
    return done.stdout.strip() if done.returncode == 0 else None


def version_of(program: str, *arguments: str) -> str:
    """The first version number that the program prints, or ``not installed``."""
    found = re.search(r"\d+(?:\.\d+)+", _said(program, *arguments) or "")
    return found[0] if found else "not installed"


def _cpu() -> str:
    try:
        found = re.search(r"^model name\s*:\s*(.+)$", Path("/proc/cpuinfo").read_text(), re.MULTILINE)
    except OSError:
        found = None
    return found[1] if found else platform.processor() or platform.machine()


def _commit() -> str:
    commit, changes = _said("git", "rev-parse", "--short=12", "HEAD"), _said("git", "status", "--porcelain")
    return "unknown" if commit is None else f"{commit}{'-dirty' if changes else ''}"


def description() -> list[tuple[str, str]]:
    """(what, value) lines for the head of a report."""
    memory = os.sysconf("SC_PAGE_SIZE") * os.sysconf("SC_PHYS_PAGES")
    return [
        ("date", datetime.now(UTC).strftime("%Y-%m-%d")),
        ("commit", _commit()),
        ("CPU", f"{_cpu()}, {usable_cores()} cores usable"),
        ("RAM", f"{memory / 2**30:.1f} GiB"),
        ("other work at the start", f"load average {os.getloadavg()[0]:.1f} over the last minute"),
        ("system", f"{platform.system()} {platform.machine()}"),
        ("Python", platform.python_version()),
        ("SQLite", sqlite3.sqlite_version),
        ("libzstd of this project", LIBZSTD),
        ("zstd command", version_of("zstd", "--version")),
        ("restic", version_of("restic", "version")),
        ("borg", version_of("borg", "--version")),
    ]
