"""Make the home tree `project`, a Git repository with history, from project_history.toml.

    python scripts/project_repository.py            write the tree
    python scripts/project_repository.py --check    compare it with the written one

The objects are made here, in one pack without compression, so the bytes do not depend on the
host's Git or zlib. Attributes in the index are those of the home tree, so `git status` writes
nothing. Inode numbers are not compared (`core.checkStat`), since they differ between hosts.
"""

from __future__ import annotations

import struct
import sys
import tomllib
import zlib
from dataclasses import dataclass, field
from datetime import UTC, datetime
from hashlib import sha1
from pathlib import Path
from typing import Any

HERE = Path(__file__).parent
HISTORY = HERE / "project_history.toml"
TREE = HERE.parent / "packages/shioenv/src/shioenv/systems/project/tree.toml"
TOP, START, EDITED, LAST = "project", "2025-05-12T09:00:00Z", "2025-10-13T09:20:00Z", "2025-10-14"
CONFIG = """[core]
\trepositoryformatversion = 0
\tfilemode = true
\tbare = false
\tlogallrefupdates = true
\tcheckStat = minimal
\ttrustctime = false
[user]
\tname = Ubuntu
\temail = ubuntu@example.internal
[init]
\tdefaultBranch = main
"""
NOTHING = "0" * 40
KINDS = {"commit": 1, "tree": 2, "blob": 3, "tag": 4}


def seconds(time: datetime | str) -> int:
    """Return a time in seconds since 1970."""
    return int((datetime.fromisoformat(time) if isinstance(time, str) else time).timestamp())


@dataclass
class Repository:
    """The objects, references and files of a repository."""

    objects: dict[str, tuple[str, bytes]] = field(default_factory=dict)
    heads: dict[str, str] = field(default_factory=dict)
    tags: dict[str, str] = field(default_factory=dict)
    files: dict[str, dict[str, tuple[bytes, int]]] = field(default_factory=dict)
    """The files of each branch: content, and the time of the commit that wrote it."""
    log: list[str] = field(default_factory=list)
    """The lines of the reflog of `main`."""

    def add(self, kind: str, content: bytes) -> str:
        """Add an object and return its name."""
        name = sha1(f"{kind} {len(content)}\0".encode() + content).hexdigest()
        self.objects[name] = (kind, content)
        return name

    def tree(self, files: dict[str, tuple[bytes, int]]) -> str:
        """Add the tree of these files, with all it contains."""
        rows: dict[str, tuple[str, str]] = {}
        beneath: dict[str, dict[str, tuple[bytes, int]]] = {}
        for path, value in files.items():
            first, _, rest = path.partition("/")
            if rest:
                beneath.setdefault(first, {})[rest] = value
            else:
                rows[first] = ("100644", self.add("blob", value[0]))
        rows |= {name: ("40000", self.tree(inner)) for name, inner in beneath.items()}
        order = sorted(rows, key=lambda name: name + "/" * (name in beneath))
        return self.add(
            "tree",
            b"".join(f"{rows[n][0]} {n}\0".encode() + bytes.fromhex(rows[n][1]) for n in order),
        )

    def commit(self, row: dict[str, Any], authors: dict[str, str]) -> None:
        """Add a commit to its branch, and its tag."""
        branch, time = row["branch"], seconds(row["time"])
        start = row.get("from", branch)
        parents = [self.heads[name] for name in (start, row.get("merge")) if name in self.heads]
        files = dict(self.files.get(start, {}))
        merged = self.files.get(row.get("merge", ""), {})
        files |= {path: value for path, value in merged.items() if path not in files}
        files |= {path: (text.encode(), time) for path, text in row.get("files", {}).items()}
        for path in row.get("remove", ()):
            del files[path]
        who = f"{authors[row['author']]} {time} +0000"
        lines = [f"tree {self.tree(files)}", *(f"parent {name}" for name in parents)]
        lines += [f"author {who}", f"committer {who}", "", row["message"], ""]
        name = self.add("commit", "\n".join(lines).encode())
        if branch == "main":
            old = self.heads.get("main", NOTHING)
            verb = "commit" if parents else "commit (initial)"
            verb = f"merge {row['merge']}" if "merge" in row else verb
            self.log.append(f"{old} {name} {who}\t{verb}: {row['message']}")
        self.heads[branch], self.files[branch] = name, files
        if tag := row.get("tag"):
            text = f"object {name}\ntype commit\ntag {tag}\ntagger {who}\n\nRelease {tag}\n"
            self.tags[tag] = self.add("tag", text.encode())

    def pack(self) -> tuple[bytes, bytes, str]:
        """Return the pack of all objects, its index and the number in their names."""
        names = sorted(self.objects)
        pack, places, sums = bytearray(struct.pack(">4sII", b"PACK", 2, len(names))), [], []
        for name in names:
            kind, content = self.objects[name]
            size, head = len(content) >> 4, [KINDS[kind] << 4 | len(content) & 15]
            while size:
                head[-1] |= 128
                head.append(size & 127)
                size >>= 7
            entry = bytes(head) + zlib.compress(content, 0)
            places.append(len(pack))
            sums.append(zlib.crc32(entry))
            pack += entry
        pack += sha1(pack).digest()
        first = [int(name[:2], 16) for name in names]
        counts = [sum(byte <= limit for byte in first) for limit in range(256)]
        index = b"\xfftOc" + struct.pack(">I256I", 2, *counts)
        index += b"".join(map(bytes.fromhex, names))
        index += struct.pack(f">{2 * len(names)}I", *sums, *places) + bytes(pack[-20:])
        number = sha1(b"".join(map(bytes.fromhex, names))).hexdigest()
        return bytes(pack), index + sha1(index).digest(), number

    def index(self) -> bytes:
        """Return the index of `main`'s files."""
        files = sorted(self.files["main"].items())
        out = bytearray(struct.pack(">4sII", b"DIRC", 2, len(files)))
        for path, (content, time) in files:
            name = path.encode()
            entry = struct.pack(">10I", time, 0, time, 0, 0, 0, 0o100644, 0, 0, len(content))
            entry += bytes.fromhex(self.add("blob", content)) + struct.pack(">H", len(name)) + name
            out += entry + bytes(8 - len(entry) % 8)
        return bytes(out + sha1(out).digest())


def quoted(text: str) -> str:
    """Return a text as a basic string of TOML, over several lines if it has several."""
    text = text.replace("\\", "\\\\").replace('"', '\\"').replace("\t", "\\t")
    return f'"""\n{text}"""' if "\n" in text else f'"{text}"'


def entries(history: dict[str, Any]) -> dict[str, tuple[str, str]]:
    """Return time and content of each entry of the tree, by path."""
    made = Repository()
    for row in history["commits"]:
        made.commit(row, history["authors"])
    found: dict[str, tuple[str, str]] = {}

    def add(path: str, time: str, text: str | bytes = "", *, directory: bool = False) -> None:
        where = ""
        for part in path.split("/")[:-1]:
            where = f"{where}/{part}".strip("/")
            found.setdefault(f"{TOP}/{where}", (START, 'kind = "directory"'))
        content = f"text = {quoted(text)}" if isinstance(text, str) else ""
        if isinstance(text, bytes):
            rows = [text[at : at + 60].hex() for at in range(0, len(text), 60)]
            content = 'hex = """\\\n' + "\\\n".join(rows) + '"""'
        found[f"{TOP}/{path}"] = (time, 'kind = "directory"' if directory else content)

    found[TOP] = (EDITED, 'kind = "directory"')
    for path, (content, time) in made.files["main"].items():
        add(path, f"{datetime.fromtimestamp(time, UTC):%FT%TZ}", content.decode())
    for path, text in history["not_committed"].items():
        add(path, EDITED, text)
    pack, index, number = made.pack()
    git: dict[str, str | bytes] = {}
    git |= {f"objects/pack/pack-{number}.pack": pack, f"objects/pack/pack-{number}.idx": index}
    git |= {"index": made.index(), "HEAD": "ref: refs/heads/main\n", "config": CONFIG}
    git |= {f"refs/heads/{name}": f"{target}\n" for name, target in made.heads.items()}
    git |= {f"refs/tags/{name}": f"{target}\n" for name, target in made.tags.items()}
    log = "\n".join([*made.log, ""])
    git |= {"logs/HEAD": log, "logs/refs/heads/main": log, "info/exclude": ""}
    git["description"] = "Unnamed repository; edit this file to name the repository.\n"
    for path, held in git.items():
        add(f".git/{path}", f"{LAST}T07:00:00Z", held)
    for path in ("branches", "hooks", "objects/info"):
        add(f".git/{path}", START, directory=True)
    return found


def tree_text(history: dict[str, Any]) -> str:
    """Return the text of `tree.toml`."""
    lines = [
        "# A repository of Git, laid over the home tree. Made by project_repository.py in scripts",
        "# from project_history.toml; change that file.",
        '[entries."."]\nkind = "directory"\nmode = "0775"\ntime = 2025-10-16T08:05:00Z\n',
    ]
    for path, (time, content) in sorted(entries(history).items()):
        lines.append(f'[entries."{path}"]\n{content}')
        if path.endswith((".pack", ".idx")):
            lines.append('mode = "0444"')
        lines.append(f'time = {time}\nowner = "root"\ngroup = "root"\n')
    return "\n".join(lines)


def main() -> int:
    """Write or check the tree."""
    text = tree_text(tomllib.loads(HISTORY.read_text(encoding="utf-8")))
    if "--check" in sys.argv:
        same = TREE.read_text(encoding="utf-8") == text
        print("the tree is up to date" if same else "run scripts/project_repository.py")
        return 0 if same else 1
    TREE.parent.mkdir(exist_ok=True)
    TREE.write_text(text, encoding="utf-8")
    print(f"wrote {TREE}, {len(text):,} characters")
    return 0


if __name__ == "__main__":
    sys.exit(main())
