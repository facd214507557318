"""A system's TOML file as frozen values, every fault in it reported at once.

The files ship in `shioenv/systems/`; others come from anybody, and what they say goes into
commands, paths and lines of files. So every text has a pattern for all that it may be. A fault
names its place as a path into the file (`$.machine.memory`), the value found and what was expected;
an unknown key names its nearest known one.
"""

from __future__ import annotations

import os
import re
import reprlib
from collections.abc import Callable, Mapping, Sequence
from contextlib import suppress
from dataclasses import MISSING, dataclass, fields, is_dataclass
from datetime import UTC, date, datetime, time, timedelta
from functools import cache, lru_cache
from importlib import resources
from importlib.resources.abc import Traversable
from ipaddress import ip_address
from itertools import pairwise
from types import MappingProxyType
from typing import Annotated, Any, NamedTuple, TypeAlias, get_args, get_origin, get_type_hints

import msgspec
from msgspec import Meta

from shioenv.errors import SystemDeclarationError, UnknownSystemError, did_you_mean
from shioenv.files import documents
from shioenv.files.regular import read_regular

DEFAULT_SYSTEM = "debian-12"
SCHEMA_VERSION = 1
LARGEST_FILE = 1 << 20
"""Bytes of a file that declares something; the shipped ones have 15,000."""

FIXTURE_SPAN = timedelta(days=183)
"""How far before the instant a file of the home tree may lie ("six months", SPEC D-4)."""

LIMIT_NAMES = (
    "as", "core", "cpu", "data", "fsize", "locks", "memlock", "msgqueue", "nice", "nofile", "nproc",
    "rss", "rtprio", "sigpending", "stack",
)  # fmt: skip
"""Resource limits by the names of setrlimit(2), lower case and without `RLIMIT_`."""

LONGEST_PATH, LONGEST_NAME, DEEPEST = 4000, 255, 200
"""Bytes of a path and of a name in it, and names of a path: what file systems take, and what can be
removed again.
"""

_GROUPS = frozenset({
    "adm", "audio", "backup", "cdrom", "daemon", "dip", "disk", "games", "mail", "operator",
    "plugdev", "staff", "sudo", "tty", "users", "video", "www-data",
})  # fmt: skip
"""Groups of the distribution that a user may be in."""

UNLIMITED = -1
"""What a limit of "unlimited" is in `SessionDeclaration.limits` (RLIM_INFINITY of `resource`)."""

_YEARS = (1980, 2038)
"""The first that zip archives know, and the first that login records do not."""

_CONTROL = r"\x00-\x1f\x7f-\x9f\u2028\u2029"
"""What ends a line for somebody, or is none of a text's business."""

_LINE = rf"[^{_CONTROL}]"
_WORD = "[A-Za-z0-9_][A-Za-z0-9_.+-]*"
_LOGGED = rf"([0-9]{{1,9}}\.[0-9]{{6}}) ({_LINE}{{0,900}})"

_UNITS = {"": 1, "K": 1 << 10, "M": 1 << 20, "G": 1 << 30}


# ---------------------------------------------------------------------------------------------
# How values are written in the file, where that is not how they are kept. What such a function
# says by its ValueError is what it expected.


def _size(value: object) -> object:
    """Bytes, from a number or from digits with K, M or G (powers of 1024)."""
    if not isinstance(value, str):
        return value
    if match := re.fullmatch(r"([0-9]{1,16})([KMG]?)", value):
        return int(match[1]) * _UNITS[match[2]]
    raise ValueError('a size such as "216M"')


def _mask(value: object) -> int:
    if isinstance(value, str) and re.fullmatch(r"0?[0-7]{3}", value):
        return int(value, 8)
    raise ValueError("an octal mask such as 0022")


def _words(value: object) -> tuple[str, ...]:
    if isinstance(value, str) and re.fullmatch(f"({_WORD}( +{_WORD})*)?", value):
        return tuple(value.split())
    raise ValueError("words in one string")


def _moment(value: object) -> datetime:
    if not isinstance(value, datetime):
        raise ValueError("a date and time such as 2025-10-16T19:43:00Z")
    if value.tzinfo is None:
        raise ValueError("a time with its zone (Z)")
    with suppress(OverflowError):  # of the first and the last day that there are
        moment = value.astimezone(UTC)
        if _YEARS[0] <= moment.year < _YEARS[1]:
            return moment
    raise ValueError(f"a time from {_YEARS[0]} until {_YEARS[1]} (UTC)")


def _logged(value: object) -> tuple[float, str]:
    if isinstance(value, str) and (match := re.fullmatch(_LOGGED, value)):
        return float(match[1]), match[2]
    raise ValueError('one line, "SECONDS.MICROSECONDS text"')


def _address(value: object) -> object:
    """An IPv4 or IPv6 address, without a zone: that may be any text."""
    if isinstance(value, str) and "%" not in value:
        with suppress(ValueError):
            ip_address(value)
            return value
    raise ValueError("an IPv4 or IPv6 address")


def _host(value: object) -> object:
    if isinstance(value, str) and re.fullmatch(f"((?=.{{1,255}}\\Z)(?![0-9.]*\\Z){_WORD})?", value):
        return value
    with suppress(ValueError):
        return _address(value)
    raise ValueError("a host's name or address")


_SOURCE = 'a source, "deb http://HOST/PATH SUITE COMPONENT"'
_OWN_SOURCE = "such a source can stand in the host's own, /etc/apt/sources.list.d"
_NO_SOURCE = (
    (r".*\[[^:\[\]]*=.*", f"without options: `architecture` says which packages; {_OWN_SOURCE}"),
    (r"deb-src .*", "not deb-src: nothing is compiled"),
    (r"deb +(?!https?://).*", f"not of another kind than http:// and https://; {_OWN_SOURCE}"),
    (r"deb +https?://[^ /]*@.*", f"without user and password; {_OWN_SOURCE}"),
    (r"deb +https?://\[.*", f"without an IPv6 address: give it a name, or {_OWN_SOURCE}"),
    (r".*#.*", "without a remark behind it"),
)
"""What apt takes and a declaration may not say, and what one can do."""

_WORDS_OF_A_SOURCE = (
    "deb",
    r"https?://[A-Za-z0-9]([A-Za-z0-9.:-]*[A-Za-z0-9])?(/[A-Za-z0-9._~+%-]*)*",
    "[a-z0-9][a-z0-9./-]*",
    "[a-z][a-z0-9-]*",
)
"""What a declaration's source consists of: the last word may be there several times."""


def _mirror(value: object) -> str:
    """A one-line source of apt, a blank between its words."""
    text = value.replace("\t", " ").strip() if isinstance(value, str) else "\n"
    if not text.isprintable():
        raise ValueError(_SOURCE)
    words = text.split()
    wrong = [
        word
        for index, word in enumerate(words)
        if not re.fullmatch(_WORDS_OF_A_SOURCE[min(index, 3)], word)
    ]
    for pattern, meant in _NO_SOURCE if wrong else ():
        if re.fullmatch(pattern, text):
            raise ValueError(f"{_SOURCE}, {meant}")
    if wrong:
        raise ValueError(f"{_SOURCE}, not with {shown(wrong[0])}")
    if len(words) < len(_WORDS_OF_A_SOURCE):
        raise ValueError(f"{_SOURCE}, with all of its words")
    return " ".join(words)


_NAMED = "a package's name, perhaps with :ARCHITECTURE or =VERSION"
_PACKAGE = r"[a-z0-9][a-z0-9.+-]*[a-z0-9+](:[a-z0-9]+)?(=[A-Za-z0-9][A-Za-z0-9.+~:-]*)?"
_NO_PACKAGE = (
    (r".*\.deb", "files are not installed, packages of the sources are"),
    (r"[^/=]+/[^/]*", "=VERSION chooses one, and `pockets` name further suites"),
    (r".*[\s,].*", "each package is an item of its own"),
    (r"[a-z0-9.+-]+-", "nothing is taken away: `leave_out` names what is not to be unpacked"),
    (r".*[A-Z].*", "names are of lower case letters"),
    (r".*[][*?~!()|<>].*", "patterns and conditions are none"),
)
"""What people write that a declaration may not say, and what they can do."""


def _package(value: object) -> str:
    """A package by its name, perhaps its architecture and version."""
    if isinstance(value, str):
        if re.fullmatch(_PACKAGE, value):
            return value
        for pattern, meant in _NO_PACKAGE:
            if re.fullmatch(pattern, value, re.DOTALL):
                raise ValueError(f"{_NAMED} ({meant})")
    raise ValueError(_NAMED)


def _limit(value: object) -> tuple[int, int]:
    """Soft and hard from `8388608`, `"unlimited"` or `[1024, 1048576]`."""
    both: list[Any] = value if isinstance(value, list) else [value, value]
    meant = [
        limit == "unlimited" or (type(limit) is int and 0 <= limit < 1 << 63) for limit in both
    ]
    if meant != [True, True]:
        raise ValueError('a number, "unlimited", or both limits as [soft, hard]')
    soft, hard = (UNLIMITED if limit == "unlimited" else limit for limit in both)
    if hard != UNLIMITED and (soft == UNLIMITED or soft > hard):
        raise ValueError("[soft, hard] with soft not above hard")
    return soft, hard


def too_long(path: str) -> str:
    """What of a path is more than a system's files may have; empty where nothing is."""
    parts = path.strip("/").split("/")
    if any(len(os.fsencode(part)) > LONGEST_NAME for part in parts):
        return f"a name in it has more than {LONGEST_NAME} bytes"
    if len(parts) > DEEPEST:
        return f"it has more than {DEEPEST} names"
    return f"it has more than {LONGEST_PATH} bytes" if len(os.fsencode(path)) > LONGEST_PATH else ""


def _path(value: object) -> object:
    if isinstance(value, str) and "\0" not in value and (wrong := too_long(value)):
        raise ValueError(f"a path that a file can have ({wrong})")
    return value


def like(pattern: str, description: str) -> Meta:
    """All of a text is like the pattern; what is expected is said by the description."""
    return Meta(pattern=rf"\A({pattern})\Z", description=description)


_PART = rf"(?!\.\.?(/|\Z))[^/:{_CONTROL}]+"
_PATH = rf"(/{_PART})+"
_A_PATH = "an absolute path without '.', '..', ':' or a last '/'"
_NOT_OWN = "(usr/)?(bin|boot|dev|etc|lib|lib32|lib64|libx32|proc|run|sbin|sys)|var/(lock|run)"
_OWN = rf"(?!/({_NOT_OWN})(/|\Z))"
_OCTET = "(25[0-5]|2[0-4][0-9]|1?[0-9]?[0-9])"
_IPV4 = rf"({_OCTET}\.){{3}}{_OCTET}"
_LABEL = "[a-z0-9]([a-z0-9-]{0,61}[a-z0-9])?"

Line: TypeAlias = Annotated[str, like(f"{_LINE}{{0,4096}}", "one line of text")]
Words: TypeAlias = Annotated[tuple[str, ...], _words]
Directory: TypeAlias = Annotated[str, _path, like(f"/|{_PATH}", _A_PATH)]
OwnDirectory: TypeAlias = Annotated[
    str,
    _path,
    like(_OWN + _PATH, f"{_A_PATH}, in no directory that the distribution or kernel fills"),
]
DirectoryOrNone: TypeAlias = Annotated[str, _path, like(f"(/|{_PATH})?", _A_PATH)]
"""The same as `Directory`, or empty."""
MountPointOrNone: TypeAlias = Annotated[
    str, _path, like(f"(?!.* )(/|{_PATH})?", "an absolute path without blanks, '.' and '..'")
]
HomeSource: TypeAlias = Annotated[
    str,
    _path,
    like(f"[a-z0-9][a-z0-9_-]*|{_PATH}", "the name of a shipped tree, or an absolute path"),
]
AccountName: TypeAlias = Annotated[str, like("[a-z_][a-z0-9_-]{0,31}", "a user's or group's name")]
AccountNumber: TypeAlias = Annotated[int, Meta(ge=1, le=65533)]
Address: TypeAlias = Annotated[str, like(_IPV4, "an IPv4 address")]
AnyAddress: TypeAlias = Annotated[str, _address]
Size: TypeAlias = Annotated[int, _size, Meta(ge=0, le=1 << 50, description='a size such as "216M"')]
LargeSize: TypeAlias = Annotated[
    int, _size, Meta(ge=1 << 20, le=1 << 50, description='a size such as "216M", at least "1M"')
]
Variable: TypeAlias = Annotated[str, like("[A-Za-z_][A-Za-z0-9_]*", "a shell variable's name")]
Limit: TypeAlias = Annotated[tuple[int, int], _limit]
Byte: TypeAlias = Annotated[int, Meta(ge=0, le=255)]
Load: TypeAlias = Annotated[float, Meta(ge=0, le=10000)]
Frequency: TypeAlias = Annotated[float, Meta(ge=0, le=1000000)]
Seconds: TypeAlias = Annotated[float, Meta(ge=0, le=1 << 31)]
Moment: TypeAlias = Annotated[datetime, _moment]
Suite: TypeAlias = Annotated[str, like("[a-z0-9][a-z0-9.-]{0,63}", "a code name such as bookworm")]
Component: TypeAlias = Annotated[
    str, like("[a-z][a-z0-9-]{0,63}", "a component of an archive, such as main")
]
SystemName: TypeAlias = Annotated[
    str,
    like(r"(?!.*\.toml\Z)[a-z0-9][a-z0-9.-]{0,99}", "lower case letters, digits, '-' and '.'"),
]
Mirror: TypeAlias = Annotated[str, _mirror]
Keyring: TypeAlias = Annotated[
    str,
    like(
        r"(/usr/share/keyrings/(debian|ubuntu)-archive-keyring\.gpg)?",
        "the archive's own keyring, /usr/share/keyrings/debian-archive-keyring.gpg or "
        "ubuntu-archive-keyring.gpg (keys of one's own: /etc/apt/trusted.gpg.d of the host)",
    ),
]
Package: TypeAlias = Annotated[str, _package]
PathPattern: TypeAlias = Annotated[
    str, like(r"(/[A-Za-z0-9._+@~,*?!^\[\]-]*)+", "an absolute path, perhaps with * and ?")
]
Module: TypeAlias = Annotated[
    str,
    like(
        r"[A-Za-z0-9_]{1,56} [0-9]{1,12} [0-9]{1,6} (-|([A-Za-z0-9_]{1,56},)+)"
        r" (Live|Loading|Unloading) 0x[0-9a-f]{1,16}( \([A-Z]{1,8}\))?",
        'a line of /proc/modules, "NAME SIZE COUNT USERS Live 0x0000000000000000"',
    ),
]


class _Keys(NamedTuple):
    """The keys of a table whose values are all of one kind."""

    names: tuple[str, ...]
    required: bool = False


# ---------------------------------------------------------------------------------------------
# What the file declares. A field's annotation is all that is asked of its value.


@dataclass(frozen=True, slots=True, kw_only=True)
class Distribution:
    """What the base of the root filesystem is made of."""

    family: Annotated[str, like("debian|ubuntu", "debian or ubuntu")]
    """`debian` or `ubuntu`, as in the host's `/etc/os-release`: its own mirror serves this one."""
    suite: Suite
    """Code name, such as `bookworm`."""
    pockets: tuple[Suite, ...] = ()
    """Further suites of the same release, such as `bookworm-security`."""
    components: tuple[Component, ...]
    architecture: Annotated[str, like("[a-z0-9]{2,16}", "amd64 or its like")] = "amd64"
    """As Debian calls it: `amd64`."""
    os_family: Annotated[str, like("[a-z0-9][a-z0-9.-]{0,63}", "debian-12 or its like")]
    """How a context names it (the paper's `os_family`), such as `ubuntu-24`."""
    mirrors: Annotated[tuple[Mirror, ...], Meta(min_length=1, description="at least one source")]
    """One-line apt sources, used where the host has none of its own for this suite. They have no
    options: whose signatures count is said by the host, never by a file."""
    keyring: Keyring = ""
    """The distribution's keyring, passed to apt where the host has it; with it count the keys that
    the host's apt trusts."""
    packages: tuple[Package, ...]
    """Installed beside the essential ones."""
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
    comment: Annotated[str, like(f"(?!.*:){_LINE}{{0,255}}", "one line of text without ':'")] = ""
    home: OwnDirectory
    shell: DirectoryOrNone = "/bin/bash"
    groups: tuple[AccountName, ...] = ()
    """Supplementary groups."""


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
    """Absolute; the first is the default."""
    umask: Annotated[int, _mask] = 0o022
    environment: Mapping[Variable, Line]
    """All of it: nothing of the host's environment is added."""
    parent: Annotated[int, Meta(ge=2, le=999)]
    """Number of the process whose children the shells are, one of `Machine.processes`."""
    limits: Annotated[Mapping[str, Limit], _Keys(LIMIT_NAMES)]
    """Soft and hard, in the units of setrlimit(2), by `LIMIT_NAMES`; `UNLIMITED` is -1."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Home:
    """The tree of files that inputs work on."""

    source: HomeSource = "home"
    """Where a `tree.toml` and `files/` lie: a directory's name in `shioenv/systems/`, or its
    absolute path.
    """
    target: OwnDirectory
    """Where it lies in the system."""
    owner: AccountName
    group: AccountName


@dataclass(frozen=True, slots=True, kw_only=True)
class Cpu:
    """The processor, as /proc/cpuinfo and lscpu tell it."""

    count: Annotated[int, Meta(ge=1, le=64)]
    vendor: Line
    model_name: Line
    family: Byte
    model: Byte
    stepping: Byte
    microcode: Annotated[str, like("0x[0-9a-f]{1,8}", "0x1 or its like")] = "0x1"
    mhz: Frequency
    bogomips: Frequency
    caches: Annotated[Mapping[str, Size], _Keys(("L1d", "L1i", "L2", "L3"), required=True)]
    """Bytes by `L1d`, `L1i`, `L2`, `L3`."""
    flags: Words
    bugs: Words = ()


@dataclass(frozen=True, slots=True, kw_only=True)
class Kernel:
    """The kernel that programs are told of, whatever the host's is."""

    release: Annotated[
        str,
        like(
            "[A-Za-z0-9][A-Za-z0-9._+~-]{0,63}", "a kernel's release, such as 6.1.0-28-cloud-amd64"
        ),
    ]
    build: Annotated[
        str,
        like(
            rf"[^#{_CONTROL}]{{0,900}}#[^#{_CONTROL}]{{1,63}}",
            "one line that ends in the version, from its # on",
        ),
    ]
    """The part of /proc/version in parentheses and after: who built it, with what, when."""
    command_line: Line
    log: tuple[Annotated[tuple[float, str], _logged], ...] = ()
    """Seconds since boot and text, oldest first: what a kernel log of this machine would say."""
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
    filesystem: Annotated[str, like(f"({_WORD})?", "a type such as ext4")] = ""
    """Type of the file system on it (on its partitions where it has some), or empty."""
    uuid: Annotated[str, like("([0-9A-Fa-f]+(-[0-9A-Fa-f]+)*)?", "a UUID")] = ""
    label: Annotated[str, like(f"({_WORD})?", "a word of letters and digits")] = ""
    mount: MountPointOrNone = ""
    """Where it is mounted, or empty."""
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
    host: Annotated[str, _host]
    """Where from, empty for the console."""
    pid: Annotated[int, Meta(ge=1, le=4194304)]
    begin: Moment
    end: Annotated[datetime | None, _moment] = None
    """None: still logged in (shown by `who`, `w`, `users`)."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Process:
    """A process of the machine that is there before any input."""

    pid: Annotated[int, Meta(ge=1, le=999)]
    parent: Annotated[int, Meta(ge=0, le=999)] = 1
    """Number of its parent: 0 for the first one alone."""
    name: Annotated[
        str,
        like(f"(?=.{{1,15}}\\Z){_WORD}", "a word of up to 15 characters"),
    ]
    """What `ps -o comm` shows."""
    command: Annotated[str, like(f"{_LINE}{{1,4096}}", "a command line")]
    """What `ps` shows; where it holds a colon it is one text, else words."""
    program: Directory
    """The program's file."""
    user: AccountName = "root"
    """Whose it is: root or a declared user."""
    terminal: Annotated[
        str, like("|tty[1-9]|ttyS[0-3]|pts/[0-9]{1,3}", "tty1, pts/0 or its like")
    ] = ""
    """The terminal that controls it, or empty."""
    session: Annotated[int, Meta(ge=0, le=999)] = 0
    """Number of the process that leads its session and group; 0: itself."""
    started: Seconds
    """Seconds after booting."""
    cpu: Seconds = 0.0
    """Seconds of processor time that it has used."""
    size: Size
    """Bytes of its address space."""
    resident: Size
    """Bytes of it in memory."""
    threads: Annotated[int, Meta(ge=1, le=99)] = 1


@dataclass(frozen=True, slots=True, kw_only=True)
class Machine:
    """What programs see of the machine."""

    hostname: Annotated[str, like(_LABEL, "a host name")]
    domain: Annotated[
        str, like(rf"(?=.{{0,64}}\Z)({_LABEL}(\.{_LABEL})*)?", "a domain such as example.internal")
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
    """With the user `reboot`: an earlier time the machine was up."""
    failed_logins: tuple[Login, ...] = ()
    """What /var/log/btmp holds."""
    processes: tuple[Process, ...]
    """What runs beside inputs; number 1 is among them."""


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
    """`declared`: programs see the instant, going on from it; `host`: they see the host's time."""
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
        """When the machine was booted, seen from the instant."""
        return self.instant - timedelta(seconds=self.machine.uptime)

    def user(self, name: str) -> User | None:
        """The declared account of this name; None for the distribution's own, such as root."""
        return next((user for user in self.users if user.name == name), None)


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

    Raises UnknownSystemError for a name that is not declared, SystemDeclarationError for a file
    that cannot be read, is none (a pipe, a device), or has more than `LARGEST_FILE` bytes.
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

    Raises SystemDeclarationError, with every fault, for a file that says something wrong, or takes
    the name of a system that ships for another one.
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
    """The tables in `text`. Errors: SystemDeclarationError for what is no TOML."""
    try:
        return documents.parse_toml(text)
    except ValueError as error:
        raise SystemDeclarationError(source, [f"not TOML: {error}"]) from error


@lru_cache(maxsize=8)
def parse_declaration(text: str, *, source: str = "<string>") -> SystemDeclaration:
    """The declaration in `text`; SystemDeclarationError lists every fault in it."""
    data = parse_toml(text, source)
    version = data.get("schema")
    if type(version) is int and version != SCHEMA_VERSION:
        problem = f"$.schema: version {version} is not one this release reads"
        raise SystemDeclarationError(source, [problem], hint=f"it reads {SCHEMA_VERSION}")
    problems: list[str] = []
    declaration: SystemDeclaration = checked(SystemDeclaration, data, "$", problems)
    if problems := problems or _contradictions(declaration):
        raise SystemDeclarationError(source, problems)
    return declaration


_FILLED_IN: Mapping[type, Callable[[Mapping[str, Any]], dict[str, Any]]] = {
    User: lambda user: {
        "group": f"{user.get('name')}",
        "home": f"/home/{user.get('name')}",
        **user,
    },
    Login: lambda login: {"host": "", **login},
}
"""Tables with the keys that may be left out and that no field's default can give."""

_KINDS = {str: "a string", int: "a whole number", float: "a number", bool: "true or false"}


def checked(annotation: Any, value: Any, place: str, problems: list[str]) -> Any:
    """`value` as its annotation wants it; what is wrong with it is added to `problems`."""
    kind: Any
    kind, *notes = get_args(annotation) if get_origin(annotation) is Annotated else (annotation,)
    origin, inner = get_origin(kind), get_args(kind)
    reader = next((note for note in notes if callable(note)), None)
    if is_dataclass(kind) or origin is Mapping:
        return _table(kind, notes, value, place, problems)
    try:
        if reader is None and origin is tuple and inner[-1] is ...:
            msgspec.convert(value, Annotated[list[Any], *notes] if notes else list[Any])
            return tuple(_items(inner[0], value, place, problems))
        return msgspec.convert(reader(value) if reader else value, annotation)
    except msgspec.ValidationError:
        wrong_kind = kind is str and not isinstance(value, str)
        said = _KINDS[str] if wrong_kind else _expected(kind, notes)
    except ValueError as error:
        said = str(error)
    problems.append(f"{place}: expected {said}, got {shown(value)}")
    return None


_SHORT = reprlib.Repr()
_SHORT.maxstring = _SHORT.maxother = _SHORT.maxlong = 80


def shown(value: Any) -> str:
    """A value in a message, not all of it where it is long or deep."""
    return str(value) if isinstance(value, date | time) else _SHORT.repr(value)


def _expected(kind: Any, notes: Sequence[Any]) -> str:
    """What is said to be expected: the last note's words, else its range, else the kind."""
    for note in reversed(notes):
        if isinstance(note, Meta):
            return note.description or f"{_KINDS[kind]} from {note.ge} to {note.le}"
    return _KINDS.get(kind, "a list")


def _items(annotation: Any, values: Sequence[Any], place: str, problems: list[str]) -> list[Any]:
    """The items of a list, each as its annotation wants it; a text may be there only once."""
    texts = [value for value in values if isinstance(value, str)]
    if repeated := sorted({text for text in texts if texts.count(text) > 1}):
        problems.append(f"{place}: {shown(repeated[0])} is listed twice")
    return [
        checked(annotation, value, f"{place}[{index}]", problems)
        for index, value in enumerate(values)
    ]


def _table(kind: Any, notes: Sequence[Any], table: Any, place: str, problems: list[str]) -> Any:
    """A table of the file as a declaration or as a mapping; None where something is wrong in it."""
    if not isinstance(table, dict):
        problems.append(f"{place}: expected a table, got {shown(table)}")
        return None
    before, declared = len(problems), is_dataclass(kind)
    if declared:
        known = get_type_hints(kind, include_extras=True)
        required = [field.name for field in fields(kind) if field.default is MISSING]
        table = _FILLED_IN.get(kind, dict)(table)
    else:
        key_annotation, item_annotation = get_args(kind)
        keys = notes[0] if notes else _Keys(tuple(table))
        known = dict.fromkeys(keys.names, item_annotation)
        required = list(keys.names) if keys.required else []
        for name in table:
            checked(key_annotation, name, f"{place}.{name}", problems)
    problems += [f"{place}.{name}: is missing" for name in required if name not in table]
    values = {}
    for name, value in table.items():
        if name in known:
            values[name] = checked(known[name], value, f"{place}.{name}", problems)
        else:
            problems.append(f"{place}.{name}: unknown key; {did_you_mean(name, known)}")
    if len(problems) > before:
        return None
    return kind(**values) if declared else MappingProxyType(values)


def _contradictions(declaration: SystemDeclaration) -> list[str]:
    """What is wrong between values that are each right by themselves."""
    machine, users, instant = declaration.machine, declaration.users, declaration.instant
    problems: list[str] = []
    unique: list[tuple[str, list[object]]] = [
        ("$.users", [user.name for user in users]),
        ("$.users", [user.uid for user in users]),
        ("$.groups", [group.name for group in declaration.groups]),
        ("$.groups", [group.gid for group in declaration.groups]),
        ("$.machine.disks", [disk.name for disk in machine.disks]),
        ("$.machine.disks", [(disk.major, disk.minor) for disk in machine.disks]),
        ("$.machine.interfaces", [interface.name for interface in machine.interfaces]),
        ("$.machine.processes", [process.pid for process in machine.processes]),
    ]
    for place, values in unique:
        for index, value in enumerate(values):
            if value in values[:index]:
                problems.append(f"{place}[{index}]: {value!r} is already taken")
    for place, names in (
        ("$.users", [user.name for user in users]),
        ("$.groups", [group.name for group in declaration.groups]),
    ):
        if "root" in names:
            problems.append(f"{place}[{names.index('root')}]: root is there already")
    distribution = declaration.distribution
    for index, package in enumerate(distribution.packages):
        _, _, architecture = package.partition("=")[0].partition(":")
        if architecture not in ("", distribution.architecture):
            problems.append(
                f"$.distribution.packages[{index}]: {package!r} is of another architecture than "
                f"the system, which is {distribution.architecture}"
            )
    if declaration.boot_time.year < _YEARS[0]:
        problems.append(f"$.machine.uptime: it would have been booted before {_YEARS[0]}")
    user_names = {"root", *(user.name for user in users)}
    group_names = {"root", *(group.name for group in declaration.groups)}
    references = [
        ("user", "$.session.user", declaration.session.user, user_names),
        ("user", "$.home.owner", declaration.home.owner, user_names),
        ("group", "$.home.group", declaration.home.group, group_names),
    ]
    for index, user in enumerate(users):
        place = f"$.users[{index}].group"
        references.append(("group", place, user.group, group_names))
        references += [("group", f"{place}s", name, group_names | _GROUPS) for name in user.groups]
    numbers = {process.pid for process in machine.processes}
    if 1 not in numbers:
        problems.append("$.machine.processes: none has the number 1")
    if declaration.session.parent not in numbers:
        problems.append(f"$.session.parent: no process {declaration.session.parent} is declared")
    for index, process in enumerate(machine.processes):
        place = f"$.machine.processes[{index}]"
        references.append(("user", f"{place}.user", process.user, user_names))
        if process.parent not in numbers and (process.pid, process.parent) != (1, 0):
            problems.append(f"{place}.parent: no process {process.parent} is declared")
        if process.session not in numbers | {0}:
            problems.append(f"{place}.session: no process {process.session} is declared")
        if process.started > machine.uptime:
            problems.append(f"{place}.started: lies after the instant")
    for index, login in enumerate(machine.logins):
        place = f"$.machine.logins[{index}]"
        if login.end is None and login.user != "reboot" and login.pid not in numbers:
            problems.append(f"{place}.pid: nobody is logged in there, no process has this number")
        references.append(("user", f"{place}.user", login.user, user_names | {"reboot"}))
        if login.end is not None and login.end < login.begin:
            problems.append(f"{place}.end: lies before the login's begin")
        if max(login.begin, login.end or login.begin) > instant:
            problems.append(f"{place}: lies after the instant {instant:%Y-%m-%d %H:%M}")
    for kind, place, name, known in references:
        if name not in known:
            hint = did_you_mean(name, known)
            problems.append(f"{place}: no {kind} {name!r} is declared; {hint}")
    if any(later < earlier for (earlier, _), (later, _) in pairwise(machine.kernel.log)):
        problems.append("$.machine.kernel.log: expected times in ascending order")
    return problems
