"""Errors of network programs for unreachable hosts, and for the machine itself.

The programs are `curl`, `ping` and `wget`, with their common options. Only names that the machine
itself defines are resolved. Addresses outside the networks of its links are unreachable. On its own
addresses, the machine refuses `curl` and `wget`, except on the SSH port. Other uses are left to a
runner.
"""

from __future__ import annotations

import os
import re
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace
from ipaddress import AddressValueError, IPv4Address, IPv4Network
from types import MappingProxyType
from typing import Any

from shioenv.domain.behavior import Behavior
from shioenv.domain.context import MONTHS
from shioenv.domain.runner import State
from shioenv.errors import Abstained
from shioenv_model.composition.call import Call
from shioenv_model.composition.conditions import is_root
from shioenv_model.rules.effects import EFFECTS
from shioenv_model.rules.tree_changes import Effects
from shioenv_model.rules.words import NO_NAMES, parse_options, words_of

_UNREACHABLE = re.compile(r"type unreachable dst default\b")
_GATEWAY = re.compile(r"dst default gateway (\S+)")
_NAME = re.compile(
    r"[A-Za-z0-9]([A-Za-z0-9-]*[A-Za-z0-9])?(\.[A-Za-z0-9]([A-Za-z0-9-]*[A-Za-z0-9])?)*"
)
_ADDRESS = re.compile(
    r"(?:(https?)://)?([A-Za-z0-9.-]+)(?::(\d{1,5}))?(/[\w./?=&+,:;~@%-]*)?", re.ASCII
)
_QUOTED = "\u2018\u2019"
_UNRESOLVED = "Temporary failure in name resolution"
_NO_ROUTE = "No route to host"
_REFUSED = "Connection refused"
_SSH = 22
"""The only port on which the machine listens."""
_METER = (
    "  % Total    % Received % Xferd  Average Speed   Time    Time     Time  Current\n"
    "                                 Dload  Upload   Total   Spent    Left  Speed\n"
)
_METERED = "\r  0     0    0     0    0     0      0      0 --:--:-- --:--:-- --:--:--     0"


@dataclass(frozen=True, slots=True)
class _Failure:
    """The exit code and the output of a program that cannot reach a host."""

    code: int
    error: str = ""
    """Standard error."""
    opened: str = ""
    """The file that the program created before it failed; it remains empty."""
    output: str = ""
    """Standard output. Either this or standard error is empty."""
    sure: bool = True
    """Whether the output is the same each time."""


def outside(
    call: Call, state: State, fresh: Mapping[str, Any]
) -> tuple[Behavior, Mapping[str, bytes]] | None:
    """Return the behavior of a command on an unreachable host, and the contents that it writes.

    None if no rule applies. `fresh` is the entry of an empty file created now.
    """
    try:
        name, *words = words_of(call, state, PROGRAMS)
        if not is_root(state):
            return None
        made = Effects(replace(state, stdin=b""), fresh)
        said = PROGRAMS[name](words, _Network(state, fresh))
        if said.opened:
            EFFECTS["tee"](made, ["--", said.opened])
    except Abstained:
        return None
    output, error = os.fsencode(said.output), os.fsencode(said.error)
    behavior = replace(
        made.behavior(), exit_code=said.code, output=output + error, stdout=output, stderr=error,
        volatile=not said.sure,
    )  # fmt: skip
    return behavior, made.contents


class _Network:
    """The machine's view of the network, and its date."""

    def __init__(self, state: State, fresh: Mapping[str, Any]) -> None:
        month = MONTHS.index(fresh["month"]) + 1
        self.date = f"{fresh['year']}-{month:02}-{fresh['day']:02} {fresh['time']}:00"
        network = state.before.document.get("network") or {}
        routes = network.get("routes", ())
        self.gateway = next((found[1] for each in routes if (found := _GATEWAY.search(each))), "")
        if not self.gateway or not any(map(_UNREACHABLE.match, routes)):
            raise Abstained("a network that may lead further")
        addresses = [
            each
            for some in network.get("addresses", {}).values()
            for each in some
            if ":" not in each
        ]
        self._own = [IPv4Network(each, strict=False) for each in addresses]
        self._addresses = {each.partition("/")[0] for each in addresses}
        self._state = state

    def exists(self, path: str) -> bool:
        """Whether a file exists."""
        return self._state.entry(path) is not None

    def refusing(self, host: str, port: int) -> list[str]:
        """Return the addresses of a host if they are the machine's own, which refuse connections.

        Empty for any other host. Errors: Abstained if something listens.
        """
        host = host.lower()
        lines = (self._state.read("/etc/hosts") or b"").decode("utf-8", "replace").splitlines()
        fields = [line.partition("#")[0].lower().split() for line in lines]
        found = [host, *(each[0] for each in fields if host in each[1:])]
        found = [each for each in found if each == "::1" or self._is_own(each)]
        if found and port == _SSH:
            raise Abstained("a port at which something listens")
        return sorted(found, key=lambda each: ":" not in each)  # as getaddrinfo(3) sorts them

    def _is_own(self, text: str) -> bool:
        try:
            address = IPv4Address(text)
        except AddressValueError:
            return False
        return address.is_loopback or text in self._addresses

    def is_address(self, host: str) -> bool:
        """Whether a host is an unreachable address, rather than an unresolvable name.

        Errors: Abstained for a host that may be reachable, and for an invalid host.
        """
        if re.fullmatch(r"[\d.]+|0[xX][0-9a-fA-F]+", host):
            try:
                address = IPv4Address(host)
            except AddressValueError:
                raise Abstained("another way to write an address") from None
            near = any(address in network for network in self._own)
            if near or (not address.is_global and not address.is_private):
                raise Abstained("an address that may be reached")
            if address.is_loopback or address.is_multicast or address.is_unspecified:
                raise Abstained("an address that may be reached")
            return True
        hosts = self._state.read("/etc/hosts")
        if hosts is None or not _NAME.fullmatch(host):
            raise Abstained("a word that may not be a name")
        names = hosts.decode("utf-8", "replace").lower().split()
        own = str(self._state.before.document.get("hostname", "")).lower()
        if host.lower() in {*names, own, "localhost"} or host.lower().endswith(".localhost"):
            raise Abstained("a name that is known")
        return False


def _parsed(
    words: Sequence[str], flags: str, valued: str, names: Mapping[str, str] = NO_NAMES
) -> tuple[dict[str, str], list[str]]:
    """Parse options like `parse_options`; of a repeated option, the last value is used."""
    options, operands = parse_options(words, flags, valued, names)
    return dict(options), operands


def _split(address: str) -> tuple[str, str, int, str]:
    """Split a URL into scheme, host, port and path. Errors: Abstained."""
    match = _ADDRESS.fullmatch(address)
    if match is None:
        raise Abstained("an address that is not supported")
    scheme = match[1] or "http"
    port = int(match[3]) if match[3] else 443 if scheme == "https" else 80
    return scheme, match[2], port, match[4] or "/"


def _wget(words: Sequence[str], network: _Network) -> _Failure:
    short = {"-nc": "--no-clobber", "-nv": "--no-verbose"}
    options, addresses = _parsed(
        [short.get(word, word) for word in words], "qcNS", "OPtTU",
        {
            "quiet": "q", "continue": "c", "timestamping": "N", "no-clobber": "C",
            "no-verbose": "v", "no-check-certificate": "k", "output-document": "O",
            "directory-prefix": "P", "tries": "t", "timeout": "T", "user-agent": "U",
            "server-response": "S",
        },
    )  # fmt: skip
    if not addresses:
        raise Abstained("no address")
    error = ""
    resolved: set[str] = set()
    for address in addresses:
        scheme, host, port, path = _split(address)
        refusing = network.refusing(host, port)
        known = not refusing and network.is_address(host)
        if "C" in options and network.exists(path.rpartition("/")[2] or "index.html"):
            raise Abstained("an existing file")
        usual = port == (443 if scheme == "https" else 80)
        place = host.lower() if usual else f"{host.lower()}:{port}"
        loud = "q" not in options and "v" not in options
        error += f"--{network.date}--  {scheme}://{place}{path}\n" if loud else ""
        if refusing:
            error += _refused(host.lower(), port, refusing, resolved, loud, "q" in options)
        elif known:
            error += f"Connecting to {host}:{port}... " if loud else ""
            error += f"failed: {_NO_ROUTE}.\n" if "q" not in options else ""
        elif "q" not in options:
            error += f"Resolving {host.lower()} ({host.lower()})... " if loud else ""
            error += f"failed: {_UNRESOLVED}.\n" if loud else ""
            error += (
                f"wget: unable to resolve host address {_QUOTED[0]}{host.lower()}{_QUOTED[1]}\n"
            )
    into = options.get("O", "")
    nowhere = into in {"-", "/dev/null", "/dev/stdout"}
    return _Failure(4, error, opened="" if nowhere else into)


def _refused(
    host: str, port: int, addresses: Sequence[str], resolved: set[str], loud: bool, silent: bool
) -> str:
    """Return the error of `wget` for a host whose addresses refuse connections.

    `resolved` are the hosts that `wget` has resolved before.
    """
    by_name = host not in addresses
    said = ""
    if by_name and loud and host not in resolved:
        said = f"Resolving {host} ({host})... {', '.join(addresses)}\n"
    resolved.add(host)
    for each in addresses:
        place = f"{host} ({host})|{each}|:{port}" if by_name else f"{host}:{port}"
        said += f"Connecting to {place}... " if loud else ""
        said += "" if silent else f"failed: {_REFUSED}.\n"
    return said


def _curl(words: Sequence[str], network: _Network) -> _Failure:
    options, addresses = _parsed(
        words, "sSLfkOI4", "oHAXdmebuw",
        {
            "silent": "s", "show-error": "S", "location": "L", "fail": "f", "insecure": "k",
            "remote-name": "O", "head": "I", "output": "o", "header": "H", "user-agent": "A",
            "request": "X", "data": "d", "max-time": "m", "referer": "e", "cookie": "b",
            "user": "u", "connect-timeout": "m", "write-out": "w",
        },
    )  # fmt: skip
    told = options.get("w", "").replace("%{http_code}", "000").replace("\\n", "\n")
    if "%" in told or "\\" in told or (told and ("s" not in options or "S" in options)):
        raise Abstained("other reports about the transfer")
    if len(addresses) != 1 or options.get("d", "").startswith("@"):
        raise Abstained("several addresses")
    _, host, port, _ = _split(addresses[0])
    known = bool(network.refusing(host, port)) or network.is_address(host)
    quiet = "s" in options
    meter = "" if quiet else _METER + _METERED + (f"{_METERED}\n" if known else "")
    if quiet and "S" not in options:
        return _Failure(7 if known else 6, output=told)
    if not known:
        return _Failure(6, f"{meter}curl: (6) Could not resolve host: {host}\n")
    said = f"curl: (7) Failed to connect to {host} port {port} after 0 ms"
    return _Failure(7, f"{meter}{said}: Couldn't connect to server\n", sure=False)


def _ping(words: Sequence[str], network: _Network) -> _Failure:
    options, hosts = _parsed(words, "nq4", "cWi")
    if len(hosts) != 1:
        raise Abstained("several hosts")
    if not network.is_address(hosts[0]):
        return _Failure(2, f"ping: {hosts[0]}: {_UNRESOLVED}\n")
    if options.get("c") != "1":
        raise Abstained("an operation of unknown duration")
    answer = (
        "" if "q" in options else f"From {network.gateway} icmp_seq=1 Destination Net Unreachable\n"
    )
    output = (
        f"PING {hosts[0]} ({hosts[0]}) 56(84) bytes of data.\n{answer}\n"
        f"--- {hosts[0]} ping statistics ---\n"
        "1 packets transmitted, 0 received, +1 errors, 100% packet loss, time 0ms\n\n"
    )
    return _Failure(1, output=output)


PROGRAMS: Mapping[str, Callable[[Sequence[str], _Network], _Failure]] = MappingProxyType(
    {"curl": _curl, "ping": _ping, "wget": _wget}
)
"""Functions that compute the outcome of a program for an unreachable host, by name. Errors:
Abstained if no rule applies."""
