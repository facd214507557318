"""Machine state that context patches do not cover. It is read to compare final states."""

from __future__ import annotations

import os
from collections.abc import Mapping
from typing import Final

from shioenv.system.declare import SystemDeclaration

UNRECORDED: Final = (
    "services", "IPC objects", "message queues", "neighbours", "proxies of neighbours",
    "MPTCP endpoints", "MPTCP limits", "labels of addresses", "next hops",
)  # fmt: skip
"""The parts that `unrecorded` reads, in the order in which `PROBE` prints them."""

PROBE: Final = r"""cd /proc || exit
echo [1-9]*
printf '\0'
for each in msg sem shm; do
    while read -r _ id perms size _; do echo "$each $id $perms $size"; done < sysvipc/$each
done
printf '\0'
for each in /dev/mqueue/*; do echo "$each"; done
printf '\0'
ip -json -force -batch - 2> /dev/null << 'X'
neigh show nud permanent
neigh show proxy
mptcp endpoint show
mptcp limits show
addrlabel show
nexthop show
X
:"""
"""An input that prints the parts in `UNRECORDED`. For IPC objects it prints IDs, permissions and
sizes, since keys of `ipcmk` are random."""

SECONDS: Final = 30.0
"""Seconds that the probe may take; on an idle host it needs a thousandth of that."""

_OF_IP: Final = 6


def unrecorded(printed: bytes, declaration: SystemDeclaration) -> Mapping[str, bytes] | None:
    """Parse the output of `PROBE` into a mapping from `UNRECORDED` to states; None if malformed.

    Only declared processes of the machine are included. A part for which the system has no program
    is empty.
    """
    parts = printed.split(b"\0")
    if len(parts) != 4:
        return None
    processes, ipc, queues, network = parts
    running = {os.fsencode(str(one.pid)) for one in declaration.machine.processes}
    services = b" ".join(pid for pid in processes.split() if pid in running)
    lines = network.split(b"\n")
    if len(lines) <= _OF_IP:
        lines = [network, *[b""] * (_OF_IP - 1)]
    return dict(zip(UNRECORDED, (services, ipc, queues, *lines[:_OF_IP]), strict=True))
