"""The built-in agents parse prompts: facts, and requested outputs."""

from __future__ import annotations

import time

import pytest

from shioenv_agents.tasks import agents
from shioenv_agents.tasks.agents import LONGEST, by_fact, description_of, names, proposals, scripted
from shioenv_agents.tasks.task import Goal, Task
from support.needs import needs

BEGIN = "You are root, in a Bash shell whose working directory is `/home/ubuntu`."
STATE = "When you finish, exactly the following must hold; leave everything else unchanged:"
END = "Relative paths start from `/home/ubuntu`."


TEXT = "contains exactly this text"


def prompt(*facts: str, kind: str = "Remove some files.") -> str:
    told = "\n".join(f"- {fact}" for fact in facts)
    state = f"{BEGIN} {kind}\n\n{STATE}"
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
        (["`'a b'` no longer exists"], ["rm -rf 'a b'"]),
        (["`old` has been moved to `new`"], ["mv -T old new"]),
        (["the permissions of `data/x` are 1750 (rwxr-x--T)"], ["chmod 1750 data/x"]),
        (["the owner of `x` is root"], ["chown -h root x"]),
        (["`x` is empty"], [": > x"]),
        (["`x` has the original content of `y`"], ["cat y > x"]),
        (
            [f"`x` {TEXT}, with a newline at the end:\n```\n1\n`y` no longer exists\n```"],
            ["printf %s '1\n`y` no longer exists\n' > x"],
        ),
        (
            [f"`x` {TEXT}, without a newline at the end:\n```\none\n```"],
            ["printf %s 'one' > x"],
        ),
        (
            ["`d` is a directory: permissions 0755 (rwxr-xr-x), owner root, group adm"],
            ["mkdir d", "chown root:adm d; chmod 0755 d"],
        ),
        (
            ["`l` is a symbolic link to `'a b'`: owner adm, group root"],
            ["ln -sfn 'a b' l && chown -h adm:root l"],
        ),
        (
            ["the modification time of `'a b'` is 2025-09-30 15:15 UTC"],
            ["touch -hcd '2025-09-30 15:15 UTC' 'a b'"],
        ),
        (["`h` is a hard link to `a`"], ["ln -f a h"]),
        (["the shell exports the variable `X` with the value `'a b'`"], ["export X='a b'"]),
        (["the shell's working directory is `/tmp`"], ["cd /tmp"]),
    ],
)  # fmt: skip
def test_each_fact_has_a_line_that_brings_it_about(facts: list[str], lines: list[str]) -> None:
    assert list(by_fact(prompt(*facts))) == lines


@pytest.mark.parametrize(
    ("asked", "line"),
    [
        ("the result of these steps: take the lines of `a`, then those of `'b c'`; sort the lines, "
         "in reverse order", "cat a 'b c' | sort -r"),
        ("the result of these steps: take the lines of `a`; keep only the first 3 lines; reverse "
         "the order of the characters in each line", "cat a | head -n 3 | rev"),
        ("the number of lines in each of `a`, `b`, one line per file, each ending with the file's "
         "name, and then a line with the sums, ending with `total`", "wc -l a b"),
        ("the values of the environment variables `LANG`, `PWD`, in this order, one per line",
         "printenv LANG PWD"),
        ("the result of these steps: take the lines of `a`; keep only fields 1,3 of each line, "
         "with `:` between fields, leaving lines without it as they are",
         "cat a | cut -d : -f 1,3"),
        ("the result of these steps: take the lines of `a`; keep only the first line",
         "cat a | head -n 1"),
    ],
)  # fmt: skip
def test_an_output_is_proposed_with_all_its_steps_first(asked: str, line: str) -> None:
    text = f"{BEGIN}\n\nPrint {asked}.\n\nThe last command that you run must print this.\n\n{END}"
    assert next(proposals(text)) == line


@pytest.mark.parametrize(
    "fact",
    [
        "the permissions of `x` are zzz",
        "the permissions of `x` are 0755 (rwxr-xr-x) and more",
        "`x` is a directory: permissions 0700 (rwx), owner root, group adm",
        "the permissions of `x` are 0955 (rwzr-xr-x)",
    ],
)
def test_permissions_that_are_none_are_no_fact(fact: str) -> None:
    assert list(by_fact(prompt(fact, "`y` no longer exists"))) == ["rm -rf y"]


@pytest.mark.parametrize(
    "text",
    [
        "` has been moved to `",
        "the modification time of `",
        "` has the original content of `",
        ", ",
    ],
)
@pytest.mark.parametrize("begin", ["`a", "the modification time of `a` is "])
def test_a_long_line_takes_no_time(begin: str, text: str) -> None:
    for length in (LONGEST, 1_000_000):
        line = begin + text * ((length - len(begin)) // len(text) - 1) + "."
        began = time.process_time()
        assert list(by_fact(prompt(line, "`y` no longer exists"))) == ["rm -rf y"]
        assert time.process_time() - began < 2


def test_the_weakest_agent_knows_names_alone() -> None:
    reply = names(task(prompt("`data/x` no longer exists", "`y` no longer exists")))
    assert [reply([]), reply([]), reply([])] == ["ls", "rm -r data/x y", None]


@needs("shioenv-model")
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
