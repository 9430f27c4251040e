"""The command ``cold``. A command's module is imported when it is used, and imports what it needs when it runs."""

from __future__ import annotations

import sys
from collections.abc import Sequence
from importlib import import_module

import click

from pack_lib import __version__
from pack_lib.cli import ending, signals

COMMANDS = ("pack", "unpack", "list", "stats", "verify")
"""Each is ``command`` in the module of its name in this package."""


class LazyGroup(click.Group):
    """A group that imports a command's module when the command is asked for."""

    def list_commands(self, ctx: click.Context) -> list[str]:
        return list(COMMANDS)

    def get_command(self, ctx: click.Context, cmd_name: str) -> click.Command | None:
        if cmd_name not in COMMANDS:
            return None
        command = import_module(f"pack_lib.cli.{cmd_name}").command
        assert isinstance(command, click.Command)
        return command


@click.group(cls=LazyGroup, context_settings={"help_option_names": ["-h", "--help"], "max_content_width": 100})
@click.version_option(__version__, "-V", "--version", prog_name="cold", message="%(prog)s %(version)s")
def cli() -> None:
    """Deterministic, content-addressed, size-capped packs of a sharded corpus.

    `pack` writes each shard's snapshot into a store as tar.zst packs, `unpack` fills a database from them, `list` and
    `stats` tell what a store holds, `verify` reads every byte back. A store is a local folder or a URL.
    """


def _run(arguments: list[str]) -> int:
    # Not cli.main(): that would answer signals, broken pipes and full disks in its own way.
    try:
        with cli.make_context("cold", arguments) as context:
            cli.invoke(context)
            return 0
    except click.exceptions.Exit as ended:
        return ended.exit_code
    except click.ClickException as refused:
        refused.show()
        return refused.exit_code


def main(arguments: Sequence[str] | None = None) -> int:
    """Run the command line and return its exit code; never raises."""
    try:
        signals.watch()
        ending.take_stdout()
        code = _run(list(sys.argv[1:] if arguments is None else arguments))
        sys.stdout.flush()
    except BaseException as error:
        return ending.exit_code_of(error)
    return code


if __name__ == "__main__":
    sys.exit(main())
