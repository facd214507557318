"""Changes of the tree by commands, derived by rule, match the machine."""

from __future__ import annotations

from collections.abc import Mapping
from random import Random
from typing import Any

import pytest

from shioenv.behavior.observe import SandboxRunner
from shioenv.domain.runner import State
from shioenv_model.composition.call import Call
from shioenv_model.composition.changes import composed
from shioenv_model.rules.effects import effect

FILES = (
    "README.md",
    "data/ids.txt",
    "data/shared/plan.txt",
    "bin/hello",
    "scripts/setuid_tool",
    "config/app.ini",
    "config/current",
    "config/settings.yml",
    "latest.log",
    "logs/archive",
    "empty.txt",
    "/etc/hosts",
    "/etc/shadow",
)
DIRECTORIES = ("data", "documents", "documents/old", "scripts", "config", "data/empty", "/tmp", ".")
NEW = ("new", "new/", "data/new", "/tmp/new", "new/deep/er", "missing/x")
MODES = (
    *("755", "644", "600", "0", "4755", "2750", "1777", "+x", "u+x,go-r", "a=r", "go=", "u=rwX"),
    *("g+s", "o-rwx", "g=u", "+t", "u+s", "-R 750", "-R go-rwx", "-R u=rwX,go=rX", "-R a-x", "=rx"),
)
OWNERS = ("bob", "alice:developers", ":users", "root:", "nobody:nogroup", "ghost", "bob:ghost")


OPTIONS: Mapping[str, tuple[str, ...]] = {
    "rmdir": ("",),
    "rm": ("", "-r ", "-rf ", "-f "),
    "touch": ("", "-c "),
    "cp": ("", "-r ", "-a ", "-p ", "-rp "),
    "mv": ("", "-f "),
    "ln": ("", "-s ", "-sf "),
}


def path(random: Random, *more: str) -> str:
    return random.choice((*FILES, *DIRECTORIES, *more))


def command(random: Random) -> str:
    name = random.choice(
        ("chmod", "chown", "chgrp", "mkdir", "rmdir", "rm", "touch", "cp", "mv", "ln")
    )
    some = " ".join(path(random) for _ in range(random.choice((1, 1, 2))))
    if name == "chmod":
        return f"chmod {random.choice(MODES)} {some}"
    if name in ("chown", "chgrp"):
        who = random.choice(OWNERS) if name == "chown" else random.choice(("users", "adm", "ghost"))
        return f"{name} {random.choice(('', '-R '))}{who} {some}"
    if name == "mkdir":
        return f"mkdir {random.choice(('', '-p ', '-m 700 '))}{random.choice(NEW)}"
    if name in ("rmdir", "rm", "touch"):
        return f"{name} {random.choice(OPTIONS[name])}{path(random, *NEW)}"
    return f"{name} {random.choice(OPTIONS[name])}{some} {path(random, *NEW)}"


@pytest.fixture(scope="module")
def fresh(observer: SandboxRunner) -> Mapping[str, Any]:
    """The entry of an empty file that is made now."""
    (operation,) = observer.run("touch made").patch.operations
    entry: Mapping[str, Any] = operation[2]
    return entry


def told(text: str, state: State, fresh: Mapping[str, Any]) -> dict[str, tuple[Any, ...]] | None:
    found = effect(Call(text), state, fresh)
    if found is None:
        return None
    whole = composed(state.before.document, [found[0].patch], state.cwd)
    return {operation[1]: operation for operation in whole.operations}


def test_what_is_told_is_what_the_machine_does(
    observer: SandboxRunner, fresh: Mapping[str, Any]
) -> None:
    random, state = Random(1), observer.state()
    texts = list(dict.fromkeys(command(random) for _ in range(260)))
    asked = ((text, told(text, state, fresh)) for text in texts)
    ours = {text: said for text, said in asked if said is not None}
    assert len(ours) > 110
    for text, said in ours.items():
        right = observer.run(text)
        assert right.exit_code == 0, text
        assert said == {each[1]: each for each in right.patch.operations}, text


def test_contents_are_told_with_their_digests(
    observer: SandboxRunner, fresh: Mapping[str, Any]
) -> None:
    for text in ("cp data/ids.txt README.md /tmp", "cp -r documents copy", "touch new"):
        found = effect(Call(text), observer.state(), fresh)
        assert found is not None
        assert found[0].content_digests == observer.run(text).content_digests, text


@pytest.mark.parametrize(
    "text",
    [
        "dd if=/dev/zero of=z bs=1k count=3 status=none", "dd if=README.md of=z status=none",
        "dd if=README.md of=data/ids.txt bs=10 skip=2 count=3 status=none", "split README.md",
        "split -l 2 data/ids.txt part_", "split -b 100 README.md p", "split -3 data/ids.txt",
        "split -d -a 3 -l 4 README.md n.", "split -b 1k logs/app.log.1 /tmp/a", "split empty.txt",
    ],
)  # fmt: skip
def test_pieces_of_files_are_files(
    text: str, observer: SandboxRunner, fresh: Mapping[str, Any]
) -> None:
    state = observer.state()
    found, right = effect(Call(text), state, fresh), observer.run(text)
    assert found is not None
    assert right.exit_code == 0
    assert told(text, state, fresh) == {each[1]: each for each in right.patch.operations}
    assert found[0].content_digests == right.content_digests


@pytest.mark.parametrize("size", [0, 1, 999, 1000, 1024, 3072, 99_999, 1 << 16])
def test_dd_counts_what_it_copied(
    size: int, observer: SandboxRunner, fresh: Mapping[str, Any]
) -> None:
    text = f"dd if=/dev/zero of=z bs=1 count={size}"
    found, right = effect(Call(text), observer.state(), fresh), observer.run(text)
    assert found is not None
    assert found[0].volatile
    counted = found[0].output.partition(b" copied")[0]
    assert counted == right.output.partition(b" copied")[0]


@pytest.mark.parametrize("mask", ["0077", "0002", "0000", "0777"])
def test_a_umask_counts(observer: SandboxRunner, fresh: Mapping[str, Any], mask: str) -> None:
    state = observer.state()
    masked = state.after(f"umask {mask}", observer.run(f"umask {mask}", state))
    for text in (
        "mkdir new",
        "touch new",
        "chmod +x README.md",
        "chmod -w README.md",
        "cp README.md n",
    ):
        said = told(text, masked, fresh)
        if said is not None:
            right = observer.run(text, masked).patch.operations
            assert said == {each[1]: each for each in right}, text
