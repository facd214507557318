"""Filesystem effects of common commands, derived from the tree.

The commands are `chmod`, `chown`, `chgrp`, `mkdir`, `rmdir`, `rm`, `touch`, `cp`, `mv`, `ln`,
`tee`, `dd` and `split`, with their common options, if they succeed. Other uses are left to a
runner.
"""

from __future__ import annotations

import itertools
import os
import posixpath
import re
import string
from collections.abc import Callable, Iterator, Mapping, Sequence
from types import MappingProxyType
from typing import Any

from shioenv.domain.behavior import Behavior
from shioenv.domain.context import OF_DATE
from shioenv.domain.readable import format_mode, mode_of
from shioenv.domain.runner import State
from shioenv.errors import Abstained
from shioenv_model.bash.work import COPIED, spend
from shioenv_model.composition.call import Call
from shioenv_model.composition.conditions import is_root
from shioenv_model.composition.opening import changed_mode, umask_of
from shioenv_model.rules.accounts import GROUP, PASSWD, name_of_number, parse_accounts
from shioenv_model.rules.tree_changes import Effects, new_file_attributes, written_entry
from shioenv_model.rules.words import options_of, parse_options, words_of

LARGEST = 16 * 1024 * 1024
"""Maximum bytes of a file that a rule creates (our choice)."""

_UNITS = {"": 1, "b": 512, "K": 1024, "k": 1024, "M": 1 << 20, "kB": 1000, "MB": 1_000_000}


def effect(
    call: Call, state: State, fresh: Mapping[str, Any]
) -> tuple[Behavior, Mapping[str, bytes]] | None:
    """Return a command's behavior and the contents that it writes; None if no rule applies.

    `fresh` is the entry of an empty file created now.
    """
    try:
        name, *words = words_of(call, state, EFFECTS)
        if not is_root(state):
            return None
        made = Effects(state, fresh)
        stdout = EFFECTS[name](made, words)
    except Abstained:
        return None
    return made.behavior(stdout), made.contents


def _found(made: Effects, path: str) -> str:
    """Return the absolute path of an existing file. Errors: Abstained."""
    if path.rstrip("/").rpartition("/")[2] in {"", ".", ".."}:
        whole = made.state.resolve(path)
    else:
        whole = made.place(path)
    if made.entry(whole) is None:
        raise Abstained(f"{path!r:.40} does not exist")
    return whole


def _reached(made: Effects, path: str, *, recurses: bool, follows: bool) -> Iterator[str]:
    """Yield the absolute path of a file, and with `recurses` of everything below it.

    `follows`: links are dereferenced.
    """
    whole = _found(made, path)
    if follows:
        whole = made.followed(whole)
    yield whole
    entry = made.entry(whole)
    if recurses and entry is not None and entry["perms"].startswith("d"):
        yield from made.inside(whole)


def _chmod(made: Effects, words: Sequence[str]) -> bytes:
    recurses = False
    rest = list(words)
    if rest[:1] in (["-R"], ["--recursive"]):
        recurses = True
        rest.pop(0)
    if len(rest) < 2 or (rest[0].startswith("-") and not re.fullmatch("-[rwxXst]+", rest[0])):
        raise Abstained("a chmod that is not supported")
    if any(word.startswith("-") for word in rest[1:]):
        raise Abstained("a chmod that is not supported")
    umask = umask_of(made.state)
    for path in rest[1:]:
        for whole in _reached(made, path, recurses=recurses, follows=True):
            entry = made.entry(whole)
            assert entry is not None
            kind = entry["perms"][0]
            if kind == "l":
                continue
            old = mode_of(entry["perms"])
            mode = changed_mode(rest[0], old, umask, directory=kind == "d")
            if mode is None or (rest[0].startswith("-") and umask & old & ~mode):
                raise Abstained("a missing mode, or one that the umask changes")
            made.put(whole, {**entry, "perms": format_mode(kind, mode)})
    return b""


def _chown(made: Effects, words: Sequence[str], *, group_alone: bool = False) -> bytes:
    options, (who, *paths) = options_of(words, "R") if len(words) > 1 else (set(), [""])
    owner, colon, group = ("", ":", who) if group_alone else who.partition(":")
    users, groups = parse_accounts(made.state, PASSWD), parse_accounts(made.state, GROUP)
    if not paths or (owner and owner not in users) or (group and group not in groups):
        raise Abstained("an unknown owner")
    if owner and colon and not group:
        group = name_of_number(groups, users[owner][3]) or ""
        if not group:
            raise Abstained("a group without a name")
    for path in paths:
        for whole in _reached(made, path, recurses="R" in options, follows="R" not in options):
            entry = made.entry(whole)
            assert entry is not None
            kept = entry if entry["perms"][0] in "dl" else written_entry(entry)
            theirs = {"owner": owner or entry["owner"], "group": group or entry["group"]}
            made.put(whole, {**kept, **theirs})
    return b""


def _chgrp(made: Effects, words: Sequence[str]) -> bytes:
    return _chown(made, words, group_alone=True)


def _mkdir(made: Effects, words: Sequence[str]) -> bytes:
    given, paths = parse_options(words, "p", "m")
    options = dict(given)
    mode = options.get("m")
    if not paths:
        raise Abstained("mkdir without operands")
    umask = umask_of(made.state)
    for path in paths:
        parts = path.rstrip("/").split("/")
        first = 1 if "p" in options else len(parts)
        for end in range(first, len(parts) + 1):
            name = "/".join(parts[:end])
            if not name or parts[end - 1] in {"", ".", ".."}:
                if end == len(parts):
                    raise Abstained("an existing directory")
                continue
            whole = made.place(name)
            entry = made.entry(whole)
            if entry is not None:
                if "p" not in options or not made.entry(made.followed(whole))["perms"][0] == "d":  # type: ignore[index]
                    raise Abstained("an existing directory")
                continue
            last = end == len(parts)
            bits = 0o777 & ~umask if last else 0o777 & ~umask | 0o300
            if last and mode is not None:
                made_mode = changed_mode(mode, 0o777, umask, directory=True)
                if made_mode is None or not re.fullmatch("[0-7]{3,4}", mode):
                    raise Abstained("a mode that is not supported")
                bits = made_mode
            made.put(whole, made.made("d", bits))
    return b""


def _rmdir(made: Effects, words: Sequence[str]) -> bytes:
    _, paths = options_of(words, "")
    for path in paths:
        whole = _found(made, path)
        entry = made.entry(whole)
        if entry is None or entry["perms"][0] != "d" or _around(made, whole):
            raise Abstained("a path that is not an empty directory")
        if made.inside(whole):
            raise Abstained("a directory that is not empty")
        made.put(whole, None)
    if not paths:
        raise Abstained("rmdir without operands")
    return b""


def _around(made: Effects, whole: str) -> bool:
    """Whether a directory is the working directory or one of its ancestors."""
    here = made.state.before.document["cwd"]
    return f"{here}/".startswith(whole.rstrip("/") + "/")


def _rm(made: Effects, words: Sequence[str]) -> bytes:
    options, paths = options_of(words, "rRf")
    if not paths:
        raise Abstained("rm without operands")
    for path in paths:
        whole = made.place(path)
        entry = made.entry(whole)
        if entry is None:
            if "f" in options:
                continue
            raise Abstained("a missing file")
        if entry["perms"][0] == "d":
            if not options & {"r", "R"} or _around(made, whole):
                raise Abstained("a directory that is not removed")
            made.remove_tree(whole)
        else:
            made.put(whole, None)
    return b""


def _touch(made: Effects, words: Sequence[str]) -> bytes:
    options, paths = options_of(words, "c")
    if not paths:
        raise Abstained("touch without operands")
    now = {each: made.fresh[each] for each in OF_DATE}
    for path in paths:
        if path == "-":
            raise Abstained("touch of standard output")
        whole = made.followed(made.place(path) if path.strip("/.") else made.state.resolve(path))
        entry = made.entry(whole)
        if entry is not None:
            made.put(whole, {**entry, **now})
        elif "c" not in options:
            made.put(whole, made.made("-", 0o666 & ~umask_of(made.state)))
            made.contents[made.key(whole)] = b""
    return b""


def _targets(made: Effects, operands: Sequence[str]) -> list[tuple[str, str]]:
    """Return pairs of source and destination, as absolute paths. Errors: Abstained."""
    if len(operands) < 2:
        raise Abstained("a source without a target")
    *sources, target = operands
    into: str | None = None
    if target.rstrip("/").rpartition("/")[2] in {"", ".", ".."}:
        into = made.state.resolve(target)
    else:
        whole = made.place(target)
        entry = made.entry(whole)
        if entry is not None and made.entry(made.followed(whole))["perms"][0] == "d":  # type: ignore[index]
            into = made.followed(whole)
    if into is None and len(sources) > 1:
        raise Abstained("several files to a target that is not a directory")
    pairs = []
    for source in sources:
        found = _found(made, source)
        name = posixpath.basename(source.rstrip("/"))
        if into is not None and name in {"", ".", ".."}:
            raise Abstained("a directory without a separate name")
        pairs.append(
            (found, posixpath.join(into, name) if into is not None else made.place(target))
        )
    if len({target for _, target in pairs}) < len(pairs):
        raise Abstained("two files of one name")
    return pairs


def _cp(made: Effects, words: Sequence[str]) -> bytes:
    options, operands = options_of(words, "rRaptf")
    if "t" in options:
        raise Abstained("cp -t")
    recurses, keeps = bool(options & set("rRa")), bool(options & set("ap"))
    for source, target in _targets(made, operands):
        entry = made.entry(source)
        if entry is not None and entry.get("target") is not None and not recurses:
            source = made.followed(source)
            entry = made.entry(source)
        assert entry is not None
        if entry["perms"][0] == "d":
            if (
                not recurses
                or made.entry(target) is not None
                or f"{target}/".startswith(f"{source}/")
            ):
                raise Abstained("a directory that is not copied")
            paths = sorted(made.inside(source))
            _copy(made, source, target, keeps=keeps)
            for path in paths:
                _copy(made, path, target + path[len(source) :], keeps=keeps)
            if keeps:
                copied = made.entry(target)
                assert copied is not None
                made.put(target, {**copied, **{each: entry[each] for each in OF_DATE}})
        else:
            _copy(made, source, target, keeps=keeps)
    return b""


def _copy(made: Effects, source: str, target: str, *, keeps: bool) -> None:
    entry, old = made.entry(source), made.entry(target)
    assert entry is not None
    kind = entry["perms"][0]
    if old is not None and (kind != "-" or old["perms"][0] != "-" or source == target):
        raise Abstained("an existing file at the target")
    if kind == "l":
        kept = dict(entry) if keeps else {**entry, **new_file_attributes(made)}
        made.put(target, {**kept, "links": 1})
        return
    mode = mode_of(entry["perms"])
    if kind == "d":
        bits = mode if keeps else mode & 0o777 & ~umask_of(made.state)
        copied = made.made("d", bits)
        if keeps:
            copied |= {each: entry[each] for each in ("owner", "group", *OF_DATE)}
        made.put(target, copied)
        return
    content = made.state.read(source) if source not in made.files else None
    if kind != "-" or content is None or len(content) != entry["size"]:
        raise Abstained("an unknown content")
    copied = made.made("-", mode & 0o777 & ~umask_of(made.state), size=entry["size"])
    if old is not None:
        copied = {
            **written_entry(old),
            **new_file_attributes(made, owner=False),
            "size": entry["size"],
        }
    if keeps:
        copied |= {each: entry[each] for each in ("owner", "group", "perms", *OF_DATE)}
    made.put(target, copied)
    made.contents[made.key(target)] = content


def _mv(made: Effects, words: Sequence[str]) -> bytes:
    _, operands = options_of(words, "f")
    for source, target in _targets(made, operands):
        entry = made.entry(source)
        if entry is None or made.entry(target) is not None or _around(made, source):
            raise Abstained("an existing file at the target")
        if f"{target}/".startswith(f"{source}/"):
            raise Abstained("a directory that would be in itself")
        paths = sorted(made.inside(source)) if entry["perms"][0] == "d" else []
        for path in (source, *paths):
            new = target + path[len(source) :]
            kept = made.entry(path)
            assert kept is not None
            made.files[made.key(new)] = kept
            made.files[made.key(path)] = None
            made.moved[made.key(path)] = made.key(new)
        if entry["perms"][0] == "d":
            for path, change in ((source, -1), (target, 1)):
                above = posixpath.dirname(path)
                parent = made.entry(above)
                if parent is not None:
                    links = {**parent, "links": parent["links"] + change}
                    made.files[made.key(above)] = links
    return b""


def _ln(made: Effects, words: Sequence[str]) -> bytes:
    options, operands = options_of(words, "sfn")
    if len(operands) != 2:
        raise Abstained("ln with more or fewer than two operands")
    source, target = operands
    whole = made.place(target)
    old = made.entry(whole)
    if old is not None and made.entry(made.state.resolve(whole)) is not None:
        into = made.state.resolve(whole)
        if made.entry(into)["perms"][0] == "d" and not ("n" in options and old["perms"][0] == "l"):  # type: ignore[index]
            whole = posixpath.join(into, posixpath.basename(source.rstrip("/")))
            old = made.entry(whole)
    if old is not None and ("f" not in options or "s" not in options or old["perms"][0] == "d"):
        raise Abstained("an existing file at the target")
    if old is not None and (old["links"] > 1 or old["perms"][0] != "l"):
        raise Abstained("an existing file at the target")
    if "s" in options:
        if not source:
            raise Abstained("a link to nothing")
        above = posixpath.dirname(whole)
        parent = made.entry(above)
        if old is not None and parent is not None:  # the new link replaces the old one
            made.put(above, {**parent, **new_file_attributes(made, owner=False)})
        made.put(whole, made.made("l", 0o777, size=len(os.fsencode(source)), target=source))
        return b""
    found = _found(made, source)
    entry = made.entry(found)
    if entry is None or entry["perms"][0] != "-":
        raise Abstained("a file that is not regular")
    content = made.state.read(found)
    if content is None:
        raise Abstained("an unknown content")
    if entry["links"] > 1:
        raise Abstained("a file with more names")
    more = {**entry, "links": entry["links"] + 1}
    made.put(found, more)
    made.put(whole, more)
    made.contents[made.key(whole)] = content
    return b""


def _tee(made: Effects, words: Sequence[str]) -> bytes:
    options, paths = options_of(words, "a")
    for path in paths:
        whole = made.followed(made.place(path))
        appends = "a" in options and made.entry(whole) is not None
        before = made.state.read(whole) if appends else b""
        if before is None:
            raise Abstained("an unknown content")
        made.write(path, before + made.state.stdin)
    return made.state.stdin


def _dd(made: Effects, words: Sequence[str]) -> bytes:
    """Apply `dd` to a file or to `/dev/zero`; return the data if `of` is missing.

    Errors: Abstained.

    The elapsed time, which `dd` prints without `status=none`, is invented.
    """
    given = dict(word.partition("=")[::2] for word in words)
    if len(given) < len(words) or not given.keys() <= {"if", "of", "bs", "count", "skip", "status"}:
        raise Abstained("an operand that is not supported")
    if given.get("status", "none") != "none":
        raise Abstained("a status that is not supported")
    block = _size(given.get("bs", "512"))
    count = _size(given["count"]) if "count" in given else None
    skip = _size(given.get("skip", "0"))
    if not block:
        raise Abstained("blocks of no size")
    content = _input(made, given.get("if"), None if count is None else (skip + count) * block)
    end = None if count is None else (skip + count) * block
    copied = content[skip * block : end]
    spend(len(copied) // COPIED)
    if "status" not in given:
        blocks = f"{len(copied) // block}+{int(len(copied) % block > 0)} records"
        told = f"{blocks} in\n{blocks} out\n{_counted(len(copied))} copied, 0.0005 s, 20 MB/s\n"
        made.errors, made.volatile = told.encode(), True
    if "of" not in given:
        return copied
    made.write(given["of"], copied)
    return b""


def _counted(number: int) -> str:
    """Format a number of bytes as `dd` does: `3072 bytes (3.1 kB, 3.0 KiB)`."""
    if number < 1000:
        return f"{number} byte{'s' * (number != 1)}"
    binary = f", {_rounded(number, 1024)}" if number >= 1024 else ""
    return f"{number} bytes ({_rounded(number, 1000)}{binary})"


def _rounded(number: int, base: int) -> str:
    units = ("B", "kB", "MB", "GB") if base == 1000 else ("B", "KiB", "MiB", "GiB")
    scaled, unit = float(number), 0
    while scaled >= base:
        scaled, unit = scaled / base, unit + 1
    digits = 1 if unit and scaled < 9.95 else 0
    return f"{scaled:.{digits}f} {units[unit]}"


def _input(made: Effects, path: str | None, most: int | None) -> bytes:
    if path is None:
        return made.state.stdin
    if path == "/dev/zero":
        if most is None or most > LARGEST:
            raise Abstained("more zeros than are written")
        return bytes(most)
    if path == "/dev/null":
        return b""
    content = made.state.read(path)
    entry = made.state.entry(made.state.resolve(path))
    if content is None or entry is None or not entry.perms.startswith("-"):
        raise Abstained("an unknown content")
    return content


def _size(word: str) -> int:
    match = re.fullmatch(r"(\d{1,9})([a-zA-Z]*)", word)
    if match is None or match[2] not in _UNITS:
        raise Abstained("a number that is not supported")
    return int(match[1]) * _UNITS[match[2]]


def _split(made: Effects, words: Sequence[str]) -> bytes:
    """Create the files of `split`, by lines or bytes. Errors: Abstained."""
    counted = [re.sub(r"^-(?=\d+$)", "-l", word) for word in words]
    options, operands = parse_options(counted, "d", "lba", {"numeric-suffixes": "d"})
    given = dict(options)
    lines, size, length = (
        _size(given.get(letter, usual)) for letter, usual in (("l", "1000"), ("b", "0"), ("a", "2"))
    )
    source, prefix = (*operands, *("-", "x")[len(operands) :])[:2]
    if len(operands) > 2 or not (lines and 0 < length < 9):
        raise Abstained("operands that are not supported")
    content = _input(made, None if source == "-" else source, None)
    spend(len(content) // COPIED)
    letters = string.digits if "d" in given else string.ascii_lowercase
    names = itertools.product(letters, repeat=length)
    for piece in _by_bytes(content, size) if size else _by_lines(content, lines):
        name = next(names, None)
        # GNU split makes its suffixes longer before all letters are used
        if name is None or name[0] == letters[-1]:
            raise Abstained("more pieces than names")
        made.write(prefix + "".join(name), piece)
    return b""


def _by_bytes(content: bytes, size: int) -> Iterator[bytes]:
    return (content[start : start + size] for start in range(0, len(content), size))


def _by_lines(content: bytes, count: int) -> Iterator[bytes]:
    lines = [line for line in re.split(rb"(?<=\n)", content) if line]
    return (b"".join(lines[at : at + count]) for at in range(0, len(lines), count))


EFFECTS: Mapping[str, Callable[[Effects, Sequence[str]], bytes]] = MappingProxyType(
    {
        "chmod": _chmod, "chown": _chown, "chgrp": _chgrp, "mkdir": _mkdir, "rmdir": _rmdir,
        "rm": _rm, "touch": _touch, "cp": _cp, "mv": _mv, "ln": _ln, "tee": _tee, "dd": _dd,
        "split": _split,
    }
)  # fmt: skip
"""Functions that apply a command and return its output, by name. Errors: Abstained if no rule
applies."""
