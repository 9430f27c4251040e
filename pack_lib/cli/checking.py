"""Verification of a whole store: goes on after a problem, so that one run names all of them."""

from __future__ import annotations

import time
from dataclasses import asdict, dataclass
from typing import Any

from pack_lib.catalog import read_catalog
from pack_lib.cli import ending, signals
from pack_lib.cli.common import Output, Progress, count, profile_named
from pack_lib.cli.sets import packs_beginning
from pack_lib.errors import Damaged, Inconsistent, NotFound, PackError
from pack_lib.pack.format import MAX_FIRST_LINE
from pack_lib.pack.reader import PackReader
from pack_lib.pack_set import SET_KEY, PackSet, SetPack, committed_sets, pack_key, read_set, sidecar_key
from pack_lib.profile import Profile
from pack_lib.stores import ObjectBlob, Store
from pack_lib.verify import Report, verify_pack, verify_set

_WORST_FIRST = (Damaged.exit_code, NotFound.exit_code, Inconsistent.exit_code)


@dataclass(frozen=True, slots=True)
class Problem:
    """``kind``: the error's class. ``set`` and ``pack``: hashes, where the problem is of one."""

    kind: str
    exit_code: int
    message: str
    set: str | None = None
    pack: str | None = None


def _problem(error: PackError, set_hash: str | None = None, pack: str | None = None) -> Problem:
    """Raises it again if it is a bug of ours, which is no property of the store, or if it came of an interruption."""
    signals.check()
    if type(error) is PackError:
        raise error
    return Problem(type(error).__name__, error.exit_code, str(error), set_hash, pack)


class StoreCheck:
    """One run of ``cold verify`` over a store."""

    def __init__(self, store: Store, given: Profile | None, output: Output, progress: Progress) -> None:
        self._store = store
        self._given = given
        self._output = output
        self._progress = progress
        self._pack_checks: dict[SetPack, PackError | None] = {}
        self._sets: list[dict[str, Any]] = []
        self._width = 0  # of the longest label
        self._problems: list[Problem] = []

    @property
    def exit_code(self) -> int:
        codes = {problem.exit_code for problem in self._problems}
        return next((code for code in (*_WORST_FIRST, *sorted(codes)) if code in codes), 0)

    def run(self) -> None:
        """Check everything. Raises NotFound for a store without any set: nothing there can be verified."""
        keys = list(committed_sets(self._store))
        self._note(self._catalog_problems(set(keys)))
        if not keys and not self._problems:
            raise NotFound(f"store {self._store.location} holds no committed set: there is nothing to verify")
        self._width = max((len("/".join(key.split("/")[1:3])) for key in keys), default=0)
        named: set[str] = set()
        for key in keys:
            named |= self._check_key(key)
        lone = [pack for pack in packs_beginning(self._store) if pack not in named]
        found = count(len(self._problems), "problem")
        self._progress.about("")
        if lone:
            self._output.text(f"{count(len(lone), 'pack')} in no committed set, not checked")
        packs = sum(entry["packs"] for entry in self._sets)
        self._output.text(
            f"{count(len(self._sets), 'set')}, {count(packs, 'pack')}: "
            + (f"{found} found" if self._problems else "no problem found")
        )
        self._output.document(
            {
                "store": self._store.location,
                "sets": self._sets,
                "packs_in_no_set": lone,
                "problems": [asdict(problem) for problem in self._problems],
            }
        )
        if self._problems:
            ending.say(f"{self._store.location}: {found} found")

    def _note(self, problems: list[Problem]) -> None:
        self._problems += problems
        self._output.text(*(f"problem: {problem.message}" for problem in problems))

    def _catalog_problems(self, keys: set[str]) -> list[Problem]:
        try:
            entries = read_catalog(self._store)
        except PackError as error:
            return [_problem(error)]
        where = f"{self._store.location}/catalog.json"
        return [
            _problem(NotFound(f"{where} names set {entry.key}, which is not there"), entry.set_hash)
            for entry in entries
            if entry.key not in keys
        ]

    def _check_key(self, key: str) -> set[str]:
        """Check one committed set; returns the hashes of the packs it names."""
        begun = time.monotonic()
        match = SET_KEY.match(key)
        corpus, shard, root, set_hash = match.groups() if match else ("", "", "", "")
        label = f"{corpus}/{shard}"
        self._progress.about(label)
        made: PackSet | None = None
        report: Report | None = None
        profile: Profile | None = None
        problems: list[Problem] = []
        try:
            made = read_set(self._store, key)
            profile = profile_named(made.profile, self._given)
            report = verify_set(self._store, made, profile, self._progress.step("verify"))
            findings = [Inconsistent(f"{label}, set {set_hash}: {text}") for text in report.findings]
            problems += [_problem(finding, set_hash) for finding in findings]
        except PackError as error:
            problems += self._one_by_one(made, error) if made else [_problem(error, set_hash)]
        if made:
            problems += self._sidecar_problems(made)
        seconds = time.monotonic() - begun
        rules_checked = report is not None and report.complete and profile is not None
        self._sets.append(
            {
                "corpus": corpus,
                "shard": shard,
                "snapshot_root": root,
                "set_hash": set_hash,
                "profile": made.profile if made else None,
                "packs": len(made.packs) if made else 0,
                "chunks": report.chunks if report else None,
                "body_bytes": report.body_bytes if report else None,
                "rules_checked": rules_checked,
                "ok": not problems,
                "seconds": round(seconds, 3),
            }
        )
        verdict = "ok" if not problems else f"{count(len(problems), 'problem')}"
        if report and not rules_checked:
            why = "its profile is another" if profile else f"profile {made.profile if made else ''!r} is not built in"
            verdict += f", corpus rules not checked: {why}; give it with --profile"
        read = f"{count(report.packs, 'pack'):>11}  {report.chunks:>11,} chunks" if report else " " * 31
        self._progress.about("")
        self._output.text(f"{label.ljust(self._width)}  set {set_hash[:12]}  {read}  {seconds:>7,.1f} s  {verdict}")
        self._note(problems)
        return {pack.hash for pack in made.packs} if made else set()

    def _one_by_one(self, made: PackSet, error: PackError) -> list[Problem]:
        """A set's check ends at the first problem; look at each of its packs for all of them."""
        first = _problem(error, made.set_hash)
        found = []
        for pack in made.packs:
            if pack not in self._pack_checks:
                self._pack_checks[pack] = self._pack_error(pack)
            wrong = self._pack_checks[pack]
            if wrong is not None:
                found.append(_problem(type(wrong)(f"{made.label}: {wrong}"), made.set_hash, pack.hash))
        return found or [first]

    def _pack_error(self, pack: SetPack) -> PackError | None:
        try:
            blob = ObjectBlob(self._store, pack_key(pack.hash))
            found, _report = verify_pack(blob, None, self._progress.step("verify again"))
            if found != pack.hash:
                raise Damaged(f"{blob.name}: its manifest hashes to {found}, not to its name")
            digest = self._store.object_sha256(pack_key(pack.hash))
            if blob.size != pack.size or digest not in (None, pack.sha256):
                raise Damaged(
                    f"{blob.name}: its {blob.size:,} bytes with SHA-256 {digest} are not the {pack.size:,} with "
                    f"{pack.sha256} that its set manifest names"
                )
        except PackError as error:
            return error
        return None

    def _sidecar_problems(self, made: PackSet) -> list[Problem]:
        problems = []
        for pack in made.packs:
            key = sidecar_key(pack.hash)
            where = f"{made.label}: {self._store.location}/{key}"
            try:
                with PackReader(ObjectBlob(self._store, pack_key(pack.hash))) as reader:
                    line = reader.first_line
            except PackError:
                continue  # listed already
            try:
                if self._store.get(key, MAX_FIRST_LINE) != line:
                    raise Damaged(f"{where}: the sidecar is not the first line of the pack's manifest")
            except NotFound:
                problems.append(_problem(NotFound(f"{where}: the sidecar is missing"), made.set_hash, pack.hash))
            except PackError as error:
                problems.append(_problem(error, made.set_hash, pack.hash))
        return problems
