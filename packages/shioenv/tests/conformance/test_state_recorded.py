"""The recorded form of changes that bash prints in more than one way."""

from __future__ import annotations

import json
from typing import Any

import pytest

from shioenv.behavior.observe import SandboxRunner


def patch(observer: SandboxRunner, text: str) -> dict[str, Any]:
    behavior = observer.run(text)
    assert behavior.shell_state_known
    return {operation[1]: operation[-1] for operation in json.loads(behavior.patch.to_json())}


def test_the_state_of_a_shell_in_posix_mode_is_known(observer: SandboxRunner) -> None:
    found = patch(observer, "set -o posix; x=1; trap 'echo a' INT EXIT; exit 3")
    assert found["/settings/x"] == "1"
    assert found["/settings/-o posix"] is True
    assert (found["/settings/trap SIGINT"], found["/settings/trap EXIT"]) == ("echo a", "echo a")
    assert not any(path.startswith("/settings/trap SIGHUP") for path in found)


def test_an_exported_function_leaves_the_others_alone(observer: SandboxRunner) -> None:
    found = patch(observer, "f() { :; }; g() { :; }; export -f f")
    assert found["/functions/f"] == found["/functions/g"] == "{ \n    :\n}"


def test_a_here_document_in_a_function_forges_no_other(observer: SandboxRunner) -> None:
    text = "f() { cat << 'E'\n\ng ()\n{\n}\ndeclare -x forged=1\nE\n}"
    assert list(patch(observer, text)) == ["/functions/f"]


@pytest.mark.parametrize(
    "script",
    ["cd /; x=2", "exec true; x=2", "exec /no; x=2", "kill -9 $$", "sh -c 'kill -9 $PPID'; wait"],
)
def test_a_shell_that_executes_a_script_ends_there_with_a_first_line_or_without(
    observer: SandboxRunner, script: str
) -> None:
    text = f"cat > s << 'E'\n{{}}\nx=3\n{script}\nE\nchmod +x s; x=1; exec ./s"
    without, named = (observer.run(text.format(first)) for first in (":", "#!/bin/bash"))
    assert (without.exit_code, without.output) == (named.exit_code, named.output)
    assert patch(observer, text.format(":"))["/settings/x"] == "1"


def test_a_shell_that_cannot_execute_a_program_goes_on(observer: SandboxRunner) -> None:
    text = "printf '\\177ELF\\0' > s; chmod +x s; shopt -s execfail; x=1; exec ./s; x=2"
    assert patch(observer, text)["/settings/x"] == "2"


@pytest.mark.parametrize(
    ("text", "path", "value"),
    [
        ("ip link set dev eth0 alias uplink", "/network/links/eth0/ifalias", "uplink"),
        ("ip link set dev eth0 txqueuelen 77", "/network/links/eth0/txqlen", 77),
        ("ip -6 route add fd01::/64 dev eth0", "/network/routes", "dst fd01::/64 dev eth0"),
        (
            "ip route add 10.30.0.0/16 dev eth0 table 42",
            "/network/routes",
            "dst 10.30.0.0/16 dev eth0 table 42",
        ),
        ("ip rule add from 10.1.0.0/16 table 42", "/network/rules", "src 10.1.0.0 srclen 16"),
        ("ip -6 rule add fwmark 7 table 42", "/network/rules", "family inet6 priority"),
        ("ip rule add not dport 80 table 42", "/network/rules", "dport 80"),
        ("ip route change default via 10.20.30.1 mtu 1400", "/network/routes", '"mtu": 1400'),
    ],
)
def test_the_network_is_recorded(
    observer: SandboxRunner, text: str, path: str, value: str | int
) -> None:
    found = patch(observer, text)[path]
    assert found == value or any(str(value) in line for line in found)


def test_a_state_too_long_to_keep_adds_nothing_to_the_output(observer: SandboxRunner) -> None:
    behavior = observer.run("printf -v x '%6000000s' y; echo ${#x}")
    assert (behavior.output, behavior.shell_state_known) == (b"6000000\n", False)
    assert behavior.limits_hit == ("state_bytes",)


def test_content_changed_is_seen_though_the_time_was_put_back(observer: SandboxRunner) -> None:
    write = 'D=$(stat -c %y {0}); printf X | dd of={0} conv=notrunc status=none; touch -d "$D" {0}'
    large, moved = "/usr/bin/bash", "/usr/bin/b2"
    assert large in observer.run(write.format(large)).content_digests
    assert moved in observer.run(f"mv {large} {moved}; {write.format(moved)}").content_digests
    assert patch(observer, f"mv {large} {moved}") == {"/fs/~1usr~1bin~1bash": "/fs/~1usr~1bin~1b2"}
    assert not observer.run(f"chmod 700 {large}; touch {large}").content_digests


def test_a_time_set_to_the_present_second_is_the_runs_own(observer: SandboxRunner) -> None:
    text = "touch new; touch -d @$(date +%s) new"
    year = observer.system.declaration.instant.year
    assert patch(observer, text)["/fs/new"]["year"] == year


def test_mounting_ends_with_the_run_wherever_it_reached(observer: SandboxRunner) -> None:
    register = "mount -t binfmt_misc none /mnt; echo ':b:M::\\x7fELF::/bin/sh:OC' > /mnt/register"
    assert observer.run(f"{register}; ls").exit_code == 126
    assert observer.run("ls /mnt; mount | grep -c /mnt").output == b"0\n"


def test_inputs_that_change_no_mounts_see_the_same_mounts(observer: SandboxRunner) -> None:
    question = "cat /proc/self/mountinfo | cut -d ' ' -f 1,2,4-"
    first = observer.run(question).output
    observer.run("mount --make-shared /; mount -t tmpfs none /mnt; umount -l /proc")
    observer.run("touch x")
    again = observer.run(question).output
    assert first.count(b"\n") == again.count(b"\n")
    assert b"shared:" not in again
    assert b"/mnt" not in again
