"""The declared network as messages of rtnetlink(7), and the network that a probe printed."""

from __future__ import annotations

import json
import socket
import struct
from collections.abc import Sequence
from typing import Any

from shioenv.sandbox.namespaces.wire import FD_GATEWAY
from shioenv.system.declare import Interface

_NEWLINK, _NEWADDR, _NEWROUTE, _NEWRULE = 16, 20, 24, 32
_REQUEST = 0x1 | 0x4 | 0x400 | 0x200  # request, acknowledge, create, exclusive
_IFLA_ADDRESS, _IFLA_IFNAME, _IFLA_MTU, _IFLA_LINKINFO, _IFLA_NET_NS_FD = 1, 3, 4, 18, 28
_IFLA_NUM_TX_QUEUES, _IFLA_NUM_RX_QUEUES = 31, 32
_INFO_KIND, _INFO_DATA, _VETH_PEER = 1, 2, 1
_UP = 1
_FIRST_INDEX = 2  # 1 is lo
_BEYOND = 100  # a routing table
_UNREACHABLE, _THROW = 7, 9


def _attribute(kind: int, value: bytes) -> bytes:
    length = 4 + len(value)
    return struct.pack("HH", length, kind) + value + b"\0" * (-length % 4)


def _message(kind: int, body: bytes, flags: int = _REQUEST) -> bytes:
    return struct.pack("IHHII", 16 + len(body), kind, flags, 0, 0) + body


def _link(index: int, up: bool) -> bytes:
    flags = _UP if up else 0
    return struct.pack("BxHiII", socket.AF_UNSPEC, 0, index, flags, flags)


def _name(name: str) -> bytes:
    return _attribute(_IFLA_IFNAME, name.encode() + b"\0")


def _set_up(index: int) -> bytes:
    return _message(_NEWLINK, _link(index, up=True), flags=0x5)


def _address(index: int, address: str, prefix: int) -> bytes:
    packed = socket.inet_aton(address)
    network = struct.unpack("!I", packed)[0]
    broadcast = struct.pack("!I", network | (0xFFFFFFFF >> prefix))
    body = struct.pack("BBBBi", socket.AF_INET, prefix, 0, 0, index)
    body += _attribute(1, packed) + _attribute(2, packed) + _attribute(4, broadcast)
    return _message(_NEWADDR, body)


def _default_route(index: int, gateway: str) -> bytes:
    # main table, boot protocol, universe scope, unicast
    body = struct.pack("BBBBBBBBI", socket.AF_INET, 0, 0, 0, 254, 3, 0, 1, 0)
    body += _attribute(5, socket.inet_aton(gateway)) + _attribute(4, struct.pack("i", index))
    return _message(_NEWROUTE, body)


def _beyond(kind: int, network: bytes = b"", prefix: int = 0) -> bytes:
    # a separate table, boot protocol, universe scope
    route = struct.pack("BBBBBBBBI", socket.AF_INET, prefix, 0, 0, _BEYOND, 3, 0, kind, 0)
    return _message(_NEWROUTE, route + (_attribute(1, network) if network else b""))


def _no_way_out(interfaces: Sequence[Interface]) -> list[bytes]:
    """Return messages that make TCP fail at once for addresses beyond the connected networks.

    The gateway rejects such connections too, but its first answer reaches the connecting socket too
    early. The socket would accept only the answer to its next attempt, a second later.
    """
    messages = [_beyond(_UNREACHABLE)]
    for interface in interfaces:
        mask = 0xFFFFFFFF << (32 - interface.prefix) & 0xFFFFFFFF
        address = struct.unpack("!I", socket.inet_aton(interface.address))[0]
        messages.append(_beyond(_THROW, struct.pack("!I", address & mask), interface.prefix))
    rule = struct.pack("BBBBBBBBI", socket.AF_INET, 0, 0, 0, _BEYOND, 0, 0, 1, 0)
    return [*messages, _message(_NEWRULE, rule + _attribute(22, bytes([socket.IPPROTO_TCP])))]


def network_messages(interfaces: Sequence[Interface]) -> tuple[bytes, bytes]:
    """Return the messages that create the network of inputs, and those for the gateway's side."""
    inside, outside = [_set_up(1)], [_set_up(1)]
    for index, interface in enumerate(interfaces, start=_FIRST_INDEX):
        cable = f"cable{index}"
        mtu = _attribute(_IFLA_MTU, struct.pack("I", interface.mtu))
        # one queue per direction; the default is one per processor of the host
        queues = b"".join(
            _attribute(kind, struct.pack("I", 1))
            for kind in (_IFLA_NUM_TX_QUEUES, _IFLA_NUM_RX_QUEUES)
        )
        peer = _link(index, up=False) + _name(cable) + mtu + queues
        peer += _attribute(_IFLA_NET_NS_FD, struct.pack("I", FD_GATEWAY))
        kind = _attribute(_INFO_KIND, b"veth") + _attribute(
            _INFO_DATA, _attribute(_VETH_PEER, peer)
        )
        mac = _attribute(_IFLA_ADDRESS, bytes.fromhex(interface.mac.replace(":", "")))
        link = _link(index, up=False) + _name(interface.name) + mtu + mac + queues
        inside.append(_message(_NEWLINK, link + _attribute(_IFLA_LINKINFO, kind)))
        inside.append(_address(index, interface.address, interface.prefix))
        outside.append(_set_up(index))
        inside.append(_set_up(index))
        if interface.gateway:
            outside.append(_address(index, interface.gateway, interface.prefix))
            inside.append(_default_route(index, interface.gateway))
    inside += _no_way_out(interfaces)
    return b"".join(inside), b"".join(outside)


_LISTED = (("links", "addresses"), ("routes", "rules"), ("routes6", "rules6"))
"""Lists that the network probe prints; each group is one line."""


def network_document(printed: bytes, *, links: bool = True) -> bytes:
    """Convert the network probe's output to one JSON object; without `links`, only the firewall.

    Errors: ValueError if a list is missing, except those for IPv6, which a kernel may lack.
    """
    if not links:
        rules = printed.decode("utf-8", "replace").splitlines()
        return json.dumps({"firewall": rules}).encode()
    *listed, firewall = printed.decode("utf-8", "replace").split("\0", len(_LISTED))
    if len(listed) != len(_LISTED):
        raise ValueError("the output is incomplete")
    document: dict[str, Any] = {}
    for names, text in zip(_LISTED, listed, strict=True):
        lines = [line for line in text.split("\n") if line]
        try:
            lists = map(_LISTS.decode, lines)
            document |= dict(zip(names, lists, strict=True))
        except (ValueError, RecursionError):
            if names != _LISTED[-1]:
                raise ValueError(f"ip did not list {' and '.join(names)}") from None
    if not document["links"]:
        raise ValueError("ip listed no links, not even lo")
    document["firewall"] = firewall.splitlines()
    return json.dumps(document).encode()


_LISTS = json.JSONDecoder(strict=False)
"""Decodes JSON with raw control characters, which `ip` prints in names."""
