"""Laws of prompts for drawn goals: complete, without repetition, quoted, in plain English."""

from __future__ import annotations

import hashlib
import os
import re
import shlex
from collections.abc import Mapping
from datetime import UTC, datetime
from typing import Any

import pytest
from hypothesis import assume, given
from hypothesis import strategies as st

from shioenv.bash.words import plain_words
from shioenv.domain.context import pointer
from shioenv.domain.names import name_bytes, name_text
from shioenv_agents.tasks.determined import unstated_facts
from shioenv_agents.tasks.goal_check import is_now
from shioenv_agents.tasks.prompt import (
    Content,
    compose_prompt,
    describe_content,
    describe_goal,
    family,
    file_word,
    is_worded,
    word,
)
from shioenv_agents.tasks.task import Goal, Task, read_tasks
from support.dialect import DIALECT
from support.paths import ROOT

INSTANT = datetime(2025, 10, 16, 19, 43, tzinfo=UTC)
NOW = {"month": "Oct", "day": 16, "year": 2025, "time": "19:43"}

names = (
    st.one_of(
        st.from_regex(r"[a-c./ ~'$`\\*-]{1,8}", fullmatch=True).map(str.encode),
        st.text(st.characters(codec="utf-8"), min_size=1, max_size=6).map(str.encode),
        st.binary(min_size=1, max_size=6),
    )
    .filter(lambda name: b"\0" not in name)
    .map(name_text)
)
dates = st.builds(
    lambda month, day, year, hour: {
        "month": month, "day": day, "year": year, "time": f"{hour:02}:59",
    },
    st.sampled_from(["Jan", "Sep", "Dec"]), st.integers(1, 28), st.sampled_from([2024, 902, 12024]),
    st.integers(0, 23),
) | st.just(NOW)  # fmt: skip
letters = st.lists(st.sampled_from(["rwx", "r-x", "rw-", "---", "r--"]), min_size=3, max_size=3)


@st.composite
def entries(draw: st.DrawFn, kinds: str = "-dlp") -> dict[str, Any]:
    """Draw an entry whose values differ from each other, so that none implies another."""
    kind = draw(st.sampled_from(kinds))
    entry: dict[str, Any] = {
        "perms": kind + "".join(draw(letters)),
        "links": draw(st.integers(1, 9)),
        "owner": draw(st.sampled_from(["alice", "bob"])),
        "group": draw(st.sampled_from(["developers", "staff"])),
        "size": draw(st.sampled_from([0, 1]) | st.integers(3000, 9000)),
        **draw(dates),
    }
    return {**entry, "target": draw(names)} if kind == "l" else entry


@st.composite
def goals(draw: st.DrawFn) -> tuple[dict[str, Any], list[list[Any]]]:
    """Draw a context and the operations of a goal, each about another file."""
    drawn = draw(st.lists(names, unique_by=lambda name: name_bytes(name), min_size=2, max_size=8))
    before: dict[str, Any] = {}
    operations: list[list[Any]] = []
    while len(drawn) > 1:
        name, other = drawn.pop(), drawn[-1]
        what = draw(st.sampled_from(["add", "remove", "move", "change"]))
        if what == "add":
            operations.append(["a", pointer("fs", name), draw(entries())])
            continue
        before[name] = was = draw(entries())
        if what == "remove":
            operations.append(["r", pointer("fs", name)])
        elif what == "move":
            operations.append(["m", pointer("fs", name), pointer("fs", other)])
            drawn.pop()
        else:
            kind = was["perms"][0]
            changed = draw(entries(kind))
            changeable = {"d": "perms owner group", "l": "owner group target links"}.get(
                kind, "perms owner group links size" if kind == "-" else "perms owner group links"
            )
            for key in sorted(draw(st.sets(st.sampled_from(changeable.split())))):
                if was[key] != changed[key]:
                    operations.append(["=", pointer("fs", name, key), changed[key]])
    return {"fs": before, "user": "root"}, operations


def lines_of(
    before: Mapping[str, Any], goal: Goal, contents: list[Content] | None = None
) -> list[str]:
    found = describe_goal(before, goal, contents or [], lambda date: is_now(date, INSTANT))
    assert found is not None
    return found


def task(before: Mapping[str, Any], goal: Goal, lines: list[str]) -> Task:
    prompt = compose_prompt(
        user="root", cwd="/home", kind=family(["x"], goal, before), state=lines, asked=None
    )
    return Task(
        id="1", prompt=prompt, cwd="/home", goal=goal, solution="true", reduced="",
        commands=["true"], irreducibility=1.0, n_arguments=1, record=1, system="x",
        system_digest="",
    )  # fmt: skip


def open_facts(before: Mapping[str, Any], one: Task) -> list[str]:
    return list(unstated_facts(one, before, lambda name: None, INSTANT))


def bare(prompt: str) -> str:
    """Return a prompt without contents, and without words in backquotes."""
    text = re.sub(r"^(`{3,})\n.*?\n\1$", "", prompt, flags=re.M | re.S)
    return re.sub(r"`[^`]*`", "`name`", text)


def assert_plain(prompt: str) -> None:
    """Check number, articles, repeated words, and words of the dialect."""
    text = bare(prompt)
    assert not DIALECT.findall(text)
    assert not re.findall(r"\b1 (?:bytes|hard links|levels|columns|lines|characters)\b", text)
    assert not re.findall(r"(?<![\w-])(?!1 )\d+ (?:byte|hard link|level|column)\b(?!s)", text)
    assert not re.findall(r"\ba (?:[aeio]|up)|\ban (?![aeiou])", text)
    assert not re.findall(r"\b([a-z]+) \1\b", text)
    assert not re.findall(r"  |[{}]|\bNone\b| ,|,,|;;", text)
    for line in text.splitlines():
        assert line.startswith("- ") or not line or line[-1] in ".:", line


@given(names)
def test_a_name_is_one_bash_word_without_backquotes(name: str) -> None:
    shown_as = file_word(name)
    assert "`" not in shown_as
    assert len(shown_as.splitlines()) == 1
    assert [os.fsencode(one) for one in plain_words(shown_as)] == [name_bytes(name)]
    if not shown_as.startswith("$'"):
        assert shlex.split(shown_as) == [os.fsdecode(name_bytes(name))]


@given(st.text(st.characters(codec="utf-8", exclude_characters="\0")))
def test_a_value_is_one_bash_word(value: str) -> None:
    assert [os.fsencode(one) for one in plain_words(word(value))] == [value.encode()]
    assert len(word(value).splitlines()) == 1


@pytest.mark.parametrize(
    ("name", "shown_as"),
    [
        ("notes.txt", "notes.txt"), ("résumé.txt", "résumé.txt"), ("plan.txt~", "plan.txt~"),
        ("a b", "'a b'"), ("~", "'~'"), ("star*", "'star*'"), ("two\nlines", r"$'two\nlines'"),
        (r"\xff", r"$'\377'"), ("back\\\\slash", r"'back\slash'"), ("`q`", r"$'\140q\140'"),
    ],
)  # fmt: skip
def test_names_are_quoted_only_where_bash_needs_it(name: str, shown_as: str) -> None:
    assert file_word(name) == shown_as


@given(goals())
def test_each_fact_is_in_exactly_one_line(drawn: tuple[dict[str, Any], list[list[Any]]]) -> None:
    before, operations = drawn
    assume(operations)
    goal = Goal(patch=operations)
    lines = lines_of(before, goal)
    assert len(set(lines)) == len(lines)
    assert open_facts(before, task(before, goal, lines)) == []
    for number in range(len(lines)):
        fewer = [*lines[:number], *lines[number + 1 :]]
        if fewer:
            assert open_facts(before, task(before, goal, fewer)), lines[number]


def test_a_bullet_does_not_state_the_target_of_a_link() -> None:
    link = {"perms": "lrwxrwxrwx", "links": 1, "owner": "alice", "group": "staff", "size": 0}
    before = {"fs": {"l": {**link, **NOW, "target": "x"}}, "user": "root"}
    goal = Goal(patch=[["=", "/fs/l/group", "users"], ["=", "/fs/l/target", "-"]])
    lines = lines_of(before, goal)
    assert open_facts(before, task(before, goal, lines)) == []
    kept = [line for line in lines if "group" in line]
    assert open_facts(before, task(before, goal, kept)) != []


@given(goals())
def test_prompts_are_plain_english(drawn: tuple[dict[str, Any], list[list[Any]]]) -> None:
    before, operations = drawn
    assume(operations)
    goal = Goal(patch=operations)
    lines = lines_of(before, goal)
    found = task(before, goal, lines)
    assert is_worded(found.prompt)
    assert_plain(found.prompt)
    for fact in goal.facts:
        name = f"`{file_word(fact.names[0])}`"
        assert any(name in line for line in lines)
    first = found.prompt.splitlines()[0]
    assert re.fullmatch(r"You are root, in a Bash shell whose .*`\. [A-Z][^.]*\.( Undo .*)?", first)
    is_quoted = any("'" in one for one in re.findall(r"`[^`]*`", found.prompt))
    assert found.prompt.endswith("name or value.") == is_quoted


@given(names, st.text(st.sampled_from("ab `\n\t-~"), max_size=30), st.booleans())
def test_a_content_can_be_read_from_its_prompt(name: str, text: str, added: bool) -> None:
    old = "old\n" if added else ""
    assume(text or not added)
    goal = Goal(
        patch=[["=", pointer("fs", name, "size"), len(old + text)]],
        digests={name: hashlib.sha256((old + text).encode()).hexdigest()},
    )
    entry = {"perms": "-rw-r--r--", "links": 1, "owner": "alice", "group": "staff", "size": -1}
    before = {"fs": {name: {**entry, **NOW}}, "user": "root"}
    found = task(before, goal, lines_of(before, goal, [describe_content(name, text, added=added)]))
    assert list(unstated_facts(found, before, lambda name: old.encode(), INSTANT)) == []
    assert_plain(found.prompt)


SHELL: list[tuple[list[Any], str]] = [
    (["=", "/cwd", "/a b"], "the shell's working directory is `'/a b'`"),
    (["=", "/umask", "0077"], "the shell's umask is 0077"),
    (["a", "/env/X", "a b"], "the shell exports the variable `X` with the value `'a b'`"),
    (["a", "/env/X", ""], "the shell exports the variable `X` with the value `''`"),
    (["r", "/env/X"], "the shell exports no variable `X`"),
    (["a", "/settings/X", "1"], "the shell variable `X` is not exported and has the value `1`"),
    (
        ["a", "/settings/X", 'declare -i X="5"'],
        "the shell variable `X` has the declaration `'declare -i X=\"5\"'`",
    ),
    (["=", "/settings/-o errexit", True], "the shell option `errexit` is on"),
    (["=", "/shell_options/extglob", False], "the shell option `extglob` is off"),
    (["a", "/aliases/ll", "ls -l"], "the shell alias `ll` has the value `'ls -l'`"),
    (
        ["a", "/functions/f", "{ \n    ls\n}"],
        "the shell function `f` has this body:\n```\n{ \n    ls\n}\n```",
    ),
    (["=", "/limits/open files", "100"], "the shell's soft limit `open files` is 100"),
    (["=", "/hostname", "desk"], "the host name is `desk`"),
    (["=", "/network/links/eth0/mtu", 9000], "the attribute `mtu` of the network interface `eth0` "
     "is 9000"),
    (["r", "/network/addresses/eth0"], "the network interface `eth0` has no addresses"),
    (["=", "/network/routes", ["dst a"]], "`dst a` is among the routes"),
    (["=", "/firewall", ["tcp drop"]], "`tcp drop` is among the firewall rules"),
]  # fmt: skip


@pytest.mark.parametrize(("operation", "line"), SHELL, ids=lambda value: str(value)[:40])
def test_facts_outside_files_are_described(operation: list[Any], line: str) -> None:
    goal = Goal(patch=[operation])
    before: dict[str, Any] = {"fs": {}, "user": "root", "firewall": [], "network": {"routes": []}}
    lines = lines_of(before, goal)
    assert lines == [line]
    found = task(before, goal, lines)
    assert open_facts(before, found) == []
    assert_plain(found.prompt)


def test_a_file_of_another_kind_is_described_as_a_whole() -> None:
    entry = {"perms": "lrwxrwxrwx", "links": 1, "owner": "alice", "group": "staff", "size": 3}
    before = {"fs": {"x": {**entry, **NOW, "target": "old"}}, "user": "root"}
    place = "/fs/x/"
    goal = Goal(
        patch=[
            ["=", f"{place}perms", "-rw-r-----"], ["r", f"{place}target"], ["=", f"{place}size", 0],
        ]
    )  # fmt: skip
    lines = lines_of(before, goal)
    assert lines == [
        "`x` is a regular file: permissions 0640 (rw-r-----), owner alice, group staff, "
        "size 0 bytes"
    ]
    assert open_facts(before, task(before, goal, lines)) == []
    assert "Create a file." in task(before, goal, lines).prompt


def test_shipped_prompts_are_plain() -> None:
    for path in ("examples/agents/tasks.jsonl", "tests/support/right_answers/tasks.jsonl"):
        for one in read_tasks(ROOT / path):
            assert_plain(one.prompt)
            assert is_worded(one.prompt)


def test_a_prompt_in_other_words_is_reported() -> None:
    before: dict[str, Any] = {"fs": {}, "user": "root"}
    goal = Goal(patch=[["=", "/umask", "0077"]])
    one = task(before, goal, lines_of(before, goal))
    other = Task(**{name: getattr(one, name) for name in one.__struct_fields__} | {"prompt": "Do."})
    (fault,) = open_facts(before, other)
    assert "--rebase" in fault
