"""Contradictions between the values of a declaration."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from itertools import pairwise
from typing import TYPE_CHECKING

from shioenv.errors import did_you_mean
from shioenv.system.values import GROUPS, YEARS

if TYPE_CHECKING:
    from shioenv.system.declare import Machine, SystemDeclaration


def _above(number: int, parents: Mapping[int, int]) -> set[int]:
    """Return the PIDs of all ancestors of a process."""
    above: set[int] = set()
    while (number := parents[number]) in parents and number not in above:
        above.add(number)
    return above


def _socket_contradictions(machine: Machine) -> Iterator[str]:
    """Yield a message for each contradiction in the declared sockets."""
    numbers = {process.pid for process in machine.processes}
    own = {interface.address for interface in machine.interfaces}
    listening = set()
    for index, socket in enumerate(machine.sockets):
        place = f"$.machine.sockets[{index}]"
        if socket.process not in numbers:
            yield f"{place}.process: no process {socket.process} is declared"
        if bool(socket.peer) != bool(socket.peer_port):
            yield f"{place}: peer and peer_port must both be given, or neither"
        allowed = own if socket.peer else own | {"0.0.0.0", "127.0.0.1", "::", "::1"}
        if socket.address not in allowed:
            yield f"{place}.address: the machine has no address {socket.address}"
        if socket.peer and socket.banner:
            yield f"{place}.banner: only a listening socket can have one"
        named = (socket.address, socket.port, socket.peer, socket.peer_port)
        if named in listening:
            yield f"{place}: duplicate socket"
        listening.add(named)


def contradictions(declaration: SystemDeclaration) -> list[str]:
    """Return a message for each contradiction between values that are valid individually."""
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
            problems.append(f"{place}[{names.index('root')}]: root is predefined")
    distribution = declaration.distribution
    for index, package in enumerate(distribution.packages):
        _, _, architecture = package.partition("=")[0].partition(":")
        if architecture not in ("", distribution.architecture):
            problems.append(
                f"$.distribution.packages[{index}]: the architecture of {package!r} is not the "
                f"system's, {distribution.architecture}"
            )
    if declaration.boot_time.year < YEARS[0]:
        problems.append(f"$.machine.uptime: the boot time would be before {YEARS[0]}")
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
        references += [("group", f"{place}s", name, group_names | GROUPS) for name in user.groups]
    parents = {process.pid: process.parent for process in machine.processes}
    numbers = parents.keys()
    if 1 not in numbers:
        problems.append("$.machine.processes: no process has pid 1")
    if declaration.session.parent not in numbers:
        problems.append(f"$.session.parent: no process {declaration.session.parent} is declared")
    for index, process in enumerate(machine.processes):
        place = f"$.machine.processes[{index}]"
        references.append(("user", f"{place}.user", process.user, user_names))
        if process.parent not in numbers and (process.pid, process.parent) != (1, 0):
            problems.append(f"{place}.parent: no process {process.parent} is declared")
        if process.pid in _above(process.pid, parents):
            problems.append(f"{place}.parent: the process would be its own ancestor")
        if process.session not in numbers | {0}:
            problems.append(f"{place}.session: no process {process.session} is declared")
        if process.started > machine.uptime:
            problems.append(f"{place}.started: after the instant")
    problems += _socket_contradictions(machine)
    for index, login in enumerate(machine.logins):
        place = f"$.machine.logins[{index}]"
        if login.end is None and login.user != "reboot" and login.pid not in numbers:
            problems.append(f"{place}.pid: no process has this pid")
        references.append(("user", f"{place}.user", login.user, user_names | {"reboot"}))
        if login.end is not None and login.end < login.begin:
            problems.append(f"{place}.end: before the login's begin")
        if max(login.begin, login.end or login.begin) > instant:
            problems.append(f"{place}: after the instant {instant:%Y-%m-%d %H:%M}")
    for kind, place, name, known in references:
        if name not in known:
            hint = did_you_mean(name, known)
            problems.append(f"{place}: no {kind} {name!r} is declared; {hint}")
    if any(later < earlier for (earlier, _), (later, _) in pairwise(machine.kernel.log)):
        problems.append("$.machine.kernel.log: expected times in ascending order")
    return problems
