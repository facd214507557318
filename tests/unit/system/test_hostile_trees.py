"""A home tree that somebody else wrote: nothing outside it is read, and it has bounds."""

from __future__ import annotations

import os
import tomllib
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
import tomli_w

from shioenv.errors import SystemDeclarationError
from shioenv.system.build import fingerprint
from shioenv.system.declare import LARGEST_FILE, SystemDeclaration, parse_declaration, read_text
from shioenv.system.derive import derive
from shioenv.system.home import load_home

TIME = "time = 2025-09-01T00:00:00Z"
TOP = f'[entries]\n"." = {{ kind = "directory", {TIME} }}\n'


@pytest.fixture
def tree(tmp_path: Path) -> Path:
    """A tree with one file, beside a secret that is none of it."""
    (tmp_path / "secret").write_text("of the host")
    place = tmp_path / "tree"
    (place / "files").mkdir(parents=True)
    (place / "files" / "a").write_text("its own")
    return place


def theirs(tree: Path, entries: str = "") -> SystemDeclaration:
    if not (tree / "tree.toml").is_symlink():
        (tree / "tree.toml").write_text(TOP + entries)
    data = tomllib.loads(read_text())
    data["name"], data["home"]["source"] = "theirs", str(tree)
    return parse_declaration(tomli_w.dumps(data), source="theirs.toml")


def faults(tree: Path, entries: str) -> str:
    declaration = theirs(tree, entries)
    with pytest.raises(SystemDeclarationError) as caught:
        load_home(declaration)
    fingerprint(declaration, "")  # whatever is wrong, it ends
    assert len(str(caught.value)) < 2000
    return str(caught.value)


def test_a_tree_of_ones_own_is_read(tree: Path) -> None:
    declaration = theirs(tree, f"a = {{ {TIME} }}\nb = {{ make = 'gz', holds = ['a'], {TIME} }}\n")
    assert [entry.path for entry in load_home(declaration)] == [".", "a", "b"]
    before = fingerprint(declaration, "")
    (tree / "files" / "a").write_text("another")
    assert fingerprint(declaration, "") != before


def test_a_tree_may_begin_with_a_mark_of_the_byte_order(tree: Path) -> None:
    declaration = theirs(tree, f"a = {{ {TIME} }}\n")
    text = (tree / "tree.toml").read_text()
    (tree / "tree.toml").write_text(f"\ufeff{text}", encoding="utf-8", newline="\r\n")
    assert [entry.path for entry in load_home(declaration)] == [".", "a"]
    fingerprint(declaration, "")


@pytest.mark.parametrize(
    "origin",
    ["../../secret", "/etc/passwd", "..", ".", "", "a/../../../secret", "./a", "a/", "x\\u0000y",
     "link", "links/secret", "pipe", "hole", "zero", "dir"],
)  # fmt: skip
def test_no_file_outside_the_tree_is_read(tree: Path, origin: str) -> None:
    files = tree / "files"
    (files / "link").symlink_to("../../secret")
    (files / "links").symlink_to("../..")
    (files / "zero").symlink_to("/dev/zero")
    (files / "dir").mkdir()
    os.mkfifo(files / "pipe")
    with (files / "hole").open("wb") as file:
        file.truncate(LARGEST_FILE + 1)
    assert "$.entries.'x'" in faults(tree, f'x = {{ from = "{origin}", {TIME} }}\n')


def test_a_tree_behind_a_link_is_read_and_a_linked_list_of_entries_is_not(
    tree: Path, tmp_path: Path
) -> None:
    (tmp_path / "there").symlink_to(tree)
    (tree / "tree.toml").write_text(f"{TOP}a = {{ {TIME} }}\n")
    assert len(load_home(theirs(tmp_path / "there", f"a = {{ {TIME} }}\n"))) == 2
    (tree / "tree.toml").rename(tmp_path / "elsewhere")
    (tree / "tree.toml").symlink_to("../elsewhere")
    with pytest.raises(SystemDeclarationError, match="behind a link"):
        load_home(theirs(tree))


@pytest.mark.parametrize("path", ["/", "/etc", "/proc/self", "/dev", "/nonexistent"])
def test_a_directory_that_holds_no_tree_is_none(path: str) -> None:
    data = tomllib.loads(read_text())
    data["home"]["source"] = path
    try:
        declaration = parse_declaration(tomli_w.dumps(data), source="theirs.toml")
    except SystemDeclarationError:
        return
    for read in (load_home, lambda asked: fingerprint(asked, "")):
        with pytest.raises(SystemDeclarationError, match="no such home tree"):
            read(declaration)


@pytest.mark.parametrize(
    "entries",
    [
        f'"../../etc/cron.d/x" = {{ text = "", {TIME} }}',
        f'"/etc/cron.d/x" = {{ text = "", {TIME} }}',
        f'"a/../../x" = {{ text = "", {TIME} }}',
        f'"x\\u0000/etc/passwd" = {{ text = "", {TIME} }}',
        f'"{"a" * 300}" = {{ text = "", {TIME} }}',
        f'"x/y" = {{ text = "", {TIME} }}\nx = {{ link = "/etc", {TIME} }}',
        f'x = {{ text = "", mode = "99999", {TIME} }}',
        f'x = {{ text = "", mode = 5, {TIME} }}',
        f'x = {{ text = 5, {TIME} }}',
        f'x = {{ text = "", owner = "root:x", {TIME} }}',
        f'x = {{ hex = "zz", {TIME} }}',
        f'x = {{ kind = "block", {TIME} }}',
        f'x = {{ link = "", {TIME} }}',
        f'x = {{ link = "a\\u0000b", {TIME} }}',
        f'x = {{ from = "a", encoding = "zlib_codec", {TIME} }}',
        f'x = {{ from = "a", encoding = "nonsense", {TIME} }}',
        f'x = {{ make = "tar", holds = ["x"], {TIME} }}',
        f'x = {{ make = "tar", holds = ["y"], {TIME} }}\n'
        f'y = {{ make = "tar", holds = ["x"], {TIME} }}',
        f'x = {{ make = "gz", {TIME} }}',
        f'x = {{ make = "gz", holds = ["a", "."], {TIME} }}\na = {{ {TIME} }}',
        f'x = {{ make = ["tar"], {TIME} }}',
        f'x = {{ make = "tar", holds = "a", {TIME} }}',
        f'x = {{ make = "app_log", lines = 1000000000000, {TIME} }}',
        f'x = {{ make = "app_log", lines = -1, {TIME} }}',
        f'x = {{ make = "app_log", seed = 1e999, {TIME} }}',
        'x = { text = "" }',
        'x = { text = "", time = 2025-09-01 }',
        'x = { text = "", time = 0001-01-01T00:00:00+23:59 }',
        'x = 5',
        'x = [[[]]]',
        "x = " + "[" * 3000 + "]" * 3000,
        "x." * 3000 + "x = 1",
    ],
    ids=lambda entries: entries[:40],
)  # fmt: skip
def test_what_no_entry_may_be_is_one_error(tree: Path, entries: str) -> None:
    try:
        said = faults(tree, entries)
    except SystemDeclarationError as error:  # the file cannot be read at all: so for everybody
        said = str(error)
    assert "tree.toml: " in said


def test_archives_in_archives_have_a_bound_and_no_depth_is_too_much(tree: Path) -> None:
    chain = [f"a0 = {{ from = 'a', {TIME} }}"]
    chain += [f'a{n} = {{ make = "tar", holds = ["a{n - 1}"], {TIME} }}' for n in range(1, 1200)]
    with pytest.raises(SystemDeclarationError, match="more than 67108864 bytes"):
        load_home(theirs(tree, "\n".join(chain)))
    with pytest.raises(SystemDeclarationError, match="at most 10000 entries"):
        load_home(theirs(tree, "\n".join(f'b{n} = {{ text = "", {TIME} }}' for n in range(10_001))))


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
        derive(str(tmp_path / "base.toml"), "another", 1, tmp_path / "out")


def test_drawing_another_system_reads_no_file_outside_the_tree(tree: Path, tmp_path: Path) -> None:
    theirs(tree, f'x = {{ from = "../../secret", {TIME} }}\n')
    data = tomllib.loads(read_text())
    data["name"], data["home"]["source"] = "base", str(tree)
    (tmp_path / "base.toml").write_text(tomli_w.dumps(data))
    with pytest.raises(SystemDeclarationError, match="beneath files/"):
        derive(str(tmp_path / "base.toml"), "another", 1, tmp_path / "out")
