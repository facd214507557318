"""Machines as Harbor's environments, and jobs of Harbor on exported tasks."""

from __future__ import annotations

import asyncio
import json
import os
import re
import shlex
import subprocess
import sys
from collections.abc import Awaitable, Callable
from contextlib import nullcontext
from pathlib import Path
from typing import Any, TypeVar

import pytest

from support.needs import needed_module, needs
from support.paths import ROOT

needed_module("harbor")

from harbor.environments.base import ExecResult  # noqa: E402
from harbor.models.task.config import EnvironmentConfig  # noqa: E402
from harbor.models.trial.paths import TrialPaths  # noqa: E402

from shioenv.errors import TransferError, UsageError  # noqa: E402
from shioenv.system.store import System, build_system  # noqa: E402
from shioenv_agents.fronts.harbor import Environment  # noqa: E402
from shioenv_agents.tasks.harbor.check import ARTIFACTS, EVIDENCE  # noqa: E402
from shioenv_agents.tasks.harbor.task_folders import (  # noqa: E402
    HOOK,
    LABEL,
    export_tasks,
    name_of,
)
from support.fronts_tasks import EXPORTED, TASKS, sandboxes  # noqa: E402

pytestmark = pytest.mark.usefixtures("system")
Answer = TypeVar("Answer")


@pytest.fixture(scope="module")
def folders(tmp_path_factory: pytest.TempPathFactory) -> Path:
    place = tmp_path_factory.mktemp("harbor") / "tasks"
    assert export_tasks(EXPORTED, place).written == tuple(map(name_of, EXPORTED))
    return place


def opened(folder: Path, place: Path, **options: Any) -> Environment:
    paths = TrialPaths(place / "trial")
    paths.mkdir()
    return Environment(
        environment_dir=folder / "environment",
        environment_name="x",
        session_id="x",
        trial_paths=paths,
        task_env_config=EnvironmentConfig(workdir="/home/ubuntu"),
        **options,
    )


@pytest.fixture
def inside(folders: Path, tmp_path: Path) -> Callable[..., Any]:
    """Run a coroutine function with a started environment."""

    def run(action: Callable[[Environment], Awaitable[Answer]], **options: Any) -> Answer:
        async def whole() -> Answer:
            environment = opened(folders / name_of(TASKS[0]), tmp_path, **options)
            await environment.start(force_build=False)
            try:
                return await action(environment)
            finally:
                await environment.stop(delete=True)

        return asyncio.run(whole())

    return run


def test_commands_have_what_harbor_gives_them(inside: Callable[..., ExecResult]) -> None:
    async def act(environment: Environment) -> ExecResult:
        return await environment.exec(
            'pwd; id -un; echo "$X"; ls -d /logs/*; echo no >&2; exit 3',
            env={"X": "y"},
            user="ubuntu",
        )

    done = inside(act, persistent_env={"X": "other"})
    shown = "/home/ubuntu\nubuntu\ny\n/logs/agent\n/logs/artifacts\n/logs/verifier\n"
    assert (done.stdout, done.stderr, done.return_code) == (shown, "no\n", 3)


def test_a_command_out_of_time_is_ended_and_others_go_on(inside: Callable[..., Any]) -> None:
    async def act(environment: Environment) -> tuple[ExecResult, ExecResult]:
        beside = asyncio.create_task(environment.exec("until [ -e /go ]; do :; done; echo went"))
        with pytest.raises(RuntimeError, match="timed out after 1 seconds"):
            await environment.exec("sleep 1000", timeout_sec=1)
        left = await environment.exec("touch /go; pgrep -x sleep")
        return left, await beside

    left, beside = inside(act)
    assert (left.return_code, beside.stdout) == (1, "went\n")


def test_files_and_directories_go_in_and_out(inside: Callable[..., Any], tmp_path: Path) -> None:
    source = tmp_path / "source"
    (source / "d").mkdir(parents=True)
    (source / "d/program").write_bytes(os.urandom(5 << 20))
    (source / "d/program").chmod(0o755)
    (source / "link").symlink_to("d/program")

    async def act(environment: Environment) -> str:
        await environment.upload_dir(source, "/a b/c")
        await environment.upload_file(source / "d/program", "/a b/x/y")
        told = await environment.exec(
            'cd "/a b"; stat -c "%A %U %F" c/d/program c/link; cmp x/y c/link'
        )
        await environment.download_dir("/a b/c", tmp_path / "out")
        await environment.download_file("/a b/x/y", tmp_path / "file")
        await environment.download_dir_filtered(
            source_dir="/a b", target_dir=tmp_path / "some", include=["x/*"]
        )
        await environment.download_dir_with_exclusions(
            source_dir="/a b", target_dir=tmp_path / "most", exclude=["d"]
        )
        return told.stdout or ""

    told = inside(act)
    assert told == "-rwxr-xr-x root regular file\nlrwxrwxrwx root symbolic link\n"
    content = (source / "d/program").read_bytes()
    assert (tmp_path / "out/d/program").read_bytes() == content
    assert (tmp_path / "file").read_bytes() == content
    assert sorted(path.name for path in (tmp_path / "out").rglob("*")) == ["d", "program"]
    assert [path.name for path in (tmp_path / "some").rglob("*")] == ["x", "y"]
    assert not list((tmp_path / "most").rglob("program"))


TRICKS = {
    "a link": "ln -s /etc/passwd /out/x",
    "a directory that is a link": "rmdir /out; ln -s /etc /out",
    "a device": "mknod /out/x c 1 5",
    "a pipe": "mkfifo /out/x",
    "a tar that leads out": "mkdir -p /h; echo theirs > /h/mine; "
    "printf '#!/bin/sh\\nexec /bin/tar.real -c -P -f - /h/../../../mine\\n' > /t; "
    "mv /bin/tar /bin/tar.real; mv /t /bin/tar; chmod 755 /bin/tar",
    "a tar of links": "mv /bin/tar /bin/tar.real; ln -s /mine /h; "
    "printf '#!/bin/sh\\nexec /bin/tar.real -c -f - -C / h\\n' > /bin/tar; chmod 755 /bin/tar",
    "a tar without an end": "printf '#!/bin/sh\\nexec cat /dev/zero\\n' > /t; mv /t /bin/tar; "
    "chmod 755 /bin/tar",
    "a huge file": "truncate -s 1T /out/x",
}


@pytest.mark.parametrize("trick", TRICKS)
def test_nothing_but_files_comes_out(
    inside: Callable[..., Any], tmp_path: Path, trick: str
) -> None:
    mine = tmp_path / "mine"
    mine.write_text("mine")

    async def act(environment: Environment) -> None:
        await environment.exec(f"mkdir /out; {TRICKS[trick]}")
        refused = trick.startswith(("a tar w", "a tar that", "a huge"))
        with pytest.raises(TransferError) if refused else nullcontext():
            await environment.download_dir("/out", tmp_path / "a/b/c/d")
        with nullcontext() if trick == "a link" else pytest.raises(TransferError):
            await environment.download_file("/out/x", tmp_path / "x")

    inside(act, override_storage_mb=8)
    assert mine.read_text() == "mine"
    found = [path for path in (tmp_path / "a").rglob("*") if not path.is_dir()]
    assert all(path.is_file() and not path.is_symlink() for path in found)
    if trick != "a directory that is a link":
        assert [path for path in found if path.stat().st_size > 8 << 20] == []
    if trick == "a link":  # the machine's own file
        assert "ubuntu:x:1000" in (tmp_path / "x").read_text()
    else:
        assert not (tmp_path / "x").exists()


FORGED = json.dumps({"kind": "changes", "entries": {"/home/ubuntu/documents/notes.txt": None}})


def test_evidence_is_what_was_seen_from_outside(inside: Callable[..., Any], tmp_path: Path) -> None:
    async def act(environment: Environment) -> list[Any]:
        loop = f"while :; do echo {shlex.quote(FORGED)} > {ARTIFACTS}/{EVIDENCE}; done"
        await environment.exec(f"touch /made; ({loop}) > /dev/null 2>&1 &")
        await environment.exec(f"until [ -e {ARTIFACTS}/{EVIDENCE} ]; do :; done")
        seen = []
        for number, hook in enumerate((None, f"{HOOK}\nfalse")):
            if hook is not None:
                await environment.service_exec(hook, user="root", timeout_sec=60)
            file = tmp_path / str(number) / EVIDENCE
            await environment.download_dir(ARTIFACTS, file.parent)
            seen.append(json.loads(file.read_text()) if file.exists() else None)
        await environment.download_dir("/logs", tmp_path / "logs")
        seen.append(json.loads((tmp_path / "logs/artifacts" / EVIDENCE).read_text()))
        await environment.download_file(f"{ARTIFACTS}/{EVIDENCE}", tmp_path / "one")
        seen.append(json.loads((tmp_path / "one").read_text()))
        await environment.exec(f"rm -r {ARTIFACTS}; ln -s /nowhere {ARTIFACTS}")
        assert await environment.is_dir(ARTIFACTS)
        await environment.download_dir(ARTIFACTS, tmp_path / "gone")
        seen.append(json.loads((tmp_path / "gone" / EVIDENCE).read_text()))
        return seen

    first, *others = inside(act)
    assert first is None
    assert all(one == others[0] for one in others)
    counted = {path for path in others[0]["entries"] if not path.startswith("/logs")}
    assert counted == {"/made"}


WRITES = """
import sys, tarfile
with tarfile.open(fileobj=sys.stdout.buffer, mode="w|", format=tarfile.GNU_FORMAT) as tar:
    tar.addfile(tarfile.TarInfo(NAME))
"""
HIDES = {
    "a directory": f"mkdir -p {ARTIFACTS}/{EVIDENCE}/full",
    "nothing": f"rm -r {ARTIFACTS}",
    "a file above": f"rm -r {ARTIFACTS}; echo theirs > {ARTIFACTS}",
    "a long name": "'n' * 300",
    "a deep name": "'d/' * 1500 + 'f'",
}


@pytest.mark.parametrize("trick", HIDES)
@pytest.mark.parametrize("source", [ARTIFACTS, "/logs"])
def test_nothing_inside_hides_the_evidence(
    inside: Callable[..., Any], tmp_path: Path, trick: str, source: str
) -> None:
    text = HIDES[trick]
    if "*" in text:
        program = "#!/usr/bin/python3" + WRITES.replace("NAME", text)
        text = f"printf %s {shlex.quote(program)} > /t; chmod 755 /t; mv /t /bin/tar"

    async def act(environment: Environment) -> None:
        await environment.exec(f"touch /made; {text}")
        await environment.service_exec(HOOK)
        refused = "*" in HIDES[trick] and source != ARTIFACTS
        with pytest.raises((TransferError, OSError)) if refused else nullcontext():
            await environment.download_dir(source, tmp_path / "out")
        if not refused:
            file = tmp_path / "out" / os.path.relpath(ARTIFACTS, source) / EVIDENCE
            assert "/made" in json.loads(file.read_text())["entries"]

    inside(act)


def test_a_layer_is_there_and_no_change(inside: Callable[..., Any], tmp_path: Path) -> None:
    (tmp_path / "layer/usr/bin").mkdir(parents=True)
    (tmp_path / "layer/usr/bin/tmux").write_text("#!/bin/sh\necho tmux\n")
    (tmp_path / "layer/usr/bin/tmux").chmod(0o755)

    async def act(environment: Environment) -> tuple[str | None, Any]:
        said = await environment.exec("tmux; touch /made")
        await environment.service_exec(HOOK)
        await environment.download_dir(ARTIFACTS, tmp_path / "out")
        return said.stdout, json.loads((tmp_path / "out" / EVIDENCE).read_text())

    said, evidence = inside(act, layer=str(tmp_path / "layer"))
    counted = {path for path in evidence["entries"] if not path.startswith("/logs")}
    assert (said, counted) == ("tmux\n", {"/made"})


def test_what_an_image_runs_is_there_and_no_change(tmp_path: Path) -> None:
    """On a broken machine the typed fault is part of the initial state, and its repair is a
    change."""
    image = f"shioenv/debian-12:{build_system().digest[:12]}"
    (tmp_path / "environment").mkdir()
    dockerfile = tmp_path / "environment/Dockerfile"
    rows = ("chmod 000 notes.txt todo.txt", "echo x > made; sleep 1000 &")
    runs = [f"RUN {json.dumps(['/bin/bash', '-c', row])}" for row in rows]
    lines = [f"FROM {image}", "WORKDIR /home/ubuntu/documents", *runs]

    async def act() -> tuple[ExecResult, Any]:
        dockerfile.write_text("\n".join(lines))
        environment = opened(tmp_path, tmp_path)
        await environment.start(force_build=False)
        try:
            said = await environment.exec("ls -l; pgrep -x sleep", cwd="/home/ubuntu/documents")
            await environment.exec("chmod 644 /home/ubuntu/documents/notes.txt; rm -f /none")
            await environment.service_exec(HOOK)
            await environment.download_dir(ARTIFACTS, tmp_path / "out")
        finally:
            await environment.stop(delete=True)
        dockerfile.write_text("\n".join([*lines, 'RUN ["/bin/bash", "-c", "exit 3"]']))
        environment = opened(tmp_path, tmp_path / "again")
        with pytest.raises(UsageError, match="ended with exit code 3"):
            await environment.start(force_build=False)
        await environment.stop(delete=True)
        return said, json.loads((tmp_path / "out" / EVIDENCE).read_text())

    said, evidence = asyncio.run(act())
    assert "----------" in (said.stdout or "")
    assert " made\n" in (said.stdout or "")
    assert said.return_code == 1  # no process of an image lives on
    counted = {path: now for path, now in evidence["entries"].items() if "/logs" not in path}
    assert [*counted] == ["/home/ubuntu/documents/notes.txt"]
    assert counted["/home/ubuntu/documents/notes.txt"]["mode"] == "-rw-r--r--"


@pytest.mark.parametrize(
    ("text", "why"),
    [
        ("FROM debian:12\n", "does not name a ShIOEnv system"),
        ("", "does not name a ShIOEnv system"),
        ("FROM shioenv/debian-12:0123456789ab\n", "needs the build"),
        ("FROM debian:12\nLABEL {label}=debian-12:0123456789ab\n", "needs the build"),
        ("FROM debian:12\nLABEL {label}=debian-12\n", "does not name a ShIOEnv system"),
        ("LABEL {label}={build}\nFROM debian:12\n", "does not name a ShIOEnv system"),
        ("FROM {image}\nLABEL {label}={build}\n", "unsupported instruction"),
        ("FROM {image}\nRUN rm -r /\n", "unsupported instruction"),
        ('FROM {image}\nRUN ["/bin/sh", "-c", "true"]\n', "unsupported instruction"),
        ('FROM {image}\nRUN ["/bin/bash", "-c", 1]\n', "unsupported instruction"),
        ("FROM {image}\nRUN " + "[" * 100_000 + "]\n", "unsupported instruction"),
    ],
)
def test_a_task_of_another_image_is_refused(tmp_path: Path, text: str, why: str) -> None:
    (tmp_path / "environment").mkdir()
    build = f"debian-12:{build_system().digest[:12]}"
    text = text.format(image=f"shioenv/{build}", build=build, label=LABEL)
    (tmp_path / "environment/Dockerfile").write_text(text)
    with pytest.raises(UsageError, match=why):
        opened(tmp_path, tmp_path)


def test_the_hook_inside_sees_what_is_seen_from_outside(
    folders: Path, inside: Callable[..., Any], tmp_path: Path
) -> None:
    """The hook's own program, in one machine, and the checker in another one."""
    folder = folders / name_of(TASKS[0])
    hook = (folder / "task.toml").read_text().split("command = ")[1]

    async def judged(environment: Environment) -> Any:
        await environment.upload_dir(folder / "tests", "/tests")
        await environment.upload_dir(tmp_path / "evidence", ARTIFACTS)
        await environment.exec("bash /tests/test.sh")
        await environment.download_file("/logs/verifier/reward.json", tmp_path / "reward")
        return json.loads((tmp_path / "reward").read_text())["reward"]

    for line, reward in ((TASKS[0].solution, 1), (f"{TASKS[0].solution}; touch x", 0)):

        async def act(environment: Environment, line: str = line) -> None:
            await environment.exec(line)
            done = await environment.exec(json.loads(hook), user="root")
            assert done.return_code == 0, done.stderr
            text = await environment.exec(f"cat {ARTIFACTS}/{EVIDENCE}")
            (tmp_path / "evidence").mkdir(exist_ok=True)
            (tmp_path / "evidence" / EVIDENCE).write_text(text.stdout or "")

        inside(act)
        assert inside(judged) == reward, line


def job(tasks: Path, place: Path, *options: str) -> dict[str, Any]:
    """Return the rewards of a job's trials, by the names of their tasks."""
    harbor = Path(sys.executable).with_name("harbor")
    command = [
        str(harbor), "run", "-p", str(tasks), "-e", "shioenv_agents.fronts.harbor:Environment",
        "-q", "-y", "--jobs-dir", str(place), "--job-name", "job", *options,
    ]  # fmt: skip
    told = {**os.environ, "HARBOR_TELEMETRY": "0"}
    done = subprocess.run(command, env=told, capture_output=True, text=True, timeout=240)
    assert done.returncode == 0, done.stderr + done.stdout
    results = [json.loads(file.read_text()) for file in place.glob("job/*/result.json")]
    assert results
    return {one["task_name"]: one["verifier_result"]["rewards"]["reward"] for one in results}


@pytest.mark.parametrize(("agent", "reward"), [("oracle", 1), ("nop", 0)])
def test_a_job_pays_the_oracle_and_nobody_else(
    folders: Path, tmp_path: Path, agent: str, reward: int
) -> None:
    rewards = job(folders, tmp_path, "-a", agent, "-n", "2")
    assert rewards == {f"shioenv/{task.id}": reward for task in EXPORTED}


def test_machines_are_used_again_and_end_with_the_process(
    folders: Path, tmp_path: Path, system: System
) -> None:
    async def twice() -> list[int]:
        seen = []
        for _ in range(2):
            environment = opened(folders / name_of(TASKS[0]), tmp_path)
            await environment.start(force_build=False)
            await environment.exec("touch /left")
            seen.append((await environment.exec("[ $(ls / | grep -c left) = 1 ]")).return_code)
            seen.append(sandboxes())
            await environment.stop(delete=True)
        return seen

    first, opened_then, second, opened_now = asyncio.run(twice())
    assert (first, second) == (0, 0)
    assert opened_now == opened_then


PUSHED = f"example.org/debian@sha256:{'0' * 64}"


@pytest.fixture(scope="module")
def pushed(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Return folders that name an image by its digest."""
    place = tmp_path_factory.mktemp("pushed") / "tasks"
    export_tasks(EXPORTED, place, image=PUSHED)
    return place


def test_a_pushed_image_is_the_system_that_its_label_names(pushed: Path, tmp_path: Path) -> None:
    assert job(pushed, tmp_path, "-a", "oracle") == {f"shioenv/{one.id}": 1 for one in EXPORTED}


SKILLED = """
from harbor.agents.capabilities import AgentCapabilities
from harbor.agents.nop import NopAgent


class Agent(NopAgent):
    capabilities = AgentCapabilities(skills=True)

    async def run(self, instruction, environment, context):
        await environment.exec(f"bash {self.skills_dir}/remove/do.sh", cwd="/home/ubuntu")
"""


def test_an_agent_is_not_punished_for_its_skills(
    folders: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (tmp_path / "skilled.py").write_text(SKILLED)
    monkeypatch.setenv("PYTHONPATH", str(tmp_path))
    skill = tmp_path / "remove"
    skill.mkdir()
    (skill / "SKILL.md").write_text("---\nname: remove\ndescription: Remove the notes.\n---\n")
    (skill / "do.sh").write_text(f"{TASKS[0].solution}\n")
    folder = folders / name_of(TASKS[0])
    rewards = job(folder, tmp_path, "-a", "skilled:Agent", "--skill", str(skill))
    assert rewards == {f"shioenv/{TASKS[0].id}": 1}


def findings(place: Path, *options: str) -> dict[str, set[str]]:
    """Return the rules of `harbor lint` broken in each file, by the file's name."""
    harbor = Path(sys.executable).with_name("harbor")
    command = [str(harbor), "lint", "--json", *options, *map(str, sorted(place.iterdir()))]
    told = {**os.environ, "HARBOR_TELEMETRY": "0"}
    done = subprocess.run(command, env=told, capture_output=True, text=True, timeout=60)
    assert done.returncode in (0, 1), done.stderr
    found: dict[str, set[str]] = {}
    for one in json.loads(done.stdout):
        found.setdefault(Path(one["path"]).name, set()).add(one["rule"])
    assert bool(found) == bool(done.returncode)
    return found


@needs("harbor lint")
def test_harbor_lint_finds_what_the_page_explains(folders: Path, pushed: Path) -> None:
    assert findings(folders) == {}
    assert findings(pushed) == {}
    page = ROOT.joinpath("docs/how-to/harbor.md").read_text()
    _, _, part = page.partition("\n## What `harbor lint` finds\n")
    explained = set(re.findall(r"^\| `([a-z-]+)` \|", part.partition("\n## ")[0], re.MULTILINE))
    found = findings(folders, "--select", "ALL")
    assert found == {"task.toml": {"root-agent"}, "Dockerfile": {"unpinned-image"}}
    assert explained == set().union(*found.values())
    assert findings(pushed, "--select", "ALL") == {"task.toml": {"root-agent"}}
