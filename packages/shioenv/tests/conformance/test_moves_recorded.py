"""A moved file is one operation, whatever ran before; so is a change of contents alone."""

from __future__ import annotations

from dataclasses import replace
from hashlib import sha256

import pytest

from shioenv.behavior.observe import SandboxRunner
from shioenv.domain.behavior import Behavior
from shioenv.domain.patch import is_content
from shioenv.live.resident import open_shell

IN_PLACE = "printf x | dd of={0} conv=notrunc 2>/dev/null"
"""Writes over the first byte, with unchanged size and time of a file made by the same run."""


def after(observer: SandboxRunner, history: tuple[str, ...], text: str) -> Behavior:
    behavior = observer.run(text, replace(observer.state(), history=history))
    context = observer.context().document
    for line, state in ((one, history[:n]) for n, one in enumerate(history)):
        context = observer.run(line, replace(observer.state(), history=state)).patch.apply(context)
    behavior.patch.apply(context)  # it fits what the history left
    assert not behavior.volatile
    return behavior


def moves(behavior: Behavior) -> set[tuple[str, ...]]:
    return {tuple(one[1:]) for one in behavior.patch.operations if one[0] == "m"}


@pytest.mark.parametrize("history", [(), ("true",), ("touch other",), ("chmod 600 README.md",)])
def test_a_renamed_file_is_one_operation_with_and_without_a_history(
    observer: SandboxRunner, history: tuple[str, ...]
) -> None:
    behavior = after(observer, history, "mv README.md x")
    assert behavior.patch.operations[-1:] == (("m", "/fs/README.md", "/fs/x"),)
    assert not behavior.content_digests


@pytest.mark.parametrize(
    ("history", "text", "expected"),
    [
        (("touch a",), "mv a b", {("/fs/a", "/fs/b")}),
        (("echo more >> README.md",), "mv README.md b", {("/fs/README.md", "/fs/b")}),
        (("mv README.md a",), "mv a b", {("/fs/a", "/fs/b")}),
        (("mv README.md a",), "mv a README.md", {("/fs/a", "/fs/README.md")}),
        (
            ("mkdir d; touch d/f",), "mv d e", {("/fs/d", "/fs/e"), ("/fs/d~1f", "/fs/e~1f")},
        ),
        (("touch a b",), "mv a c; mv b a; mv c b", set()),
        (("echo a > a",), "cp -p a b; rm a", set()),
        (("echo a > a",), "echo b > b; rm a", set()),
        (("mkdir d; touch d/f",), "cp -a d e; rm -r d", set()),
        (("touch a",), "mv a b; echo more > b", set()),
    ],
)  # fmt: skip
def test_a_move_is_told_from_a_copy_after_a_history(
    observer: SandboxRunner, history: tuple[str, ...], text: str, expected: set[tuple[str, ...]]
) -> None:
    assert moves(after(observer, history, text)) == expected


def test_a_directory_of_the_system_moves_with_what_the_history_put_into_it(
    observer: SandboxRunner,
) -> None:
    behavior = after(observer, ("touch documents/new",), "mv documents papers")
    assert ("/fs/documents", "/fs/papers") in moves(behavior)
    assert ("/fs/documents~1new", "/fs/papers~1new") in moves(behavior)
    assert {one[0] for one in behavior.patch.operations if "documents" in one[1]} == {"m"}


@pytest.mark.parametrize(
    ("history", "text", "name"),
    [
        ((), "touch -r README.md t; {0}; touch -r t README.md; rm t", "README.md"),
        (("true",), "touch -r README.md t; {0}; touch -r t README.md; rm t", "README.md"),
        (("cp README.md new",), "{0}", "new"),
        (("mv README.md new; touch new",), "{0}", "new"),
    ],
)
def test_a_content_that_changed_alone_is_an_operation(
    observer: SandboxRunner, history: tuple[str, ...], text: str, name: str
) -> None:
    behavior = after(observer, history, text.format(IN_PLACE.format(name)))
    told = [one for one in behavior.patch.operations if is_content(one)]
    assert [one[1] for one in told] == [f"/fs/{name}"]
    assert told[0][2]["size"] == 261
    assert behavior.content_digests.keys() == {name}


def test_a_content_that_is_the_pristine_one_again_has_changed(observer: SandboxRunner) -> None:
    history = ("cp README.md k; echo another > README.md",)
    behavior = after(observer, history, "cat k > README.md")
    pristine = sha256(observer.run("cat README.md").output).hexdigest()
    assert behavior.content_digests == {"README.md": pristine}


@pytest.mark.parametrize("text", ["mv README.md x", "mv x y", f"touch k; {IN_PLACE.format('k')}"])
def test_a_resident_shell_and_a_history_tell_the_same(observer: SandboxRunner, text: str) -> None:
    history = ("mv LICENSE.txt x 2>/dev/null || cp README.md x", "echo x > k")
    with open_shell(observer.system) as shell:
        for line in history:
            shell.run(line)
        typed = shell.run(text)
    whole = after(observer, history, text)
    assert moves(typed) == moves(whole)
    assert [is_content(one) for one in typed.patch.operations] == [
        is_content(one) for one in whole.patch.operations
    ]
