"""Find differences between the sandbox's records and a real machine.

Each input runs in the sandbox, as `shioenv.open_sandbox` runs it, and on a machine in QEMU made of
the same system (`--sandbox microvm-bare`), and again on each where the two differ. Compared: exit
code, output, and every changed file, as in patches. A difference between runs on one side is
volatile. For any other, known causes are removed one after the other until nothing differs. Some
are properties of this machine or of any file system; the others are faults of the sandbox.

Needs QEMU and `shioenv system build --microvm` (docs/how-to/soak.md); real inputs come from a file
of JSON lines whose objects have `input`.
"""

from __future__ import annotations

import dataclasses
import json
import multiprocessing.util
import re
import sys
import time
from collections import Counter
from collections.abc import Callable, Iterable, Mapping, Sequence
from concurrent.futures import ProcessPoolExecutor
from contextlib import ExitStack
from dataclasses import dataclass
from enum import StrEnum
from itertools import combinations
from pathlib import Path
from typing import Any

from common import Progress, drawn, parser, report
from shioenv.behavior.observe import SandboxRunner, open_sandbox
from shioenv.domain.behavior import Behavior
from shioenv.domain.context import keys
from shioenv.errors import SandboxError
from shioenv.sandbox.base import Limits
from shioenv.system.contents import read_contents
from shioenv.system.store import System, find_system
from shioenv_backends.microvm.boot import find_microvm

DATE = ("month", "day", "year", "time")
Entry = Mapping[str, Any]
"""A file as a context lists it, with the SHA-256 of its content as `digest`."""


@dataclass(frozen=True, slots=True)
class Answer:
    """The result of one way of running an input."""

    exit_code: int
    output: bytes
    files: Mapping[str, Entry | None]
    """Every changed file, by its name in contexts; None where it is gone."""
    bounded: bool = False
    """Whether a limit ended it, or cut the record of it."""


STOPPED = Answer(-1, b"", {})
"""The answer of a machine that stopped responding."""


@dataclass(frozen=True, slots=True)
class Cause:
    """A reason why two answers may differ. `without` removes its effects from an answer."""

    name: str
    reason: str
    ours: bool
    without: Callable[[str, Answer], Answer]


def _output(change: Callable[[bytes], bytes]) -> Callable[[str, Answer], Answer]:
    return lambda _, answer: dataclasses.replace(answer, output=change(answer.output))


def _where(asks: str, change: Callable[[bytes], bytes]) -> Callable[[str, Answer], Answer]:
    """A change of outputs, for inputs that match the pattern."""
    pattern = re.compile(asks)
    changed = _output(change)
    return lambda text, answer: changed(text, answer) if pattern.search(text) else answer


def _unread(answer: Answer) -> Answer:
    """Return the answer without the contents of regular files."""
    files = {
        name: entry and {key: entry[key] for key in entry if key not in ("size", "digest")}
        for name, entry in answer.files.items()
    }
    return dataclasses.replace(answer, files=files)


def _asks(programs: str) -> Callable[[str, Answer], Answer]:
    """Remove output and exit code of inputs that read this, and the contents of files that they
    wrote; the set of written files remains.
    """
    pattern = re.compile(programs)
    return lambda text, answer: (
        dataclasses.replace(_unread(answer), output=b"", exit_code=0)
        if pattern.search(text)
        else answer
    )


def _program(names: str) -> str:
    return rf"(?:^|[;&|(`!{{\s/])(?:{names})(?=$|[\s;&|)`])"


LISTS = _program(
    "ls|dir|vdir|find|tree|tar|cpio|zip|unzip|rm|cp|mv|chmod|chown|chgrp|[ef]?grep|diff|du|sort"
)
SERVICES = re.compile(
    _program(
        "curl|wget|ping|ping6|nc|ncat|telnet|ssh|scp|sftp|ftp|tftp|dig|host|nslookup|getent"
        "|traceroute|tracepath|rsync|git|apt|apt-get|nmap|whois"
    )
    + r"|/dev/(tcp|udp)/|\bnetstat\b.* -g"  # which asks for names
)


def _numbers(output: bytes) -> bytes:
    return re.sub(rb"[ \t]+", b" ", re.sub(rb"\d[\d.,]*[KMGT]?i?", b"#", output))


def _sorted(output: bytes) -> bytes:
    return b" ".join(sorted(output.split()))


def _directories(output: bytes) -> bytes:
    output = re.sub(
        rb"(?m)^(.*?\bd[-rwxsStT]{9}[+.@]?\s+)\d+(\s+\S+\s+\S+\s+)\d+", rb"\1#\2#", output
    )
    output = re.sub(rb"(?m)^total \d+$", b"total #", output)
    return re.sub(rb"[ \t]+", b" ", output)


_SECONDS = re.compile(rb"(\b\d\d:\d\d):\d\d(?:[.,]\d+)?|(\b\d{8})\d\d(?:\.\d+)?\b|\.\d{6,}")


def _seconds(output: bytes) -> bytes:
    return _SECONDS.sub(rb"\1\2", output)


def _load(output: bytes) -> bytes:
    return re.sub(rb"load average: .*|^\d+\.\d\d \d+\.\d\d \d+\.\d\d .*", b"load", output)


_TIMES = re.compile(
    rb"(?:(?:Mon|Tue|Wed|Thu|Fri|Sat|Sun)\w*,? )?"
    rb"(?:(?:Jan|Feb|Mar|Apr|May|Jun|Jul|Aug|Sep|Oct|Nov|Dec)\w*[ ,]+\d{1,2}(?:,? \d{4}\b)?"
    rb"|\d{1,2} (?:Jan|Feb|Mar|Apr|May|Jun|Jul|Aug|Sep|Oct|Nov|Dec)\w*(?: \d{4})?)"
    rb"|(?<!\d)\d{4}-?\d\d-?\d\d(?!\d)|\d\d/\d\d/\d\d(?:\d\d)?"
    rb"|\b\d{1,2}:\d\d(?::\d\d)?(?:[.,]\d+)?(?: [AP]M)?"
    rb"|\b(?:UTC|20\d\d)\b|\b1[67]\d{8}(?:\.\d+)?"
)


def _times(output: bytes) -> bytes:
    output = re.sub(rb"(?m)\bup +[^\n]*?(?=, +\d+ users?|$)", b"up", output)
    output = _TIMES.sub(b"@", output)
    return re.sub(rb"[ \t]+", b" ", re.sub(rb"@(?:[ T]*@)+", b"@", output))


def _without_dates(_: str, answer: Answer) -> Answer:
    files = {
        name: entry and {key: value for key, value in entry.items() if key not in DATE}
        for name, entry in answer.files.items()
    }
    return dataclasses.replace(answer, output=_times(answer.output), files=files)


def _refusals(output: bytes) -> bytes:
    lines = output.splitlines(keepends=True)
    said = re.compile(rb"Permission denied|Operation not permitted|Read-only file system")
    return b"".join(line for line in lines if not said.search(line))


def _kernel_trees(output: bytes) -> bytes:
    lines = output.splitlines(keepends=True)
    return b"".join(line for line in lines if not re.search(rb"/(proc|sys|dev)(/|\b)", line))


def _ordered(text: str, answer: Answer) -> Answer:
    """Return the answer with sorted words of listings, without the content of archives and
    lists.
    """
    if not re.search(LISTS, text):
        return answer
    if re.search(_program("tar|zip|cpio") + r"|>|\btee\b", text):
        answer = _unread(answer)
    output = answer.output.replace(b"\0", b" ")
    if re.search(_program("paste|tr"), text):  # which put something else between words
        output = re.sub(rb"[:,;|]", b" ", output)
    return dataclasses.replace(answer, output=_sorted(output))


def _cut(text: str, answer: Answer) -> Answer:
    """Remove the results of inputs that use the first files of a listing."""
    if not re.search(LISTS + r"[^|]*\|.*\b(head|tail|sed|awk|xargs|while)\b", text):
        return answer
    return dataclasses.replace(answer, output=b"", exit_code=0, files={})


def _alone(text: str, answer: Answer) -> Answer:
    """Remove the results of inputs that contact another host."""
    if not SERVICES.search(text):
        return answer
    return dataclasses.replace(answer, output=b"", exit_code=0, files={})


def _nothing(_: str, answer: Answer) -> Answer:
    return STOPPED if answer.bounded or answer == STOPPED else answer


CAUSES = (
    Cause(
        "order of directory entries",
        "ext4's hash orders them on the machine, the system's layer in the sandbox",
        False,
        _ordered,
    ),
    Cause(
        "order of directory entries, acted on",
        "head, xargs and the like have another one first",
        False,
        _cut,
    ),
    Cause(
        "packet counters",
        "other packets have come and gone",
        False,
        _where(r"\b(netstat|ifconfig|nstat)\b|\bip .*-s|/proc/net", _numbers),
    ),
    Cause(
        "link counts, sizes and blocks of directories",
        "overlay has no others; listed in docs/design/fidelity.md",
        False,
        _where(LISTS + r"|\bstat\b", _directories),
    ),
    Cause(
        "inode and device numbers, blocks",
        "another file system on another device has others",
        False,
        _where(_program("ls|dir|vdir|stat|find|tree|du"), _numbers),
    ),
    Cause(
        "seconds",
        "the emulated processor is slower",
        False,
        _output(_seconds),
    ),
    Cause(
        "load",
        "the machine does other things beside",
        False,
        _output(_load),
    ),
    Cause(
        "process numbers",
        "the kernel gave out others before",
        False,
        _where(r"\$\$|\$!|PPID|BASHPID|&|jobs|pid|kill|/proc/|strace|trap", _numbers),
    ),
    Cause(
        "the kernel's name",
        "the machine runs another release than is declared",
        False,
        _asks(_program("uname|hostnamectl|arch") + r"|/proc/version|osrelease"),
    ),
    Cause(
        "hardware",
        "the machine has QEMU's processor, memory and devices, and its kernel's modules and log",
        False,
        _asks(
            _program(
                "free|lscpu|lsmod|modprobe|modinfo|dmesg|vmstat|lspci|lsusb|lsblk|blkid|nproc|fdisk"
                "|lshw|dmidecode|hdparm|smartctl|sensors|lsmem|getconf|iostat|mpstat|slabtop|zramctl"
            )
            + r"|/proc/(cpuinfo|meminfo|stat|interrupts|modules|cmdline|partitions|diskstats|swaps)"
        ),
    ),
    Cause(
        "processes",
        "of the declared processes the machine has the numbers alone, and its kernel's threads",
        False,
        _asks(
            _program("ps|pgrep|pkill|killall|pstree|top|htop|lsof|fuser|w|kill|pidof|pmap|pwdx")
            + r"|/proc/(\d|\*|self|\$)"
        ),
    ),
    Cause(
        "who answers on the network",
        "nobody does on the machine's; the sandbox has the declared web",
        False,
        _alone,
    ),
    Cause(
        "limits",
        "the run ended at a limit, and how far it came depends on the processor",
        False,
        _nothing,
    ),
    Cause(
        "refusals",
        "the sandbox refuses what root may do on a machine",
        True,
        _output(_refusals),
    ),
    Cause(
        "the clock",
        "programs in the sandbox see another time than the declared instant",
        True,
        _without_dates,
    ),
    Cause(
        "who is logged in",
        "of the declared logins no terminal and no process is there",
        True,
        _asks(_program("last|lastb|who|users|lastlog|finger")),
    ),
    Cause(
        "mounts and disks",
        "the mount table and what df counts are the sandbox's",
        True,
        _asks(
            _program("df|mount|umount|findmnt|mountpoint|swapon|quota")
            + r"|/mounts|mountinfo|/etc/mtab|\bstat .*(-f|--file-sys)"
        ),
    ),
    Cause(
        "the network card",
        "another driver, which can do other things",
        True,
        _asks(_program("ethtool")),
    ),
    Cause(
        "the network",
        "names, kinds and counters of the sandbox's interfaces and rules",
        True,
        _asks(
            _program(
                "ip|ifconfig|route|ss|netstat|arp|nft|iptables|ip6tables|bridge|tc|nstat"
                "|iwconfig|nmcli|hostname|sysctl"
            )
            + r"|/proc/net|/sys/class/net"
        ),
    ),
    Cause(
        "limits of a process",
        "another limit can be set than on a machine",
        True,
        _asks(_program("ulimit|prlimit")),
    ),
    Cause(
        "terminals and device nodes",
        "the sandbox has fewer of them",
        True,
        _asks(_program("tty|stty|script|mesg|mknod|losetup|mkfs|mkswap|dd") + r"|/dev\b"),
    ),
    Cause(
        "a directory moved",
        "overlay renames none of the system's: it is copied",
        True,
        _where(r"\bmv\b|\brename\b", lambda _: b""),
    ),
    Cause(
        "/proc, /sys and /dev",
        "other entries than a machine's",
        True,
        _where(r"/", _kernel_trees),
    ),
    Cause(
        "/proc and /sys by name",
        "another content than a machine's",
        True,
        _asks(r"/proc\b|/sys\b"),
    ),
    Cause(
        "changed files",
        "the patch tells of other files than the machine changed",
        True,
        lambda _, answer: dataclasses.replace(answer, files={}),
    ),
)
"""In the order in which they are tried: first those that are provable, then those that only the
input suggests, and the sandbox's own last."""

UNKNOWN = "unknown"
MOST_CAUSES = 4
"""Most causes of one difference: more would explain anything."""


class Verdict(StrEnum):
    """The verdict on an input."""

    IDENTICAL = "identical"
    VOLATILE = "volatile"
    EXPLAINED = "explained"
    OURS = "ours"


def causes_of(text: str, one: Answer, other: Answer) -> list[str]:
    """Return the fewest causes whose removal makes the answers equal, earlier ones first; `UNKNOWN`
    if none suffice.
    """

    def agree(causes: Sequence[Cause]) -> bool:
        a, b = one, other
        # precise causes go first, and words are sorted once nothing in them differs
        for cause in (*reversed(causes), *causes):
            a, b = cause.without(text, a), cause.without(text, b)
        return a == b

    told = [
        cause
        for cause in CAUSES
        if any(cause.without(text, answer) != answer for answer in (one, other))
    ]
    for count in range(1, MOST_CAUSES + 1):
        for causes in combinations(told, count):
            if agree(causes):
                return [cause.name for cause in causes]
    return [UNKNOWN]


def judge(
    text: str, sandbox: Sequence[Answer], machine: Sequence[Answer]
) -> tuple[Verdict, list[str]]:
    """Judge two runs on each side, or one where they agree, and name the causes. For a volatile
    input name those of its own variation.
    """
    if any(one == other for one in sandbox for other in machine):
        return Verdict.IDENTICAL, []
    for answers in (sandbox, machine):
        if answers[0] != answers[-1]:
            return Verdict.VOLATILE, causes_of(text, answers[0], answers[-1])
    causes = causes_of(text, sandbox[0], machine[0])
    ours = {cause.name for cause in CAUSES if cause.ours} | {UNKNOWN}
    return (Verdict.OURS if ours & {*causes} else Verdict.EXPLAINED), causes


class Answers:
    """Answers made from the behaviors of one system's runners."""

    def __init__(self, system: System) -> None:
        self._digests = {
            "/" + path.removeprefix("rootfs/"): digest
            for path, digest in read_contents(system.path).items()
            if path.startswith("rootfs/")
        }

    def run(self, runner: SandboxRunner, text: str, cwd: str) -> Answer:
        """Run an input; `STOPPED` where it broke every sandbox."""
        try:
            behavior = runner.run(text, runner.state(cwd))
        except SandboxError:
            time.sleep(1)
            behavior = runner.run(text, runner.state(cwd))
        if "sandboxes" in behavior.limits_hit:
            return STOPPED
        files = self._patched(behavior, runner.context(cwd).document, cwd)
        bounded = bool(behavior.timed_out or behavior.limits_hit or behavior.patch_truncated)
        return Answer(behavior.exit_code, behavior.output, files, bounded)

    def _patched(
        self, behavior: Behavior, context: Mapping[str, Any], cwd: str
    ) -> dict[str, Entry | None]:
        after = behavior.patch.apply(context)["fs"]
        digests = dict(behavior.content_digests)
        names: list[str] = []
        for code, path, *rest in behavior.patch.operations:
            touched = [keys(each) for each in ((path, rest[0]) if code == "m" else (path,))]
            if touched[0][0] != "fs":
                continue
            names += [each[1] for each in touched]
            if code == "m":
                digests[touched[1][1]] = self._digests.get(_absolute(touched[0][1], cwd), "")
        files: dict[str, Entry | None] = {}
        for name in {*names, *digests}:
            absolute = _absolute(name, cwd)
            entry, before = after.get(name), context["fs"].get(name)
            if entry is not None:
                regular = entry["perms"].startswith("-")
                held = digests.get(name, self._digests.get(absolute, "")) if regular else ""
                entry = {**entry, "digest": held}
            was = before and {**before, "digest": self._digests.get(absolute, "")}
            if was != entry:
                files[name] = entry
        return files


def on_machine(system: System) -> SandboxRunner:
    """Open the system's microVM, in which inputs run as root.

    Errors: HostError, SystemNotBuiltError.
    """
    limits = Limits(wall_seconds=30.0, cpu_seconds=30.0, scan_seconds=30.0, background_seconds=1.0)
    return open_sandbox(system, limits, sandbox="microvm-bare")


class Pair:
    """The sandbox and the machine of one system."""

    def __init__(self, system: System, stack: ExitStack) -> None:
        self._machine = stack.enter_context(on_machine(system))
        self._sandbox = stack.enter_context(open_sandbox(system))
        self._answers = Answers(system)

    def run(self, text: str, cwd: str) -> tuple[list[Answer], list[Answer]]:
        """Run an input once on each side, and again where they differ. The sandbox is first and
        last, so that its clock had time to advance.
        """
        first = self.sandboxed(text, cwd)
        real = self.real(text, cwd)
        if first == real:
            return [first], [real]
        again = self.real(text, cwd)
        return [first, self.sandboxed(text, cwd)], [real, again]

    def sandboxed(self, text: str, cwd: str) -> Answer:
        """Return the sandbox's record."""
        return self._answers.run(self._sandbox, text, cwd)

    def real(self, text: str, cwd: str) -> Answer:
        """Return the machine's behavior; `STOPPED` where it did not answer."""
        return self._answers.run(self._machine, text, cwd)


def _absolute(name: str, cwd: str) -> str:
    """Return the path of a file with this name in a context."""
    if name.startswith("/"):
        return name
    return cwd if name == "." else f"{cwd.rstrip('/')}/{name}"


@dataclass(frozen=True, slots=True)
class Judged:
    """The judged result of one input."""

    text: str
    verdict: Verdict
    causes: list[str]
    sandbox: list[Answer]
    machine: list[Answer]


_pair: Pair


def _open(system: str) -> None:
    global _pair
    stack = ExitStack()
    multiprocessing.util.Finalize(None, stack.close, exitpriority=0)
    _pair = Pair(find_system(system), stack)


def _compare(text: str, cwd: str, until: float) -> Judged | None:
    if time.time() > until:
        return None
    sandbox, machine = _pair.run(text, cwd)
    return Judged(text, *judge(text, sandbox, machine), sandbox, machine)


def _violation(judged: Judged) -> dict[str, Any]:
    mine, theirs = judged.sandbox[0], judged.machine[0]
    names = sorted(mine.files.keys() | theirs.files.keys())
    differ = {
        name: (mine.files.get(name, "unchanged"), theirs.files.get(name, "unchanged"))
        for name in names
        if mine.files.get(name, 0) != theirs.files.get(name, 0)
    }
    return {
        "kinds": judged.causes,
        "input": judged.text,
        "exit": (mine.exit_code, theirs.exit_code),
        "sandbox": mine.output[:1500].decode("utf-8", "replace"),
        "machine": theirs.output[:1500].decode("utf-8", "replace"),
        "files": dict(list(differ.items())[:5]),
    }


def read_inputs(lines: Iterable[str]) -> list[str]:
    """Read inputs from JSON lines: each a string, or an object that has `input`."""
    found = (json.loads(line) for line in lines if line.strip())
    return [one if isinstance(one, str) else one["input"] for one in found]


def main() -> int:
    """Run the comparison."""
    options = parser(__doc__, count=1000)
    options.add_argument("--inputs", type=Path, help="JSON lines to read instead of drawing inputs")
    options.add_argument(
        "--seconds", type=float, default=86_400, help="end earlier (default: never)"
    )
    options.add_argument("--workers", type=int, default=1, help="machines (default: 1)")
    given = options.parse_args()
    system = find_system(given.system)
    kernel = find_microvm(system).release
    home = system.declaration.session.start_directories[0]
    if given.inputs:
        texts = read_inputs(given.inputs.read_text().splitlines())[: given.count]
        inputs = [(text, home) for text in texts]
    else:
        inputs = [
            (one.text, one.cwd) for one in drawn(system=system, seed=given.seed, count=given.count)
        ]
    began = time.time()
    progress = Progress("compared", len(inputs))
    done: list[Judged] = []
    context = multiprocessing.get_context("spawn")
    with ProcessPoolExecutor(given.workers, context, _open, (system.name,)) as pool:
        until = began + given.seconds
        for judged in pool.map(_compare, *zip(*inputs, strict=True), [until] * len(inputs)):
            if judged:
                done.append(judged)
            progress.step()
    verdicts = Counter(judged.verdict for judged in done)
    facts = {
        "system": system.digest,
        "kernel": kernel,
        "inputs": len(done),
        **{verdict.value: verdicts[verdict] for verdict in Verdict},
        "seconds": round(time.time() - began),
    }
    rows = []
    for verdict in (Verdict.OURS, Verdict.EXPLAINED, Verdict.VOLATILE):
        kinds = Counter(name for one in done if one.verdict is verdict for name in one.causes)
        for name, count in kinds.most_common():
            texts = [o.text for o in done if o.verdict is verdict and name in o.causes]
            rows.append((verdict.value, name, count, min(texts, key=len)))
    return report(
        facts,
        [_violation(judged) for judged in done if judged.verdict is Verdict.OURS],
        as_json=given.json,
        tables=[("causes", ("verdict", "cause", "inputs", "shortest example"), rows)],
    )


if __name__ == "__main__":
    sys.exit(main())
