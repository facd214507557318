"""Every patch applies to the context before it, and gives the context that the sandbox would show.

The context after an input is built a second time here, from the execution's full listing instead of
the changes: the files, the shell's whole dump, the whole network.
"""

from __future__ import annotations

import json
import marshal
from collections.abc import Iterator
from functools import cache
from itertools import islice
from typing import Any

import jsonpatch
import pytest

from shioenv.behavior.capture import CLOCK_SLACK, Recorder, network_fields
from shioenv.behavior.observe import SandboxRunner
from shioenv.behavior.shell_state import Malformed, merged, section_state, sections
from shioenv.domain.behavior import Behavior
from shioenv.domain.names import name_text
from shioenv.errors import InputError, SandboxError
from shioenv.sandbox.base import Execution, Limits
from shioenv.synthesis.drawing import Drawing
from shioenv.synthesis.sample import sample
from shioenv.system.store import System
from support.case_files import DIRECTORY
from support.nightly import LARGER, by_day, scaled
from support.paths import ROOT

WRITING = ROOT / "soak" / "writing.txt"
LIMITS = Limits(wall_seconds=0.5, processes=64, disk_bytes=16 << 20, disk_inodes=4096)
OF_A_DIRECTORY = ("perms", "owner", "group")
"""The size, links and times of a changed directory follow separate rules."""


class Watched:
    """A sandbox that keeps the newest execution."""

    def __init__(self, sandbox: Any) -> None:
        self._sandbox = sandbox
        self.newest: Execution | None = None

    def run(self, *given: Any, **how: Any) -> Execution:
        self.newest = self._sandbox.run(*given, **how)
        return self.newest

    def __getattr__(self, name: str) -> Any:
        return getattr(self._sandbox, name)


@pytest.fixture(scope="module")
def runner(system: System) -> Iterator[SandboxRunner]:
    with SandboxRunner(system, LIMITS) as opened:
        opened._sandbox = Watched(opened._sandbox)
        opened.context()
        yield opened


@cache
def _written(runner: SandboxRunner) -> bytes:
    return marshal.dumps(json.loads(runner.context().to_json()))  # thrice as fast to copy


def before(runner: SandboxRunner) -> dict[str, Any]:
    """Return a new copy of the pristine context, as a dataset's reader has it."""
    document: dict[str, Any] = marshal.loads(_written(runner))
    return document


def expected(runner: SandboxRunner, execution: Execution, recorder: Recorder) -> dict[str, Any]:
    """Return the context after the execution."""
    document = before(runner)
    own = (execution.started - CLOCK_SLACK, execution.ended + CLOCK_SLACK)
    for change in execution.changes:
        key = recorder.name(change.path)
        if change.after is None:
            document["fs"].pop(key, None)
        elif change.before != change.after:
            document["fs"][key] = recorder.entry(change.after, own=own).to_json()
    if execution.shell is not None:
        groups = {number: name for name, number in runner.system.groups.items()}
        state = merged(
            section_state(name, content, groups)
            for name, content in sections(execution.shell).items()
        )
        level = int(document["env"]["SHLVL"])
        if state["env"].get("SHLVL") == str(level - 1):  # counted down by `exec`
            state["env"]["SHLVL"] = str(level)
        document |= state
    if execution.cwd is not None:
        document["cwd"] = name_text(execution.cwd)
    if execution.hostname is not None:
        document["hostname"] = name_text(execution.hostname)
    if execution.network is not None:
        document |= network_fields(execution.network)
    return document


def _otherwise(found: dict[str, Any], wanted: dict[str, Any]) -> list[str]:
    """Return the files that differ; of directories only their own attributes count."""
    if found.keys() != wanted.keys():
        return sorted(found.keys() ^ wanted.keys())
    return [
        name
        for name, entry in found.items()
        if entry != wanted[name] and _own(entry) != _own(wanted[name])
    ]


def _own(entry: dict[str, Any]) -> dict[str, Any]:
    kind, mode = entry["perms"][0], entry["perms"][1:]
    if kind == "d":
        return {key: entry[key] for key in OF_A_DIRECTORY}
    # the socket that emulates a device is listed as a socket
    return entry | {"perms": f"s{mode}"} if kind in "bc" else entry


def check(runner: SandboxRunner, text: str) -> Behavior | None:
    """Check the law for one input; None where nothing could be compared."""
    try:
        behavior = runner.run(text)
    except (InputError, SandboxError):
        return None
    assert isinstance(runner._sandbox, Watched)
    execution = runner._sandbox.newest
    if behavior.patch_truncated or execution is None:
        return None
    strict = jsonpatch.apply_patch(before(runner), behavior.patch.to_rfc6902(), in_place=True)
    after = behavior.patch.apply(runner.context().document)
    assert strict == after, f"{text!r}: not what RFC 6902 makes of it"
    if execution.shell is not None:
        try:
            sections(execution.shell)
        except Malformed:
            return None
    wanted = expected(runner, execution, runner._recorder("/home/ubuntu"))
    differing = _otherwise(strict.pop("fs"), wanted.pop("fs"))
    assert not differing, f"{text!r}: {differing}"
    for field in wanted:
        assert strict[field] == wanted[field], f"{text!r}: {field}"
    return behavior


def hostile() -> list[str]:
    """Return the texts of the hostile cases, unparsed."""
    texts = []
    for path in sorted(DIRECTORY.glob("*.txt")):
        for block in path.read_text().split("\n### ")[1:]:
            lines = [line for line in block.split("\n")[1:] if not line.startswith(("=>", "# "))]
            if text := "\n".join(lines).strip():
                texts.append(text)
    return texts


@LARGER
def test_patches_of_inputs_that_write_give_the_contexts_that_follow(runner: SandboxRunner) -> None:
    lines = WRITING.read_text().splitlines()
    texts = [line for line in lines if line and not line.startswith("#")][:: scaled(3, 1)]
    changed = sum(bool(found.patch) for text in texts if (found := check(runner, text)))
    assert changed > scaled(50, 150)


@LARGER
@pytest.mark.parametrize("part", by_day(range(8), 8))
def test_patches_of_hostile_inputs_give_the_contexts_that_follow(
    runner: SandboxRunner, part: int
) -> None:
    texts = hostile()[part :: scaled(24, 8)]
    assert len(texts) > scaled(15, 45)
    compared = sum(check(runner, text) is not None for text in texts)
    assert compared > len(texts) // 2


@LARGER
def test_patches_of_drawn_inputs_give_the_contexts_that_follow(runner: SandboxRunner) -> None:
    for drawn in islice(sample(Drawing(seed=9), system=runner.system), scaled(50, 150)):
        check(runner, drawn.input.text)


def test_every_field_is_there_and_the_same_again(runner: SandboxRunner, system: System) -> None:
    context = runner.context()
    assert list(json.loads(context.to_json())) == [
        "arch", "kernel", "disk", "cpus", "mem", "hostname", "os_family", "user", "groups", "cwd",
        "env", "fs", "shell_options", "settings", "functions", "aliases", "umask", "limits",
        "firewall", "network",
    ]  # fmt: skip
    with SandboxRunner(system) as another:
        assert another.context() == context
    assert len(context.document["fs"]) == len(system.index)
    assert context.document["fs"]["/dev/null"]["perms"] == "crw-rw-rw-"
    elsewhere = runner.context("/etc").document
    assert (elsewhere["cwd"], elsewhere["env"]["PWD"]) == ("/etc", "/etc")
    assert elsewhere["fs"]["passwd"] == context.document["fs"]["/etc/passwd"]
