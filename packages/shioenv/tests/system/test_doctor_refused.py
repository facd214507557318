"""`shioenv doctor` where the host refuses something. The refusals are real, wherever this kernel
lets a process restrict its own children.
"""

from __future__ import annotations

import json
import os
import re
import shutil
import signal
import subprocess
import sys
from contextlib import suppress
from pathlib import Path
from typing import Any

import pytest

from shioenv import native
from shioenv.errors import HostError
from shioenv.system import host_diagnosis
from support.needs import needs

SHIOENV = (sys.executable, "-m", "shioenv.cli.main")
NOBODY = "54321"
"""A user id without a name."""


def doctor(*prefix: str, script: str = "", **variables: str) -> dict[str, Any]:
    """Return the missing parts by name, from `shioenv doctor` run by `prefix` after a shell
    script."""
    command = [*prefix, "sh", "-ec", script + '\nexec "$@"', "sh", *SHIOENV, "doctor", "--json"]
    process = subprocess.Popen(
        command,
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
        env=os.environ | variables,
        start_new_session=True,
    )
    try:
        output, errors = process.communicate(timeout=100)
    except subprocess.TimeoutExpired:
        waiting = waits(process.pid)
        os.killpg(process.pid, signal.SIGKILL)
        pytest.fail(f"it did not end:\n{waiting}")
    assert process.returncode == 3, (process.returncode, errors)
    found = json.loads(output)
    assert found["ok"] is False
    return {check["name"]: check for check in found["checks"] if not check["ok"]}


def waits(ancestor: int) -> str:
    """Return the commands of a process, its descendants and its session, with the kernel function
    in which each waits. An orphan may hold the output of a process that has ended.
    """
    family, told = {ancestor}, []
    for directory in sorted(Path("/proc").glob("[0-9]*"), key=lambda path: int(path.name)):
        with suppress(OSError):
            _, parent, _, session, *_ = (directory / "stat").read_text().rpartition(")")[2].split()
            if family & {int(directory.name), int(parent), int(session)}:
                family.add(int(directory.name))
                words = (directory / "cmdline").read_text().replace("\0", " ")
                told.append(f"{directory.name} {(directory / 'wchan').read_text()} {words}")
    return "\n".join(told)


def refused_calls(*names: str) -> tuple[str, ...]:
    """Return a prefix under which system calls fail with EPERM, as in a container."""
    program = (
        "import errno, os, sys, pyseccomp\n"
        "rules = pyseccomp.SyscallFilter(pyseccomp.ALLOW)\n"
        f"for name in {names!r}: rules.add_rule(pyseccomp.ERRNO(errno.EPERM), name)\n"
        "rules.load()\n"
        "os.execvp(sys.argv[1], sys.argv[1:])\n"
    )
    return (sys.executable, "-c", program)


def as_nobody(directory: Path) -> tuple[tuple[str, ...], str]:
    """Return prefix and script that run doctor as an ordinary user with subordinate ids."""
    ids = directory / "ids"
    ids.write_text(f"{NOBODY}:100000:65536\n")
    script = (
        f"mount --bind {ids} /etc/subuid; mount --bind {ids} /etc/subgid\n"
        f'set -- {shutil.which("unshare")} -U --map-user={NOBODY} --map-group={NOBODY} "$@"'
    )
    return ("unshare", "-U", "-r", "-m"), script


def test_no_user_namespaces_at_all() -> None:
    missing = doctor("unshare", "-U", "-r", script="echo 0 > /proc/sys/user/max_user_namespaces")
    found = missing.pop("user namespaces")
    assert missing.keys() <= {"resource limits", "priority"}
    assert "user.max_user_namespaces is 0" in found["detail"]
    assert "sysctl --system" in found["fix"]


def test_a_container_that_filters_namespaces() -> None:
    found = doctor(*refused_calls("unshare", "setns"))["user namespaces"]
    assert "a system-call filter, as in containers, denies them" in found["detail"]
    assert "--security-opt seccomp=unconfined" in found["fix"]


@needs("root")  # an ordinary user's filter keeps newuidmap from its privilege as well
def test_a_container_that_filters_mounts() -> None:
    missing = doctor(*refused_calls("mount"))
    for name in ("overlay on tmpfs", "proc in a namespace"):
        assert "Operation not permitted" in missing[name]["detail"]
        assert "--security-opt seccomp=unconfined" in missing[name]["fix"]


@needs("root")
def test_a_container_that_masks_proc() -> None:
    script = """
    awk '/ - proc / && $5 != "/proc" {print $5}' /proc/self/mountinfo | xargs -r umount -l
    mount --bind /dev/null /proc/kallsyms
    """
    found = doctor("unshare", "-m", script=script)["proc in a namespace"]
    assert "/proc/kallsyms" in found["detail"]
    assert "systempaths=unconfined" in found["fix"]


def test_root_of_a_namespace_with_few_ids() -> None:
    found = doctor("unshare", "-U", "-r")["user namespaces"]
    assert "in a user namespace of only 1 ids" in found["detail"]
    assert "131,072" in found["fix"]


def test_a_chroot(tmp_path: Path) -> None:
    script = f"""
    cd {tmp_path}
    for entry in /*; do
        if [ -L "$entry" ]; then cp -P "$entry" .
        elif [ -d "$entry" ]; then mkdir ".$entry"; mount --rbind "$entry" ".$entry"; fi
    done
    set -- {shutil.which("chroot", path="/usr/sbin:/usr/bin")} . "$@"
    """
    found = doctor("unshare", "-U", "-r", "-m", script=script)["user namespaces"]
    assert "chroot" in found["detail"]


def test_no_subordinate_ids() -> None:
    found = doctor("unshare", "-U", f"--map-user={NOBODY}")["subordinate ids"]
    assert f"user {NOBODY} has no 65,536 subordinate ids" in found["detail"]
    assert f"--add-subuids 100000-165535 --add-subgids 100000-165535 {NOBODY}" in found["fix"]


def test_newuidmap_is_missing(tmp_path: Path) -> None:
    prefix, script = as_nobody(tmp_path)
    found = doctor(*prefix, script=script + "\nPATH=/nowhere")
    assert found["subordinate ids"]["fix"] == "apt-get install uidmap"


def test_newuidmap_is_not_setuid(tmp_path: Path) -> None:
    for name in ("newuidmap", "newgidmap"):
        shutil.copyfile(f"/usr/bin/{name}", tmp_path / name)
        (tmp_path / name).chmod(0o755)
    prefix, script = as_nobody(tmp_path)
    path = f"{tmp_path}:{os.environ['PATH']}"
    found = doctor(*prefix, script=script, PATH=path)["user namespaces"]
    assert f"{tmp_path}/newuidmap is not setuid root" in found["detail"]
    assert found["fix"].startswith("as root: chmod u+s ")


def test_a_process_that_may_gain_no_rights(tmp_path: Path) -> None:
    prefix, script = as_nobody(tmp_path)
    found = doctor("setpriv", "--no-new-privs", *prefix, script=script)["user namespaces"]
    assert "no_new_privs" in found["detail"]
    assert "NoNewPrivileges=no" in found["fix"]


def test_a_user_without_a_name(tmp_path: Path) -> None:
    prefix, script = as_nobody(tmp_path)
    found = doctor(*prefix, script=script)["user namespaces"]
    assert f"user {NOBODY} has no line in /etc/passwd" in found["detail"]


@pytest.mark.parametrize(
    ("cause", "lacking", "fix"),
    [
        ("_bounded", "sys_admin", "setcap cap_setuid=ep"),
        ("_few_rights", "setuid", "--cap-add SETUID"),
    ],
)
def test_a_container_of_few_rights(cause: str, lacking: str, fix: str) -> None:
    """It tests the reason alone: the user namespace of an invented user has all rights."""
    ask = f"from shioenv.system import host_diagnosis; print(host_diagnosis.{cause}())"
    prefix = ("unshare", "-U", "-r", "setpriv", f"--bounding-set=-{lacking}")
    said = subprocess.run([*prefix, sys.executable, "-c", ask], capture_output=True, text=True)
    assert fix in said.stdout


def test_a_full_disk() -> None:
    script = "mount -t tmpfs -o size=1m none /mnt; export SHIOENV_CACHE=/mnt/cache"
    found = doctor("unshare", "-U", "-r", "-m", script=script)["disk"]
    assert found["detail"].startswith("0.0 GB free in /mnt/cache")


def test_low_limits() -> None:
    found = doctor("unshare", "-U", "-r", "prlimit", "--nproc=70:70")["resource limits"]
    assert "nproc 70 instead of 8192" in found["detail"]
    assert re.search(r"prlimit --pid \$\$ (--\w+=\w+ )*--nproc=8192\b", found["fix"])
    assert found["needed"] is False


def test_an_old_kernel_and_another_processor() -> None:
    old = doctor("setarch", "--uname-2.6")["kernel"]
    assert "Linux 2.6." in old["detail"]
    assert "bookworm-backports" in old["fix"]
    assert "on i686" in doctor("linux32")["kernel"]["detail"]


def test_what_is_refused_ends_a_run_with_the_same_words_and_exit_status_3() -> None:
    script = "echo 0 > /proc/sys/user/max_user_namespaces"
    command = ["unshare", "-U", "-r", "sh", "-ec", script + '; exec "$@"', "sh", *SHIOENV]
    done = subprocess.run([*command, "run", "true"], capture_output=True, text=True)
    assert done.returncode == 3
    assert "user.max_user_namespaces is 0" in done.stderr


SETTINGS = {
    "kernel/unprivileged_userns_clone": ("0", "kernel.unprivileged_userns_clone = 1"),
    "kernel/apparmor_restrict_unprivileged_userns": ("1", "apparmor_parser -r"),
}
"""Settings of Debian's and Ubuntu's kernels only, and the text that the fix must contain."""


@pytest.mark.parametrize("name", SETTINGS)
def test_settings_of_other_kernels(name: str, monkeypatch: pytest.MonkeyPatch) -> None:
    value, fix = SETTINGS[name]
    monkeypatch.setattr(host_diagnosis, "_setting", {name: value}.get)
    monkeypatch.setattr(os, "geteuid", lambda: 1000)
    found = host_diagnosis.no_user_namespace("E1 setresgid 0 in the user namespace")
    assert isinstance(found, HostError)
    assert name.replace("/", ".") in found.message
    assert fix in (found.hint or "")


def test_the_apparmor_profile_is_for_the_helper_alone(tmp_path: Path) -> None:
    command = host_diagnosis.apparmor_fix().removeprefix("as root: ").split(" > ")[0]
    profile = subprocess.run(["sh", "-c", command], capture_output=True, text=True).stdout
    assert profile.splitlines()[2:] == [
        f'profile shioenv-sandbox "{native.sandbox_program()}" flags=(unconfined) {{',
        "  userns,",
        "}",
    ]
