"""Deriving a system from a declared one: other users, another tree, other names and times.

The programs are the same on both systems. A model that is asked about the derived system has to use
its context, since no memorised name is valid there.
"""

from __future__ import annotations

import posixpath
import re
from collections.abc import Callable, Mapping, Sequence
from datetime import datetime, timedelta
from pathlib import Path, PurePath
from random import Random
from typing import Any

from shioenv.errors import OutputExistsError
from shioenv.files.documents import parse_toml
from shioenv.files.durable import storage_errors
from shioenv.seeding import generator
from shioenv.system.declare import load_declaration, parse_declaration, read_text
from shioenv.system.home import HomeTree, from_file, load_home

_PEOPLE = (
    ("carol", "Carol Jensen"), ("dmitri", "Dmitri Volkov"), ("esther", "Esther Okafor"),
    ("farid", "Farid Haddad"), ("greta", "Greta Lindqvist"), ("hiro", "Hiro Sato"),
    ("ines", "Ines Duarte"), ("jonas", "Jonas Weber"), ("kavya", "Kavya Rao"),
    ("liam", "Liam Byrne"), ("mei", "Mei Chen"), ("nadia", "Nadia Petrova"),
)  # fmt: skip
_GROUPS = ("analysts", "builders", "crew", "editors", "finance", "keepers", "ops", "writers")
_HOSTS = ("atlas", "birch", "condor", "delta", "ember", "falcon", "granite", "harbor")
_PLACES = (
    "assets", "base", "bundle", "cellar", "depot", "drafts", "exports", "field", "harvest",
    "inputs", "lab", "ledger", "media", "output", "papers", "pool", "queue", "records", "samples",
    "shelf", "sources", "stock", "tools", "vault", "work",
)  # fmt: skip
_STEMS = (
    "agenda", "anchor", "apples", "basin", "beacon", "brief", "bridge", "canvas", "catalog",
    "cedar", "census", "cipher", "circuit", "cobalt", "contract", "copper", "cradle", "digest",
    "docket", "engine", "entry", "estate", "fabric", "figures", "forest", "gallery", "garden",
    "glossary", "harvest", "index_a", "invoice", "island", "journal", "kernel", "lantern",
    "letterbox", "library", "lumber", "manual", "margin", "market", "memo", "meter", "mirror",
    "mosaic", "orbit", "outline", "packet", "parcel", "pattern", "pepper", "pigment", "pillar",
    "planet", "policy", "profile_b", "quarry", "recipe", "register", "river", "roster", "saddle",
    "sample", "season", "sketch", "spindle", "station", "summary", "survey", "table", "thread",
    "ticket", "timber", "token", "travel", "tunnel", "update", "valley", "vector", "velvet",
    "window", "winter", "yield",
)  # fmt: skip
_MODES = ("0600", "0640", "0644", "0664", "0444")
_RENAMED, _OTHER_MODE, _DROPPED, _SHUFFLED = 0.75, 0.15, 0.1, 0.5
_LEAST_LINES = 4

_OF_USERS = ("groups", "users", "session", "home")
_OF_MACHINE = (
    "hostname", "logins", "failed_logins", "processes", "interfaces", "nameservers", "sockets",
)  # fmt: skip


def derive_system(base: str | None, name: str, seed: int, directory: Path) -> Path:
    """Write a derived system to a directory: `NAME.toml`, and its home tree in `home/`.

    The directory is created. Returns the path of `NAME.toml`, which `build_system` accepts. The
    same base, name and seed give the same files, except for the path of the tree in `NAME.toml`.
    Errors: those of `load_declaration` and `load_home`, OutputExistsError, and those of
    `storage_errors`.
    """
    import tomli_w

    rng = generator(seed, "system")
    declaration = load_declaration(base)
    load_home(declaration)  # raises for an invalid tree
    data, tree = parse_toml(read_text(base)), HomeTree(declaration.home.source)
    before = data["instant"]
    instant = before + timedelta(days=rng.randrange(30, 300), minutes=rng.randrange(1440))
    home = str(data["home"]["target"])
    users = _declared(data, instant - before, rng)
    data["name"], data["title"], data["instant"] = name, f"drawn from {data['name']}", instant
    target = directory / "home"
    with storage_errors(directory):
        if target.exists() or (directory / f"{name}.toml").exists():
            raise OutputExistsError(
                f"{directory} already has a system", hint="choose another directory"
            )
        starts = [
            str(PurePath(each).relative_to(home))
            for each in declaration.session.start_directories
            if PurePath(each).is_relative_to(home)
        ]
        renamed = _renamed(_kept(tree.entries, starts, rng), rng)
        paths = _paths(renamed, home)
        entries, files = _tree(tree, before, instant, renamed, lambda text: users(paths(text)), rng)
        top = data["home"]["target"]
        beneath = _replacer({f"{top}/{old}": f"{top}/{renamed[old]}" for old in renamed})
        for table, key in ((data["session"], "start_directories"), (data["session"], "environment"),
                           (data["machine"], "processes")):  # fmt: skip
            table[key] = _changed(table[key], beneath)
        data["home"]["source"] = str(target.absolute())
        data["home"].pop("added", None)  # only the first tree is derived
        text = tomli_w.dumps(data)
        parse_declaration(text, source=f"{name}.toml")
        for path, content in files.items():
            file = target / "files" / path
            file.parent.mkdir(parents=True, exist_ok=True)
            file.write_text(content, encoding="utf-8", newline="")
        target.mkdir(parents=True, exist_ok=True)
        (target / "tree.toml").write_text(tomli_w.dumps({"entries": entries}), encoding="utf-8")
        (directory / f"{name}.toml").write_text(text, encoding="utf-8")
    return directory / f"{name}.toml"


def _declared(data: dict[str, Any], later: timedelta, rng: Random) -> Callable[[str], str]:
    """Change a declaration's users, groups, host, addresses and dates in place.

    Returns the function that replaces names of users and groups in a text.
    """
    names: dict[str, str] = {}
    people = rng.sample(_PEOPLE, len(_PEOPLE))
    for user, (name, comment) in zip(data.get("users", ()), people, strict=False):
        names[user["name"]] = name
        if "comment" in user:
            user["comment"] = ",".join([comment, *user["comment"].split(",")[1:]])
    left = [each["name"] for each in data.get("groups", ()) if each["name"] not in names]
    names.update(zip(left, rng.sample(_GROUPS, len(_GROUPS)), strict=False))
    users = _replacer(names)
    host = rng.choice(_HOSTS)
    machine = data["machine"]
    prefix = f"10.{rng.randrange(1, 250)}.{rng.randrange(1, 250)}."
    own = machine["interfaces"][0]["address"] if machine.get("interfaces") else ""
    network = own[: own.rfind(".") + 1]

    def change(text: str) -> str:
        return users(text.replace(network, prefix) if network else text)

    for key in _OF_USERS:
        if key in data:
            data[key] = _changed(data[key], change, later)
    for key in _OF_MACHINE:
        if key in machine:
            machine[key] = _changed(machine[key], change, later)
    machine["hostname"] = host
    machine["machine_id"] = f"{rng.getrandbits(128):032x}"
    return users


def _changed(value: Any, change: Callable[[str], str], later: timedelta = timedelta(0)) -> Any:
    """Return a value of a declaration with `change` applied to its texts, and its times shifted."""
    if isinstance(value, datetime):
        return value + later
    if isinstance(value, Mapping):
        return {key: _changed(each, change, later) for key, each in value.items()}
    if isinstance(value, list):
        return [_changed(each, change, later) for each in value]
    return change(value) if isinstance(value, str) else value


def _kept(tree: Mapping[str, Mapping[str, Any]], starts: Sequence[str], rng: Random) -> list[str]:
    """Return the paths of a tree, randomly leaving out some that nothing else in it needs."""
    held = {name for value in tree.values() for name in value.get("holds", ())}
    led_to = {_aim(path, value["link"]) for path, value in tree.items() if "link" in value}
    needed = {".", *starts, *held, *led_to, *(path.rpartition("/")[0] for path in tree)}
    return [path for path in tree if path in needed or rng.random() >= _DROPPED]


def _tree(
    home: HomeTree,
    before: datetime,
    instant: datetime,
    renamed: Mapping[str, str],
    change: Callable[[str], str],
    rng: Random,
) -> tuple[dict[str, dict[str, Any]], dict[str, str]]:
    """Return the entries of the new tree, and the texts of its files by path below `files`."""
    entries: dict[str, dict[str, Any]] = {}
    texts: dict[str, str] = {}
    for path, new in renamed.items():
        value = dict(home.entries[path])
        value["time"] = _earlier(instant, before - value["time"], rng)
        for key in ("owner", "group"):
            if key in value:
                value[key] = change(value[key])
        if "holds" in value:
            value["holds"] = [renamed[name] for name in value["holds"]]
        if "link" in value:
            value["link"] = _link(path, value["link"], renamed) or change(value["link"])
        if "lines" in value:
            value["lines"] = max(8, round(value["lines"] * rng.uniform(0.4, 1.4)))
            value["seed"] = rng.randrange(1, 10_000)
        is_file = from_file(value) or not {"link", "kind", "make"} & value.keys()
        if is_file and "mode" not in value and rng.random() < _OTHER_MODE:
            value["mode"] = rng.choice(_MODES)
        if from_file(value):
            origin = value.get("from", path)
            if origin not in texts:
                content = home.read(origin).decode("utf-8")
                texts[origin] = _rewritten(path, change(content), rng)
            value["from"] = origin
        entries[new] = value
    return entries, texts


def _aim(path: str, target: str) -> str:
    """Return the target of a link at `path`; relative targets are resolved within the tree."""
    return posixpath.normpath(posixpath.join(posixpath.dirname(path), target))


def _link(path: str, target: str, renamed: Mapping[str, str]) -> str | None:
    """Return a link's relative target under the new names; None if it is outside the tree."""
    at = _aim(path, target)
    if at not in renamed:
        return None
    return posixpath.relpath(renamed[at], posixpath.dirname(renamed[path]) or ".")


def _earlier(instant: datetime, ago: timedelta, rng: Random) -> datetime:
    """Return a time before the instant, at 0.3 to 1 times the distance `ago`."""
    return (instant - ago * rng.uniform(0.3, 1.0)).replace(microsecond=0)


def _renamed(paths: Sequence[str], rng: Random) -> dict[str, str]:
    """Map old paths to new ones. A renamed directory changes in all paths; suffixes are kept."""
    stems, places = rng.sample(_STEMS, len(_STEMS)), rng.sample(_PLACES, len(_PLACES))
    directories = {path.rpartition("/")[0] for path in paths}
    found = {".": "."}
    for path in sorted(paths):
        if path == ".":
            continue
        above, _, name = path.rpartition("/")
        new = name
        if re.fullmatch(r"[a-z]\w*(\.[\w.]+)?", name) and rng.random() < _RENAMED:
            stem, dot, suffix = name.partition(".")
            pool = places if path in directories else stems
            new = f"{pool.pop() if pool else stem}{dot}{suffix}"
        found[path] = f"{found[above]}/{new}" if above else new
    return found


def _rewritten(path: str, content: str, rng: Random) -> str:
    """Shuffle a text of independent lines and drop some, at random; other texts are unchanged.

    The first line is kept.
    """
    lines = content.splitlines(keepends=True)
    by_itself = path.endswith((".txt", ".csv", ".tsv", ".dat", ".list")) and content[:2] != "#!"
    whole = all(line.endswith("\n") for line in lines)
    if not by_itself or not whole or len(lines) < _LEAST_LINES or rng.random() >= _SHUFFLED:
        return content
    head, rest = lines[:1], lines[1:]
    rest = [line for line in rest if rng.random() >= _DROPPED] or rest
    rng.shuffle(rest)
    return "".join(head + rest)


_BEGINS = r"""(?<![\w.~)}$/-])(?<![\w}]["'])"""
"""Lookbehind for the start of a path. It does not match inside a path, as after `..`, `~` or
`$HOME`."""

_REST = r"[\w.+@%-]+(?:/[\w.+@%-]*)*"
_OF_SYSTEM = rf"{_BEGINS}/(?:boot|dev|etc|lib\w*|proc|run|s?bin|sys|usr)/{_REST}"
"""A path in directories of the distribution or the kernel. Such paths contain no user's name."""


def _paths(renamed: Mapping[str, str], home: str) -> Callable[[str], str]:
    """Return a function that renames paths of the tree in a text.

    Paths of the tree are those below `home`, and relative ones.
    """
    names = {old: new for old, new in renamed.items() if old != "."}
    tops = "|".join(re.escape(name) for name in names if "/" not in name)
    others = (
        rf"{_BEGINS}{re.escape(home)}(?![\w.-])",  # the names below it match separately
        r"\b[a-z]+://[^\s\"'<>]*",
        rf"{_BEGINS}/{_REST}",
        rf"{_BEGINS}(?!(?:{tops})/)\w[\w.+@%-]*/{_REST}",
    )
    return _replacer(names, "|".join(others))


def _replacer(names: Mapping[str, str], kept: str = _OF_SYSTEM) -> Callable[[str], str]:
    """Return a function that replaces old names by new ones in a text, only as whole words.

    Text that matches the pattern `kept` is unchanged.
    """
    if not names:
        return lambda text: text
    longest = "|".join(map(re.escape, sorted(names, key=len, reverse=True)))
    pattern = re.compile(rf"(?P<kept>{kept})|(?<![\w.-])(?:{longest})(?![\w-]|\.\w)")
    return lambda text: pattern.sub(
        lambda match: match[0] if match["kept"] else names[match[0]], text
    )
