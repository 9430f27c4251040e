"""How commands end: exit codes and messages, interruption, a stdout that fails, progress on a terminal only."""

from __future__ import annotations

import fcntl
import signal
import subprocess
import sys
from pathlib import Path

import pytest

from pack_lib.cli.ending import one_line
from tests.cli.cold import MODULE, ROOT, cold, on_terminal, packs_of, patched, refused


def test_bad_input(corpus: Path, tmp_path: Path) -> None:
    source, to = corpus / "shard-0.db", ["--store", tmp_path / "s", "--staging", tmp_path / "staging"]
    (tmp_path / "text.db").write_text("no database at all")
    assert "gone.db does not exist" in refused(3, "pack", tmp_path / "gone.db", *to)
    assert "text.db is not a SQLite database" in refused(3, "pack", tmp_path / "text.db", *to)
    assert "is not supported" in refused(3, "pack", f"ftp://host/{source}", *to)
    assert "is not supported" in refused(3, "pack", source, "--store", "ftp://host/s")
    assert "zstd has levels 1 to 22" in refused(3, "pack", source, *to, "--level", "0")
    assert "0 workers: give 1 to 256" in refused(3, "pack", source, *to, "--workers", "0")
    assert "corpus 'a/b'" in refused(3, "pack", source, *to, "--corpus", "a/b")
    assert "shard '..'" in refused(3, "pack", source, *to, "--shard", "..")
    assert "is a file" in refused(3, "list", source)
    assert not (tmp_path / "s").exists()


def test_a_cap_too_small_is_named_with_the_numbers(corpus: Path, tmp_path: Path) -> None:
    to = ["--store", tmp_path / "s", "--staging", tmp_path / "staging"]
    message = refused(3, "pack", corpus / "shard-0.db", *to, "--cap", "100")
    assert "cap of 100 bytes is too small" in message
    assert "or more" in message
    assert not packs_of(tmp_path / "s")


def test_not_found(corpus: Path, tmp_path: Path) -> None:
    for command in ("list", "stats", "verify"):
        assert f"{tmp_path / 'none'} does not exist" in refused(4, command, tmp_path / "none")
    assert "does not exist" in refused(4, "unpack", "--store", tmp_path / "none", "--into", tmp_path / "t.db")
    to = ["--store", tmp_path / "s"]
    assert "no profile 'other'; built in are corpus" in refused(
        4, "pack", corpus / "shard-0.db", *to, "--profile", "other"
    )
    assert "own.toml does not exist" in refused(4, "pack", corpus / "shard-0.db", *to, "--profile", "own.toml")


def test_damaged(own_store: Path, tmp_path: Path) -> None:
    for pack in packs_of(own_store):
        data = bytearray(pack.read_bytes())
        data[len(data) // 2] ^= 1
        pack.write_bytes(data)
    assert "packs/" in refused(5, "unpack", "shard-0", "--store", own_store, "--into", tmp_path / "t.db")
    assert not (tmp_path / "t.db").exists()


def test_store_trouble(corpus: Path, tmp_path: Path) -> None:
    (tmp_path / "file").touch()
    to = ["--store", tmp_path / "s", "--staging", tmp_path / "file" / "staging"]
    assert "a file stands where a folder is needed" in refused(7, "pack", corpus / "shard-0.db", *to)


def test_busy(corpus: Path, tmp_path: Path) -> None:
    lock = tmp_path / "staging/corpus/shard-0/lock"
    lock.parent.mkdir(parents=True)
    with lock.open("w") as file:
        fcntl.flock(file, fcntl.LOCK_EX)
        to = ["--store", tmp_path / "s", "--staging", tmp_path / "staging"]
        assert "is being built by another process" in refused(8, "pack", corpus / "shard-0.db", *to)


def test_usage() -> None:
    assert cold().code == 2
    for arguments in (
        ["pack"],
        ["nothing"],
        ["pack", "x.db"],
        ["list", "s", "--no"],
        ["pack", "x", "--store", "s", "--cap", "x"],
    ):
        run = cold(*arguments)
        assert (run.code, run.out) == (2, "")
        assert run.err.startswith("Usage: cold")
    run = cold("pack", "a.db", "b.db", "--store", "s", "--shard", "x")
    assert run.code == 2
    assert "--shard names the shard of one SOURCE" in run.err


def test_out_of_memory_is_no_bug() -> None:
    patch = "import pack_lib.stores\ndef fail(*_, **__): raise MemoryError('x')\npack_lib.stores.open_store = fail"
    run = patched(patch, "list", "x")
    assert (run.code, run.out) == (7, "")
    assert run.err == "cold: out of memory; nothing was changed. Give it more, or let it use less (--workers 1)\n"


def test_a_bug_is_one_line_and_a_traceback_on_request() -> None:
    patch = (
        "import pack_lib.stores\ndef fail(*_, **__): raise ValueError('two\\nlines')\npack_lib.stores.open_store = fail"
    )
    run = patched(patch, "list", "x")
    assert (run.code, run.out) == (1, "")
    assert run.err == "cold: internal error: ValueError: two lines; this is a bug\n"
    run = patched(patch, "list", "x", COLD_TRACEBACK="1")
    assert run.code == 1
    assert run.err.startswith("Traceback")


def _stop(number: int) -> str:
    return f"def stop(*_):\n    os.kill(os.getpid(), {int(number)})\n    time.sleep(20)"


STOPS = {
    "verification": "import pack_lib.build as place\nname = 'read_back'",
    "upload": "import pack_lib.upload as place\nname = 'sidecar_key'",
    # SQLite answers what is raised in a function it calls back with an error of its own.
    "inside SQLite": "import pack_lib.sources.sqlite_pinned as place\nname = '_cell_bytes'\n"
    "really = place.SqlitePinned._cells\n"
    "def cells(self, *query):\n"
    "    with place.sqlite_errors('source'):\n"
    "        self._connection.execute('SELECT cold_cell(1)').fetchall()\n"
    "    return really(self, *query)\n"
    "place.SqlitePinned._cells = cells",
}


@pytest.mark.parametrize(
    ("where", "number", "code"),
    [
        ("verification", signal.SIGTERM, 143),
        ("upload", signal.SIGINT, 130),
        ("inside SQLite", signal.SIGINT, 130),
        ("inside SQLite", signal.SIGTERM, 143),
    ],
)
def test_an_interruption_cleans_up(corpus: Path, tmp_path: Path, where: str, number: int, code: int) -> None:
    patch = f"{STOPS[where]}\n{_stop(number)}\nsetattr(place, name, stop)"
    arguments = ["pack", corpus / "shard-0.db", "--store", tmp_path / "s", "--staging", tmp_path / "staging"]
    run = patched(patch, *arguments, "--cap", "100kB")
    assert (run.code, run.out) == (code, "")
    assert run.err == ("cold: interrupted; nothing of shard corpus/shard-0 was committed; run again to complete it\n")
    left = {path.name for folder in ("s", "staging") for path in (tmp_path / folder).rglob("*") if path.is_file()}
    assert not [name for name in left if name.startswith(".tmp") or name.endswith((".frames", ".sqlite"))]
    assert not (tmp_path / "s" / "catalog.json").exists()
    assert cold(*arguments, "--cap", "100kB").code == 0
    assert cold("verify", tmp_path / "s").code == 0


def test_an_interrupted_unpack_leaves_the_target_as_it_was(store: Path, tmp_path: Path) -> None:
    patch = f"import pack_lib.hydrate as place\n{_stop(signal.SIGTERM)}\nplace.Hydrator.check_whole = stop"
    run = patched(patch, "unpack", "shard-0", "--store", store, "--into", tmp_path / "t.db", "--json")
    assert run.code == 143
    assert run.document["complete"] is False
    assert "nothing of corpus/shard-0 was put into" in run.err
    assert not list(tmp_path.iterdir())


def test_an_interrupted_verification_is_not_a_finding(store: Path) -> None:
    patch = f"import pack_lib.cli.checking as place\n{_stop(signal.SIGINT)}\nplace.verify_set = stop"
    run = patched(patch, "verify", store)
    assert (run.code, run.out) == (130, "")
    assert run.err == "cold: interrupted; nothing was changed\n"


@pytest.mark.parametrize("unbuffered", ["", "1"])
def test_a_stdout_that_cannot_be_written(store: Path, unbuffered: str) -> None:
    environment = {"PYTHONPATH": str(ROOT), "PYTHONUNBUFFERED": unbuffered}
    for arguments in (["list", store], ["stats", store, "--json"], ["--help"], ["pack", "--help"]):
        command = [sys.executable, *MODULE, *map(str, arguments)]
        with Path("/dev/full").open("w") as full:
            done = subprocess.run(command, stdout=full, stderr=subprocess.PIPE, text=True, env=environment)
        assert done.returncode == 7
        assert done.stderr == "cold: stdout cannot be written: No space left on device\n"
        process = subprocess.Popen(command, stdout=subprocess.PIPE, stderr=subprocess.PIPE, env=environment)
        assert process.stdout and process.stderr
        process.stdout.close()
        assert (process.stderr.read(), process.wait()) == (b"", 141)
        process.stderr.close()
    done = subprocess.run(
        ["/bin/sh", "-c", f"exec {sys.executable} {' '.join(MODULE)} list {store} >&-"],
        stderr=subprocess.PIPE,
        text=True,
        env=environment,
    )
    assert done.returncode == 7
    assert done.stderr.startswith("cold: stdout is closed")


def test_progress_is_for_a_terminal(corpus: Path, tmp_path: Path) -> None:
    def arguments(name: str) -> list[object]:
        return ["pack", corpus / "shard-0.db", "--store", tmp_path / name, "--staging", tmp_path / "staging"]

    shown = on_terminal(arguments("a"))
    assert shown.code == 0
    for step in ("pin", "bodies", "read back", "upload"):
        assert f"shard-0: {step}:" in shown.err
    assert shown.err.rpartition("\r")[2] == ""  # the last bar was wiped
    shown = on_terminal([*arguments("b"), "--json"], columns=0)
    assert "shard-0: bodies" in shown.err
    assert shown.out.startswith("{")
    assert on_terminal([*arguments("c"), "-q"]).err == ""
    assert cold(*arguments("d")).err == ""
    assert "unpack: " in on_terminal(["unpack", "--store", tmp_path / "a", "--into", tmp_path / "t.db"]).err
    assert "verify: " in on_terminal(["verify", tmp_path / "a"]).err


def test_what_a_terminal_would_obey_is_not_printed(tmp_path: Path) -> None:
    assert one_line("a\nb\x1b[31m\u202e\x07") == "a b\\x1b[31m\\u202e\\x07"
    message = refused(4, "list", tmp_path / "bad\x1b[31m\nname")
    assert "bad\\x1b[31m name" in message
