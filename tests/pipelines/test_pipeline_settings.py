"""What the environment may say, and what is said back when it is wrong."""

from __future__ import annotations

from pathlib import Path

import pytest

from pack_lib.errors import BadInput, NotFound
from pack_lib.pack.format import BD_CAP, DEFAULT_CAP, DEFAULT_LEVEL
from pipelines.resources import Cold
from pipelines.settings import NIGHTLY, Settings, read_sources
from tests.support import make_shard


def test_defaults(env: dict[str, str]) -> None:
    made = Settings.from_env({name: env[name] for name in ("COLD_SOURCES", "COLD_STORE", "COLD_STAGING")})
    assert (made.corpus, made.cap, made.level, made.schedule) == ("corpus", DEFAULT_CAP, DEFAULT_LEVEL, NIGHTLY)
    assert made.profile.name == "corpus" and made.workers >= 1


@pytest.mark.parametrize(
    ("text", "cap"), [("none", None), ("bd", BD_CAP), ("dvd", DEFAULT_CAP), ("700000000", 700000000)]
)
def test_caps(env: dict[str, str], text: str, cap: int | None) -> None:
    assert Settings.from_env({**env, "COLD_CAP": text}).cap == cap


@pytest.mark.parametrize(
    ("name", "value", "message"),
    [
        ("COLD_SOURCES", "", "COLD_SOURCES is not set"),
        ("COLD_SOURCES", " , \n", "COLD_SOURCES is not set|COLD_SOURCES: it names no source"),
        ("COLD_SOURCES", "/nowhere/*.db", r"COLD_SOURCES: 0 files match /nowhere/\*\.db"),
        ("COLD_SOURCES", "ftp://host/x.db", "COLD_SOURCES: .*ftp"),
        ("COLD_SOURCES", "a b.db", "COLD_SOURCES: shard 'a b'"),
        ("COLD_STORE", "", "COLD_STORE is not set"),
        ("COLD_STORE", "gopher://x", "COLD_STORE: .*gopher"),
        ("COLD_CORPUS", "a/b", "COLD_CORPUS: corpus 'a/b'"),
        ("COLD_CAP", "a lot", "COLD_CAP: 'a lot' is no number of bytes"),
        ("COLD_CAP", "-1", "COLD_CAP: '-1' is no number of bytes"),
        ("COLD_LEVEL", "99", "COLD_LEVEL: .*99"),
        ("COLD_WORKERS", "0", "COLD_WORKERS: .*0"),
    ],
)
def test_what_is_wrong_is_named(env: dict[str, str], name: str, value: str, message: str) -> None:
    with pytest.raises(BadInput, match=f"^({message})") as caught:
        Settings.from_env({**env, name: value})
    assert "\n" not in str(caught.value)


def test_an_unknown_profile_is_not_found(env: dict[str, str]) -> None:
    with pytest.raises(NotFound, match="no profile 'other'"):
        Settings.from_env({**env, "COLD_PROFILE": "other"})


def test_sources_are_the_biggest_first(tmp_path: Path) -> None:
    small, big = make_shard(tmp_path / "small.db", 5), make_shard(tmp_path / "big.db", 60)
    assert read_sources(f"{small},one={big}") == {"one": str(big), "small": str(small)}
    assert list(read_sources(f"{small},one={big}")) == ["one", "small"]
    assert list(read_sources(f"gone={tmp_path}/gone.db\n{tmp_path}/*.db")) == ["big", "small", "gone"]


def test_two_shards_of_one_name_are_refused(tmp_path: Path) -> None:
    for folder in ("a", "b"):
        (tmp_path / folder).mkdir()
        make_shard(tmp_path / folder / "main.db", 3)
    first, second = tmp_path / "a" / "main.db", tmp_path / "b" / "main.db"
    with pytest.raises(BadInput) as caught:
        read_sources(f"{first}\n{second}")
    assert str(first) in str(caught.value) and str(second) in str(caught.value)
    assert len(read_sources(f"{first},other={second}")) == 2
    with pytest.raises(BadInput, match="2 files match"):
        read_sources(f"one={tmp_path}/*/main.db")


def test_no_url_is_in_a_repr(env: dict[str, str]) -> None:
    made = Settings.from_env({**env, "COLD_STORE": env["COLD_STORE"] + "/secret"})
    for text in (repr(made), repr(Cold(made))):
        assert "secret" not in text and "sources" not in text
