"""NeMo Gym's sandboxes on our machines, used by the published package's own classes."""

from __future__ import annotations

import asyncio
from pathlib import Path

import pytest

from support.needs import needed_module

needed_module("nemo_gym")

from nemo_gym.sandbox import AsyncSandbox, Sandbox, SandboxSpec, SandboxStatus  # noqa: E402
from nemo_gym.sandbox.providers import SandboxCreateError, list_providers  # noqa: E402

from shioenv.errors import ShioenvError  # noqa: E402

pytestmark = pytest.mark.usefixtures("system")

PROVIDER = {"shioenv": {"memory_mib": 512}}


def test_the_registry_finds_the_provider_and_a_sandbox_runs_commands(tmp_path: Path) -> None:
    assert "shioenv" in list_providers()
    spec = SandboxSpec(env={"A": "1"}, files={"/srv/new/f": "given\n"}, workdir="/srv")
    sandbox = Sandbox(PROVIDER, spec).start()
    try:
        done = sandbox.exec("pwd; cat new/f; echo $A$B >&2; exit 3", env={"B": "2"})
        assert (done.stdout, done.stderr, done.return_code) == ("/srv\ngiven\n", "12\n", 3)
        assert done.error_type is None
        assert sandbox.exec("id -un; pwd", user="alice", cwd="/").stdout == "alice\n/\n"
        (tmp_path / "tool").write_bytes(bytes(range(256)))
        (tmp_path / "tool").chmod(0o755)
        sandbox.upload(tmp_path / "tool", "/opt/tool")
        assert sandbox.exec("stat -c %a /opt/tool").stdout == "755\n"
        sandbox.download("/opt/tool", tmp_path / "back")
        assert (tmp_path / "back").read_bytes() == bytes(range(256))
        for wrong in ("/opt", "/nothing"):
            with pytest.raises(ShioenvError):
                sandbox.download(wrong, tmp_path / "none")
        assert not (tmp_path / "none").exists()
        assert sandbox.status() is SandboxStatus.RUNNING
    finally:
        sandbox.stop()
    assert sandbox.status() is SandboxStatus.STOPPED


def test_commands_run_at_once_and_end_at_their_timeout() -> None:
    async def script() -> None:
        async with AsyncSandbox(PROVIDER, SandboxSpec()) as sandbox:
            await sandbox.start()
            slow = asyncio.create_task(sandbox.exec("echo begun; sleep 300", timeout_s=2))
            done = await asyncio.gather(*(sandbox.exec(f"echo {n}") for n in range(4)))
            assert [each.stdout for each in done] == [f"{n}\n" for n in range(4)]
            ended = await slow
            assert (ended.stdout, ended.error_type) == ("begun\n", "timeout")
            assert (await sandbox.exec("pgrep sleep")).return_code == 1

    asyncio.run(script())


@pytest.mark.parametrize(
    "spec",
    [
        SandboxSpec(image="no-such-system"),
        SandboxSpec(workdir="/nothing"),
        SandboxSpec(entrypoint=["sleep"]),
        SandboxSpec(resources={"gpu": 1}),
        SandboxSpec(provider_options={"binds": ["/etc"]}),
    ],
)
def test_what_a_machine_is_not_is_refused(spec: SandboxSpec) -> None:
    sandbox = Sandbox(PROVIDER, spec)
    with pytest.raises(SandboxCreateError):
        sandbox.start()
    sandbox.stop()
