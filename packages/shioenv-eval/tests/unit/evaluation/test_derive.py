"""Another system derived from a declared one."""

from __future__ import annotations

import ast
import posixpath
import re
import subprocess
import tomllib
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any

import pytest
import tomli_w

from shioenv.errors import OutputExistsError, SystemDeclarationError
from shioenv.system.declare import load_declaration, read_text, systems_directory
from shioenv.system.home import load_home
from shioenv.system.home_files import HomeEntry
from shioenv_eval.derived_system import derive_system


@pytest.mark.parametrize("base", ["debian-12", "ubuntu-24.04"])
@pytest.mark.parametrize("seed", range(4))
def test_it_is_a_declaration_whose_tree_can_be_read(base: str, seed: int, tmp_path: Path) -> None:
    file = derive_system(base, "another", seed, tmp_path / "another")
    before, after = load_declaration(base), load_declaration(str(file))
    assert after.name == "another"
    assert after.distribution == before.distribution
    assert not {user.name for user in after.users} & {user.name for user in before.users}
    assert [user.uid for user in after.users] == [user.uid for user in before.users]
    assert after.start_directory == after.home.target != before.start_directory
    assert after.machine.hostname != before.machine.hostname
    assert after.instant != before.instant
    old, new = load_home(before), load_home(after)
    shared = {entry.path for entry in old} & {entry.path for entry in new}
    assert len(shared) < len(old) / 2
    assert len(new) > len(old) * 0.7
    contents = {entry.data for entry in old if entry.data}
    assert sum(entry.data in contents for entry in new) < len(new) * 0.7


def test_the_same_seed_gives_the_same_system_and_another_another(tmp_path: Path) -> None:
    places = [("one", 1), ("two", 1), ("three", 2)]
    made = [load_home(load_declaration(str(derive_system(None, "x", seed, tmp_path / name))))
            for name, seed in places]  # fmt: skip
    assert made[0] == made[1]
    assert made[0] != made[2]


def test_names_of_the_first_system_are_gone(tmp_path: Path) -> None:
    file = derive_system(None, "another", 5, tmp_path)
    text = file.read_text()
    home = text.partition("[machine.kernel]")[0].partition("[session]")[2]
    assert "ubuntu" not in home
    assert "alice" not in text


@pytest.mark.parametrize("name", ["../x", "X", "debian 12", "a.toml", ""])
def test_what_is_no_name_leaves_nothing_behind(name: str, tmp_path: Path) -> None:
    with pytest.raises(SystemDeclarationError, match=r"\$\.name: expected"):
        derive_system(None, name, 5, tmp_path / "out")
    assert list(tmp_path.iterdir()) == []


def test_a_directory_with_a_system_is_left_alone(tmp_path: Path) -> None:
    derive_system(None, "another", 5, tmp_path)
    with pytest.raises(OutputExistsError, match="already has a system"):
        derive_system(None, "another", 6, tmp_path)


SHIPPED_FILES = Path(str(systems_directory())) / "home" / "files"


def of_system(text: str) -> list[str]:
    """Return the absolute paths in a text that lead out of the homes."""
    found = re.findall(r"(?<![\w.$}:/<-])/[\w./-]+", text)
    return sorted(path for path in found if not path.startswith("/home/"))


@pytest.mark.parametrize("seed", [1, 2, 7, 11, 23, 40])
def test_paths_of_the_system_stay_what_they_are(seed: int, tmp_path: Path) -> None:
    """This holds for any names that the tree's own `bin`, `tmp` and `www` get."""
    derive_system(None, "another", seed, tmp_path)
    seen = 0
    for file in (tmp_path / "home" / "files").rglob("*"):
        if file.is_file():
            old = SHIPPED_FILES / file.relative_to(tmp_path / "home" / "files")
            before, after = of_system(old.read_text()), of_system(file.read_text())
            seen += len(after)
            if old.parent.name == "scripts":
                assert after == before, file
            assert set(after) <= set(before), file
    assert seen > 12


@pytest.mark.parametrize("seed", [1, 2, 7, 11, 23, 40])
def test_its_scripts_are_programs_and_its_links_lead_somewhere(seed: int, tmp_path: Path) -> None:
    new = load_home(load_declaration(str(derive_system(None, "another", seed, tmp_path))))
    old = load_home(load_declaration())
    scripts = [entry.data.decode() for entry in new if entry.data.startswith(b"#!")]
    known = {entry.data.splitlines()[0] for entry in old if entry.data.startswith(b"#!")}
    assert len(scripts) > 4
    for script in scripts:
        first = script.splitlines()[0]
        assert first.encode() in known
        if "python" in first:
            ast.parse(script)
        else:
            subprocess.run(["bash", "-n"], input=script, text=True, check=True)
    assert set(dangling(new)) <= set(dangling(old)) == {"../missing/current.conf"}


def dangling(tree: tuple[HomeEntry, ...]) -> list[str]:
    paths = {entry.path for entry in tree}
    return [
        entry.target
        for entry in tree
        if entry.kind == "symlink"
        and posixpath.normpath(posixpath.join(posixpath.dirname(entry.path), entry.target))
        not in paths
    ]


def base(place: Path, entries: Mapping[str, Mapping[str, Any]], **files: str) -> Path:
    """Return a declaration with a tree of these entries, whose user has the name of a directory."""
    time = tomllib.loads("time = 2025-09-01T00:00:00Z")
    (place / "tree" / "files").mkdir(parents=True)
    for name, text in files.items():
        (place / "tree" / "files" / name).write_text(text)
    data = tomllib.loads(read_text())
    tree = {path: {**time, **value} for path, value in entries.items()}
    (place / "tree" / "tree.toml").write_text(tomli_w.dumps({"entries": tree}))
    data["name"], data["home"]["source"] = "base", str(place / "tree")
    data["session"]["start_directories"] = ["/home/ubuntu/bin", "/usr/local/bin", "/home/ubuntu"]
    data["session"]["environment"] = {
        "PATH": "/home/ubuntu/bin:/usr/local/bin:/bin", "OF": "/home/local/x:/var/mail/local"
    }  # fmt: skip
    (place / "base.toml").write_text(tomli_w.dumps(data).replace('"alice"', '"local"'))
    return place / "base.toml"


TEXT = """\
{tool} /bin/bash /usr/bin/env usr/bin/env ./{tool} ../{tool} $HOME/{top} "$HOME"/{tool}
${{HOME}}/{top} ~/{top} /home/{ours}/{tool} /home/ubuntu2/bin /srv/bin "/bin" x=/bin:{top}
({top}) `{top}` '{tool}' > {tool}; https://bin/bin/tool file.bin bin.txt bin-x and/bin {top}/new
/home/{theirs}/bin /usr/local/bin /var/mail/{theirs} #!/bin/sh
"""


@pytest.mark.parametrize("seed", range(6))
def test_names_are_changed_where_they_are_meant(seed: int, tmp_path: Path) -> None:
    file = base(
        tmp_path,
        {
            ".": {"kind": "directory"},
            "bin": {"kind": "directory"},
            "bin/tool": {"kind": "file", "from": "x"},
            "a": {"kind": "directory"},
            "a/there": {"link": "../bin/tool"},
            "a/here": {"link": "there"},
            "a/whole": {"link": "/home/ubuntu/bin/tool"},
            "a/shell": {"link": "/bin/bash"},
        },
        x=TEXT.format(tool="bin/tool", top="bin", ours="ubuntu", theirs="local"),
    )
    drawn = load_declaration(str(derive_system(str(file), "drawn", seed, tmp_path / "drawn")))
    ours, theirs = drawn.users[0].name, drawn.users[1].name
    tree = {entry.path: entry for entry in load_home(drawn)}
    (tool,) = (entry for entry in tree.values() if entry.data)
    top = tool.path.rpartition("/")[0]
    expected = TEXT.format(tool=tool.path, top=top, ours=ours, theirs=theirs)
    assert tool.data.decode() == expected
    targets = {entry.target for entry in tree.values() if entry.kind == "symlink"}
    assert f"/home/{ours}/{tool.path}" in targets or len(targets) < 4
    assert "/bin/bash" in targets or len(targets) < 4
    starts = (f"/home/{ours}/{top}", "/usr/local/bin", f"/home/{ours}")
    assert drawn.session.start_directories == starts
    assert drawn.session.environment["PATH"] == f"/home/{ours}/{top}:/usr/local/bin:/bin"
    assert drawn.session.environment["OF"] == f"/home/{theirs}/x:/var/mail/{theirs}"


@pytest.mark.parametrize(
    "change",
    [
        lambda data: data.pop("home"),
        lambda data: data.update(home=5),
        lambda data: data["home"].update(source="/etc"),
        lambda data: data["machine"].pop("interfaces") and data.pop("instant"),
    ],
)
def test_another_system_is_drawn_from_a_sound_one_alone(
    change: Callable[[dict[str, Any]], Any], tmp_path: Path
) -> None:
    data = tomllib.loads(read_text())
    change(data)
    (tmp_path / "base.toml").write_text(tomli_w.dumps({**data, "name": "base"}))
    with pytest.raises(SystemDeclarationError):
        derive_system(str(tmp_path / "base.toml"), "another", 1, tmp_path / "out")


def test_no_file_outside_the_tree_is_read(tmp_path: Path) -> None:
    (tmp_path / "secret").write_text("of the host")
    tree = tmp_path / "tree"
    (tree / "files").mkdir(parents=True)
    time = "time = 2025-09-01T00:00:00Z"
    (tree / "tree.toml").write_text(
        f'[entries]\n"." = {{ kind = "directory", {time} }}\n'
        f'x = {{ from = "../../secret", {time} }}\n'
    )
    data = tomllib.loads(read_text())
    data["name"], data["home"]["source"] = "base", str(tree)
    (tmp_path / "base.toml").write_text(tomli_w.dumps(data))
    with pytest.raises(SystemDeclarationError, match="beneath files/"):
        derive_system(str(tmp_path / "base.toml"), "another", 1, tmp_path / "out")


@pytest.mark.parametrize("newline", ["\n", "\r\n"])
def test_it_is_drawn_from_a_file_of_an_editor_elsewhere(newline: str, tmp_path: Path) -> None:
    """The file begins with a byte order mark, or its lines end in CR LF."""
    text = f"\ufeff{read_text()}".replace('name = "debian-12"', 'name = "theirs"', 1)
    (tmp_path / "theirs.toml").write_text(text, encoding="utf-8", newline=newline)
    assert derive_system(str(tmp_path / "theirs.toml"), "drawn", 1, tmp_path / "drawn").exists()
