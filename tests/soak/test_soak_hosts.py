"""Trials on other hosts: their violations, and the fast parts."""

from __future__ import annotations

import json
import shutil
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest

import hosts
from shioenv.domain.record import Record
from shioenv.system.declare import load_declaration
from support.needs import needs
from support.nightly import NIGHTLY


def record(patch: object, *, known: bool = True, volatile: bool = False) -> Record:
    text = json.dumps(patch, separators=(",", ":"))
    return Record(
        session_id=0, input="x", input_args=["x"], exit_code=0, output="", context_patch=text,
        irreducibility=None, shell_state_known=known, volatile=volatile,
    )  # fmt: skip


MOVED = record([["=", "/cwd", "/tmp"], ["=", "/env/PWD", "/tmp"]])
WRITTEN = record([["r", "/fs/a"]])


@pytest.mark.parametrize(
    ("here", "there", "what"),
    [
        ([MOVED, WRITTEN], [MOVED, record([["r", "/fs/b"]])], []),
        ([MOVED, WRITTEN], [WRITTEN, WRITTEN], ["records with changes of the shell", "a record"]),
        ([WRITTEN], [WRITTEN], ["records with changes of the shell"]),
        ([MOVED], [record([], known=False)], ["records with changes of the shell", "a record"]),
        ([MOVED, MOVED], [MOVED, record([["=", "/cwd", "/"]], volatile=True)], []),
        ([MOVED, WRITTEN], [MOVED, record([["r", "/fs/a"]], known=False)], ["a record"]),
    ],
)
def test_hosts_differ_by_what_inputs_change_of_their_shell(
    here: list[Record], there: list[Record], what: list[str]
) -> None:
    assert [one["what"] for one in hosts.differing(here, there)] == what


@NIGHTLY
def test_tests_count_that_fail_twice(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (tmp_path / "test_it.py").write_text(
        "from pathlib import Path\n"
        "def test_late():\n"
        "    late = Path('late').exists()\n"
        "    Path('late').touch()\n"
        "    assert late\n"
        "def test_wrong():\n"
        "    assert not Path('wrong').exists()\n"
    )
    monkeypatch.setattr(hosts, "TESTS", ["test_it.py"])

    def run(*options: str) -> subprocess.CompletedProcess[str]:
        return hosts.said([sys.executable, "-m", "pytest", *options], cwd=tmp_path)

    assert [*hosts.failing(run)] == []
    (tmp_path / "wrong").touch()
    (violation,) = hosts.failing(run)
    assert "test_wrong" in violation["said"]


@pytest.mark.parametrize("name", hosts.SYSTEMS)
def test_other_releases_are_declared_as_the_default_system_is(name: str, tmp_path: Path) -> None:
    declaration = load_declaration(str(hosts.declared(name, tmp_path)))
    assert (declaration.name, declaration.distribution.suite) == (name, hosts.SYSTEMS[name])
    assert all(hosts.SYSTEMS[name] in line for line in declaration.distribution.mirrors)


MOUNTED = [
    pytest.param(kind, marks=needs(*maker[:1], *([f"{kind} in the kernel"] if maker else ())))
    for kind, maker in hosts.MAKERS.items()
]


@needs("root")
@pytest.mark.parametrize("kind", MOUNTED)
def test_a_file_system_is_mounted_and_gone_afterwards(kind: str, tmp_path: Path) -> None:
    def mounts() -> Iterator[str]:
        lines = Path("/proc/self/mountinfo").read_text().splitlines()
        return (line for line in lines if str(tmp_path) in line)

    with hosts.mounted(kind, tmp_path) as place:
        (place / "x").write_text("x")
        assert [line.split(" - ")[1].split()[0] for line in mounts()] == [kind]
    assert [*mounts()] == []
    assert [*tmp_path.iterdir()] == []


@needs("root")
def test_a_host_is_entered_as_a_root_that_may_make_user_namespaces(tmp_path: Path) -> None:
    """A root with only the programs of this one: a chroot of it would be refused."""
    for name in ("bin", "lib", "lib64", "sbin"):
        if Path("/", name).is_symlink():
            (tmp_path / name).symlink_to(Path("/", name).readlink())
    for name in ("usr", "proc", "sys", "dev", "tmp", "mnt", "checkout"):
        (tmp_path / name).mkdir()
    enter = hosts.ENTER.replace('cd "$root"', 'cd "$root"; mount --rbind /usr usr', 1)
    unshare = shutil.which("unshare")
    assert unshare is not None
    command = [
        unshare,
        "--mount",
        "--propagation",
        "private",
        "sh",
        "-c",
        enter,
        "sh",
        str(tmp_path),
    ]
    asked = "pwd; ls /; stat -f -c %T /tmp; unshare --user true && echo may"
    done = hosts.said([*command, "/checkout", "sh", "-c", asked])
    assert done.stdout.split() == [
        "/checkout", *sorted(path.name for path in tmp_path.iterdir()), "tmpfs", "may",
    ]  # fmt: skip
