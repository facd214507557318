"""A machine of a few files whose shell has a dozen commands: no sandbox runs."""

from __future__ import annotations

import base64
import hashlib
import posixpath
import re
import shlex
from collections.abc import Callable, Iterable, Mapping, Sequence
from copy import deepcopy
from datetime import UTC, datetime
from types import SimpleNamespace
from typing import Any

from shioenv.behavior.observe import SandboxRunner
from shioenv.behavior.typed_rows import Row, RowKind
from shioenv.domain.behavior import Behavior
from shioenv.domain.context import FIELDS, Context, pointer
from shioenv.domain.patch import ContextPatch, diff_documents, with_contents
from shioenv.sandbox.base import Limits

HOME = "/home/ubuntu"
DIGEST = "d" * 64
FILES = {
    "a": b"one\ntwo\n",
    "b": b"other\n",
    "data/c": b"x\n",
    "tool": b"#!/bin/sh\n",
    "-odd": b"?\n",
}
DATES = {"month": "Oct", "day": 16, "year": 2025, "time": "19:43"}
NOW = {"month": "Jan", "day": 2, "year": 2026, "time": "03:04"}
SYSTEM: Any = SimpleNamespace(
    name="toy",
    digest=DIGEST,
    host_clock=False,
    index={},
    profile=None,
    declaration=SimpleNamespace(instant=datetime(2026, 1, 2, 3, 4, tzinfo=UTC)),
)


def entry(perms: str, size: int, dates: Mapping[str, Any] = DATES, **more: Any) -> dict[str, Any]:
    own = {"perms": perms, "links": 1, "owner": "root", "group": "root", "size": size}
    return {**own, **dates, **more}


class _Shell:
    """The pristine machine, and the effects of rows on it."""

    def __init__(self) -> None:
        self.contents = dict(FILES)
        self.fs = {name: entry("-rw-r--r--", len(text)) for name, text in FILES.items()}
        self.fs["data"] = entry("drwxr-xr-x", 4096)
        self.env = {"HOME": "/root", "LANG": "C", "PWD": HOME}
        self.cwd, self.umask, self.hostname = HOME, "0022", "toy"
        self.moved: dict[str, str] = {}

    def document(self) -> dict[str, Any]:
        objects = {"shell_options", "settings", "functions", "aliases", "limits", "network"}
        document: dict[str, Any] = {name: {} if name in objects else "" for name in FIELDS}
        own = {"fs": self.fs, "env": self.env, "cwd": self.cwd, "umask": self.umask}
        document |= {**own, "hostname": self.hostname, "user": "root", "groups": ["root"]}
        return deepcopy(document)

    def row(self, text: str) -> tuple[int, str]:
        """Return the exit code and the output of a row."""
        asked = re.findall(r"echo (\d+) \$\(/usr/bin/base64 -w0 < (.+)\)", text)
        if asked:
            found = [(n, self.contents.get(shlex.split(name)[0])) for n, name in asked]
            told = [f"{n} {base64.b64encode(text or b'').decode()}" for n, text in found]
            return 0, "\n".join(told) + "\n"
        code, printed = 0, ""
        for line in re.split(r"\n|;|&&", text.strip("{} \n")):
            try:
                words = shlex.split(line.replace(">", " > ").replace(">  > ", ">> "))
            except ValueError:
                return 2, "syntax error\n"
            out = None
            for sign in (">>", ">"):
                if sign in words:
                    at = words.index(sign)
                    out, words = (sign, words[at + 1]), words[:at]
            words = words[1:] if words[:1] == ["command"] else words
            if not words:
                continue
            code, said = self.command(words)
            if out is not None:
                before = self.contents.get(out[1], b"") if out[0] == ">>" else b""
                self.write(out[1], before + said.encode())
            else:
                printed += said
        return code, printed

    def command(self, words: list[str]) -> tuple[int, str]:
        do = getattr(self, f"do_{words[0].replace(':', 'nothing')}", None)
        if do is None:
            return 127, f"{words[0]}: not found\n"
        try:
            code, said = do(words[1:])
        except (ValueError, IndexError, KeyError):
            return 2, f"usage: {words[0]}\n"
        return code, str(said)

    def write(self, name: str, content: bytes) -> None:
        was = self.fs.get(name, entry("-rw-r--r--", 0))
        self.fs[name] = {**was, **NOW, "size": len(content)}
        self.contents[name] = content

    def names(self, words: Sequence[str]) -> list[str]:
        plain = [word.removeprefix(f"{HOME}/").removeprefix("./") for word in words]
        return [word for word in plain if not word.startswith("-")]

    def each(self, names: Iterable[str], do: Callable[[str], None]) -> tuple[int, str]:
        for name in names:
            if name not in self.fs:
                return 1, f"{name}: No such file\n"
            do(name)
        return 0, ""

    def remove(self, name: str) -> None:
        self.fs.pop(name)
        self.contents.pop(name, None)

    def do_rm(self, words: list[str]) -> tuple[int, str]:
        return self.each(self.names(words), self.remove)

    def do_mv(self, words: list[str]) -> tuple[int, str]:
        old, new = self.names(words)
        if old not in self.fs:
            return 1, f"{old}: No such file\n"
        self.moved[old] = new
        self.fs[new] = self.fs[old]
        if old in self.contents:
            self.contents[new] = self.contents[old]
        self.remove(old)
        return 0, ""

    def do_cp(self, words: list[str]) -> tuple[int, str]:
        old, new = self.names(words)
        if old not in self.contents:
            return 1, f"{old}: No such file\n"
        self.write(new, self.contents[old])
        return 0, ""

    def do_chmod(self, words: list[str]) -> tuple[int, str]:
        words = self.names(words)
        mode = int(words[0], 8)
        letters = "".join(
            letter if mode >> (8 - n) & 1 else "-" for n, letter in enumerate("rwxrwxrwx")
        )

        def change(name: str) -> None:
            self.fs[name] = {**self.fs[name], "perms": self.fs[name]["perms"][0] + letters}

        return self.each(words[1:], change)

    def do_chown(self, words: list[str]) -> tuple[int, str]:
        words = self.names(words)
        owner, _, group = words[0].partition(":")

        def change(name: str) -> None:
            group_now = group or self.fs[name]["group"]
            self.fs[name] = {**self.fs[name], "owner": owner, "group": group_now}

        return self.each(words[1:], change)

    def do_chgrp(self, words: list[str]) -> tuple[int, str]:
        group, *names = self.names(words)

        def change(name: str) -> None:
            self.fs[name] = {**self.fs[name], "group": group}

        return self.each(names, change)

    def do_dd(self, words: list[str]) -> tuple[int, str]:
        given = dict(word.split("=") for word in words)
        old = self.contents.get(given["of"], b"")
        one = given["if"] == "/dev/zero"
        self.write(given["of"], b"\0" + old[1:] if one else self.contents[given["if"]])
        return 0, ""

    def do_mkdir(self, words: list[str]) -> tuple[int, str]:
        for name in self.names(words):
            self.fs[name] = entry("drwxr-xr-x", 4096, NOW)
        return 0, ""

    def do_mkfifo(self, words: list[str]) -> tuple[int, str]:
        for name in self.names(words):
            self.fs[name] = entry("prw-r--r--", 0, NOW)
        return 0, ""

    def do_ln(self, words: list[str]) -> tuple[int, str]:
        target, name = self.names(words)
        self.fs[name] = entry("lrwxrwxrwx", len(target), NOW, target=target)
        return 0, ""

    def do_touch(self, words: list[str]) -> tuple[int, str]:
        for name in self.names(words):
            self.write(name, self.contents.get(name, b""))
        return 0, ""

    def do_truncate(self, words: list[str]) -> tuple[int, str]:
        size = int(words[1])
        for name in self.names(words[2:]):
            self.write(name, self.contents.get(name, b"")[:size].ljust(size, b"\0"))
        return 0, ""

    def do_cat(self, words: list[str]) -> tuple[int, str]:
        texts = [self.contents.get(name) for name in self.names(words)]
        if None in texts:
            return 1, "cat: No such file\n"
        return 0, b"".join(text or b"" for text in texts).decode()

    def do_sort(self, words: list[str]) -> tuple[int, str]:
        code, text = self.do_cat(words)
        lines = sorted(text.splitlines(), reverse="-r" in words)
        return code, "".join(f"{line}\n" for line in lines)

    def do_echo(self, words: list[str]) -> tuple[int, str]:
        return 0, " ".join(words) + "\n"

    def do_printf(self, words: list[str]) -> tuple[int, str]:
        return 0, words[-1]

    def do_cd(self, words: list[str]) -> tuple[int, str]:
        self.cwd = posixpath.normpath(posixpath.join(self.cwd, words[0]))
        self.env["PWD"] = self.cwd
        return 0, ""

    def do_export(self, words: list[str]) -> tuple[int, str]:
        name, _, value = words[-1].partition("=")
        self.env[name] = value
        return 0, ""

    do_declare = do_export

    def do_unset(self, words: list[str]) -> tuple[int, str]:
        self.env.pop(words[0], None)
        return 0, ""

    def do_umask(self, words: list[str]) -> tuple[int, str]:
        self.umask = words[0]
        return 0, ""

    def do_hostname(self, words: list[str]) -> tuple[int, str]:
        self.hostname = words[0]
        return 0, ""

    def do_ls(self, words: list[str]) -> tuple[int, str]:
        return 0, "".join(f"{name}\n" for name in sorted(self.fs) if "/" not in name)

    def do_nothing(self, words: list[str]) -> tuple[int, str]:
        return 0, ""

    def do_pwd(self, words: list[str]) -> tuple[int, str]:
        return 0, f"{self.cwd}\n"


class ToyMachine(SandboxRunner):
    """Types rows in a single shell; it reports their effects like a sandbox."""

    def __init__(self) -> None:
        self.system = SYSTEM
        self.closed = 0
        self.lends = 1

    @property
    def limits(self) -> Limits:
        return Limits()

    @property
    def whole_seconds(self) -> float:
        return 0.0

    @property
    def keeps_shells(self) -> bool:
        return False

    def context(self, cwd: str | None = None) -> Context:
        return Context(_Shell().document())

    def _recorder(self, start: str) -> Any:
        return SimpleNamespace(context=lambda profile, files: self.context(start))

    def read(self, path: str) -> bytes | None:
        return FILES.get(posixpath.relpath(path, HOME))

    def type(self, rows: Iterable[Row], cwd: str, **how: Any) -> Behavior:
        shell, code, output = _Shell(), 0, b""
        for row in rows:
            code, said = shell.row(row.text)
            output = said.encode() if row.how in (RowKind.TYPED, RowKind.BESIDE) else b""
        pristine = _Shell().document()
        digests = {
            name: hashlib.sha256(content).hexdigest()
            for name, content in shell.contents.items()
            if content != FILES.get(name)
        }
        operations = [*diff_documents(pristine, shell.document()).operations]
        for old, new in shell.moved.items():
            pair = [one for one in operations if one[1] in (pointer("fs", old), pointer("fs", new))]
            if [one[0] for one in pair] == ["r", "a"] and pair[1][2] == pristine["fs"][old]:
                operations = [one for one in operations if one not in pair]
                operations.append(("m", pair[0][1], pair[1][1]))
                digests.pop(new, None)
        patch = with_contents(ContextPatch(tuple(operations)), digests, shell.fs.get)
        return Behavior(code, output, patch, digests)

    def close(self) -> None:
        self.closed += 1
