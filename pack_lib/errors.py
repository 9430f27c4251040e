"""The one tree of errors, grouped by what the caller can do about them.

Each class owns the exit code of the command line (style: borg's ``helpers/errors.py``). A message is one line that
says what is wrong, where, and what to do next; it never holds a credential.
"""

from __future__ import annotations


class PackError(Exception):
    """Base of every error this library raises on purpose. Raised itself only for a bug of ours."""

    exit_code = 1


class BadInput(PackError):
    """The request or the source is wrong: correct it and call again."""

    exit_code = 3


class CapTooSmall(BadInput):
    """One member alone does not fit under the cap: give a larger one."""


class NotFound(PackError):
    """What was asked for is not there: name another, or create it first."""

    exit_code = 4


class Damaged(PackError):
    """Bytes are not what their digest says: take another copy. Nothing of them was returned or kept."""

    exit_code = 5


class UnknownVersion(Damaged):
    """A pack or set manifest of a format version this build does not read: use a newer build."""


class Inconsistent(PackError):
    """The bytes are whole, but the corpus they hold contradicts itself (a root, node or chain does not recompute)."""

    exit_code = 6


class StoreTrouble(PackError):
    """A store or the staging folder cannot be read or written (permission, space, network): mend it, run again."""

    exit_code = 7


class Busy(PackError):
    """Another process holds the lock of this shard: wait for it, then run again."""

    exit_code = 8
