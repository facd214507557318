"""Generate the log files in /var/log since the machine was booted.

The lines follow from the declaration: the kernel's log, cron's hourly jobs, logins, failed logins
and installed packages. PIDs are interpolated between those of the declared processes that started
before and after. Files and timestamps follow `rsyslog.conf` of Debian 12 and its default template.
"""

from __future__ import annotations

from bisect import bisect_right
from collections.abc import Iterator, Mapping
from datetime import datetime, timedelta
from typing import NamedTuple
from zlib import crc32

from shioenv.system.declare import Login, SystemDeclaration
from shioenv.system.home_files import text_of
from shioenv.system.image import Placed, base_time

_ADM = 4
"""The gid of `adm`, which may read logs; it is fixed in Debian's and Ubuntu's base-passwd."""
_FILES = {
    "auth": ("auth.log",), "cron": ("syslog", "cron.log"), "kern": ("syslog", "kern.log"),
    "daemon": ("syslog",),
}  # fmt: skip
"""Log files by syslog facility."""
_LAST_OWN = 999


class _Line(NamedTuple):
    when: datetime
    facility: str
    text: str


def log_files(declaration: SystemDeclaration, packages: Mapping[str, str]) -> Iterator[Placed]:
    """Yield the files of /var/log, dated at their last lines; `packages` are versions by name."""
    lines = sorted(_lines(declaration), key=lambda line: line.when)
    hostname = declaration.machine.hostname
    for name in dict.fromkeys(name for names in _FILES.values() for name in names):
        own = [line for line in lines if name in _FILES[line.facility]]
        text = text_of(f"{line.when:%FT%T.%f+00:00} {hostname} {line.text}" for line in own)
        last = int(own[-1].when.timestamp()) if own else None
        yield Placed(f"var/log/{name}", 0o640, text, mtime=last, gid=_ADM)
    yield from _installed(declaration, packages)


def _fraction(of: str) -> timedelta:
    """Return a fraction of a second that is derived from a string."""
    return timedelta(microseconds=crc32(of.encode()) % 900_000)


def _port(of: str) -> int:
    """Return an ephemeral port that is derived from a string."""
    return 32768 + crc32(of.encode()) % 28232


def _lines(declaration: SystemDeclaration) -> Iterator[_Line]:
    machine, boot = declaration.machine, declaration.boot_time
    for seconds, text in machine.kernel.log:
        when = boot + timedelta(seconds=seconds)
        yield _Line(when, "kern", f"kernel: [{seconds:12.6f}] {text}")
    for process in machine.processes:
        if process.name in _STARTS:
            when = boot + timedelta(seconds=process.started)
            yield _Line(when, "daemon", f"{process.name}[{process.pid}]: {_STARTS[process.name]}")
    for socket in machine.sockets:
        if not socket.peer:
            (process,) = (one for one in machine.processes if one.pid == socket.process)
            when = boot + timedelta(seconds=process.started + 0.2)
            text = f"Server listening on {socket.address} port {socket.port}."
            yield _Line(when, "auth", f"{process.name}[{process.pid}]: {text}")
    hourly = boot.replace(minute=17, second=1)
    while (hourly := hourly + timedelta(hours=1)) <= declaration.instant:
        number, when = _number(declaration, hourly), hourly + _fraction(f"cron {hourly}")
        yield from _session(when, f"CRON[{number}]", "cron", "root", 0, 0.02)
        text = "(root) CMD (cd / && run-parts --report /etc/cron.hourly)"
        yield _Line(when, "cron", f"CRON[{number + 1}]: {text}")
    accounts = declaration.accounts
    since = [login for login in machine.logins if login.user != "reboot" and login.begin >= boot]
    for login in since:
        yield from _login(declaration, login, accounts[login.user][0])
    for login in machine.failed_logins:
        known = login.user in accounts
        who = f"sshd[{login.pid}]: Failed password for {'' if known else 'invalid user '}"
        port, when = _port(f"{login.host} {login.begin}"), login.begin
        when += _fraction(f"{login.host} {login.begin}")
        yield _Line(when, "auth", f"{who}{login.user} from {login.host} port {port} ssh2")


_STARTS = {
    "cron": "(CRON) INFO (Running @reboot jobs)",
    "rsyslogd": 'imuxsock: Acquired UNIX socket "/run/systemd/journal/syslog" (fd 3) from systemd.',
    "systemd-logind": "New seat seat0.",
}
"""Messages that daemons log at their start, by process name."""


def _session(
    when: datetime, tag: str, service: str, user: str, uid: int, seconds: float | None
) -> Iterator[_Line]:
    """Yield the lines of a PAM session of `seconds` seconds, or of an open session for None."""
    opened = f"pam_unix({service}:session): session opened for user {user}(uid={uid}) by (uid=0)"
    yield _Line(when, "auth", f"{tag}: {opened}")
    if seconds is not None:
        closed = f"pam_unix({service}:session): session closed for user {user}"
        yield _Line(when + timedelta(seconds=seconds), "auth", f"{tag}: {closed}")


def _login(declaration: SystemDeclaration, login: Login, uid: int) -> Iterator[_Line]:
    lasted = (login.end - login.begin).total_seconds() if login.end else None
    service = "sshd" if login.host else "login"
    tag, when = f"{service}[{login.pid}]", login.begin + _fraction(f"{login.begin}")
    if login.host:
        known = [one.peer_port for one in declaration.machine.sockets if one.process == login.pid]
        port = known[0] if known else _port(login.host)
        accepted = f"Accepted publickey for {login.user} from {login.host} port {port} ssh2"
        yield _Line(when, "auth", f"{tag}: {accepted}")
    yield from _session(when, tag, service, login.user, uid, lasted)
    logind = [one.pid for one in declaration.machine.processes if one.name == "systemd-logind"]
    for number in logind[:1]:
        text = f"systemd-logind[{number}]: New session of user {login.user}."
        yield _Line(when + timedelta(seconds=0.03), "auth", text)


def _number(declaration: SystemDeclaration, when: datetime) -> int:
    """Return the PID of a process started at `when`, interpolated between declared processes."""
    seconds = (when - declaration.boot_time).total_seconds()
    known = sorted((process.started, process.pid) for process in declaration.machine.processes)
    known.append((float(declaration.machine.uptime), _LAST_OWN))
    at = max(1, bisect_right(known, (seconds, _LAST_OWN)))
    (before, first), (after, last) = known[at - 1], known[min(at, len(known) - 1)]
    share = (seconds - before) / (after - before) if after > before else 0.0
    return first + round((last - first) * share)


def _installed(declaration: SystemDeclaration, packages: Mapping[str, str]) -> Iterator[Placed]:
    """Yield /var/log/dpkg.log, with the installation of every package."""
    made = base_time(declaration)
    architecture = declaration.distribution.architecture
    start = datetime.fromtimestamp(made, declaration.instant.tzinfo) - timedelta(
        seconds=2 * len(packages)
    )
    lines = []
    for index, (name, version) in enumerate(packages.items()):
        package = f"{name}:{architecture} {version}"
        for seconds, what in (
            (0, f"install {name}:{architecture} <none> {version}"),
            (0, f"status half-installed {package}"), (1, f"status unpacked {package}"),
            (1, f"configure {package} <none>"), (1, f"status installed {package}"),
        ):  # fmt: skip
            lines.append(f"{start + timedelta(seconds=2 * index + seconds):%F %T} {what}")
    if packages:
        yield Placed("var/log/dpkg.log", data=text_of(lines), mtime=made)
