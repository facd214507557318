"""A system's TOML file as frozen values, every fault in it reported at once.

The files ship in `shioenv/systems/`. A fault names its place as a path into the file
(`$.machine.memory`), the value found and what was expected; an unknown key names its nearest
known one.
"""

from __future__ import annotations

import re
import tomllib
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass
from datetime import UTC, datetime, timedelta
from functools import cache, lru_cache
from importlib import resources
from importlib.resources.abc import Traversable
from itertools import pairwise
from pathlib import Path
from types import MappingProxyType
from typing import Any, TypeVar

from shioenv.errors import SystemDeclarationError, UnknownSystemError, did_you_mean, nearest

DEFAULT_SYSTEM = "debian-12"
SCHEMA_VERSION = 1
FIXTURE_SPAN = timedelta(days=183)
"""How far before the instant a file of the home tree may lie ("six months", SPEC D-4)."""

LIMIT_NAMES = (
    "as", "core", "cpu", "data", "fsize", "locks", "memlock", "msgqueue", "nice", "nofile", "nproc",
    "rss", "rtprio", "sigpending", "stack",
)  # fmt: skip
"""Resource limits by the names of setrlimit(2), lower case and without `RLIMIT_`."""

UNLIMITED = -1
"""What a limit of "unlimited" is in `SessionDeclaration.limits` (RLIM_INFINITY of `resource`)."""

T = TypeVar("T")
_UNITS = {"": 1, "K": 1 << 10, "M": 1 << 20, "G": 1 << 30}
_NAME = re.compile(r"[a-z0-9][a-z0-9.-]*\Z")
_USER = re.compile(r"[a-z_][a-z0-9_-]{0,31}\Z")
_MAC = re.compile(r"[0-9a-f]{2}(:[0-9a-f]{2}){5}\Z")
_IPV4 = re.compile(r"((25[0-5]|2[0-4]\d|1?\d?\d)(\.|\Z)){4}\Z")


@dataclass(frozen=True, slots=True)
class Distribution:
    """What the base of the root filesystem is made of."""

    family: str
    """`debian` or `ubuntu`, as in the host's `/etc/os-release`: its own mirror serves this one."""
    suite: str
    """Code name, such as `bookworm`."""
    pockets: tuple[str, ...]
    """Further suites of the same release, such as `bookworm-security`."""
    components: tuple[str, ...]
    architecture: str
    """As Debian calls it: `amd64`."""
    os_family: str
    """How a context names it (the paper's `os_family`), such as `ubuntu-24`."""
    mirrors: tuple[str, ...]
    """One-line apt sources, used where the host has none of its own for this suite."""
    keyring: str
    """Keyring of the fallback mirrors, passed to apt where the file exists on the host."""
    packages: tuple[str, ...]
    """Installed beside the essential ones."""
    leave_out: tuple[str, ...]
    """Path patterns that packages do not get to unpack (dpkg's `path-exclude`)."""
    keep: tuple[str, ...]
    """Exceptions to `leave_out` (dpkg's `path-include`)."""


@dataclass(frozen=True, slots=True)
class User:
    """An account added to the distribution's own."""

    name: str
    uid: int
    group: str
    """Primary group."""
    comment: str
    home: str
    shell: str
    groups: tuple[str, ...]
    """Supplementary groups."""


@dataclass(frozen=True, slots=True)
class Group:
    """A group added to the distribution's own."""

    name: str
    gid: int


@dataclass(frozen=True, slots=True)
class SessionDeclaration:
    """The shell that inputs are typed into."""

    user: str
    start_directories: tuple[str, ...]
    """Absolute; the first is the default."""
    umask: int
    environment: Mapping[str, str]
    """All of it: nothing of the host's environment is added."""
    limits: Mapping[str, tuple[int, int]]
    """Soft and hard, in the units of setrlimit(2), by `LIMIT_NAMES`; `UNLIMITED` is -1."""


@dataclass(frozen=True, slots=True)
class Home:
    """The tree of files that inputs work on."""

    source: str
    """Name of the tree's directory in `shioenv/systems/`: a `tree.toml` and `files/` beneath it."""
    target: str
    """Where it lies in the system."""
    owner: str
    group: str


@dataclass(frozen=True, slots=True)
class Cpu:
    """The processor, as /proc/cpuinfo and lscpu tell it."""

    count: int
    vendor: str
    model_name: str
    family: int
    model: int
    stepping: int
    microcode: str
    mhz: float
    bogomips: float
    caches: Mapping[str, int]
    """Bytes by `L1d`, `L1i`, `L2`, `L3`."""
    flags: tuple[str, ...]
    bugs: tuple[str, ...]


@dataclass(frozen=True, slots=True)
class Kernel:
    """The kernel that the profile's files speak of (`uname` shows the host's: SPEC, DESIGN)."""

    release: str
    build: str
    """The part of /proc/version in parentheses and after: who built it, with what, when."""
    command_line: str
    log: tuple[tuple[float, str], ...]
    """Seconds since boot and text, oldest first: what a kernel log of this machine would say."""
    modules: tuple[str, ...]
    """Lines of /proc/modules."""


@dataclass(frozen=True, slots=True)
class Disk:
    """A block device with at most one partition level."""

    name: str
    size: int
    """Bytes, a multiple of 512."""
    major: int
    minor: int
    model: str
    filesystem: str
    """Type of the file system on it (on its partitions where it has some), or empty."""
    uuid: str
    label: str
    mount: str
    """Where it is mounted, or empty."""
    read_only: bool
    removable: bool


@dataclass(frozen=True, slots=True)
class Interface:
    """A network interface; `lo` is always there and is not declared."""

    name: str
    mac: str
    address: str
    """IPv4."""
    prefix: int
    gateway: str
    """Default route through this interface, or empty."""
    mtu: int


@dataclass(frozen=True, slots=True)
class Login:
    """A session in the login records."""

    user: str
    line: str
    host: str
    """Where from, empty for the console."""
    pid: int
    begin: datetime
    end: datetime | None
    """None: still logged in (shown by `who`, `w`, `users`)."""


@dataclass(frozen=True, slots=True)
class Machine:
    """What programs see of the machine."""

    hostname: str
    domain: str
    machine_id: str
    memory: int
    """Bytes."""
    swap: int
    disk: int
    """Bytes `df` shows for the root file system."""
    uptime: int
    """Seconds since boot at the start of each run."""
    load: tuple[float, float, float]
    cpu: Cpu
    kernel: Kernel
    disks: tuple[Disk, ...]
    interfaces: tuple[Interface, ...]
    nameservers: tuple[str, ...]
    logins: tuple[Login, ...]
    """With the user `reboot`: an earlier time the machine was up."""
    failed_logins: tuple[Login, ...]
    """What /var/log/btmp holds."""


@dataclass(frozen=True, slots=True)
class SystemDeclaration:
    """One system: everything that decides what its root filesystem and machine look like."""

    name: str
    title: str
    instant: datetime
    """What a patch writes for a file time inside a run's own window (SPEC D-4). UTC."""
    distribution: Distribution
    users: tuple[User, ...]
    groups: tuple[Group, ...]
    session: SessionDeclaration
    home: Home
    machine: Machine

    @property
    def start_directory(self) -> str:
        """The default start directory."""
        return self.session.start_directories[0]

    @property
    def boot_time(self) -> datetime:
        """When the machine was booted, seen from the instant."""
        return self.instant - timedelta(seconds=self.machine.uptime)

    def user(self, name: str) -> User | None:
        """The declared account of this name; None for the distribution's own, such as root."""
        return next((user for user in self.users if user.name == name), None)


class _Missing:
    """Default of a key that must be there."""


_MISSING = _Missing()


class _Table:
    """One table being read: notes each fault, and which keys it has been asked for."""

    def __init__(self, data: Mapping[str, Any], path: str, problems: list[str]) -> None:
        self.data = data
        self.path = path
        self.problems = problems
        self.known: set[str] = set()

    def problem(self, key: str, text: str) -> None:
        self.problems.append(f"{self.path}.{key}: {text}" if key else f"{self.path}: {text}")

    def value(self, key: str, kind: type[T], fallback: T, default: T | _Missing = _MISSING) -> T:
        """The value under `key`; `fallback` stands in for one that is faulty or missing."""
        self.known.add(key)
        if key not in self.data:
            if isinstance(default, _Missing):
                self.problem(key, "is missing")
                return fallback
            return default
        found = self.data[key]
        if kind is float and isinstance(found, int) and not isinstance(found, bool):
            found = float(found)
        if not isinstance(found, kind) or (kind is int and isinstance(found, bool)):
            self.problem(key, f"expected {_KINDS[kind]}, got {found!r}")
            return fallback
        return found

    def text(
        self,
        key: str,
        default: str | _Missing = _MISSING,
        check: re.Pattern[str] | None = None,
        what: str = "",
    ) -> str:
        found = self.value(key, str, "", default)
        if check is not None and isinstance(self.data.get(key), str) and not check.match(found):
            self.problem(key, f"expected {what}, got {found!r}")
        return found

    def path_in_system(self, key: str, default: str | _Missing = _MISSING) -> str:
        found = self.text(key, default)
        if found and (not found.startswith("/") or found != _normal(found)):
            self.problem(
                key, f"expected an absolute path without '.', '..' or a last '/', got {found!r}"
            )
        return found

    def integer(self, key: str, low: int, high: int, default: int | _Missing = _MISSING) -> int:
        found = self.value(key, int, low, default)
        if not low <= found <= high:
            self.problem(key, f"expected a number from {low} to {high}, got {found}")
        return found

    def size(self, key: str, default: int | _Missing = _MISSING) -> int:
        """Bytes, written as a number or with K, M or G (powers of 1024)."""
        found = self.data.get(key)
        if isinstance(found, str):
            self.known.add(key)
            match = re.fullmatch(r"(\d+)([KMG]?)", found)
            if match:
                return int(match[1]) * _UNITS[match[2]]
            self.problem(key, f'expected a size such as "216M", got {found!r}')
            return 0
        return self.integer(key, 0, 1 << 50, default)

    def texts(self, key: str, default: Iterable[str] | _Missing = _MISSING) -> tuple[str, ...]:
        fallback = default if isinstance(default, _Missing) else list(default)
        found: list[Any] = self.value(key, list, [], fallback)
        bad = [item for item in found if not isinstance(item, str)]
        if bad:
            self.problem(key, f"expected a list of strings, got {bad[0]!r} in it")
        repeated = sorted(
            {item for item in found if isinstance(item, str) and found.count(item) > 1}
        )
        if repeated:
            self.problem(key, f"{repeated[0]!r} is listed twice")
        return tuple(item for item in found if isinstance(item, str))

    def moment(self, key: str, optional: bool = False) -> datetime | None:
        found = self.data.get(key)
        self.known.add(key)
        if found is None:
            if not optional:
                self.problem(key, "is missing")
            return None
        if not isinstance(found, datetime):
            self.problem(
                key, f"expected a date and time such as 2025-10-16T19:43:00Z, got {found!r}"
            )
            return None
        if found.tzinfo is None:
            self.problem(key, f"expected a time with its zone (Z), got {found}")
            return None
        return found.astimezone(UTC)

    def table(self, key: str) -> _Table:
        faults = len(self.problems)
        data = self.value(key, dict, {})
        # What a missing table would have held is not worth a line each.
        problems = self.problems if len(self.problems) == faults else []
        return _Table(data, f"{self.path}.{key}", problems)

    def tables(self, key: str) -> list[_Table]:
        found: list[Any] = self.value(key, list, [], [])
        tables = []
        for index, item in enumerate(found):
            path = f"{self.path}.{key}[{index}]"
            if isinstance(item, dict):
                tables.append(_Table(item, path, self.problems))
            else:
                self.problems.append(f"{path}: expected a table, got {item!r}")
        return tables

    def close(self) -> None:
        """Refuse every key nobody asked for."""
        for key in self.data:
            if key not in self.known:
                match = nearest(key, self.known)
                hint = (
                    f"did you mean {match}?" if match else f"known: {', '.join(sorted(self.known))}"
                )
                self.problem(key, f"unknown key; {hint}")


_KINDS: Mapping[type, str] = {
    str: "a string",
    int: "a whole number",
    float: "a number",
    bool: "true or false",
    list: "a list",
    dict: "a table",
}


def _normal(path: str) -> str:
    parts = [part for part in path.split("/") if part not in ("", ".", "..")]
    return "/" + "/".join(parts)


def systems_directory() -> Traversable:
    """The directory of the shipped declarations."""
    return resources.files("shioenv").joinpath("systems")


@cache
def declared_names() -> tuple[str, ...]:
    """Names of the shipped systems, sorted."""
    return tuple(
        sorted(
            entry.name.removesuffix(".toml")
            for entry in systems_directory().iterdir()
            if entry.name.endswith(".toml")
        )
    )


def read_text(name: str | None = None) -> str:
    """The text of a declaration, by shipped name or by the path of a file that ends in `.toml`.

    Raises UnknownSystemError for a name that is not declared, SystemDeclarationError for a file
    that cannot be read.
    """
    name = name or DEFAULT_SYSTEM
    if name.endswith(".toml"):
        try:
            return Path(name).read_text(encoding="utf-8")
        except (OSError, UnicodeDecodeError) as error:
            raise SystemDeclarationError(
                name,
                [f"cannot be read: {getattr(error, 'strerror', None) or error}"],
                hint="name a TOML file that declares a system, or one that is shipped: "
                + ", ".join(declared_names()),
            ) from error
    if name not in declared_names():
        raise UnknownSystemError(
            f"no system is called {name!r}", hint=did_you_mean(name, declared_names())
        )
    return systems_directory().joinpath(f"{name}.toml").read_text(encoding="utf-8")


def load_declaration(name: str | None = None) -> SystemDeclaration:
    """The declaration of this name, by default `debian-12`; see `read_text`.

    Raises SystemDeclarationError, with every fault, for a file that says something wrong.
    """
    name = name or DEFAULT_SYSTEM
    return parse_declaration(
        read_text(name), source=name if name.endswith(".toml") else f"{name}.toml"
    )


@lru_cache(maxsize=8)
def parse_declaration(text: str, *, source: str = "<string>") -> SystemDeclaration:
    """The declaration in `text`; SystemDeclarationError lists every fault in it."""
    try:
        data = tomllib.loads(text)
    except tomllib.TOMLDecodeError as error:
        raise SystemDeclarationError(source, [f"not TOML: {error}"]) from error
    problems: list[str] = []
    root = _Table(data, "$", problems)
    version = root.integer("schema", 1, 1 << 30)
    if version != SCHEMA_VERSION and not problems:
        problem = f"$.schema: version {version} is not one this release reads"
        raise SystemDeclarationError(source, [problem], hint=f"it reads {SCHEMA_VERSION}")
    declaration = SystemDeclaration(
        name=root.text("name", check=_NAME, what="lower case letters, digits, '-' and '.'"),
        title=root.text("title", ""),
        instant=root.moment("instant") or datetime(2000, 1, 1, tzinfo=UTC),
        distribution=_read(root.table("distribution"), _distribution),
        groups=tuple(_read(table, _group) for table in root.tables("groups")),
        users=tuple(_read(table, _user) for table in root.tables("users")),
        session=_read(root.table("session"), _session),
        home=_read(root.table("home"), _home),
        machine=_read(root.table("machine"), _machine),
    )
    root.close()
    problems += [] if problems else _contradictions(declaration)
    if problems:
        raise SystemDeclarationError(source, problems)
    return declaration


def _read(table: _Table, reader: Callable[[_Table], T]) -> T:
    value = reader(table)
    table.close()
    return value


def _distribution(table: _Table) -> Distribution:
    family = table.text("family")
    if family and family not in ("debian", "ubuntu"):
        table.problem("family", f"expected debian or ubuntu, got {family!r}")
    return Distribution(
        family=family,
        suite=table.text("suite", check=_NAME, what="a code name such as bookworm"),
        pockets=table.texts("pockets", ()),
        components=table.texts("components"),
        architecture=table.text("architecture", "amd64"),
        os_family=table.text("os_family"),
        mirrors=table.texts("mirrors"),
        keyring=table.text("keyring", ""),
        packages=table.texts("packages"),
        leave_out=table.texts("leave_out", ()),
        keep=table.texts("keep", ()),
    )


def _group(table: _Table) -> Group:
    return Group(
        name=table.text("name", check=_USER, what="a group name"),
        gid=table.integer("gid", 1, 65533),
    )


def _user(table: _Table) -> User:
    name = table.text("name", check=_USER, what="a user name")
    return User(
        name=name,
        uid=table.integer("uid", 1, 65533),
        group=table.text("group", name),
        comment=table.text("comment", "", re.compile(r"[^:\n]*\Z"), "text without ':'"),
        home=table.path_in_system("home", f"/home/{name}"),
        shell=table.path_in_system("shell", "/bin/bash"),
        groups=table.texts("groups", ()),
    )


def _session(table: _Table) -> SessionDeclaration:
    directories = table.texts("start_directories")
    if not directories:
        table.problem("start_directories", "expected at least one directory")
    for directory in directories:
        if not directory.startswith("/") or directory != _normal(directory):
            table.problem("start_directories", f"expected absolute paths, got {directory!r}")
    umask = table.text("umask", "0022", re.compile(r"0?[0-7]{3}\Z"), "an octal mask such as 0022")
    environment = table.table("environment")
    variables = {}
    for key in environment.data:
        variables[key] = environment.text(key)
        if not re.fullmatch(r"[A-Za-z_][A-Za-z0-9_]*", key):
            environment.problem(key, "expected a shell variable's name")
    limits_table = table.table("limits")
    limits = {}
    for key in limits_table.data:
        if key in LIMIT_NAMES:
            limits[key] = _limit(limits_table, key)
    limits_table.known.update(LIMIT_NAMES)
    limits_table.close()
    return SessionDeclaration(
        user=table.text("user", "root"),
        start_directories=directories or ("/",),
        umask=int(umask, 8) if re.fullmatch(r"[0-7]+", umask) else 0o22,
        environment=MappingProxyType(variables),
        limits=MappingProxyType(limits),
    )


def _limit(table: _Table, key: str) -> tuple[int, int]:
    """Soft and hard from `8388608`, `"unlimited"` or `[1024, 1048576]`."""
    found = table.data[key]
    pair = found if isinstance(found, list) else [found, found]
    values = []
    for item in pair:
        if item == "unlimited":
            values.append(UNLIMITED)
        elif isinstance(item, int) and not isinstance(item, bool) and item >= 0:
            values.append(item)
    if len(pair) != 2 or len(values) != 2:
        table.problem(
            key, f'expected a number, "unlimited", or both limits as [soft, hard], got {found!r}'
        )
        return UNLIMITED, UNLIMITED
    soft, hard = values
    if hard != UNLIMITED and (soft == UNLIMITED or soft > hard):
        table.problem(key, f"the soft limit is above the hard one: {found!r}")
    return soft, hard


def _home(table: _Table) -> Home:
    return Home(
        source=table.text("source", "home"),
        target=table.path_in_system("target"),
        owner=table.text("owner"),
        group=table.text("group"),
    )


def _cpu(table: _Table) -> Cpu:
    caches_table = table.table("caches")
    caches = {name: caches_table.size(name) for name in ("L1d", "L1i", "L2", "L3")}
    caches_table.close()
    return Cpu(
        count=table.integer("count", 1, 64),
        vendor=table.text("vendor"),
        model_name=table.text("model_name"),
        family=table.integer("family", 0, 255),
        model=table.integer("model", 0, 255),
        stepping=table.integer("stepping", 0, 255),
        microcode=table.text("microcode", "0x1"),
        mhz=table.value("mhz", float, 1.0),
        bogomips=table.value("bogomips", float, 1.0),
        caches=MappingProxyType(caches),
        flags=tuple(table.text("flags").split()),
        bugs=tuple(table.text("bugs", "").split()),
    )


def _kernel(table: _Table) -> Kernel:
    log = []
    for index, line in enumerate(table.texts("log", ())):
        seconds, separator, text = line.partition(" ")
        if not separator or not re.fullmatch(r"\d+\.\d{6}", seconds):
            table.problem(f"log[{index}]", f'expected "SECONDS.MICROSECONDS text", got {line!r}')
            continue
        log.append((float(seconds), text))
    if any(later < earlier for (earlier, _), (later, _) in pairwise(log)):
        table.problem("log", "expected times in ascending order")
    return Kernel(
        release=table.text("release"),
        build=table.text("build"),
        command_line=table.text("command_line"),
        log=tuple(log),
        modules=table.texts("modules", ()),
    )


def _disk(table: _Table) -> Disk:
    size = table.size("size")
    if size % 512:
        table.problem("size", f"expected a multiple of 512 bytes, got {size}")
    return Disk(
        name=table.text("name", check=re.compile(r"[a-z]+[a-z0-9]*\Z"), what="a device name"),
        size=size,
        major=table.integer("major", 1, 511),
        minor=table.integer("minor", 0, 1 << 20),
        model=table.text("model", ""),
        filesystem=table.text("filesystem", ""),
        uuid=table.text("uuid", ""),
        label=table.text("label", ""),
        mount=table.path_in_system("mount", ""),
        read_only=table.value("read_only", bool, False, False),
        removable=table.value("removable", bool, False, False),
    )


def _interface(table: _Table) -> Interface:
    name = table.text("name", check=re.compile(r"[a-z][a-z0-9]{0,14}\Z"), what="an interface name")
    if name == "lo":
        table.problem("name", "lo is always there and is not declared")
    return Interface(
        name=name,
        mac=table.text("mac", check=_MAC, what="six lower-case bytes such as 52:54:00:12:34:56"),
        address=table.text("address", check=_IPV4, what="an IPv4 address"),
        prefix=table.integer("prefix", 1, 32),
        gateway=table.text("gateway", "", _IPV4, "an IPv4 address"),
        mtu=table.integer("mtu", 68, 65535, 1500),
    )


def _login(table: _Table) -> Login:
    return Login(
        user=table.text("user"),
        line=table.text("line"),
        host=table.text("host", ""),
        pid=table.integer("pid", 1, 4194304),
        begin=table.moment("begin") or datetime(2000, 1, 1, tzinfo=UTC),
        end=table.moment("end", optional=True),
    )


def _machine(table: _Table) -> Machine:
    load = table.value("load", list, [0.0, 0.0, 0.0])
    if len(load) != 3 or not all(isinstance(item, int | float) and item >= 0 for item in load):
        table.problem("load", f"expected three numbers, got {load!r}")
        load = [0.0, 0.0, 0.0]
    return Machine(
        hostname=table.text(
            "hostname",
            check=re.compile(r"[a-z0-9]([a-z0-9-]{0,61}[a-z0-9])?\Z"),
            what="a host name",
        ),
        domain=table.text("domain", ""),
        machine_id=table.text("machine_id", "", re.compile(r"[0-9a-f]{32}\Z"), "32 hex digits"),
        memory=table.size("memory"),
        swap=table.size("swap", 0),
        disk=table.size("disk"),
        uptime=table.integer("uptime", 1, 1 << 31),
        load=(float(load[0]), float(load[1]), float(load[2])),
        cpu=_read(table.table("cpu"), _cpu),
        kernel=_read(table.table("kernel"), _kernel),
        disks=tuple(_read(item, _disk) for item in table.tables("disks")),
        interfaces=tuple(_read(item, _interface) for item in table.tables("interfaces")),
        nameservers=table.texts("nameservers", ()),
        logins=tuple(_read(item, _login) for item in table.tables("logins")),
        failed_logins=tuple(_read(item, _login) for item in table.tables("failed_logins")),
    )


def _contradictions(declaration: SystemDeclaration) -> list[str]:
    """What is wrong between values that are each right by themselves."""
    problems: list[str] = []

    def unique(path: str, values: Iterable[object]) -> None:
        seen: set[object] = set()
        for index, value in enumerate(values):
            if value in seen and value != "":
                problems.append(f"{path}[{index}]: {value!r} is already taken")
            seen.add(value)

    unique("$.users", [user.name for user in declaration.users])
    unique("$.users", [user.uid for user in declaration.users])
    unique("$.groups", [group.name for group in declaration.groups])
    unique("$.groups", [group.gid for group in declaration.groups])
    unique("$.machine.disks", [disk.name for disk in declaration.machine.disks])
    unique("$.machine.disks", [(d.major, d.minor) for d in declaration.machine.disks])
    unique("$.machine.interfaces", [each.name for each in declaration.machine.interfaces])
    users = {"root", *(user.name for user in declaration.users)}
    groups = {"root", *(group.name for group in declaration.groups)}
    system_groups = {"adm", "audio", "cdrom", "disk", "games", "mail", "plugdev", "staff", "sudo"}
    system_groups |= {"users", "video", "www-data", "daemon", "backup", "operator", "tty", "dip"}

    def known(path: str, word: str, words: set[str], what: str) -> None:
        if word not in words:
            problems.append(f"{path}: no {what} {word!r} is declared; {did_you_mean(word, words)}")

    for index, user in enumerate(declaration.users):
        known(f"$.users[{index}].group", user.group, groups, "group")
        for group in user.groups:
            known(f"$.users[{index}].groups", group, groups | system_groups, "group")
    known("$.session.user", declaration.session.user, users, "user")
    known("$.home.owner", declaration.home.owner, users, "user")
    known("$.home.group", declaration.home.group, groups, "group")
    for index, login in enumerate(declaration.machine.logins):
        path = f"$.machine.logins[{index}]"
        known(f"{path}.user", login.user, users | {"reboot"}, "user")
        if login.end is not None and login.end < login.begin:
            problems.append(f"{path}.end: lies before the login's begin")
        if max(login.begin, login.end or login.begin) > declaration.instant:
            problems.append(f"{path}: lies after the instant {declaration.instant:%Y-%m-%d %H:%M}")
    return problems
