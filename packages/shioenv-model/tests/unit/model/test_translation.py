"""A memory of one machine, translated to another machine."""

from __future__ import annotations

import json
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from shioenv.domain.context import Context
from shioenv_model.memory.index_writer import write_index
from shioenv_model.memory.memory import Memory
from shioenv_model.memory.rewrite import Kept, fillings, replace_words
from shioenv_model.memory.translation import Shift, Translation
from shioenv_model.memory.world import World
from shioenv_model.model import Model
from support.small_world import HOME, entry, small_memory, small_world, taken

THEIRS = datetime(2025, 10, 15, 16, 40, tzinfo=UTC)
OURS = datetime(2026, 5, 4, 22, 53, tzinfo=UTC)
SHIFT = Shift(THEIRS, OURS)
ELSEWHERE = "/home/mei"


def said(text: str) -> str:
    return replace_words(text, dict(SHIFT.words(text)))


@pytest.mark.parametrize(
    ("theirs", "ours"),
    [
        ("Thu Oct 16 19:43:00 UTC 2025\n", "Wed May  6 01:56:00 UTC 2026\n"),
        ("Thu, 16 Oct 2025 19:43:00 +0000\n", "Wed, 06 May 2026 01:56:00 +0000\n"),
        ("2025-10-16T19:43:00+00:00\n", "2026-05-06T01:56:00+00:00\n"),
        ("Modify: 2025-10-16 19:43:00.250 +0000\n", "Modify: 2026-05-06 01:56:00.250 +0000\n"),
        ("--2025-10-16 19:43:00--  http://host/\n", "--2026-05-06 01:56:00--  http://host/\n"),
        ("-rw-r--r-- 1 root root 0 Oct 16 19:43 a\n", "-rw-r--r-- 1 root root 0 May  6 01:56 a\n"),
        ("Oct 15 16:40:00 host kernel: x\n", "May  4 22:53:00 host kernel: x\n"),
        ("root  1  Oct15 ?  00:00:04 init\n", "root  1  May04 ?  00:00:04 init\n"),
        ("2025-10-16\n", "2026-05-05\n"),
        ("1760546400\n", "1777935180\n"),
        (" 19:43:00 up 1 day,  3:03,  1 user\n", " 01:56:00 up 1 day,  3:03,  1 user\n"),
        ("Thu Oct 16 13:27 - 15:02  (01:34)\n", "Tue May  5 19:40 - 21:15  (01:34)\n"),
        ("Sep 30  2017 GPL-3\n",) * 2,
        ("2019-10-16 19:43\n",) * 2,
        ("Oct 99 99:99 2025-99-99 12:34:56:78 1:02:03 0000000001\n",) * 2,
    ],
)
def test_an_instant_is_as_long_after_the_start(theirs: str, ours: str) -> None:
    assert said(theirs) == ours


FORMATS = (
    "%Y-%m-%d %H:%M:%S",
    "%Y-%m-%dT%H:%M",
    "%a %b %e %H:%M:%S %Y",
    "%a %b %e %H:%M:%S UTC %Y",
    "%b %e %H:%M",
    "%a, %d %b %Y %H:%M:%S",
    "%s",
)


@given(
    st.sampled_from(FORMATS),
    st.timedeltas(timedelta(days=-30), timedelta(days=30)),
    st.datetimes(datetime(1990, 1, 1), datetime(2100, 1, 1)),
)
def test_what_is_written_of_ours_is_what_would_be_written(
    form: str, after: timedelta, start: datetime
) -> None:
    start = start.replace(second=0, microsecond=0, tzinfo=UTC)
    at = THEIRS + timedelta(minutes=after // timedelta(minutes=1))
    text = f"at {at.strftime(form)} it was\n"
    there = start + (at - THEIRS)
    if there.timestamp() < 1e9:
        return  # of ten digits no more
    expected = f"at {there.strftime(form)} it was\n"
    assert replace_words(text, dict(Shift(THEIRS, start).words(text))) == expected


def machine(user: str, host: str, address: str, started: datetime, cwd: str, **made: Any) -> World:
    document = dict(small_world().state().before.document)
    document["cwd"], document["hostname"] = cwd, host
    document["env"] = {**document["env"], "PWD": cwd}
    contents = {
        "/etc/passwd": f"root:x:0:0:root:/root:/bin/bash\n{user}:x:1000:1000::/home/{user}:/bin/sh",
        "/etc/group": f"root:x:0:\nadm:x:4:{user}\n{user}:x:1000:\n",
        "/etc/hosts": f"127.0.0.1 localhost\n{address} {host}.example {host}\n",
        "/proc/stat": f"cpu 1 2\nbtime {int(started.timestamp())}\n",
    }
    texts = {path: text.encode() for path, text in contents.items()}
    return World(Context(document), {**texts, **small_world().contents}, entry(0, **made))


HERE = machine("ubuntu", "ubuntu", "10.20.30.40", THEIRS, HOME)
NOW_THERE: dict[str, Any] = {"month": "May", "day": 6, "year": 2026, "time": "01:56"}
THERE = machine("mei", "harbor", "10.60.99.40", OURS, ELSEWHERE, **NOW_THERE)


@pytest.mark.parametrize(
    ("theirs", "ours"),
    [
        ("ubuntu:x:1000\n", "mei:x:1000\n"),
        ("ubuntu\n", "harbor\n"),
        ("Linux ubuntu 6.1.0\n", "Linux harbor 6.1.0\n"),
        ("HOSTNAME=ubuntu\nPWD=/home/ubuntu\n", "HOSTNAME=harbor\nPWD=/home/mei\n"),
        ("Oct 15 16:40:00 ubuntu kernel: up\n", "May  4 22:53:00 harbor kernel: up\n"),
        ("root@ubuntu and ubuntu@10.20.30.7\n", "root@harbor and mei@10.60.99.7\n"),
        ("/home/ubuntu/data/x ubuntu.log\n", "/home/mei/data/x ubuntu.log\n"),
        ("ubuntu   pts/0\n", "mei      pts/0\n"),
        ("root     tty1\n", "root     tty1\n"),
        ("127.0.0.1 10.20.30.40\n", "127.0.0.1 10.60.99.40\n"),
    ],
)
def test_names_and_addresses_are_found_in_the_files_of_both(theirs: str, ours: str) -> None:
    assert replace_words(theirs, Translation(HERE, THERE).words(theirs)) == ours


def test_users_are_found_by_their_number_where_there_are_more() -> None:
    passwd = (
        b"root:x:0:0:root:/root:/bin/bash\nsync:x:4:1::/:/bin/sync\nmei:x:1000:1000::/home/mei:"
    )
    there = World(THERE.state().before, {**THERE.contents, "/etc/passwd": passwd})
    assert Translation(HERE, there).names["ubuntu"] == "mei"


def test_a_machine_that_tells_nothing_of_itself_is_spoken_of_as_it_is() -> None:
    nothing = World(small_world().state().before, {})
    translation = Translation(nothing, nothing)
    assert translation.words("ubuntu Oct 16 19:43\n") == {}
    made = entry(1)
    assert translation.dates(made) == {
        each: made[each] for each in ("month", "day", "year", "time")
    }


def test_what_an_input_names_itself_stays() -> None:
    kept = Kept(0, "/home/ubuntu\n", "[]")
    found = dict(
        fillings(
            taken("echo /home/ubuntu", THERE.state()),
            taken("echo /home/ubuntu"),
            kept,
            THERE.state().before.document["fs"],
            HERE.state().before.document["fs"],
            Translation(HERE, THERE),
        )
    )
    assert found[0].output == "/home/ubuntu\n"


def elsewhere(directory: Path) -> Model:
    small_memory(directory)
    (directory / "world.json").write_bytes(HERE.to_json())
    return Model(Memory(directory), world=THERE)


def test_a_file_is_made_now_on_the_machine_that_is_asked_about(tmp_path: Path) -> None:
    answer = elsewhere(tmp_path).answer("touch new")
    ((code, path, made),) = answer.behavior.patch.operations
    assert (code, path) == ("a", "/fs/new")
    assert made == entry(0, **NOW_THERE)
    both = elsewhere(tmp_path).answer("touch new; echo hi > other.txt")
    times = [operation[2]["time"] for operation in both.behavior.patch.operations]
    assert times == ["01:56", "01:56"]


def test_a_directory_is_what_it_is_called_there(tmp_path: Path) -> None:
    assert elsewhere(tmp_path).answer("pwd").behavior.output == b"/home/mei\n"


def test_who_names_what_is_not_there_is_not_believed(tmp_path: Path) -> None:
    listed = Kept(0, "8\t./sub\n12\t./other\n24\t.\n", "[]")
    write_index(tmp_path, [(HOME, "du -h", taken("du -h"), listed)])
    (tmp_path / "world.json").write_bytes(HERE.to_json())
    memory = Memory(tmp_path)
    same = memory.find("du -h", THERE.state()).answer
    document = dict(THERE.state().before.document)
    document["fs"] = {each: was for each, was in document["fs"].items() if "other" not in each}
    other = World(Context(document), THERE.contents)
    stale = memory.find("du -h", other.state()).answer
    assert same.behavior.output == stale.behavior.output == listed.output.encode()
    assert stale.confidence < same.confidence


def test_a_time_is_told_whole_where_the_file_was_of_another_day() -> None:
    """Of the neighbour's file day and hour changed; ours is of another month and year."""
    document = dict(small_world().state().before.document)
    old = entry(6, month="Oct", day=11, time="08:00")
    ours = entry(9, month="Mar", day=2, year=2024, time="10:00")
    document["fs"] = {**document["fs"], "a.txt": old, "b.txt": ours}
    state = World(Context(document), small_world().contents).state()
    kept = Kept(0, "", '[["=","/fs/a.txt/day",16],["=","/fs/a.txt/time","19:43"]]')
    files = document["fs"]
    b, a = taken("touch b.txt", state), taken("touch a.txt", state)
    found = dict(fillings(b, a, kept, files, files))
    patch = {path: value for _, path, value in json.loads(found[0].patch)}
    assert patch == {
        "/fs/b.txt/month": "Oct",
        "/fs/b.txt/day": 16,
        "/fs/b.txt/year": 2025,
        "/fs/b.txt/time": "19:43",
    }


@pytest.mark.parametrize(
    ("ours", "theirs", "made", "expected"),
    [
        ("gzip b.txt", "gzip a.txt", "a.txt.gz", "b.txt.gz"),
        ("cp b.txt b", "cp a.txt a", "a.txt~0", "b.txt~0"),
        ("cat sub/inner.txt", "cat a.txt", "a", "sub~1inner"),
    ],
)
def test_a_file_that_is_called_after_another_one_is_so_still(
    ours: str, theirs: str, made: str, expected: str
) -> None:
    state = small_world().state()
    kept = Kept(0, "", json.dumps([["r", f"/fs/{made}"]]))
    before = state.before.document["fs"]
    found = dict(fillings(taken(ours, state), taken(theirs, state), kept, before, before))
    assert json.loads(found[0].patch) == [["r", f"/fs/{expected}"]]
