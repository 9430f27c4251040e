"""What the documentation shows is run: every console line, every Python block, every link, every cold command."""

from __future__ import annotations

import os
import re
import shlex
import subprocess
import sys
from pathlib import Path

import pytest

ROOT = Path(__file__).resolve().parents[2]
PAGES = [ROOT / "README.md", *sorted((ROOT / "docs").rglob("*.md"))]


def _blocks(page: Path, language: str) -> list[str]:
    return re.findall(rf"^```{language}\n(.*?)^```$", page.read_text("utf-8"), re.MULTILINE | re.DOTALL)


def _environment(folder: Path) -> dict[str, str]:
    binaries = folder / "bin"
    binaries.mkdir(exist_ok=True)
    for name, module in (("cold", "pack_lib.cli.main"), ("python", "")):
        start = f'exec "{sys.executable}" -m {module} "$@"' if module else f'exec "{sys.executable}" "$@"'
        (binaries / name).write_text(f"#!/bin/sh\n{start}\n")
        (binaries / name).chmod(0o755)
    path = f"{binaries}{os.pathsep}{os.environ['PATH']}"
    return {
        **os.environ,
        "PATH": path,
        "PYTHONPATH": str(ROOT),
        "COLD_STAGING": str(folder / "staging"),
        "COLUMNS": "120",
    }


def test_readme_examples_run_in_their_order(tmp_path: Path) -> None:
    """The console and Python blocks of the README, one after the other, in an empty folder."""
    text = (ROOT / "README.md").read_text("utf-8")
    found = re.findall(r"^```(console|python)\n(.*?)^```$", text, re.MULTILINE | re.DOTALL)
    assert {language for language, _ in found} == {"console", "python"}
    environment = _environment(tmp_path)
    for language, block in found:
        if language == "python":
            commands = [[sys.executable, "-c", block]]
        else:
            lines = [line[2:] for line in block.splitlines() if line.startswith("$ ")]
            assert lines, block
            commands = [["sh", "-ec", line] for line in lines if not line.startswith("make ")]
        for command in commands:
            done = subprocess.run(command, cwd=tmp_path, env=environment, capture_output=True, text=True, timeout=120)
            assert done.returncode == 0, f"{command[-1]}\n{done.stdout}\n{done.stderr}"


@pytest.mark.parametrize("page", PAGES, ids=lambda page: str(page.relative_to(ROOT)))
def test_links_lead_somewhere(page: Path) -> None:
    for target in re.findall(r"\]\(([^)#]+)(?:#[^)]*)?\)", page.read_text("utf-8")):
        if "://" not in target:
            assert (page.parent / target).exists(), f"{page.name} links to {target}"


def test_every_cold_command_that_is_shown_parses() -> None:
    """Options that the documentation names exist: a renamed one would mislead the reader."""
    from click.testing import CliRunner

    from pack_lib.cli.main import cli

    shown = set()
    for page in PAGES:
        shown |= set(re.findall(r"`(cold [a-z]+[^`\n]*)`", page.read_text("utf-8")))
    assert shown
    for line in sorted(shown):
        words = shlex.split(line)[1:]
        options = [word.split("=")[0] for word in words if word.startswith("--")]
        done = CliRunner().invoke(cli, [words[0], "--help"])
        assert done.exit_code == 0, f"{line}: no such command"
        for option in options:
            assert option in done.output, f"{line}: no option {option}"


def test_make_targets_that_are_shown_exist() -> None:
    makefile = (ROOT / "Makefile").read_text("utf-8")
    for page in PAGES:
        for target in re.findall(r"(?:`|^\$ |^)make ([a-z][a-z-]+)", page.read_text("utf-8"), re.MULTILINE):
            assert re.search(rf"^{target}:", makefile, re.MULTILINE), f"{page.name} names make {target}"


def test_format_page_states_the_numbers_of_the_code() -> None:
    from pack_lib import catalog, fanin
    from pack_lib.pack import format as pack_format

    text = " ".join((ROOT / "docs/format.md").read_text("utf-8").split())
    assert f"at most {fanin.GROUP_LIMIT:,} values" in text
    assert f"at most {catalog.KEPT} a shard" in text
    assert f'`"{pack_format.FORMAT}"`, {pack_format.VERSION}, 2' in text
    assert (pack_format.FRAME_SIZE, pack_format.PART_SIZE) == (1 << 20, 64 << 20)
    assert f"{pack_format.DEFAULT_CAP:,}" in (ROOT / "docs/operating.md").read_text("utf-8")
