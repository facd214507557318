"""Parse a system's TOML file into frozen dataclasses, reporting all of its faults at once.

Files other than those in `shioenv/systems/` are untrusted, and their strings go into commands,
paths and configuration files. Every string is therefore checked against a pattern. A fault names
the path of the value (`$.machine.memory`), the value, and what is expected. For an unknown key it
suggests the nearest known key.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from datetime import datetime, timedelta
from functools import cache, lru_cache
from importlib import resources
from importlib.resources.abc import Traversable
from typing import Annotated, Any

from msgspec import Meta

from shioenv.errors import SystemDeclarationError, UnknownSystemError, did_you_mean
from shioenv.files import documents
from shioenv.files.regular import read_regular
from shioenv.system.contradictions import contradictions
from shioenv.system.values import (
    CONTROL,
    IPV4,
    LABEL,
    LIMIT_NAMES,
    LINE,
    WORD,
    AccountName,
    AccountNumber,
    Address,
    AnyAddress,
    Byte,
    Component,
    Directory,
    DirectoryOrNone,
    Frequency,
    HomeSource,
    Keyring,
    Keys,
    LargeSize,
    Limit,
    Line,
    Load,
    Mirror,
    Module,
    Moment,
    MountPointOrNone,
    OwnDirectory,
    Package,
    PathPattern,
    Seconds,
    Size,
    Suite,
    SystemName,
    Variable,
    Words,
    checked,
    host,
    like,
    logged,
    mask,
    moment,
)

DEFAULT_SYSTEM = "debian-12"
SCHEMA_VERSION = 1
LARGEST_FILE = 1 << 20
"""Maximum size of a declaration file in bytes; the shipped ones have 15,000."""

FIXTURE_SPAN = timedelta(days=183)
"""Maximum age of the home tree's files at `SystemDeclaration.instant` ("six months", D-4)."""


# ---------------------------------------------------------------------------------------------
# The declared values. A field's annotation holds all checks of its value; the module
# `contradictions` compares values with each other.


@dataclass(frozen=True, slots=True, kw_only=True)
class Distribution:
    """The packages of the root filesystem's base, and their sources."""

    family: Annotated[str, like("debian|ubuntu", "debian or ubuntu")]
    """`debian` or `ubuntu`, the ID in `/etc/os-release`. If the host has this ID too, its mirrors
    are used."""
    suite: Suite
    """The release's code name, such as `bookworm`."""
    pockets: tuple[Suite, ...] = ()
    """Additional suites of the same release, such as `bookworm-security`."""
    components: tuple[Component, ...]
    architecture: Annotated[str, like("[a-z0-9]{2,16}", "a value such as amd64")] = "amd64"
    """Debian's name for the architecture, such as `amd64`."""
    os_family: Annotated[str, like("[a-z0-9][a-z0-9.-]{0,63}", "a value such as debian-12")]
    """The system's name in a context (the paper's `os_family`), such as `ubuntu-24`."""
    mirrors: Annotated[tuple[Mirror, ...], Meta(min_length=1, description="at least one source")]
    """One-line apt sources, used if the host has no sources for this suite. Options of apt are not
    allowed, because only the host decides which signatures to trust."""
    keyring: Keyring = ""
    """The distribution's keyring, passed to apt if it exists on the host. Keys trusted by the
    host's apt are accepted as well."""
    packages: tuple[Package, ...]
    """Packages to install in addition to the essential ones."""
    leave_out: tuple[PathPattern, ...] = ()
    """Patterns of paths that are not unpacked from packages (dpkg's `path-exclude`)."""
    keep: tuple[PathPattern, ...] = ()
    """Exceptions to `leave_out` (dpkg's `path-include`)."""


@dataclass(frozen=True, slots=True, kw_only=True)
class User:
    """A user account in addition to those of the distribution."""

    name: AccountName
    uid: AccountNumber
    group: AccountName
    """Primary group."""
    comment: Annotated[str, like(f"(?!.*:){LINE}{{0,255}}", "one line of text without ':'")] = ""
    home: OwnDirectory
    shell: DirectoryOrNone = "/bin/bash"
    groups: tuple[AccountName, ...] = ()
    """Supplementary groups."""

    @staticmethod
    def filled_in(table: Mapping[str, Any]) -> dict[str, Any]:
        """Return the table with defaults that depend on other keys filled in."""
        name = table.get("name")
        return {"group": f"{name}", "home": f"/home/{name}", **table}


@dataclass(frozen=True, slots=True, kw_only=True)
class UserGroup:
    """A group in addition to those of the distribution."""

    name: AccountName
    gid: AccountNumber


@dataclass(frozen=True, slots=True, kw_only=True)
class SessionDeclaration:
    """The shell session that executes inputs."""

    user: AccountName = "root"
    start_directories: Annotated[
        tuple[Directory, ...], Meta(min_length=1, description="at least one directory")
    ]
    """Absolute paths; the first is the default."""
    umask: Annotated[int, mask] = 0o022
    environment: Mapping[Variable, Line]
    """The complete environment; no variables of the host are added."""
    parent: Annotated[int, Meta(ge=2, le=999)]
    """PID of the shells' parent process, one of `Machine.processes`."""
    limits: Annotated[Mapping[str, Limit], Keys(LIMIT_NAMES)]
    """(soft, hard) in the units of setrlimit(2), by names in `LIMIT_NAMES`; `UNLIMITED` is -1."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Home:
    """The tree of files that inputs operate on."""

    source: HomeSource = "home"
    """The directory with `tree.toml` and `files/`: its name in `shioenv/systems/`, or its absolute
    path.
    """
    added: tuple[HomeSource, ...] = ()
    """Further trees laid over the first, in this order; an entry replaces one of the same path."""
    target: OwnDirectory
    """Absolute path of the tree in the system."""
    owner: AccountName
    group: AccountName


@dataclass(frozen=True, slots=True, kw_only=True)
class Cpu:
    """The processor, as shown by /proc/cpuinfo and lscpu."""

    count: Annotated[int, Meta(ge=1, le=64)]
    vendor: Line
    model_name: Line
    family: Byte
    model: Byte
    stepping: Byte
    microcode: Annotated[str, like("0x[0-9a-f]{1,8}", "a value such as 0x1")] = "0x1"
    mhz: Frequency
    bogomips: Frequency
    caches: Annotated[Mapping[str, Size], Keys(("L1d", "L1i", "L2", "L3"), required=True)]
    """Cache sizes in bytes by `L1d`, `L1i`, `L2`, `L3`."""
    flags: Words
    bugs: Words = ()


@dataclass(frozen=True, slots=True, kw_only=True)
class Kernel:
    """The kernel that programs see, independent of the host's kernel."""

    release: Annotated[
        str,
        like(
            "[A-Za-z0-9][A-Za-z0-9._+~-]{0,63}", "a kernel's release, such as 6.1.0-28-cloud-amd64"
        ),
    ]
    build: Annotated[
        str,
        like(
            rf"[^#{CONTROL}]{{0,900}}#[^#{CONTROL}]{{1,63}}",
            "one line that ends in the version, which begins with #",
        ),
    ]
    """The part of /proc/version after the release: builder, compiler and build version."""
    command_line: Line
    log: tuple[Annotated[tuple[float, str], logged], ...] = ()
    """Lines of the kernel's log, oldest first: seconds since boot, and the text."""
    modules: tuple[Module, ...] = ()
    """Lines of /proc/modules."""

    @property
    def version(self) -> str:
        """The output of `uname -v`."""
        return self.build[self.build.index("#") :]


@dataclass(frozen=True, slots=True, kw_only=True)
class Disk:
    """A block device with at most one level of partitions."""

    name: Annotated[
        str,
        like(
            "([shv]d|xvd)[a-z]{1,3}[0-9]{0,3}|(fd|md|nbd|ram|sr|zram)[0-9]{1,3}"
            "|(nvme[0-9]{1,2}n|mmcblk)[0-9]{1,2}(p[0-9]{1,3})?",
            "a disk's name, such as vda, sda1 or nvme0n1",
        ),
    ]
    size: Annotated[Size, Meta(multiple_of=512, description="a multiple of 512 bytes")]
    """Bytes, a multiple of 512."""
    major: Annotated[int, Meta(ge=1, le=511)]
    minor: Annotated[int, Meta(ge=0, le=1 << 20)]
    model: Line = ""
    filesystem: Annotated[str, like(f"({WORD})?", "a type such as ext4")] = ""
    """Type of the file system on the disk or on its partitions, or empty."""
    uuid: Annotated[str, like("([0-9A-Fa-f]+(-[0-9A-Fa-f]+)*)?", "a UUID")] = ""
    label: Annotated[str, like(f"({WORD})?", "a word of letters and digits")] = ""
    mount: MountPointOrNone = ""
    """The mount point, or empty."""
    read_only: bool = False
    removable: bool = False


@dataclass(frozen=True, slots=True)
class Interface:
    """A network interface; `lo` always exists and is not declared."""

    name: Annotated[str, like(r"(?!lo\Z)[a-z][a-z0-9]{0,14}", "an interface name other than lo")]
    mac: Annotated[
        str,
        like("[0-9a-f]{2}(:[0-9a-f]{2}){5}", "six lower-case bytes such as 52:54:00:12:34:56"),
    ]
    address: Address
    """IPv4."""
    prefix: Annotated[int, Meta(ge=1, le=32)]
    gateway: Address = ""
    """Gateway of the default route through this interface, or empty."""
    mtu: Annotated[int, Meta(ge=68, le=65535)] = 1500


@dataclass(frozen=True, slots=True)
class Login:
    """A session in the login records."""

    user: Annotated[str, like("[A-Za-z0-9_][A-Za-z0-9_.@-]{0,31}", "a user's name")]
    line: Annotated[
        str,
        like(r"~|(?=.{1,32}\Z)[a-z]+[0-9]*([:/][a-z0-9]+)?", "a terminal such as ~, tty1 or pts/0"),
    ]
    host: Annotated[str, host]
    """The remote host, empty for the console."""
    pid: Annotated[int, Meta(ge=1, le=4194304)]
    begin: Moment
    end: Annotated[datetime | None, moment] = None
    """None if the user is still logged in (shown by `who`, `w`, `users`)."""

    @staticmethod
    def filled_in(table: Mapping[str, Any]) -> dict[str, Any]:
        """Return the table with the default host filled in; see `User.filled_in`."""
        return {"host": "", **table}


@dataclass(frozen=True, slots=True, kw_only=True)
class Process:
    """A process of the machine that runs before the first input."""

    pid: Annotated[int, Meta(ge=1, le=999)]
    parent: Annotated[int, Meta(ge=0, le=999)] = 1
    """PID of the parent. Process 1 must declare 0; all others have a declared parent."""
    name: Annotated[
        str,
        like(f"(?=.{{1,15}}\\Z){WORD}", "a word of up to 15 characters"),
    ]
    """The command name, as shown by `ps -o comm`."""
    command: Annotated[str, like(f"{LINE}{{1,4096}}", "a command line")]
    """The command line shown by `ps`. It is one argument if it contains a colon, else it is split
    at blanks."""
    program: Directory
    """Absolute path of the executable."""
    user: AccountName = "root"
    """The owner: root or a declared user."""
    terminal: Annotated[
        str, like("|tty[1-9]|ttyS[0-3]|pts/[0-9]{1,3}", "a terminal such as tty1 or pts/0")
    ] = ""
    """The controlling terminal, or empty."""
    session: Annotated[int, Meta(ge=0, le=999)] = 0
    """PID of the leader of the session and process group; 0 means this process."""
    started: Seconds
    """Start time in seconds since boot."""
    cpu: Seconds = 0.0
    """CPU time used by the process, in seconds."""
    size: Size
    """Size of the address space in bytes."""
    resident: Size
    """Resident set size in bytes."""
    threads: Annotated[int, Meta(ge=1, le=99)] = 1
    pid_file: Annotated[
        str, like(r"(/run/[a-z0-9._-]{1,64}\.pid)?", "a file such as /run/x.pid")
    ] = ""
    """Path of the process's PID file, or empty."""


MOST_SOCKETS = 16
"""Maximum number of sockets of a machine's processes."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Socket:
    """A TCP socket of a process, either listening or connected to `peer`."""

    process: Annotated[int, Meta(ge=1, le=999)]
    address: AnyAddress
    port: Annotated[int, Meta(ge=1, le=65535)]
    peer: Annotated[str, like(f"({IPV4})?", "an IPv4 address")] = ""
    """Address of the remote host, which the machine cannot reach; empty if the socket listens."""
    peer_port: Annotated[int, Meta(ge=0, le=65535)] = 0
    banner: Annotated[str, like(f"{LINE}{{0,60}}", "a line of at most 60 characters")] = ""
    """A line that is sent to each client of a listening socket before the connection is closed."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Machine:
    """The machine as programs see it."""

    hostname: Annotated[str, like(LABEL, "a host name")]
    domain: Annotated[
        str, like(rf"(?=.{{0,64}}\Z)({LABEL}(\.{LABEL})*)?", "a domain such as example.internal")
    ] = ""
    machine_id: Annotated[str, like("[0-9a-f]{32}", "32 hex digits")] = ""
    memory: LargeSize
    """Bytes."""
    swap: Size = 0
    disk: LargeSize
    """Size of the root file system in bytes, as shown by `df`."""
    uptime: Annotated[int, Meta(ge=1, le=1 << 31)]
    """Seconds since boot at the start of each run."""
    load: Annotated[tuple[Load, Load, Load], Meta(description="three numbers")]
    cpu: Cpu
    kernel: Kernel
    disks: tuple[Disk, ...] = ()
    interfaces: tuple[Interface, ...] = ()
    nameservers: tuple[AnyAddress, ...] = ()
    logins: tuple[Login, ...] = ()
    """Login sessions. A session of the user `reboot` stands for an earlier uptime period of the
    machine."""
    failed_logins: tuple[Login, ...] = ()
    """The records of /var/log/btmp."""
    processes: tuple[Process, ...]
    """The processes that run alongside inputs; process 1 must be declared."""
    sockets: Annotated[tuple[Socket, ...], Meta(max_length=MOST_SOCKETS)] = ()
    """The sockets of these processes."""


@dataclass(frozen=True, slots=True, kw_only=True)
class SystemDeclaration:
    """The complete declaration of one system's root filesystem and machine."""

    schema: Annotated[int, Meta(ge=1, le=SCHEMA_VERSION)]
    """Version of the file's layout."""
    name: SystemName
    title: Line = ""
    instant: Moment
    """The start time of each run, for programs and in patches (D-4). UTC."""
    clock: Annotated[str, like("declared|host", "declared or host")] = "declared"
    """`declared`: time starts at the instant in each run; `host`: programs see the host's time."""
    distribution: Distribution
    users: tuple[User, ...] = ()
    groups: tuple[UserGroup, ...] = ()
    session: SessionDeclaration
    home: Home
    machine: Machine

    @property
    def start_directory(self) -> str:
        """The default start directory."""
        return self.session.start_directories[0]

    @property
    def boot_time(self) -> datetime:
        """The time at which the machine was booted: the instant minus its uptime."""
        return self.instant - timedelta(seconds=self.machine.uptime)

    def user(self, name: str) -> User | None:
        """Return the declared account of this name, or None for any other, such as root."""
        return next((user for user in self.users if user.name == name), None)

    @property
    def accounts(self) -> dict[str, tuple[int, int]]:
        """(uid, gid) by user name, for root and the declared accounts."""
        groups = {"root": 0} | {group.name: group.gid for group in self.groups}
        return {"root": (0, 0)} | {user.name: (user.uid, groups[user.group]) for user in self.users}


def systems_directory() -> Traversable:
    """Return the directory of the shipped declarations."""
    return resources.files("shioenv").joinpath("systems")


@cache
def declared_names() -> tuple[str, ...]:
    """Return the names of the shipped systems, sorted."""
    return tuple(
        sorted(
            entry.name.removesuffix(".toml")
            for entry in systems_directory().iterdir()
            if entry.name.endswith(".toml")
        )
    )


def reason(error: OSError | ValueError) -> str:
    """Return a message that explains why a file could not be read."""
    if isinstance(error, UnicodeDecodeError):
        return "it is not UTF-8 text"
    return getattr(error, "strerror", None) or str(error)


def read_text(name: str | None = None) -> str:
    """Return the text of a shipped declaration, by name, or of a TOML file, by its `.toml` path.

    The default is `debian-12`. Raises UnknownSystemError for an unknown name. Raises
    SystemDeclarationError for a file that cannot be read, is not a regular file, or has more than
    `LARGEST_FILE` bytes.
    """
    name = name or DEFAULT_SYSTEM
    if name.endswith(".toml"):
        try:
            return read_regular(name, LARGEST_FILE).decode()
        except (OSError, ValueError) as error:
            raise SystemDeclarationError(
                name,
                [f"cannot be read: {reason(error)}"],
                hint="give a TOML file that declares a system, or a shipped system: "
                + ", ".join(declared_names()),
            ) from error
    if name not in declared_names():
        raise UnknownSystemError(
            f"unknown system {name!r}", hint=did_you_mean(name, declared_names())
        )
    return systems_directory().joinpath(f"{name}.toml").read_text(encoding="utf-8")


def load_declaration(name: str | None = None) -> SystemDeclaration:
    """Load the declaration of this name, by default `debian-12`; see `read_text`.

    Errors: SystemDeclarationError, which lists every fault, for an invalid file.
    SystemDeclarationError also for a file that declares another system under the name of a shipped
    one.
    """
    name = name or DEFAULT_SYSTEM
    text = read_text(name)
    own = name.endswith(".toml")
    declaration = parse_declaration(text, source=name if own else f"{name}.toml")
    if own and declaration.name in declared_names() and text != read_text(declaration.name):
        raise SystemDeclarationError(
            name,
            [f"$.name: {declaration.name} is the name of a shipped system; choose another name"],
        )
    return declaration


def parse_toml(text: str, source: str) -> dict[str, Any]:
    """Parse TOML. Errors: SystemDeclarationError if `text` is not valid TOML."""
    try:
        return documents.parse_toml(text)
    except ValueError as error:
        raise SystemDeclarationError(source, [f"not TOML: {error}"]) from error


@lru_cache(maxsize=8)
def parse_declaration(text: str, *, source: str = "<string>") -> SystemDeclaration:
    """Parse and check a declaration. Errors: SystemDeclarationError, which lists every fault."""
    data = parse_toml(text, source)
    version = data.get("schema")
    if type(version) is int and version != SCHEMA_VERSION:
        problem = f"$.schema: unsupported version {version}"
        raise SystemDeclarationError(source, [problem], hint=f"supported: {SCHEMA_VERSION}")
    problems: list[str] = []
    declaration: SystemDeclaration = checked(SystemDeclaration, data, "$", problems)
    if problems := problems or contradictions(declaration):
        raise SystemDeclarationError(source, problems)
    return declaration
