"""Replaced files, and files that gain or lose a name, are recorded as `lstat` shows them.

Inputs do it to files of the system in many ways; `find` then lists the result. The patch, applied
to the context before, must give the same listing.
"""

from __future__ import annotations

import time
from collections.abc import Mapping
from itertools import product
from random import Random
from typing import Any

import pytest

from shioenv.behavior.observe import SandboxRunner

FOUND = r"find . -printf '%p\0%M\0%n\0%u\0%g\0%s\0%T@\0%l\0'"
BY_KIND = {
    "file": "README.md",
    "empty file": "empty.txt",
    "link": "latest.log",
    "full directory": "logs",
    "deep directory": "documents",
}
"""Files of the system that are replaced."""
SOCKET = "perl -MSocket -e 'socket S, 1, 1, 0; bind S, pack_sockaddr_un shift' {0}"
MAKING = {
    "file": "printf 'something else\n' > {0}",
    "link": "ln -s no/where {0}",
    "empty directory": "mkdir {0}",
    "full directory": "mkdir -p {0}/sub/deeper; echo x > {0}/y; mkfifo {0}/sub/p; ln -s y {0}/l",
    "fifo": "mkfifo {0}",
    "socket": SOCKET,
}
REPLACING = {
    "removed": "rm -r {0}; {make}",
    "renamed over": "{moved}; rm -r {0}; mv -T new {0}",
    "moved away": "mv {0} away; {make}",
    "moved into it": "mv {0} away; mkdir {0}; mv away {0}/; {inside}",
}
AFTERWARDS = (
    "",
    "[ -L {0} ] || chmod 751 {0}",
    "chown -h bob:www-data {0}",
    "touch -h -d '2001-02-03 04:05' {0}",
)
DATE = ("month", "day", "year", "time")


def written(path: str, making: str, replacing: str, afterwards: str) -> str:
    """Return the input that replaces a path."""
    return "; ".join(
        part
        for part in (
            REPLACING[replacing].format(
                path,
                make=MAKING[making].format(path),
                moved=MAKING[making].format("new"),
                inside=MAKING[making].format(f"{path}/inside"),
            ),
            afterwards.format(path),
        )
        if part
    )


def found(output: bytes, instant: float) -> dict[str, dict[str, Any]]:
    """Return the output of `find` by name, as a context has it; directories as on a disk."""
    fields = output.decode().split("\0")[:-1]
    assert len(fields) % 8 == 0
    rows = {
        fields[at].removeprefix("./"): fields[at + 1 : at + 8] for at in range(0, len(fields), 8)
    }
    entries = {}
    for name, (perms, links, owner, group, size, moment, target) in rows.items():
        seconds = float(moment)
        if seconds > time.time() - 600:
            seconds = instant
        there = time.gmtime(seconds)
        entry: dict[str, Any] = {
            "perms": perms,
            "links": int(links),
            "owner": owner,
            "group": group,
            "size": int(size),
            "month": time.strftime("%b", there),
            "day": there.tm_mday,
            "year": there.tm_year,
            "time": time.strftime("%H:%M", there),
        }
        if target:
            entry["target"] = target
        if perms.startswith("d"):
            inside = [
                other
                for other, row in rows.items()
                if other != "." and row[0].startswith("d") and parent_of(other) == name
            ]
            entry |= {"size": 4096, "links": 2 + len(inside)}
        entries[name] = entry
    return entries


def parent_of(name: str) -> str:
    return name.rpartition("/")[0] or "."


def names_in(entries: Mapping[str, Any], directory: str) -> set[str]:
    return {name for name in entries if name != "." and parent_of(name) == directory}


def check(runner: SandboxRunner, text: str) -> None:
    """Check the law for one input that stays below the start directory."""
    shown = runner.execute(f"{{ {text}; }} > /dev/null 2>&1; {FOUND}")
    behavior = runner.run(text)
    assert behavior.exit_code == 0, f"{text!r}: {behavior.text}"
    context = runner.context().document
    after = behavior.patch.apply(context)["fs"]
    before = {name: entry for name, entry in context["fs"].items() if not name.startswith("/")}
    recorded = {name: dict(entry) for name, entry in after.items() if not name.startswith("/")}
    wanted = found(shown.output, runner.system.declaration.instant.timestamp())
    assert recorded.keys() == wanted.keys(), f"{text!r}"
    for name, entry in wanted.items():
        stayed = name in before and before[name]["perms"][0] == entry["perms"][0] == "d"
        if stayed and names_in(before, name) != names_in(wanted, name):
            # by rule: a directory keeps these where its entries changed
            entry = entry | {key: before[name][key] for key in ("size", "links", *DATE)}
        elif stayed:
            entry = entry | {"size": before[name]["size"]}
        assert recorded[name] == entry, f"{text!r}: {name}"


@pytest.mark.parametrize(
    "text",
    [
        "rm README.md; mkdir README.md; echo x > README.md/y",
        "rm latest.log; mkdir latest.log; touch latest.log/q",
        "mv README.md r; mkdir README.md; mv r README.md/",
    ],
)
def test_a_directory_in_the_place_of_a_file_has_its_own_size_links_and_date(
    observer: SandboxRunner, text: str
) -> None:
    check(observer, text)


@pytest.mark.parametrize("replacing", REPLACING)
def test_what_replaces_something_is_recorded_as_it_is_there(
    observer: SandboxRunner, replacing: str
) -> None:
    rng = Random(replacing)
    for path, making in product(BY_KIND.values(), MAKING):
        check(observer, written(path, making, replacing, rng.choice(AFTERWARDS)))


@pytest.mark.parametrize("seed", range(2))
def test_several_replacements_at_once_are_recorded_as_they_are_there(
    observer: SandboxRunner, seed: int
) -> None:
    rng = Random(seed)
    for _ in range(12):
        paths = rng.sample([*BY_KIND.values()], 3)
        texts = [
            written(path, rng.choice([*MAKING]), "removed", rng.choice(AFTERWARDS))
            for path in paths
        ]
        check(observer, "; ".join(texts))


@pytest.mark.parametrize(
    "text",
    [
        "ln README.md x",
        "ln README.md x; ln x y; rm README.md; echo more >> y",
        "echo more >> README.md; ln README.md documents/x; chmod 600 documents/x",
        "ln data/ids.txt z; chmod 640 data/ids_copy.txt; chown bob z",
        "ln -f data/ids.txt data/ids_copy.txt; truncate -s 9 data/ids.txt",
        "rm data/ids.txt; ln data/ids_copy.txt data/ids.txt; touch -d 2001-02-03 data/ids.txt",
        "mv data/ids.txt q; ln q r; mv r data/ids.txt; echo x > data/ids_copy.txt",
        "chmod -R 700 data; mv data moved",
        "cp -al documents copied; rm -r documents; mv copied documents",
        "ln -s README.md s; ln s t; rm s; mkfifo p; ln p q; chmod 600 q",
    ],
)
def test_names_given_to_files_and_taken_are_counted_as_they_are_there(
    observer: SandboxRunner, text: str
) -> None:
    check(observer, text)


def test_no_file_of_the_system_has_two_names(observer: SandboxRunner) -> None:
    """Overlays keep neither content nor link counts of such files consistent."""
    assert observer.run("find / -xdev -not -type d -links +1").output == b""
    links = {entry.links for entry in observer.system.index.values() if not entry.mode & 0o40000}
    assert links == {1}


def test_no_device_can_stand_in_for_a_file(observer: SandboxRunner) -> None:
    """So the replacements do not contain one."""
    behavior = observer.run("rm README.md; mknod README.md c 0 0; mknod README.md b 7 1; ls -d R*")
    assert behavior.exit_code == 2, behavior.text
    assert behavior.text.count("Operation not permitted") == 2
