"""The file of shared executions: its results, and that its faults never matter."""

from __future__ import annotations

import random
import sqlite3
from concurrent.futures import ThreadPoolExecutor
from contextlib import closing
from dataclasses import replace
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from shioenv.domain.behavior import Behavior
from shioenv.domain.patch import ContextPatch
from shioenv.protocols import EXECUTION
from shioenv.recording import execution_cache as module
from shioenv.recording.execution_cache import MAX_AGE, ExecutionCache, decode, encode
from shioenv.sandbox.base import Limits
from support.waiting import let_time_pass

PATCH = ContextPatch((("=", "/fs/a.txt/size", 7), ("a", "/fs/b", {"perms": "-rw-r--r--"})))
BEHAVIOR = Behavior(3, b"caf\xc3\xa9\xff\n", PATCH, {"a.txt": "0" * 64}, died_by_signal=9)


class Never(random.Random):
    """Checks nothing."""

    def random(self) -> float:
        return 1.0


class Always(random.Random):
    """Checks everything."""

    def random(self) -> float:
        return 0.0


def cache(directory: Path, digest: str = "d", limits: Limits | None = None, **how: object):  # type: ignore[no-untyped-def]
    options = {"dice": Never(), **how}
    return ExecutionCache(digest, limits or Limits(), directory=directory, **options)  # type: ignore[arg-type]


def test_what_was_kept_is_found_by_another_process_of_the_same_kind(tmp_path: Path) -> None:
    cache(tmp_path).of("/home").update({"ls": BEHAVIOR})
    again = cache(tmp_path)
    assert again.of("/home").get("ls") == BEHAVIOR
    assert again.of("/home").get("ls -a") is None
    assert again.of("/tmp").get("ls") is None
    assert (again.use.asked, again.use.found) == (3, 1)
    assert again.trouble is None


def test_another_system_limit_kernel_or_release_finds_nothing(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    cache(tmp_path).of("/home").update({"ls": BEHAVIOR})
    assert cache(tmp_path, "e").of("/home").get("ls") is None
    assert cache(tmp_path, limits=Limits(wall_seconds=1)).of("/home").get("ls") is None
    for name, value in (("platform.release", "7.0"), ("resource.getrlimit", (1, 1))):
        with monkeypatch.context() as patch:
            patch.setattr(name, lambda *_, value=value: value)
            assert cache(tmp_path).of("/home").get("ls") is None
    monkeypatch.setattr(module, "EXECUTION", EXECUTION + 1)
    assert cache(tmp_path).of("/home").get("ls") is None


def test_what_is_a_day_old_is_executed_again(tmp_path: Path) -> None:
    now = 1e9
    one = cache(tmp_path, clock=lambda: now)
    one.of("/home").update({"ls": BEHAVIOR})
    now += MAX_AGE
    assert one.of("/home").get("ls") == BEHAVIOR
    now += 1
    assert one.of("/home").get("ls") is None


def test_what_was_kept_before_the_clock_was_set_back_is_executed_again(tmp_path: Path) -> None:
    now = 1e9
    one = cache(tmp_path, clock=lambda: now)
    one.of("/home").update({"ls": BEHAVIOR})
    now -= 60
    assert one.of("/home").get("ls") is None
    one.of("/home").update({"ls": BEHAVIOR})
    assert one.of("/home").get("ls") == BEHAVIOR
    one.of("/home").update({"ls": BEHAVIOR})
    assert one.of("/home").get("ls") == BEHAVIOR


def test_what_did_something_else_once_is_never_shared_again(tmp_path: Path) -> None:
    one = cache(tmp_path, dice=Always())
    one.of("/home").update({"ls": BEHAVIOR})
    assert one.of("/home").get("ls") is None  # so it is executed
    one.of("/home").update({"ls": replace(BEHAVIOR, output=b"something else\n")})
    assert (one.use.checked, one.use.differing) == (1, 1)
    for _ in range(2):
        other = cache(tmp_path)
        assert other.of("/home").get("ls") is None
        other.of("/home").update({"ls": BEHAVIOR})


def test_it_stays_within_its_bound_and_keeps_the_newest(tmp_path: Path) -> None:
    dice = random.Random(1)
    one = cache(tmp_path, max_bytes=400_000)
    for number in range(400):
        output = dice.randbytes(4000)
        one.of("/home").update({f"ls {number}": replace(BEHAVIOR, output=output)})
    assert one.of("/home").get("ls 399") is not None
    assert one.of("/home").get("ls 0") is None
    one.close()
    assert sum(path.stat().st_size for path in tmp_path.iterdir()) < 2 * 400_000


def test_a_smaller_bound_makes_the_file_smaller(tmp_path: Path) -> None:
    dice = random.Random(1)
    one = cache(tmp_path, max_bytes=8_000_000)
    one.of("/home").update(
        {f"ls {n}": replace(BEHAVIOR, output=dice.randbytes(4000)) for n in range(1000)}
    )
    one.close()
    (file,) = tmp_path.iterdir()
    assert file.stat().st_size > 4_000_000
    two = cache(tmp_path, max_bytes=400_000)
    for number in range(40):
        two.of("/home").update({f"cat {number}": BEHAVIOR})
    assert two.of("/home").get("cat 39") == BEHAVIOR
    two.close()
    assert (two.trouble, two.use.differing) == (None, 0)
    assert file.stat().st_size < 450_000


def test_what_is_struck_off_stays_so_whatever_has_to_make_room(tmp_path: Path) -> None:
    dice = random.Random(1)
    one = cache(tmp_path, max_bytes=400_000)
    one.of("/home").update({"sort -R": BEHAVIOR})
    one.of("/home").update({"sort -R": replace(BEHAVIOR, output=b"something else\n")})
    for number in range(400):
        one.of("/home").update({f"ls {number}": replace(BEHAVIOR, output=dice.randbytes(4000))})
    assert one.of("/home").get("ls 0") is None
    one.of("/home").update({"sort -R": BEHAVIOR})
    assert one.of("/home").get("sort -R") is None


@pytest.mark.parametrize("damage", ["garbage", "truncated", "a directory", "an entry", "its table"])
def test_a_damaged_file_is_a_warning_and_nothing_found(tmp_path: Path, damage: str) -> None:
    one = cache(tmp_path)
    one.of("/home").update({f"ls {number}": BEHAVIOR for number in range(500)})
    one.close()
    (file,) = tmp_path.glob("*.sqlite")
    if damage == "garbage":
        file.write_bytes(b"\0garbage" * 9000)
    elif damage == "truncated":
        file.write_bytes(file.read_bytes()[:9000])
    elif damage == "a directory":
        file.unlink()
        file.mkdir()
    else:
        with sqlite3.connect(file) as connection:
            if damage == "an entry":
                connection.execute("UPDATE executions SET value = zeroblob(80)")
            else:
                connection.execute("ALTER TABLE executions DROP COLUMN at")
    other = cache(tmp_path)
    for _ in range(2):
        assert [other.of("/home").get(f"ls {number}") for number in (0, 250)] == [None, None]
        other.of("/home").update({"ls": BEHAVIOR})
    assert other.of("/home").get("ls") is None
    assert other.trouble is not None
    assert str(file) in other.trouble


def test_two_that_write_at_once_lose_nothing(tmp_path: Path) -> None:
    ones = [cache(tmp_path), cache(tmp_path)]
    for number in range(50):
        ones[number % 2].of("/home").update({f"ls {number}": replace(BEHAVIOR, exit_code=number)})
    for one in ones:
        found = [one.get("/home", f"ls {number}") for number in range(50)]
        assert [each and each.exit_code for each in found] == list(range(50))


def test_two_that_saw_different_things_at_once_are_both_heard(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Neither writes between the other's read and write."""
    ones = [cache(tmp_path), cache(tmp_path)]
    read = ExecutionCache._read

    def slowly(self: ExecutionCache, key: bytes) -> tuple[float, Behavior | None] | None:
        found = read(self, key)
        let_time_pass(0.05, "the other one would write meanwhile")
        return found

    monkeypatch.setattr(ExecutionCache, "_read", slowly)
    said = [{"ls": BEHAVIOR}, {"ls": replace(BEHAVIOR, output=b"something else\n")}]
    with ThreadPoolExecutor(2) as pool:
        list(pool.map(lambda one, each: one.of("/home").update(each), ones, said))
    assert [one.use.differing for one in ones] in ([0, 1], [1, 0])
    assert ones[0].of("/home").get("ls") is None


def test_who_would_wait_too_long_does_not_write(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(module, "_BUSY_SECONDS", 0.01)
    one = cache(tmp_path)
    with closing(sqlite3.connect(next(tmp_path.glob("*.sqlite")), isolation_level=None)) as other:
        other.execute("BEGIN IMMEDIATE")
        one.of("/home").update({"ls": BEHAVIOR})
        other.execute("ROLLBACK")
    assert one.of("/home").get("ls") is None
    assert one.trouble is None
    one.of("/home").update({"ls": BEHAVIOR})
    assert one.of("/home").get("ls") == BEHAVIOR


def test_a_place_that_cannot_be_written_is_a_warning(tmp_path: Path) -> None:
    (tmp_path / "file").write_text("")
    one = cache(tmp_path / "file" / "executions")
    one.of("/home").update({"ls": BEHAVIOR})
    assert one.of("/home").get("ls") is None
    assert one.trouble is not None


VALUES = st.recursive(
    st.none() | st.booleans() | st.integers(-(2**63), 2**63) | st.text(),
    lambda inner: st.lists(inner, max_size=2),
)


@given(
    st.binary(), st.none() | st.binary(), st.integers(0, 255), st.booleans(),
    st.lists(st.tuples(st.just("a"), st.text().map(lambda text: "/" + text), VALUES), max_size=3),
    st.dictionaries(st.text(), st.text(), max_size=2),
)  # fmt: skip
def test_behaviors_come_back_as_they_were_or_are_not_kept(
    output: bytes, stdout: bytes | None, code: int, known: bool,
    operations: list[tuple[object, ...]], digests: dict[str, str],
) -> None:  # fmt: skip
    behavior = Behavior(
        code, output, ContextPatch(tuple(operations)), digests, stdout, shell_state_known=known
    )
    value = encode(behavior)
    assert value is not None
    assert decode(value) == behavior


def test_what_no_64_bits_hold_is_not_kept() -> None:
    patch = ContextPatch((("a", "/fs/x", {"size": 2**64}),))
    assert encode(Behavior(0, b"", patch)) is None


def test_what_would_come_back_as_another_is_not_kept(tmp_path: Path) -> None:
    odd = replace(BEHAVIOR, patch=ContextPatch((("=", "/fs", (1, 2)),)))
    assert encode(odd) is None
    one = cache(tmp_path)
    one.of("/home").update({"ls": odd})
    assert one.of("/home").get("ls") is None


@pytest.mark.parametrize("value", [b"", b"x", b"x\x9cc\0\0\0\0\xff\xff\0\1"])
def test_what_is_no_behavior_is_none(value: bytes) -> None:
    assert decode(value) is None


def test_a_new_file_that_another_one_is_just_making_is_waited_for(tmp_path: Path) -> None:
    maker = sqlite3.connect(tmp_path / "1.sqlite", isolation_level=None, check_same_thread=False)
    maker.execute("BEGIN IMMEDIATE")

    def finish() -> None:
        let_time_pass(0.2, "the other one meets the lock meanwhile")
        maker.execute("COMMIT")

    with ThreadPoolExecutor(1) as pool:
        finishing = pool.submit(finish)
        late = cache(tmp_path)
        finishing.result(60)
    late.of("/home").update({"ls": BEHAVIOR})
    assert (late.trouble, late.of("/home").get("ls")) == (None, BEHAVIOR)
