"""The default backend meets the contract, in every mode, as root and as an ordinary user."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from dataclasses import replace
from pathlib import Path

import pytest

from shioenv.behavior.observe import open_sandbox
from shioenv.errors import SandboxError, SystemNotBuiltError
from shioenv.files.durable import cache_directory
from shioenv.sandbox.base import Limits, Request, ShellMode
from shioenv.sandbox.namespaces.backend import NamespaceSandbox
from shioenv.system.store import System
from support.needs import needs
from support.nightly import NIGHTLY, by_day
from support.sandbox_conformance import CHECKS, LIMITS, Check

HERE = Path(__file__).parent
SERVED = (ShellMode.LATE, ShellMode.MAIN)


@pytest.fixture(scope="module", params=SERVED)
def sandbox(request: pytest.FixtureRequest, system: System) -> Iterator[NamespaceSandbox]:
    with NamespaceSandbox(system, LIMITS, mode=request.param) as opened:
        yield opened


@pytest.mark.parametrize("check", CHECKS, ids=lambda check: check.__name__)
def test_contract(check: Check, sandbox: NamespaceSandbox) -> None:
    check(sandbox)


@pytest.mark.parametrize(
    "check", by_day([check for check in CHECKS if "shell_state" not in check.__name__], 3),
    ids=lambda check: check.__name__,
)  # fmt: skip
def test_contract_without_a_fork_server(check: Check, system: System) -> None:
    """Everything but the shell's own state works where bash cannot run as a fork server."""
    with NamespaceSandbox(system, LIMITS, mode=ShellMode.FRESH) as opened:
        if check.__name__ == "working_directory":
            assert opened.run(Request("pwd", cwd="/etc")).output == b"/etc\n"
            return
        check(opened)


@pytest.mark.parametrize(
    "text",
    [
        "cat; echo $?",
        'read -r a b; echo "[$a] [$b]"; mapfile lines; declare -p lines',
        'while read -r line; do echo "$line" | tr a-z A-Z; done',
        "bash; echo $?",
        "cat -; cat - ; stat -L -c '%F %a %U' /dev/stdin; test -t 0 || echo none",
        "read -n 3 x; echo $x; (head -n 1); cat | wc -c",
        "ls -l /proc/self/fd | grep -c pipe; od -c <&0 | tail -n 2",
        "sleep 60 & exec cat",
        "exec 3<&0 0<&-; read -u 3 x; echo $x; cat",
    ],
)
def test_standard_input_is_read_as_by_a_fresh_bash(sandbox: NamespaceSandbox, text: str) -> None:
    request = Request(text, stdin=b"echo one\n two  three\\\nfour\0five\nlast")
    served, fresh = sandbox.run(request), sandbox.run_fresh(request)
    assert (served.output, served.exit_code) == (fresh.output, fresh.exit_code)
    assert not served.timed_out


def test_without_the_shell_state_the_rest_is_recorded(system: System) -> None:
    with open_sandbox(system, Limits(without_shell_state=True)) as opened:
        behavior = opened.run("touch new; cd /; hostname other")
    assert not behavior.shell_state_known
    assert [operation[:2] for operation in behavior.patch.operations] == [
        ("a", "/fs/new"), ("=", "/hostname"),
    ]  # fmt: skip


def test_closing_leaves_no_process_and_no_descriptor(system: System) -> None:
    before = set(Path("/proc/self/fd").iterdir())
    opened = NamespaceSandbox(system)
    supervisor = opened._process
    assert supervisor is not None
    opened.run(Request("sleep 100 & touch /x"))
    children = Path(f"/proc/{supervisor.pid}/task/{supervisor.pid}/children").read_text().split()
    assert len(children) == 3, "the fork server, the init and the gateway's web server"
    opened.close()
    opened.close()
    for pid in (supervisor.pid, *map(int, children)):
        assert not Path(f"/proc/{pid}").exists() or _is_gone(pid)
    assert set(Path("/proc/self/fd").iterdir()) == before


def _is_gone(pid: int) -> bool:
    """Whether a process has ended, or is a zombie killed with its parent."""
    for _ in range(200):
        try:
            if ") Z" in Path(f"/proc/{pid}/stat").read_text():
                return True
        except (FileNotFoundError, ProcessLookupError):
            return True
        subprocess.run(["sleep", "0.01"], check=True)
    return False


def test_a_run_in_a_closed_sandbox_is_an_error(system: System) -> None:
    opened = NamespaceSandbox(system)
    opened.close()
    with pytest.raises(SandboxError, match="closed"):
        opened.run(Request("true"))


def test_a_killed_supervisor_is_an_error_and_the_next_run_works(system: System) -> None:
    with NamespaceSandbox(system) as opened:
        assert opened._process is not None
        opened._process.kill()
        with pytest.raises(SandboxError):
            opened.run(Request("true"))
        assert opened.run(Request("echo again")).output == b"again\n"


def test_a_killed_owner_takes_everything_along(system: System) -> None:
    """SIGKILL to the process that opened a sandbox ends all of the sandbox's processes."""
    script = (
        "import sys, time\n"
        "from shioenv.sandbox.base import Request\n"
        "from shioenv.sandbox.namespaces.backend import NamespaceSandbox\n"
        "from shioenv.system.store import find_system\n"
        "sandbox = NamespaceSandbox(find_system())\n"
        "print(sandbox._process.pid, flush=True)\n"
        "sandbox.run(Request('sleep 5'))\n"
    )
    with subprocess.Popen([sys.executable, "-c", script], stdout=subprocess.PIPE) as owner:
        assert owner.stdout is not None
        supervisor = int(owner.stdout.readline())
        children = Path(f"/proc/{supervisor}/task/{supervisor}/children").read_text().split()
        owner.kill()
    for pid in (supervisor, *map(int, children)):
        assert _is_gone(pid), f"process {pid} is still there"


@NIGHTLY
def test_many_dirty_runs_leave_the_host_as_it_was(system: System) -> None:
    """A few hundred resets leave no descriptor, mount or process."""
    with NamespaceSandbox(system, Limits(background_seconds=0.0)) as opened:

        def held() -> tuple[int, int]:
            opened.run(Request("true"))  # answered once the reset after the run before is done
            assert opened._process is not None
            pid = opened._process.pid  # another one where a busy host had it opened anew
            mounts = Path(f"/proc/{pid}/mountinfo").read_text().count("\n")
            if os.geteuid() != 0:  # may not see what the supervisor holds
                return 0, mounts
            return len(list(Path(f"/proc/{pid}/fd").iterdir())), mounts

        opened.run(Request("touch /x"))
        before = held()
        for _ in range(300):
            dirty = Request("touch x; mkdir d; rm README.md; sleep 9 &", stdin=b"unread" * 20_000)
            opened.run(dirty)
        assert held() == before


@needs("root")
def test_an_ordinary_user_gets_the_same_bytes(system: System, tmp_path: Path) -> None:
    """Inputs behave the same for root, and for a user with subordinate ids only and a cache in
    memory.
    """
    user = 64242
    passwd = tmp_path / "passwd"
    passwd.write_text(Path("/etc/passwd").read_text() + f"other:x:{user}:{user}::/:/bin/sh\n")
    ranges = tmp_path / "ranges"
    ranges.write_text("other:200000:65536\n")
    cache = tmp_path / "cache"
    cache.mkdir()
    for directory in [tmp_path, *tmp_path.parents]:
        if directory.is_relative_to("/tmp") and directory != Path("/tmp"):
            directory.chmod(0o755)
    # A separate view of the account files. The user may read this interpreter and checkout,
    # wherever they are, and otherwise has a user's usual rights.
    command = (
        f"mount -t tmpfs none {cache} && cp -r {cache_directory()}/bases {cache} && "
        f"chown -R {user}:{user} {cache} && mount --bind {passwd} /etc/passwd && "
        f"mount --bind {ranges} /etc/subuid && "
        f"mount --bind {ranges} /etc/subgid && exec setpriv --reuid {user} --regid {user} "
        "--clear-groups --inh-caps=-all,+dac_read_search --ambient-caps=+dac_read_search "
        f"{sys.executable} {HERE / 'executions.py'}"
    )
    environment = {**os.environ, "SHIOENV_CACHE": str(cache), "HOME": str(tmp_path)}
    for name in ("subuid", "subgid"):
        Path("/etc", name).touch()
    found = subprocess.run(
        ["unshare", "--mount", "--propagation", "private", "sh", "-c", command],
        env=environment, capture_output=True, text=True, timeout=240,
    )  # fmt: skip
    assert found.returncode == 0, found.stderr
    theirs = json.loads(found.stdout)
    ours = json.loads(
        subprocess.run(
            [sys.executable, str(HERE / "executions.py")],
            capture_output=True,
            text=True,
            check=True,
        ).stdout
    )
    assert theirs.pop("digest") == ours.pop("digest"), "the same system"
    assert theirs == ours


def test_an_interrupted_run_leaves_no_answer_for_the_next(system: System) -> None:
    """Ctrl-C in the middle of a run: the next one gets its own output."""

    class Interrupt(BaseException):
        pass

    def interrupt(number: int, frame: object) -> None:
        raise Interrupt

    with NamespaceSandbox(system) as opened:
        before = signal.signal(signal.SIGALRM, interrupt)
        try:
            signal.setitimer(signal.ITIMER_REAL, 0.1)
            with pytest.raises(Interrupt):
                opened.run(Request("sleep 0.3; echo first"))
        finally:
            signal.signal(signal.SIGALRM, before)
        assert opened.run(Request("echo second")).output == b"second\n"


def test_the_first_input_sees_its_network_up_however_many_are_opened(system: System) -> None:
    def states(_: int) -> tuple[dict[str, str], list[bool]]:
        with NamespaceSandbox(system, LIMITS) as opened:
            network = json.loads(opened.network())
        links = {link["ifname"]: link["operstate"] for link in network["links"]}
        addresses = [
            address.get("tentative", False)
            for link in network["addresses"]
            for address in link["addr_info"]
            if address["family"] == "inet6"
        ]
        return links, addresses

    up = {"lo": "UNKNOWN", "eth0": "UP"}, [False, False]
    with ThreadPoolExecutor(8) as pool:
        assert [*pool.map(states, range(40))] == [up] * 40


def test_packets_change_no_network_that_is_recorded_and_are_forgotten(system: System) -> None:
    with NamespaceSandbox(system, LIMITS) as opened:
        before = opened.run(Request("ip neigh; cat /proc/net/snmp")).output
        fetched = opened.run(Request("curl -s http://10.20.30.1/ | head -c 9; ip neigh"))
        assert b"10.20.30.1 dev eth0" in fetched.output
        assert fetched.network is None
        assert opened.run(Request("ip neigh; cat /proc/net/snmp")).output == before
        added = opened.run(
            Request("curl -s http://10.20.30.1/ > /dev/null; ip link set eth0 alias other")
        )
        assert added.network is not None
        assert b"other" in added.network


@pytest.mark.parametrize(
    ("asked", "answered"),
    [
        ("0-9", "206 0-9"),
        ("5-", "206 5-"),
        ("-4", "206 -4"),
        ("0-9223372036854775807", "206 0-"),
        ("0-99999999999999999999999", "206 0-"),
        ("-99999999999999999999999", "206 0-"),
        ("9223372036854775807-", "416"),
        ("-0", "416"),
        ("9-3", "416"),
        ("--9223372036854775808", "200"),
        ("-9223372036854775808-", "200"),
        ("+1-2", "200"),
        (" 1-2", "200"),
        ("-", "200"),
        ("1", "200"),
        ("1-2,4-5", "200"),
    ],
)
def test_the_web_server_gives_the_bytes_asked_for(
    sandbox: NamespaceSandbox, asked: str, answered: str
) -> None:
    url = "http://10.20.30.1/data.csv"
    whole = sandbox.run(Request(f"curl -s {url}")).output
    answer = sandbox.run(
        Request(f"curl -s -H 'Range: bytes={asked}' -w '\n%{{http_code}}' {url}")
    ).output
    body, _, code = answer.rpartition(b"\n")
    status, _, wanted = answered.partition(" ")
    assert code.decode() == status
    if status == "206":
        first, _, last = wanted.partition("-")
        start = int(first) if first else len(whole) - int(last)
        assert body == whole[start : int(last) + 1 if first and last else None]
    elif status == "200":
        assert body == whole


def test_packets_cost_a_new_network_and_not_a_new_sandbox(system: System) -> None:
    look = "cat /proc/net/snmp /proc/1/net/snmp; ip -o address; ip neigh; ip route; ip -6 route"
    with NamespaceSandbox(system, LIMITS) as opened:
        pristine, supervisor = opened.run(Request(look)).output, opened._process
        for _ in range(12):
            fetched = opened.run(Request(f"{look}; curl -s http://10.20.30.1/ | head -c 15"))
            assert fetched.output == pristine + b"<!DOCTYPE html>"
        assert opened._process is supervisor
        assert opened.run(Request("ip link set eth0 alias other")).network is not None
        assert opened.run(Request(look)).output == pristine


@pytest.mark.parametrize(
    "change",
    [
        "ip link set eth0 alias other",
        "ip link del eth0",
        "ip addr flush dev lo; ip -6 rule add from ::1 table 9; nft add table inet f",
        "curl -s http://10.20.30.1/; ip route add 1.2.3.4 dev eth0; touch x; sleep 0.1 &",
        "ip link set eth0 alias $'\\xff\\n\\u2028 \\\"'",
        "ip link add link eth0 name v type vlan id 5 2> /dev/null; ip link add br7 type bridge",
    ],
)
def test_a_changed_network_is_told_and_made_anew_in_the_same_sandbox(
    system: System, change: str
) -> None:
    look = (
        "cat /proc/net/snmp /proc/1/net/snmp; ip -d link; ip address; ip rule;"
        "ip -6 rule; ip route show table all; ip neigh; nft list ruleset; ls"
    )
    with NamespaceSandbox(system, LIMITS) as opened:
        pristine, supervisor = opened.run(Request(look)).output, opened._process
        network = opened.network()
        for _ in range(3):
            told = opened.run(Request(change)).network
            assert told is not None
            assert json.loads(told).keys() == json.loads(network).keys()
            assert told != network
            assert opened.run(Request(look)).output == pristine
            assert opened.network() == network
        assert opened._process is supervisor


def test_a_system_that_is_removed_under_an_open_sandbox_is_missed(
    system: System, tmp_path: Path
) -> None:
    there = tmp_path / "system"
    there.symlink_to(system.path)
    with NamespaceSandbox(replace(system, path=there), LIMITS) as opened:
        there.unlink()
        opened.run(Request("hostname other"))  # the next input gets another sandbox
        with pytest.raises(SystemNotBuiltError, match="are missing"):
            opened.run(Request("true"))
        there.symlink_to(system.path)
        assert opened.run(Request("hostname")).output == b"ubuntu\n"
