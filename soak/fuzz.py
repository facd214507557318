"""Hostile inputs by the thousand, each followed by a sentinel whose whole behavior is known.

    python soak/fuzz.py --count 50000 --workers 2
    python soak/fuzz.py --count 20000 --oracle 5000

Inputs: grammar inputs with tokens deleted, doubled, swapped and spliced; shell syntax put together
at random; line ranges of the system's own scripts; raw system calls; random bytes. An input is made
of the seed and its number alone: `--first NUMBER --count 1` makes and runs one again.

A violation is a sentinel that behaves otherwise than in an untouched sandbox, an exception (what
cannot be an argument of a program has to be an InputError, and nothing else may be one), a
supervisor that died, or a run that took two seconds more than its limits. `--oracle` compares that
many inputs with a newly executed bash as well: exit code, output and new files' content. What three
new bashes do not agree about is set aside.

What violates is written to `--failures`, made as short as still fails, and printed.
"""

from __future__ import annotations

import json
import multiprocessing
import os
import re
import sys
import time
import traceback
from collections import Counter, deque
from collections.abc import Callable, Iterator, Sequence
from concurrent.futures import ProcessPoolExecutor, as_completed
from dataclasses import dataclass, field
from pathlib import Path
from random import Random
from typing import Any

from common import Drawn, Progress, drawn, parser, report
from shioenv.behavior.observe import SandboxRunner
from shioenv.domain.behavior import Behavior
from shioenv.errors import InputError, SandboxError
from shioenv.sandbox.base import LONGEST_INPUT, MEBIBYTE, Execution, Limits, Request
from shioenv.sandbox.namespaces.backend import NamespaceSandbox
from shioenv.sandbox.namespaces.probe import proven_shell
from shioenv.sandbox.namespaces.wire import NEEDS_NEW_SANDBOX, REPLY, Reply, ReplyFlags
from shioenv.system.store import System, find_system

SLACK_SECONDS = 2.0
"""Seconds that a run may take beyond its limits."""
SENTINEL_SECONDS = 20.0
CHUNK = 100
MINIMISED = 8
"""Failures that each worker minimises; others are only kept, and further hangs counted."""
ATTEMPTS = 250
"""Most runs for minimising one failure."""
SHORTENING_SECONDS = 20.0
"""Time limit for it in seconds."""
RECENT = 40
"""Recent inputs that may have caused a contamination."""

# ---- what is written ----------------------------------------------------------------------------


def _syntax() -> dict[str, list[str]]:
    kinds: dict[str, list[str]] = {}
    for line in Path(__file__).with_name("syntax.txt").read_text(encoding="utf-8").splitlines():
        if heading := re.fullmatch(r"\[([a-z]+)\]", line):
            texts = kinds[heading[1]] = []
        elif line and not line.startswith("# "):
            texts.append(line.replace("\u21b5", "\n").replace("\u21e5", "\t"))
    return kinds


SYNTAX = _syntax()
"""Shell syntax by kind: `@kind@` is a placeholder for one of that kind."""

_HOLE = re.compile(r"@([a-z]+)@")
_TOKEN = re.compile(r"\w+|\s+|.", re.DOTALL)
_OPERATORS = (
    *("; ", " && ", " || ", " | ", " |& ", " & ", "\n"),
    *(" > ", " >> ", " < ", " <<< ", " 2>&1 "),
)
_BRACKETS = (
    *(("(", ")"), ("{ ", "; }"), ("$(", ")"), ("<(", ")")),
    *(("`", "`"), ("'", "'"), ('"', '"')),
)
_NOISE = "$`'\"\\(){}[]<>|&;!#*?~=%@^+-/:, \t\n019azAZ_\u00e9\u2028"


HOME = "/home/ubuntu"
"""Start directory of inputs that do not name one."""


@dataclass(frozen=True, slots=True)
class Hostile:
    """An input of the fuzzer."""

    number: int
    kind: str
    text: str
    """Undecodable bytes are lone surrogates, as `os.fsdecode` makes them."""
    cwd: str | None

    @property
    def is_argument(self) -> bool:
        """Whether this text can be a program's argument."""
        try:
            data = os.fsencode(self.text)
        except UnicodeEncodeError:
            return False
        return b"\0" not in data and len(data) <= LONGEST_INPUT


class Inputs:
    """Hostile inputs by number: the same for the same system, seed and number."""

    def __init__(self, system: System, seed: int, samples: int = 4000) -> None:
        self._seed = seed
        self._drawn = list(drawn(system=system, seed=seed, count=samples))
        self._scripts = list(_scripts(system.path / "rootfs"))

    def make(self, number: int) -> Hostile:
        """Return the input with this number."""
        rng = Random(f"{self._seed}/{number}")
        kinds: dict[str, tuple[int, Callable[[Random], tuple[str, str | None]]]] = {
            "mutated": (32, self._mutated),
            "spliced": (13, self._spliced),
            "syntax": (34, lambda rng: (write(rng, "command"), None)),
            "script": (11, self._script),
            "bytes": (5, lambda rng: (_bytes(rng), None)),
            "noise": (3, lambda rng: ("".join(rng.choices(_NOISE, k=rng.randint(1, 60))), None)),
            "calls": (2, lambda rng: (_calls(rng), None)),
        }
        weights = [weight for weight, _ in kinds.values()]
        kind = rng.choices(list(kinds), weights)[0]
        text, cwd = kinds[kind][1](rng)
        if kind in ("syntax", "script") and rng.random() < 0.2:
            text = mutate(rng, text)
        return Hostile(number, kind, text, cwd)

    def _one(self, rng: Random) -> Drawn:
        return rng.choice(self._drawn)

    def _mutated(self, rng: Random) -> tuple[str, str | None]:
        one = self._one(rng)
        text = one.text
        for _ in range(rng.choice((1, 1, 2, 3, 6))):
            text = mutate(rng, text)
        return text, one.cwd

    def _spliced(self, rng: Random) -> tuple[str, str | None]:
        one, other = self._one(rng), self._one(rng)
        parts = [one.text, other.text]
        if rng.random() < 0.3:
            parts.append(write(rng, "command"))
        for i, part in enumerate(parts):
            if rng.random() < 0.3:
                opening, closing = rng.choice(_BRACKETS)
                parts[i] = opening + part + closing
        text = parts[0]
        for part in parts[1:]:
            text += rng.choice(_OPERATORS) + part
        return text, one.cwd

    def _script(self, rng: Random) -> tuple[str, str | None]:
        lines: list[str] = []
        for _ in range(rng.choice((1, 1, 2, 3))):
            script = rng.choice(self._scripts)
            at = rng.randrange(len(script))
            lines += script[at : at + rng.randint(1, 25)]
        if rng.random() < 0.3:
            lines.insert(rng.randint(0, len(lines)), write(rng, "command"))
        return "\n".join(lines), None


def _scripts(root: Path) -> Iterator[list[str]]:
    """Return the lines of every shell script in the system."""
    for top in ("etc", "usr", "var/lib/dpkg/info", "home"):
        for path in sorted((root / top).rglob("*")):
            try:
                if path.is_symlink() or not path.is_file() or path.stat().st_size > 65536:
                    continue
                content = path.read_bytes()
            except OSError:  # not readable to this user
                continue
            first = content[:64].split(b"\n")[0]
            if path.suffix == ".sh" or (first.startswith(b"#!") and first.rstrip().endswith(b"sh")):
                lines = os.fsdecode(content).split("\n")
                if lines:
                    yield lines


def write(rng: Random, kind: str, depth: int = 0) -> str:
    """Generate shell syntax of this kind, a few levels deep."""
    if depth > 5 and kind in ("command", "word", "hostile"):
        kind = "name" if kind == "word" else "simple"
    template = rng.choice(SYNTAX[kind] if depth < 9 else SYNTAX[kind][:3])

    def fill(hole: re.Match[str]) -> str:
        name = hole[1]
        if name == "syscall":
            return _syscall(rng)
        return write(rng, name, depth + 1) if name in SYNTAX else hole[0]

    return _HOLE.sub(fill, template) if depth < 12 else template.replace("@", "")


def mutate(rng: Random, text: str) -> str:
    """Return the text with one change to its tokens."""
    tokens = _TOKEN.findall(text)
    if not tokens:
        return write(rng, "simple")
    at, other = rng.randrange(len(tokens)), rng.randrange(len(tokens))
    change = rng.randrange(8)
    if change == 0:
        del tokens[at]
    elif change == 1:
        tokens.insert(at, tokens[other])
    elif change == 2:
        tokens[at], tokens[other] = tokens[other], tokens[at]
    elif change == 3:
        tokens[at] = write(rng, "word")
    elif change == 4:
        tokens.insert(at, rng.choice((*_OPERATORS, *_NOISE, write(rng, "redirection"))))
    elif change == 5:
        low, high = sorted((at, other))
        del tokens[low : min(high, low + 8)]
    elif change == 6:
        low, high = sorted((at, other))
        tokens[low:high] = tokens[low:high] * 2
    else:
        tokens.insert(at, " " + write(rng, "hostile") + rng.choice((" ", ";", "\n")))
    return "".join(tokens)[:4000]


def _bytes(rng: Random) -> str:
    size = rng.choice((1, 3, 10, 40, 200))
    if rng.random() < 0.02:
        size = LONGEST_INPUT + rng.choice((-1, 0, 1, 2))
        return "x" * size if rng.random() < 0.5 else ": " + "a" * (size - 2)
    if rng.random() < 0.1:
        return "echo " + rng.choice(("\ud800", "\udfff", "a\udc7f"))
    data = rng.randbytes(size)
    if rng.random() < 0.7:
        data = data.replace(b"\0", b"")
    if rng.random() < 0.4:
        data = b"echo " + data
    return os.fsdecode(data)


def _calls(rng: Random) -> str:
    calls = "; ".join(f"syscall({_syscall(rng)})" for _ in range(rng.randint(1, 12)))
    end = rng.choice(("", "; echo $?", " &"))
    return f"perl -e '$s = q(x) x 4096; $p = q(/etc); {calls}'{end}"


def _syscall(rng: Random) -> str:
    values = [
        "0",
        "1",
        "2",
        "3",
        "7",
        "-1",
        "-100",
        "4096",
        "0x7fffffff",
        "$s",
        "$s",
        "$p",
        "$$",
        "1000",
    ]
    number = rng.choice((rng.randint(0, 335), rng.randint(424, 462)))
    return ", ".join((str(number), *rng.choices(values, k=rng.randint(0, 6))))


# ---- what must stay as it is --------------------------------------------------------------------

SENTINELS = {
    "files": r"""
        find / -xdev \( -path /proc -o -path /usr -o -path '/var/lib/*/*' -o \
            -path /dev/mqueue \) -prune -o -printf '%p %y %m %u %g %s %T@ %n %l\n' |
            sort | cksum
        ls -lanR --time-style=full-iso . /tmp /run /root; stat -c '%n %A %u %Y' / /usr /usr/bin
    """,
    "content": r"""
        cat /etc/passwd /etc/shadow /etc/hosts /etc/hostname /etc/resolv.conf /etc/group
        find . -type f -size -9 -exec cksum {} + | sort
        cksum /etc/ld.so.cache /bin/{bash,ls,cat,sh} /usr/lib/x86_64-linux-gnu/libc.so.6
    """,
    "processes": r"""
        ps -e -o pid=,ppid=,pgid=,sid=,tty=,ni=,pri=,cls=,stat=,user=,args=; jobs
        sleep 0 & echo $$ $PPID $BASHPID $!; wait; echo /proc/[0-9]*
        read -r last < /proc/sys/kernel/ns_last_pid; echo $last
    """,
    "scheduling": r"""
        nice; perl -e '$m = "\0" x 128; syscall 204, 1, 128, $m; print unpack("H*", $m), "\n"'
        chrt -p 1; chrt -p $$; ionice -p 1; ionice -p $$
        grep -E 'State|Threads|^Sig|Cpus' /proc/1/status; nproc
    """,
    "environment": r"""
        env; set | grep -v -E '^(EPOCH|SECONDS|RANDOM|SRANDOM|_=)'; declare -F; alias; shopt
        set -o; trap -p; hash; umask; complete -p; enable; dirs; echo $- $# $0 $SHLVL $BASH_SUBSHELL
    """,
    "limits": r"""
        ulimit -a; ulimit -aH; prlimit --pid 1 --noheadings; prlimit --pid $$ --noheadings; nproc
        cat /proc/{self,1}/{oom_score_adj,coredump_filter,timerslack_ns}
    """,
    "network": r"""
        ip -o addr; ip route show table all; ip -6 route show table all; ip rule; tc qdisc
        grep lo: /proc/net/dev; tail -n +2 /proc/net/tcp; wc -l < /proc/net/unix
    """,
    "firewall": r"""
        nft list ruleset; ip xfrm policy; ip xfrm state; ip nexthop; ip tuntap; ip -o link
        tail -n +2 /proc/net/udp; echo /sys/class/net/* /proc/sys/net/ipv4/conf/*
    """,
    "mounts": r"""
        cat /proc/mounts /proc/self/cgroup; df; df -i
        cut -d' ' -f 4- /proc/self/mountinfo | sed -E 's/ (shared|master):[0-9]*//'
    """,
    "devices": r"""
        ls -lan --time-style=full-iso -I mqueue /dev /dev/shm /mnt; ls -lan --time-style=+ /dev
        echo x > /dev/null; cat /dev/null; head -c 4 /dev/zero | od -c; echo x > /dev/full
        stat -c '%n %A %u %g %t %T' /dev/*
    """,
    "ids": r"""
        id; cat /proc/self/{uid_map,gid_map,setgroups,loginuid,sessionid,personality}; tty
        grep -E '^(Name|Umask|Uid|Gid|Groups|Cap|NoNew|Seccomp|Sig(Blk|Ign|Cgt|Pnd)|Shd)' \
            /proc/self/status; grep -E '^(Name|Umask|.id|Groups|Cap|No|Sec|SigIgn)' /proc/$$/status
        cat -v /proc/1/comm /proc/1/cmdline; readlink /proc/self/root /proc/self/cwd
    """,
    "kernel": r"""
        hostname; domainname; uname -a; ipcs; wc -l < /proc/net/protocols
        cd /proc/sys; grep . kernel/{hostname,domainname,pid_max,shmmax,shmmni,msgmax,sem} \
            kernel/core_pattern fs/mqueue/msg_max net/ipv4/ip_forward net/core/somaxconn \
            net/ipv{4,6}/conf/{all,lo}/forwarding user/max_user_namespaces
        cat /proc/meminfo /proc/cpuinfo /proc/loadavg /proc/version | cksum
    """,
    "descriptors": r"""
        ls /proc/$$/fd; readlink /proc/$$/fd/0; readlink /proc/$$/fd/1 /proc/$$/fd/2 | tr -d 0-9
        grep -E 'pos|flags' /proc/self/fdinfo/{0,1,2}; cat; echo to stderr >&2; cat <<< here
        exec 7> /tmp/seven; ls /proc/$$/fd; exec 7>&- 8< <(echo eight); read -r -u 8 x; echo $x
    """,
    "writing": r"""
        echo x > new; mkdir -p a/b; mv documents/notes.txt a/b; rm -r logs; ln -s / a/root
        chmod 600 data/data.csv; ln data/users.csv a/hard; printf 1 >> /etc/passwd; X=1
        export Y=2; f() { :; }; alias q=r; set -f; shopt -s extglob; umask 077; ulimit -n 99
        trap 'echo bye' EXIT; cd a; kill -USR1 $$ 2>&1; echo never
    """,
    "jobs": r"""
        (exit 3) | true | (exit 4); echo ${PIPESTATUS[@]}; sleep 0 & wait $!; echo $?
        coproc cat; echo c >&${COPROC[1]}; read -r x <&${COPROC[0]}; echo $x
        kill $COPROC_PID; wait; bash -c 'kill -9 $$'; echo $?; (echo late) & wait
    """,
}
"""Sentinels by the state that they inspect, with their inputs. Left out is what
`docs/threat-model.md` lists as persisting until the sandbox is reopened."""

LIMITS = Limits(
    background_seconds=0.05,
    memory_bytes=128 * MEBIBYTE,
    processes=250,
    disk_bytes=32 * MEBIBYTE,
    disk_inodes=8192,
    output_bytes=256 * 1024,
    drain_bytes=4 * MEBIBYTE,
)


class WatchedSandbox(NamespaceSandbox):
    """Keeps the supervisor's reply about the newest run."""

    head: bytes | None = None

    def _receive(self, least: int, so_far: bytes = b"") -> bytes:
        data = super()._receive(least, so_far)
        if self.head is None:
            self.head = data[:least]
        return data

    @property
    def is_open(self) -> bool:
        """Whether the next run needs no new supervisor."""
        return self._process is not None

    @property
    def flags(self) -> list[str]:
        """Return the flags of the newest run's reply, or of its first reply."""
        if self.head is None:
            return []
        return [flag.name or "?" for flag in ReplyFlags(Reply._make(REPLY.unpack(self.head)).flags)]


class WatchedObserver(SandboxRunner):
    """An observer whose sandbox is watched."""

    def __init__(self, system: System, limits: Limits) -> None:
        super().__init__(system, limits)
        self._sandbox.close()
        self.sandbox = self._sandbox = WatchedSandbox(
            system, limits, mode=proven_shell(system).mode
        )


@dataclass
class Tally:
    """The results of some inputs."""

    kinds: Counter[str] = field(default_factory=Counter)
    outcomes: Counter[str] = field(default_factory=Counter)
    reopened: Counter[str] = field(default_factory=Counter)
    oracle: Counter[str] = field(default_factory=Counter)
    slowest: float = 0.0
    """Longest excess of a run over its limits, in seconds."""
    failures: list[dict[str, Any]] = field(default_factory=list)

    def add(self, other: Tally) -> None:
        """Add the other's counts."""
        self.kinds += other.kinds
        self.outcomes += other.outcomes
        self.reopened += other.reopened
        self.oracle += other.oracle
        self.slowest = max(self.slowest, other.slowest)
        self.failures += other.failures


class Fuzzer:
    """Runs inputs in one sandbox and checks it after each."""

    def __init__(
        self, system: System, inputs: Inputs, wall_seconds: float, every: int, failures: Path
    ) -> None:
        self._system, self._inputs, self._every, self._failures = system, inputs, every, failures
        self._wall = wall_seconds
        self._limits = wall_seconds + LIMITS.background_seconds
        self._minimised = 0
        self._recent: deque[Hostile] = deque(maxlen=RECENT)
        self._open()
        with WatchedObserver(system, LIMITS) as other:
            self._expected = {name: self._look(name) for name in SENTINELS}
            for name, text in SENTINELS.items():
                for observer in (other, self._observer):
                    found = observer.execute(text, wall_seconds=SENTINEL_SECONDS)
                    if found != self._expected[name]:
                        raise SystemExit(
                            f"the sentinel {name} is of no use here, two runs differ: "
                            f"{differences(self._expected[name], found)}"
                        )

    def check(self, numbers: Sequence[int]) -> Tally:
        """Run these inputs, each with a sentinel after it."""
        tally = Tally()
        for number in numbers:
            self._check(self._inputs.make(number), tally)
        return tally

    def close(self) -> None:
        """End the sandbox."""
        self._observer.close()

    def _open(self) -> None:
        self._observer = WatchedObserver(self._system, LIMITS)
        self._recent.clear()

    def _look(self, name: str) -> Behavior:
        return self._observer.execute(SENTINELS[name], wall_seconds=SENTINEL_SECONDS)

    def _check(self, one: Hostile, tally: Tally) -> None:
        tally.kinds[one.kind] += 1
        self._recent.append(one)
        sentinel = list(SENTINELS)[one.number % len(SENTINELS)]
        failure = self._run(one, tally)
        if failure is None and self._every and one.number % self._every == 0 and one.is_argument:
            failure = self._ask_oracle(one, tally)
        if failure is None:
            failure = self._contaminated(sentinel)
        if failure is None:
            return
        if failure["what"] == "hang" and self._minimised >= MINIMISED:
            tally.outcomes["hang, not looked at"] += 1
            return
        candidates = list(self._recent)[::-1] if "sentinel" in failure else [one]
        self._observer.close()
        self._keep(candidates, failure, sentinel)
        if failure["what"] == "hang" and not failure["again"]:
            tally.outcomes["slow once"] += 1  # the host was busy
        elif failure["what"] == "differs" and not failure["again"]:
            tally.oracle["differs"] -= 1  # a race that the input itself holds
            tally.oracle["set aside"] += 1
        else:
            tally.failures.append(failure)
        self._open()

    def _run(self, one: Hostile, tally: Tally | None = None) -> dict[str, Any] | None:
        """Return the fault in the run itself."""
        sandbox = self._observer.sandbox
        sandbox.head = None
        start = time.monotonic()
        failure, behavior = None, None
        try:
            behavior = self._observer.execute(
                one.text, self._observer.state(one.cwd), wall_seconds=self._wall
            )
            if not one.is_argument:
                failure = {"what": "accepted", "detail": "no program can be given this input"}
        except InputError as error:
            if one.is_argument:
                failure = {"what": "refused", "detail": str(error)}
        except SandboxError as error:
            what = (
                "supervisor died"
                if "connection to the supervisor" in str(error)
                else "sandbox broke"
            )
            failure = {"what": what, "detail": str(error)}
        except Exception:
            failure = {"what": "exception", "detail": traceback.format_exc()[-1500:]}
        beyond = time.monotonic() - start - self._limits
        if beyond > SLACK_SECONDS and failure is None:
            failure = {"what": "hang", "detail": f"{beyond:.1f} s more than its limits"}
        if tally is None:
            return failure
        tally.slowest = max(tally.slowest, beyond)
        flags = sandbox.flags
        if not sandbox.is_open:
            tally.reopened[" ".join(f for f in flags if f in _REOPENING) or "broken"] += 1
        if behavior is None:
            tally.outcomes["refused" if failure is None else "failed"] += 1
            return failure
        for name, happened in (
            ("timed out", behavior.timed_out),
            ("killed for its output", "OUTPUT_KILLED" in flags),
            ("killed for its memory", "MEMORY" in flags),
            ("background processes", "BACKGROUND" in flags),
            ("changed files", "FILES" in flags),
            ("ended by a signal", behavior.died_by_signal is not None),
            ("shell state unknown", not behavior.shell_state_known),
            ("patch cut", behavior.patch_truncated),
            ("exit 0", behavior.exit_code == 0),
            ("syntax error", b"syntax error" in behavior.output),
        ):
            tally.outcomes[name] += happened
        return failure

    def _contaminated(self, sentinel: str) -> dict[str, Any] | None:
        """Return the sentinel's finding that differs from its first one."""
        try:
            found = self._look(sentinel)
        except Exception:
            detail = traceback.format_exc()[-1500:]
            return {"what": "sentinel failed", "detail": detail, "sentinel": sentinel}
        if found == self._expected[sentinel]:
            return None
        detail = differences(self._expected[sentinel], found)
        return {"what": "contaminated", "detail": detail, "sentinel": sentinel}

    def _ask_oracle(self, one: Hostile, tally: Tally) -> dict[str, Any] | None:
        """Compare the served shell with a newly executed one."""
        sandbox = self._observer.sandbox
        try:
            what, detail = compare(sandbox, one, self._wall)
        except Exception:
            return {"what": "oracle failed", "detail": traceback.format_exc()[-1500:]}
        tally.oracle[what] += 1
        return {"what": "differs", "detail": detail} if what == "differs" else None

    def _keep(self, candidates: list[Hostile], failure: dict[str, Any], sentinel: str) -> None:
        """Write the input down, as it was and minimised.

        Where a sentinel fails, an input before the newest may have been the cause.
        """
        self._failures.mkdir(parents=True, exist_ok=True)
        what, one, again = failure["what"], candidates[0], None
        if what not in ("accepted", "refused"):
            culprits = (each for each in candidates if self._fails(each, each.text, what, sentinel))
            again = next(culprits, None)
            one = again or one
        text = one.text
        if again is not None and self._minimised < MINIMISED:
            self._minimised += 1
            text = minimise(text, lambda shorter: self._fails(one, shorter, what, sentinel))
        failure |= {"number": one.number, "kind": one.kind, "again": again is not None}
        failure |= {"cwd": one.cwd, "input": text}
        name = f"{what.replace(' ', '-')}-{one.number}"
        data = os.fsencode(one.text) if one.is_argument else repr(one.text).encode()
        (self._failures / f"{name}.sh").write_bytes(data)
        (self._failures / f"{name}.json").write_text(json.dumps(failure, indent=1) + "\n")
        print(f"VIOLATION {json.dumps(failure)}", file=sys.stderr, flush=True)

    def _fails(self, one: Hostile, text: str, what: str, sentinel: str) -> bool:
        """Whether this text reproduces the failure in a new sandbox."""
        tried = Hostile(one.number, one.kind, text, one.cwd)
        if not tried.is_argument:
            return False
        self._open()
        try:
            if what in ("differs", "oracle failed"):
                found = self._ask_oracle(tried, Tally())
            else:
                found = self._run(tried) or self._contaminated(sentinel)
        finally:
            self._observer.close()
        return found is not None and found["what"] == what


_REOPENING = {flag.name for flag in NEEDS_NEW_SANDBOX}
_UNSTABLE = re.compile(rb"(?<=pipe:\[)\d+|(?<=socket:\[)\d+|(?<=m)\d\.\d+(?=s)")


def compare(sandbox: NamespaceSandbox, one: Hostile, wall_seconds: float) -> tuple[str, str]:
    """Return `same`, `set aside`, `known` or `differs`, with details, using three new bashes."""
    if one.text[:1] in (
        "-",
        "+",
    ):  # a new bash takes it for options, the served one for the command
        return "set aside", ""
    request = Request(one.text, cwd=one.cwd, wall_seconds=wall_seconds)

    def fresh() -> object:
        return _answer(sandbox.run_fresh(request))

    def served() -> object:
        return _answer(sandbox.run(request))

    expected = fresh()
    if (answer := served()) == expected:
        return "same", ""
    known = [expected, *(fresh() for _ in range(3))]
    if any(each != expected for each in known):
        return "set aside", ""
    again = [served() for _ in range(2)]
    if any(each in known for each in again):
        return "set aside", ""
    if b"/bin/bash: Text file busy" in sandbox.run_fresh(request).output:
        return "known", ""  # it writes to the bash that runs it: `docs/design/sandbox.md`
    return "differs", f"fresh {expected!r:.600} served {answer!r:.600}"


def _answer(execution: Execution) -> object:
    if execution.timed_out:
        return "timed out"
    files = sorted(
        (change.path, change.after and (change.after.mode, change.after.size, change.after.digest))
        for change in execution.changes
    )
    return execution.exit_code, _UNSTABLE.sub(b"N", execution.output), files


def differences(expected: Behavior, found: Behavior) -> str:
    """Summarise the differences between two behaviors."""
    parts = []
    for name in expected.__slots__:
        one, other = getattr(expected, name), getattr(found, name)
        if one == other:
            continue
        if name == "output":
            before, after = one.decode(errors="replace"), other.decode(errors="replace")
            gone = [line for line in before.split("\n") if line not in after.split("\n")]
            new = [line for line in after.split("\n") if line not in before.split("\n")]
            parts.append(f"output: -{gone[:6]} +{new[:6]}")
        else:
            parts.append(f"{name}: {one!r:.300} is {other!r:.300}")
    return "; ".join(parts)


def minimise(text: str, fails: Callable[[str], bool]) -> str:
    """Return a shorter text that still fails: tokens are left out, in ever smaller groups."""
    tokens = _TOKEN.findall(text)
    left, last = ATTEMPTS, time.monotonic() + SHORTENING_SECONDS
    size = max(1, len(tokens) // 2)
    while left > 0 and time.monotonic() < last:
        at, shrunk = 0, False
        while at < len(tokens) and left > 0 and time.monotonic() < last:
            left -= 1
            shorter = tokens[:at] + tokens[at + size :]
            if fails("".join(shorter)):
                tokens, shrunk = shorter, True
            else:
                at += size
        if size == 1 and not shrunk:
            break
        size = max(1, size // 2)
    return "".join(tokens)


# ---- all of it ----------------------------------------------------------------------------------

_fuzzer: Fuzzer
_inputs: Inputs


def _start(name: str | None, wall_seconds: float, every: int, failures: Path) -> None:
    global _fuzzer
    _fuzzer = Fuzzer(find_system(name), _inputs, wall_seconds, every, failures)


def _check(numbers: Sequence[int]) -> Tally:
    return _fuzzer.check(numbers)


def main() -> int:
    """Run the check; exit status 1 for any violation."""
    options = parser(__doc__, count=50_000)
    options.add_argument("--workers", type=int, default=2, help="processes (default: 2)")
    options.add_argument("--first", type=int, default=0, help="number of the first input")
    options.add_argument("--wall", type=float, default=0.5, help="seconds a run may take (0.5)")
    options.add_argument("--oracle", type=int, default=0, help="inputs compared with a new bash")
    options.add_argument("--seconds", type=float, help="begin no more inputs after so long")
    options.add_argument("--failures", type=Path, default=Path("fuzz-failures"), help="a directory")
    asked = options.parse_args()
    global _inputs
    _inputs = Inputs(find_system(asked.system), asked.seed)
    every = max(1, asked.count // asked.oracle) if asked.oracle else 0
    numbers = range(asked.first, asked.first + asked.count)
    started = time.monotonic()
    tally, progress = Tally(), Progress("inputs", asked.count)
    with ProcessPoolExecutor(
        asked.workers,
        multiprocessing.get_context("fork"),
        _start,
        (asked.system, asked.wall, every, asked.failures),
    ) as pool:
        chunks = [numbers[at : at + CHUNK] for at in range(0, len(numbers), CHUNK)]
        sizes = {pool.submit(_check, chunk): len(chunk) for chunk in chunks}
        for future in as_completed(sizes):
            if future.cancelled():
                continue
            tally.add(future.result())
            progress.step(sizes[future])
            if asked.seconds and time.monotonic() - started > asked.seconds:
                for each in sizes:
                    each.cancel()
    what = Counter(failure["what"] for failure in tally.failures)
    return report(
        {
            "inputs": tally.kinds.total(),
            "asked for": asked.count,
            "seed": asked.seed,
            "seconds": round(time.monotonic() - started, 1),
            "contaminated sentinels": what["contaminated"] + what["sentinel failed"],
            "exceptions": what["exception"] + what["accepted"] + what["refused"],
            "supervisors that died": what["supervisor died"],
            "sandboxes that broke": what["sandbox broke"],
            "hangs": what["hang"] + tally.outcomes["hang, not looked at"],
            "most seconds beyond the limits": round(tally.slowest, 2),
            "differences from a new bash": what["differs"],
        },
        tally.failures,
        as_json=asked.json,
        tables=[
            ("inputs by kind", ("kind", "inputs"), tally.kinds.most_common()),
            ("what they did", ("outcome", "inputs"), tally.outcomes.most_common()),
            ("sandboxes opened again", ("because of", "times"), tally.reopened.most_common()),
            ("compared with a new bash", ("result", "inputs"), tally.oracle.most_common()),
        ],
    )


if __name__ == "__main__":
    sys.exit(main())
