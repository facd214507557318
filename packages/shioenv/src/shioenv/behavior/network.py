"""The fields `network` and `firewall` of a context, from what the system's tools print as JSON."""

from __future__ import annotations

import json
import re
from typing import Any

_COUNTER = re.compile(r"counter packets \d+ bytes \d+")
_LINK = (
    "mtu", "operstate", "link_type", "address", "broadcast", "qdisc", "txqlen", "group", "master",
    "ifalias", "altnames",
)  # fmt: skip
_COUNTS = frozenset({"expires", "age", "cache", "cacheinfo", "used", "users"})


def network_fields(document: bytes | None) -> dict[str, Any]:
    """The fields `network` and `firewall` of a context, by name.

    `network` has `links` and `addresses` by the link's name, and `routes` and `rules` as sorted
    lines. `firewall` is a list of lines. All of them are empty for None and for bytes that are no
    such document.

    The document holds the lists that `ip -json` prints for links, addresses, routes and rules. It
    holds the firewall's rules as lines or as hexadecimal text. Counters, indices and lifetimes are
    left out: they change by themselves.
    """
    printed = _load(document)
    links = {_name(link): _link(link) for link in _objects(printed.get("links"))}
    addresses = {
        _name(link): sorted(
            f"{address.get('local')}/{address.get('prefixlen')}"
            for address in _objects(link.get("addr_info"))
        )
        for link in _objects(printed.get("addresses"))
    }
    # the kernel fills the table `local` by itself, from the addresses
    routes = {
        key: [route for route in _objects(printed.get(key)) if route.get("table") != "local"]
        for key in ("routes", "routes6")
    }
    rules = {key: _objects(printed.get(key)) for key in ("rules", "rules6")}
    return {
        "network": {
            "links": links,
            "addresses": {name: texts for name, texts in addresses.items() if texts},
            "routes": [*_lines(routes["routes"]), *_lines(routes["routes6"], "family inet6")],
            "rules": [*_lines(rules["rules"]), *_lines(rules["rules6"], "family inet6")],
        },
        "firewall": _rules(printed.get("firewall")),
    }


def _lines(items: list[dict[str, Any]], *first: str) -> list[str]:
    """Each object as one line of its keys and values, in the order of `ip`, without counters."""
    return sorted(
        " ".join([*first, *(f"{key} {_word(item[key])}" for key in item if _says(key, item[key]))])
        for item in items
    )


def _says(key: str, value: Any) -> bool:
    return key not in _COUNTS and value not in (None, [], {})


def _word(value: Any) -> str:
    return json.dumps(value) if isinstance(value, list | dict) else str(value)


def _rules(listed: Any) -> list[str]:
    """The rules as lines, blanks and counters left out."""
    if isinstance(listed, str):
        try:
            listed = bytes.fromhex(listed).decode("utf-8", "replace").splitlines()
        except ValueError:
            return []
    if not isinstance(listed, list):
        return []
    rules = (_COUNTER.sub("counter", str(rule)).strip() for rule in listed)
    return [rule for rule in rules if rule]


def _load(document: bytes | None) -> dict[str, Any]:
    try:
        printed = json.loads((document or b"{}").decode("utf-8", "replace"))
    except (ValueError, RecursionError):
        return {}
    return printed if isinstance(printed, dict) else {}


def _objects(items: Any) -> list[dict[str, Any]]:
    return [item for item in items if isinstance(item, dict)] if isinstance(items, list) else []


def _name(link: dict[str, Any]) -> str:
    return str(link.get("ifname", ""))


def _link(link: dict[str, Any]) -> dict[str, Any]:
    flags = link.get("flags")
    described: dict[str, Any] = {
        "flags": sorted(str(flag) for flag in flags) if isinstance(flags, list) else []
    }
    described.update({key: link[key] for key in _LINK if key in link})
    return described
