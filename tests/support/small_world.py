"""A machine with a few files, and a memory of a few inputs that it never ran."""

from __future__ import annotations

from pathlib import Path
from typing import Any

from shioenv.domain.context import Context
from shioenv.domain.runner import State
from shioenv_model.composition.call import Call
from shioenv_model.memory.forms import Forms
from shioenv_model.memory.index_writer import write_index
from shioenv_model.memory.memory import Memory
from shioenv_model.memory.memory import taken as taken_apart
from shioenv_model.memory.rewrite import Kept, Taken
from shioenv_model.memory.world import World

HOME = "/home/ubuntu"
FORMS = Forms()
CONTENTS = {"a.txt": b"one\ntw", "b.txt": b"x\ny\nz one\n"[:9], "sub/inner.txt": b"in\n"}


def entry(size: int, perms: str = "-rw-r--r--", **more: Any) -> dict[str, Any]:
    return {
        "perms": perms, "links": 1, "owner": "root", "group": "root", "size": size,
        "month": "Oct", "day": 16, "year": 2025, "time": "19:43", **more,
    }  # fmt: skip


def small_world() -> World:
    directory = "drwxr-xr-x"
    files = {
        ".": entry(4096, directory),
        "sub": entry(4096, directory, time="08:00"),
        "other": entry(4096, directory, time="08:00"),
        "other/x": entry(1),
        "run.sh": entry(6, "-rwxr-xr-x"),
        "link": entry(5, "lrwxrwxrwx", target="a.txt"),
        "/": entry(4096, directory),
        "/tmp": entry(4096, "drwxrwxrwt"),
        "/home": entry(4096, directory),
        "/usr/bin": entry(4096, directory),
        "/usr": entry(4096, directory),
        "/usr/bin/cat": entry(40_000, "-rwxr-xr-x"),
        **{name: entry(len(content)) for name, content in CONTENTS.items()},
    }
    document = {
        "cwd": HOME,
        "env": {"HOME": "/root", "PATH": "/usr/bin", "PWD": HOME},
        "settings": {"EUID": 'declare -ir EUID="0"', "IFS": " \t\n"},
        "shell_options": {},
        "aliases": {},
        "functions": {},
        "umask": "0022",
        "fs": files,
    }
    contents = {f"{HOME}/{name}": content for name, content in CONTENTS.items()}
    return World(Context(document), contents, made=entry(0))


def taken(text: str, state: State | None = None) -> Taken:
    made = taken_apart(Call.parse(text), state or small_world().state(), FORMS)
    assert made is not None
    return made


def missing(command: str, name: str) -> Kept:
    said = f"{command}: {name}: No such file or directory\n"
    return Kept(1, said, "[]", is_error=True)


def gone(name: str) -> Kept:
    return Kept(0, "", f'[["r","/fs/{name}"]]')


def small_memory(directory: Path) -> Memory:
    made = '[["a","/fs/new",{"perms":"-rw-r--r--","links":1,"owner":"root","group":"root",'
    made += '"size":0,"month":"Oct","day":16,"year":2025,"time":"19:43"}]]'
    kept = {
        "cat gone": missing("cat", "gone"),
        "cat a.txt": Kept(0, "one\ntw", "[]"),
        "rm a.txt": gone("a.txt"),
        "rm -r other": Kept(0, "", '[["r","/fs/other"],["r","/fs/other~1x"]]'),
        "rm gone": missing("rm", "cannot remove 'gone'"),
        "touch new": Kept(0, "", made),
        "echo hi": Kept(0, "hi\n", "[]"),
        "head -n 1 a.txt": Kept(0, "one\n", "[]"),
        "wc -l b.txt": Kept(0, "2 b.txt\n", "[]"),
        "pwd": Kept(0, f"{HOME}\n", "[]"),
        "ls": Kept(0, "a.txt\nb.txt\nlink\nother\nrun.sh\nsub\n", "[]"),
        "ls -l": Kept(0, "total 4\n", "[]"),
        "ls -l sub": Kept(0, "total 0\n", "[]"),
        "ls sub": Kept(0, "inner.txt\n", "[]"),
        "cd sub": Kept(0, "", f'[["=","/cwd","{HOME}/sub"],["=","/env/PWD","{HOME}/sub"]]'),
    }  # fmt: skip
    write_index(directory, [(HOME, text, taken(text), each) for text, each in kept.items()])
    (directory / "world.json").write_bytes(small_world().to_json())
    return Memory(directory)
