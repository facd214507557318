"""The built-in agents parse prompts: facts, and requested outputs."""

from __future__ import annotations

import time

import pytest

from shioenv_agents.tasks import agents
from shioenv_agents.tasks.agents import LONGEST, by_fact, description_of, names, proposals, scripted
from shioenv_agents.tasks.task import Goal, Task

BEGIN = "You are root, in a shell in `/home/ubuntu`."
END = "Names that do not begin with a slash are relative to `/home/ubuntu`."


def prompt(*facts: str, kind: str = "Something has to go.") -> str:
    told = "\n".join(f"- {fact}" for fact in facts)
    state = f"{BEGIN} {kind}\n\nIn the end this is so, and everything else as it was:"
    return f"{state}\n\n{told}\n\n{END}"


def task(text: str) -> Task:
    return Task(
        id="1", prompt=text, cwd="/home/ubuntu", goal=Goal(), solution="true", reduced="",
        commands=["true"], irreducibility=1.0, n_arguments=1, record=1, system="x",
        system_digest="",
    )  # fmt: skip


@pytest.mark.parametrize(
    ("facts", "lines"),
    [
        (["`a b` is gone"], ["rm -rf 'a b'"]),
        (["`old` is called `new`"], ["mv -T old new"]),
        (["`data/x` has the permissions -rwxr-x--T"], ["chmod 1750 data/x"]),
        (["the owner of `x` is root"], ["chown -h root x"]),
        (["`x` is empty"], [": > x"]),
        (["`x` holds what `y` held"], ["cat y > x"]),
        (["`x` holds this:\n```\n1\n`y` is gone\n```"], ["printf %s '1\n`y` is gone\n' > x"]),
        (
            ["`x` holds this (without a newline at its end):\n```\none\n```"],
            ["printf %s 'one' > x"],
        ),
        (
            ["`d` is a directory, drwxr-xr-x, of root and the group adm"],
            ["mkdir d", "chown root:adm d; chmod 0755 d"],
        ),
        (["the exported variable `X` of the shell is `a b`"], ["export X='a b'"]),
        (["the shell's working directory is `/tmp`"], ["cd /tmp"]),
    ],
)  # fmt: skip
def test_each_fact_has_a_line_that_brings_it_about(facts: list[str], lines: list[str]) -> None:
    assert list(by_fact(prompt(*facts))) == lines


@pytest.mark.parametrize(
    ("asked", "line"),
    [
        ("the lines of `a`, then those of `b c`; of these in order, backwards",
         "cat a 'b c' | sort -r"),
        ("the lines of `a`; of these only the first 3 lines; of these each one backwards, from its "
         "last character to its first", "cat a | head -n 3 | rev"),
        ("how many lines there are in `a`, `b`: numbers, then the name, a line each", "wc -l a b"),
        ("the values of the environment variables LANG, PWD, in this order, a line each",
         "printenv LANG PWD"),
        ("the lines of `a`; of these only the fields 1,3, which are separated by `:`",
         "cat a | cut -d : -f 1,3"),
    ],
)  # fmt: skip
def test_an_output_is_proposed_with_all_its_steps_first(asked: str, line: str) -> None:
    text = f"{BEGIN}\n\nPrint {asked}.\n\nThe last command you run prints that.\n\n{END}"
    assert next(proposals(text)) == line


@pytest.mark.parametrize(
    "fact",
    [
        "`x` has the permissions zzz",
        "`x` has the permissions -rwxr-x--Tand more",
        "`x` is a directory, drwx, of root and the group adm",
        "`x` has the permissions -rwzr-xr-x",
    ],
)
def test_permissions_that_are_none_are_no_fact(fact: str) -> None:
    assert list(by_fact(prompt(fact, "`y` is gone"))) == ["rm -rf y"]


@pytest.mark.parametrize(
    "text",
    ["` is called `", "`a` was last changed on ", "` holds what `", ", ", "`x` has 1 bytes, "],
)
@pytest.mark.parametrize("begin", ["`a", "`a` was last changed on "])
def test_a_long_line_takes_no_time(begin: str, text: str) -> None:
    for length in (LONGEST, 1_000_000):
        line = begin + text * ((length - len(begin)) // len(text) - 1) + "."
        began = time.process_time()
        assert list(by_fact(prompt(line, "`y` is gone"))) == ["rm -rf y"]
        assert time.process_time() - began < 2


def test_the_weakest_agent_knows_names_alone() -> None:
    reply = names(task(prompt("`data/x` is gone", "`y` is gone")))
    assert [reply([]), reply([]), reply([])] == ["ls", "rm -r data/x y", None]


def test_an_agent_is_described_by_all_that_decides_what_it_types(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr("shioenv.endpoint.Endpoint.check", lambda endpoint: None)
    monkeypatch.setenv("OPENAI_BASE_URL", "http://a")
    one = description_of(agents.prompted("m"))
    assert one == description_of(agents.prompted("m", "http://a"))
    monkeypatch.setenv("OPENAI_BASE_URL", "http://b")
    others = [agents.prompted("m"), agents.prompted("n", "http://a"), agents.facts, agents.model]
    assert len({one, *map(description_of, others)}) == 5
    before = description_of(agents.model)
    monkeypatch.setattr(agents, "_model_digest", lambda: "of another model")
    assert description_of(agents.model) != before
    assert description_of(agents.facts) == description_of(agents.AGENTS["facts"])


def test_a_script_ends() -> None:
    reply = scripted(["one"])
    assert [reply([]), reply([])] == ["one", None]
