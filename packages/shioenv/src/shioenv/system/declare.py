"""A system's TOML file as frozen values, every fault in it reported at once.

Some files ship in `shioenv/systems/`. Others come from anybody, and their texts go into commands,
paths and lines of files. So every text has a pattern for all that it may be. A fault names its
place as a path into the file (`$.machine.memory`), the value found and what was expected. For an
unknown key it names the nearest known one.
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
"""Bytes of a file that declares something; the shipped ones have 15,000."""

FIXTURE_SPAN = timedelta(days=183)
"""How long before the instant a file of the home tree may be dated ("six months", SPEC D-4)."""


# ---------------------------------------------------------------------------------------------
# What the file declares. A field's annotation is all that is asked of its value by itself.
# `_contradictions` looks at values together.


@dataclass(frozen=True, slots=True, kw_only=True)
class Distribution:
    """The packages that the base of the root filesystem is made of, and where they come from."""

    family: Annotated[str, like("debian|ubuntu", "debian or ubuntu")]
    """`debian` or `ubuntu`, the ID of `/etc/os-release`. A host with this ID lends its mirrors."""
    suite: Suite
    """Code name, such as `bookworm`."""
    pockets: tuple[Suite, ...] = ()
    """Further suites of the same release, such as `bookworm-security`."""
    components: tuple[Component, ...]
    architecture: Annotated[str, like("[a-z0-9]{2,16}", "amd64 or its like")] = "amd64"
    """Debian's name of the architecture, such as `amd64`."""
    os_family: Annotated[str, like("[a-z0-9][a-z0-9.-]{0,63}", "debian-12 or its like")]
    """The system's name in a context (the paper's `os_family`), such as `ubuntu-24`."""
    mirrors: Annotated[tuple[Mirror, ...], Meta(min_length=1, description="at least one source")]
    """One-line apt sources, used where the host has none of its own for this suite. They have no
    options: the host decides whose signatures count, never a file."""
    keyring: Keyring = ""
    """The distribution's keyring, passed to apt where the host has it. The keys that the host's apt
    trusts count as well."""
    packages: tuple[Package, ...]
    """Packages installed beside the essential ones."""
    leave_out: tuple[PathPattern, ...] = ()
    """Path patterns that packages do not get to unpack (dpkg's `path-exclude`)."""
    keep: tuple[PathPattern, ...] = ()
    """Exceptions to `leave_out` (dpkg's `path-include`)."""


@dataclass(frozen=True, slots=True, kw_only=True)
class User:
    """An account added to the distribution's own."""

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
        """The table with the keys that may be missing and whose default depends on other keys."""
        name = table.get("name")
        return {"group": f"{name}", "home": f"/home/{name}", **table}


@dataclass(frozen=True, slots=True, kw_only=True)
class UserGroup:
    """A group added to the distribution's own."""

    name: AccountName
    gid: AccountNumber


@dataclass(frozen=True, slots=True, kw_only=True)
class SessionDeclaration:
    """The shell that inputs are typed into."""

    user: AccountName = "root"
    start_directories: Annotated[
        tuple[Directory, ...], Meta(min_length=1, description="at least one directory")
    ]
    """Absolute paths; the first is the default."""
    umask: Annotated[int, mask] = 0o022
    environment: Mapping[Variable, Line]
    """The whole environment: nothing of the host's is added."""
    parent: Annotated[int, Meta(ge=2, le=999)]
    """Number of the process whose children the shells are, one of `Machine.processes`."""
    limits: Annotated[Mapping[str, Limit], Keys(LIMIT_NAMES)]
    """(soft, hard) in the units of setrlimit(2), by names of `LIMIT_NAMES`; `UNLIMITED` is -1."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Home:
    """The tree of files that inputs work on."""

    source: HomeSource = "home"
    """The directory that holds `tree.toml` and `files/`: its name in `shioenv/systems/`, or its
    absolute path.
    """
    target: OwnDirectory
    """Where the tree lies in the system, an absolute path."""
    owner: AccountName
    group: AccountName


@dataclass(frozen=True, slots=True, kw_only=True)
class Cpu:
    """The processor, as /proc/cpuinfo and lscpu show it."""

    count: Annotated[int, Meta(ge=1, le=64)]
    vendor: Line
    model_name: Line
    family: Byte
    model: Byte
    stepping: Byte
    microcode: Annotated[str, like("0x[0-9a-f]{1,8}", "0x1 or its like")] = "0x1"
    mhz: Frequency
    bogomips: Frequency
    caches: Annotated[Mapping[str, Size], Keys(("L1d", "L1i", "L2", "L3"), required=True)]
    """Bytes by `L1d`, `L1i`, `L2`, `L3`."""
    flags: Words
    bugs: Words = ()


@dataclass(frozen=True, slots=True, kw_only=True)
class Kernel:
    """The kernel that programs are told of, whatever the host's kernel is."""

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
            "one line that ends in the version, from its # on",
        ),
    ]
    """The end of /proc/version, from its parentheses on: who built the kernel, with what, when."""
    command_line: Line
    log: tuple[Annotated[tuple[float, str], logged], ...] = ()
    """The lines of the kernel's log, oldest first: seconds since boot, and the text."""
    modules: tuple[Module, ...] = ()
    """Lines of /proc/modules."""

    @property
    def version(self) -> str:
        """What `uname -v` shows."""
        return self.build[self.build.index("#") :]


@dataclass(frozen=True, slots=True, kw_only=True)
class Disk:
    """A block device with at most one partition level."""

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
    """Type of the file system on the disk (on its partitions where it has some), or empty."""
    uuid: Annotated[str, like("([0-9A-Fa-f]+(-[0-9A-Fa-f]+)*)?", "a UUID")] = ""
    label: Annotated[str, like(f"({WORD})?", "a word of letters and digits")] = ""
    mount: MountPointOrNone = ""
    """Where the disk is mounted, or empty."""
    read_only: bool = False
    removable: bool = False


@dataclass(frozen=True, slots=True)
class Interface:
    """A network interface; `lo` is always there and is not declared."""

    name: Annotated[str, like(r"(?!lo\Z)[a-z][a-z0-9]{0,14}", "an interface name other than lo")]
    mac: Annotated[
        str,
        like("[0-9a-f]{2}(:[0-9a-f]{2}){5}", "six lower-case bytes such as 52:54:00:12:34:56"),
    ]
    address: Address
    """IPv4."""
    prefix: Annotated[int, Meta(ge=1, le=32)]
    gateway: Address = ""
    """Default route through this interface, or empty."""
    mtu: Annotated[int, Meta(ge=68, le=65535)] = 1500


@dataclass(frozen=True, slots=True)
class Login:
    """A session in the login records."""

    user: Annotated[str, like("[A-Za-z0-9_][A-Za-z0-9_.@-]{0,31}", "a user's name")]
    line: Annotated[
        str, like(r"~|(?=.{1,32}\Z)[a-z]+[0-9]*([:/][a-z0-9]+)?", "~, tty1, pts/0 or its like")
    ]
    host: Annotated[str, host]
    """The host that the user came from, empty for the console."""
    pid: Annotated[int, Meta(ge=1, le=4194304)]
    begin: Moment
    end: Annotated[datetime | None, moment] = None
    """None: the user is still logged in (shown by `who`, `w`, `users`)."""

    @staticmethod
    def filled_in(table: Mapping[str, Any]) -> dict[str, Any]:
        """See `User.filled_in`."""
        return {"host": "", **table}


@dataclass(frozen=True, slots=True, kw_only=True)
class Process:
    """A process of the machine that runs before any input."""

    pid: Annotated[int, Meta(ge=1, le=999)]
    parent: Annotated[int, Meta(ge=0, le=999)] = 1
    """Number of the parent; 0 for process 1 alone, which has to say so."""
    name: Annotated[
        str,
        like(f"(?=.{{1,15}}\\Z){WORD}", "a word of up to 15 characters"),
    ]
    """What `ps -o comm` shows."""
    command: Annotated[str, like(f"{LINE}{{1,4096}}", "a command line")]
    """The command line that `ps` shows: one text where it holds a colon, else words."""
    program: Directory
    """The program's file, an absolute path."""
    user: AccountName = "root"
    """The owner: root or a declared user."""
    terminal: Annotated[
        str, like("|tty[1-9]|ttyS[0-3]|pts/[0-9]{1,3}", "tty1, pts/0 or its like")
    ] = ""
    """The controlling terminal, or empty."""
    session: Annotated[int, Meta(ge=0, le=999)] = 0
    """Number of the process that leads the session and the process group; 0: this process."""
    started: Seconds
    """Seconds after booting."""
    cpu: Seconds = 0.0
    """Seconds of processor time that the process has used."""
    size: Size
    """Bytes of the process's address space."""
    resident: Size
    """Bytes of that space that are in memory."""
    threads: Annotated[int, Meta(ge=1, le=99)] = 1
    pid_file: Annotated[
        str, like(r"(/run/[a-z0-9._-]{1,64}\.pid)?", "a file such as /run/x.pid")
    ] = ""
    """The file that holds the process's number, or empty."""


MOST_SOCKETS = 16
"""Most sockets of a machine's processes."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Socket:
    """A TCP socket of a process: one that listens, or one that is connected to `peer`."""

    process: Annotated[int, Meta(ge=1, le=999)]
    address: AnyAddress
    port: Annotated[int, Meta(ge=1, le=65535)]
    peer: Annotated[str, like(f"({IPV4})?", "an IPv4 address")] = ""
    """The host at the other end, which the machine cannot reach; empty: the socket listens."""
    peer_port: Annotated[int, Meta(ge=0, le=65535)] = 0
    banner: Annotated[str, like(f"{LINE}{{0,60}}", "a line of at most 60 characters")] = ""
    """What a listening socket says to whoever connects, before it hangs up."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Machine:
    """What programs see of the machine."""

    hostname: Annotated[str, like(LABEL, "a host name")]
    domain: Annotated[
        str, like(rf"(?=.{{0,64}}\Z)({LABEL}(\.{LABEL})*)?", "a domain such as example.internal")
    ] = ""
    machine_id: Annotated[str, like("[0-9a-f]{32}", "32 hex digits")] = ""
    memory: LargeSize
    """Bytes."""
    swap: Size = 0
    disk: LargeSize
    """Bytes `df` shows for the root file system."""
    uptime: Annotated[int, Meta(ge=1, le=1 << 31)]
    """Seconds since boot at the start of each run."""
    load: Annotated[tuple[Load, Load, Load], Meta(description="three numbers")]
    cpu: Cpu
    kernel: Kernel
    disks: tuple[Disk, ...] = ()
    interfaces: tuple[Interface, ...] = ()
    nameservers: tuple[AnyAddress, ...] = ()
    logins: tuple[Login, ...] = ()
    """Logins. One of the user `reboot` is an earlier time that the machine was up."""
    failed_logins: tuple[Login, ...] = ()
    """What /var/log/btmp holds."""
    processes: tuple[Process, ...]
    """The processes that run beside inputs; number 1 is among them."""
    sockets: Annotated[tuple[Socket, ...], Meta(max_length=MOST_SOCKETS)] = ()
    """The sockets of these processes."""


@dataclass(frozen=True, slots=True, kw_only=True)
class SystemDeclaration:
    """One system: everything that decides what its root filesystem and machine look like."""

    schema: Annotated[int, Meta(ge=1, le=SCHEMA_VERSION)]
    """Version of the file's layout."""
    name: SystemName
    title: Line = ""
    instant: Moment
    """When each run starts, for programs and in patches (D-4). UTC."""
    clock: Annotated[str, like("declared|host", "declared or host")] = "declared"
    """`declared`: programs see the time since the instant; `host`: programs see the host's time."""
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
        """When the machine was booted: its uptime before the instant."""
        return self.instant - timedelta(seconds=self.machine.uptime)

    def user(self, name: str) -> User | None:
        """The declared account of this name; None for any other, such as root."""
        return next((user for user in self.users if user.name == name), None)

    @property
    def accounts(self) -> dict[str, tuple[int, int]]:
        """Numbers of users and of their groups, by user name: root and the declared accounts."""
        groups = {"root": 0} | {group.name: group.gid for group in self.groups}
        return {"root": (0, 0)} | {user.name: (user.uid, groups[user.group]) for user in self.users}


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


def reason(error: OSError | ValueError) -> str:
    """Why a text could not be read."""
    if isinstance(error, UnicodeDecodeError):
        return "it is no UTF-8 text"
    return getattr(error, "strerror", None) or str(error)


def read_text(name: str | None = None) -> str:
    """The text of a declaration, by shipped name or by the path of a file that ends in `.toml`.

    None stands for `debian-12`. Raises UnknownSystemError for a name that is not declared. Raises
    SystemDeclarationError for a file that cannot be read, is not regular (a pipe, a device), or has
    more than `LARGEST_FILE` bytes.
    """
    name = name or DEFAULT_SYSTEM
    if name.endswith(".toml"):
        try:
            return read_regular(name, LARGEST_FILE).decode()
        except (OSError, ValueError) as error:
            raise SystemDeclarationError(
                name,
                [f"cannot be read: {reason(error)}"],
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

    Raises SystemDeclarationError, with every fault, for a file that has faults, or that gives the
    name of a shipped system to another system.
    """
    name = name or DEFAULT_SYSTEM
    text = read_text(name)
    own = name.endswith(".toml")
    declaration = parse_declaration(text, source=name if own else f"{name}.toml")
    if own and declaration.name in declared_names() and text != read_text(declaration.name):
        raise SystemDeclarationError(
            name, [f"$.name: {declaration.name} is a system that ships; choose another name"]
        )
    return declaration


def parse_toml(text: str, source: str) -> dict[str, Any]:
    """The tables in `text`. Errors: SystemDeclarationError where it is not TOML."""
    try:
        return documents.parse_toml(text)
    except ValueError as error:
        raise SystemDeclarationError(source, [f"not TOML: {error}"]) from error


@lru_cache(maxsize=8)
def parse_declaration(text: str, *, source: str = "<string>") -> SystemDeclaration:
    """The declaration in `text`. Raises SystemDeclarationError, which lists every fault."""
    data = parse_toml(text, source)
    version = data.get("schema")
    if type(version) is int and version != SCHEMA_VERSION:
        problem = f"$.schema: version {version} is not one this release reads"
        raise SystemDeclarationError(source, [problem], hint=f"it reads {SCHEMA_VERSION}")
    problems: list[str] = []
    declaration: SystemDeclaration = checked(SystemDeclaration, data, "$", problems)
    if problems := problems or contradictions(declaration):
        raise SystemDeclarationError(source, problems)
    return declaration
