"""``python -m pack_lib.cli.reference > docs/cli.md``: the reference of the command line, made from its help."""

from __future__ import annotations

import inspect
import sys

import click

from pack_lib.cli.ending import CODES
from pack_lib.cli.main import COMMANDS, cli
from pack_lib.errors import PackError

_WIDTH = 100
_HEAD = """\
# Command line

<!-- Made by `python -m pack_lib.cli.reference > docs/cli.md`; a test fails when it is out of date. -->

Installed as `cold`; `python -m pack_lib.cli.main` is the same.

- With `--json` a command prints one JSON document on stdout and nothing else. If `pack` or `unpack` fails or is
  interrupted on the way, the document says `"complete": false` and holds what was done before.
- A progress bar is shown on stderr if that is a terminal.
- An error is one line on stderr, `cold: ...`, and an exit code from the table below; a command line that cannot be
  understood (2) gets its usage text.
- An interruption (SIGINT, SIGTERM) removes what is unfinished. Nothing of the shard at work is committed by then;
  running the command again completes it.
"""


def _help(command: click.Command, name: str) -> str:
    parent = None if command is cli else click.Context(cli, info_name="cold")
    context = click.Context(command, info_name=name, parent=parent, terminal_width=_WIDTH, max_content_width=_WIDTH)
    context.help_option_names = ["-h", "--help"]
    return command.get_help(context).rstrip()


def _classes(base: type[PackError]) -> list[type[PackError]]:
    return [base, *(found for child in base.__subclasses__() for found in _classes(child))]


def exit_codes() -> list[tuple[int, str, str]]:
    """(code, error class or '', meaning), ascending by code; classes that share one stand in their tree's order."""
    rows = [(code, "", meaning) for code, meaning in CODES.items()]
    for error in _classes(PackError):
        if error is not PackError:
            rows.append(
                (error.exit_code, f"`{error.__name__}`", " ".join(inspect.cleandoc(error.__doc__ or "").split()))
            )
    return sorted(rows, key=lambda row: row[0])


def reference() -> str:
    """The whole page, Markdown."""
    parts = [_HEAD, "## cold\n", f"```text\n{_help(cli, 'cold')}\n```\n"]
    context = click.Context(cli, info_name="cold")
    for name in COMMANDS:
        command = cli.get_command(context, name)
        assert command is not None
        parts += [f"## cold {name}\n", f"```text\n{_help(command, name)}\n```\n"]
    parts += ["## Exit codes\n", "| code | error | meaning |\n|---:|---|---|"]
    parts[-1] += "".join(f"\n| {code} | {name} | {meaning} |" for code, name, meaning in exit_codes()) + "\n"
    return "\n".join(parts)


if __name__ == "__main__":
    sys.stdout.write(reference())
