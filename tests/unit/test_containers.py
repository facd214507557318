"""The container's filter allows the calls of a sandbox, and none needs a capability."""

from __future__ import annotations

import json
import re
from pathlib import Path

ROOT = Path(__file__).parents[2]
NEEDED = (
    "chroot", "clone", "clone3", "fsconfig", "fsmount", "fsopen", "mount", "move_mount",
    "open_tree", "pivot_root", "setdomainname", "sethostname", "setns", "umount2", "unshare",
)  # fmt: skip
ROOTS = (
    "kexec_load",
    "init_module",
    "finit_module",
    "bpf",
    "open_by_handle_at",
    "swapon",
    "reboot",
)
"""Calls that a container's root is refused without the capability for them."""


def allowed() -> set[str]:
    """Return the calls that the filter allows without capabilities, for all arguments."""
    profile = json.loads((ROOT / "containers" / "seccomp.json").read_text())
    assert profile["defaultAction"] == "SCMP_ACT_ERRNO"
    return {
        name
        for rule in profile["syscalls"]
        if rule["action"] == "SCMP_ACT_ALLOW"
        and not rule.get("args")
        and "caps" not in (rule.get("includes") or {})
        for name in rule["names"]
    }


def test_the_filter_allows_what_sandboxes_are_made_of_and_no_more() -> None:
    assert allowed().issuperset(NEEDED)
    assert not allowed() & {*ROOTS}


def test_the_page_names_what_the_filter_adds() -> None:
    page = (ROOT / "docs" / "how-to" / "install.md").read_text()
    added = page.partition("is Docker's profile with")[2].partition(". With it")[0]
    assert sorted(re.findall(r"`(\w+)`", added)) == sorted(NEEDED)
