"""Help is instant and complete, and docs/cli.md is what it makes."""

from __future__ import annotations

from pathlib import Path

import click
import pytest

from pack_lib import __version__
from pack_lib.cli.main import COMMANDS, cli
from pack_lib.cli.reference import exit_codes, reference
from tests.cli.cold import MODULE, ROOT, cold, python

CONTEXT = click.Context(cli)
NEVER = {"duckdb", "pyarrow", "boto3", "botocore", "dagster", "pipelines"}
LIGHT = {"pack_lib", "pack_lib.errors"}


def _imported(*arguments: object) -> set[str]:
    run = python("-X", "importtime", *MODULE, *arguments)
    lines = [line for line in run.err.splitlines() if line.startswith("import time:")]
    return {line.rpartition("|")[2].strip() for line in lines}


@pytest.mark.parametrize(
    "arguments", [["--help"], ["--version"], [], *([name, "--help"] for name in COMMANDS)], ids=" ".join
)
def test_help_imports_nothing_heavy(arguments: list[str]) -> None:
    imported = _imported(*arguments)
    assert "click" in imported
    assert not imported & (NEVER | {"zstandard", "sqlite3", "tqdm", "hashlib", "concurrent.futures"})
    ours = {name for name in imported if name.split(".")[0] == "pack_lib" and not name.startswith("pack_lib.cli")}
    assert ours <= LIGHT


def test_no_command_imports_what_belongs_to_an_extra(store: Path, corpus: Path, tmp_path: Path) -> None:
    to = ["--store", tmp_path / "s", "--staging", tmp_path / "staging"]
    for arguments in (
        ["pack", corpus / "shard-0.db", *to],
        ["unpack", "shard-0", "--store", store, "--into", tmp_path / "t.db"],
        ["list", store],
        ["stats", store],
        ["verify", store],
    ):
        imported = _imported(*arguments)
        assert "pack_lib.stores" in imported
        never = NEVER - {"pyarrow"} if arguments[0] == "pack" else NEVER  # the extra arrow reads a source faster
        assert not imported & (never | {"tqdm"})  # no terminal: no progress bar


def test_version() -> None:
    assert cold("--version").out == f"cold {__version__}\n"


def test_every_command_and_option_is_described() -> None:
    for name in COMMANDS:
        command = cli.get_command(CONTEXT, name)
        assert command is not None
        assert command.name == name
        assert command.help
        assert command.short_help
        assert {"--json"} <= {text for option in command.params for text in option.opts}
        for option in command.params:
            if isinstance(option, click.Option):
                assert option.help, f"{name} {option.name}"
                assert option.help.rstrip("]").split("  [")[0].endswith("."), f"{name} {option.name}"
            else:
                assert isinstance(option.metavar, str)


def test_the_reference_is_up_to_date() -> None:
    assert (ROOT / "docs" / "cli.md").read_text("utf-8") == reference(), (
        "run: python -m pack_lib.cli.reference > docs/cli.md"
    )


def test_it_is_the_same_wherever_it_is_made() -> None:
    run = python("-m", "pack_lib.cli.reference", COLUMNS="40", HOME="/nowhere", COLD_STAGING="/x")
    assert run.out == reference()


def test_exit_codes_are_those_of_the_error_classes() -> None:
    named = {name.strip("`"): code for code, name, _ in exit_codes() if name}
    assert named == {
        "BadInput": 3,
        "CapTooSmall": 3,
        "NotFound": 4,
        "Damaged": 5,
        "UnknownVersion": 5,
        "Inconsistent": 6,
        "StoreTrouble": 7,
        "StdoutTrouble": 7,
        "Busy": 8,
    }
    assert {code for code, name, _ in exit_codes() if not name} == {0, 1, 2, 130, 141, 143}
    assert all(meaning for *_, meaning in exit_codes())
