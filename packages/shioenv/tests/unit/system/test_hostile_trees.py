"""A home tree by an untrusted author: nothing outside it is read, and its size is bounded."""

from __future__ import annotations

import os
import re
import tomllib
from dataclasses import replace
from pathlib import Path

import pytest
import tomli_w

from shioenv.errors import SystemDeclarationError
from shioenv.system.build import fingerprint, load_trees
from shioenv.system.declare import LARGEST_FILE, SystemDeclaration, parse_declaration, read_text
from shioenv.system.home import load_home

TIME = "time = 2025-09-01T00:00:00Z"
TOP = f'[entries]\n"." = {{ kind = "directory", {TIME} }}\n'


@pytest.fixture
def tree(tmp_path: Path) -> Path:
    """Make a tree with one file, next to a secret that is not part of it."""
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
    fingerprint(declaration, "")  # it terminates for every fault
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
    with pytest.raises(SystemDeclarationError, match="symbolic link"):
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


@pytest.mark.parametrize(
    ("keys", "named"),
    [
        ('text = "", hex = ""', "text and hex exclude each other"),
        ('text = "", make = "png"', "make and text exclude each other"),
        ('link = "a", kind = "directory"', "kind and link exclude each other"),
        ('link = "a", kind = "file"', "kind and link exclude each other"),
        ('link = "a", from = "a"', "link and from exclude each other"),
        ('kind = "fifo", text = ""', "kind and text exclude each other"),
        ('kind = "directory", from = "a"', "kind and from exclude each other"),
        ('make = "gz", kind = "fifo", hex = "00", holds = ["a"]', "kind and make and hex"),
        ('text = "", encoding = "utf-16"', "encoding needs from, got text"),
        ('kind = "directory", newline = "crlf"', "newline needs from, got kind"),
        ('from = "a", lines = 3', "lines needs make, got from"),
        ('from = "a", kind = "file", seed = 3', "seed needs make, got from"),
        ('link = "a", holds = ["a"]', "holds needs make, got link"),
        (
            'link = "a", mode = "0644"',
            "mode needs kind or make or text or hex or from",
        ),
    ],
)
def test_keys_that_contradict_each_other_are_named_with_their_entry(
    tree: Path, keys: str, named: str
) -> None:
    told = faults(tree, f"a = {{ {TIME} }}\nx = {{ {keys}, {TIME} }}\n")
    assert f"$.entries.'x': {named}" in told


@pytest.mark.parametrize("keys", ['from = "a"', 'text = ""', 'hex = "00"', 'make = "png"'])
def test_to_say_that_a_file_is_one_contradicts_nothing(tree: Path, keys: str) -> None:
    declaration = theirs(tree, f'x = {{ kind = "file", {keys}, {TIME} }}\n')
    assert load_home(declaration)[1].kind == "file"


@pytest.mark.parametrize(
    ("entries", "named"),
    [
        ('"." = { text = "", TIME }', 'kind = "directory"'),
        ('"." = { TIME }', 'kind = "directory"'),
        ('"." = { link = "/tmp", TIME }', 'kind = "directory"'),
        ("a = { TIME }", '$.entries: "." is not declared'),
        ("", '$.entries: "." is not declared'),
        ("TOP\na = { TIME }\n'a/b' = { text = '', TIME }", "'a' is declared as something else"),
        ("TOP\n'a/b' = { text = '', TIME }", "its directory 'a' is not declared"),
        ("TOP\n[others]\nx = 1", "$.'others': unknown key"),
        ("TOP\nx = { make = 'tar', holds = ['.'], TIME }", "holds '.', which is no file"),
        ("TOP\nx = { make = 'gz', holds = ['y'], TIME }\ny = { link = 'a', TIME }",
         "holds 'y', which is no file"),
        ("TOP\nx = { text = '', owner = 'alcie', TIME }", "no owner 'alcie'.*did you mean alice?"),
        ("TOP\nx = { text = '', group = 'ww-data', TIME }", "did you mean www-data?"),
        ("TOP\nx = { from = 'bytes', TIME }", "files/bytes is not UTF-8 text; `hex` takes any"),
        ("TOP\nx = { from = 'accent', encoding = 'ascii', TIME }", "'é', which ascii lacks"),
        ("TOP\nx = { from = 'loop', TIME }", "files/loop cannot be read"),
        ("TOP\nx = { text = '', time = 2107-01-01T00:00:00Z }", "got 2107-01-01 00:00:00"),
    ],
)  # fmt: skip
def test_what_is_no_tree_is_named(tree: Path, entries: str, named: str) -> None:
    (tree / "files" / "bytes").write_bytes(b"\xff")
    (tree / "files" / "accent").write_text("é")
    (tree / "files" / "loop").symlink_to("loop")
    declaration = theirs(tree)
    top = TOP.partition("\n")[2].strip()
    text = entries.replace("TOP", top).replace("TIME", TIME)
    (tree / "tree.toml").write_text(f"[entries]\n{text}\n")
    with pytest.raises(SystemDeclarationError) as caught:
        load_home(declaration)
    assert re.search(named.replace("$", r"\$").replace("?", r"\?"), str(caught.value))


def directories(count: int, name: str = "d") -> str:
    paths = ["/".join([name] * depth) for depth in range(1, count + 1)]
    return "".join(f'"{path}" = {{ kind = "directory", {TIME} }}\n' for path in paths)


@pytest.mark.parametrize(
    ("entries", "named"),
    [
        (f'"{"é" * 128}" = {{ text = "", {TIME} }}', "a name in it has more than 255 bytes"),
        (f'"{"🐧" * 64}" = {{ kind = "fifo", {TIME} }}', "a name in it has more than 255 bytes"),
        (f'"{"a" * 256}" = {{ text = "", {TIME} }}', "a name in it has more than 255 bytes"),
        (directories(199), "it has more than 200 names"),
        (directories(16, "d" * 250), "it has more than 4000 bytes"),
        (f'x = {{ link = "{"é" * 2001}", {TIME} }}', "the target of link has more than 4000 bytes"),
    ],
    ids=range(6),
)
def test_names_are_measured_in_bytes(tree: Path, entries: str, named: str) -> None:
    declaration = theirs(tree, entries)
    with pytest.raises(SystemDeclarationError, match=named):
        load_home(declaration)


def test_the_longest_names_are_read(tree: Path) -> None:
    entries = f'"{"é" * 127}a" = {{ text = "", {TIME} }}\n{directories(198)}'
    assert len(load_home(theirs(tree, entries))) == 200


def test_archives_in_archives_have_a_bound_and_no_depth_is_too_much(tree: Path) -> None:
    chain = [f"a0 = {{ from = 'a', {TIME} }}"]
    chain += [f'a{n} = {{ make = "tar", holds = ["a{n - 1}"], {TIME} }}' for n in range(1, 1200)]
    with pytest.raises(SystemDeclarationError, match="more than 67108864 bytes"):
        load_home(theirs(tree, "\n".join(chain)))
    (tree / "files" / "large").write_bytes(bytes(LARGEST_FILE))
    compressed = [f"large = {{ {TIME} }}"]
    compressed += [f'a{n} = {{ make = "bz2", holds = ["large"], {TIME} }}' for n in range(9000)]
    with pytest.raises(SystemDeclarationError, match="hold would have more than 67108864 bytes"):
        load_home(theirs(tree, "\n".join(compressed)))
    with pytest.raises(SystemDeclarationError, match="at most 10000 entries"):
        load_home(theirs(tree, "\n".join(f'b{n} = {{ text = "", {TIME} }}' for n in range(10_001))))


def test_added_trees_are_laid_over_the_first(tmp_path: Path, tree: Path) -> None:
    added = tmp_path / "added"
    added.mkdir()
    (added / "tree.toml").write_text(f'{TOP}a = {{ text = "new", {TIME} }}\n')
    declaration = theirs(tree, f'a = {{ text = "old", {TIME} }}\nb = {{ text = "", {TIME} }}\n')
    both = replace(declaration, home=replace(declaration.home, added=(str(added),)))
    found = {entry.path: entry.data for entry in load_trees(both)}
    assert found == {".": b"", "a": b"new", "b": b""}
    assert load_trees(declaration) == load_home(declaration)
    assert fingerprint(both, "") != fingerprint(declaration, "")


def test_a_file_cannot_be_laid_over_a_directory_that_is_not_empty(
    tmp_path: Path, tree: Path
) -> None:
    added = tmp_path / "added"
    added.mkdir()
    (added / "tree.toml").write_text(f'{TOP}d = {{ text = "", {TIME} }}\n')
    inside = f"'d/a' = {{ text = '', {TIME} }}\n"
    declaration = theirs(tree, f"d = {{ kind = 'directory', {TIME} }}\n{inside}")
    both = replace(declaration, home=replace(declaration.home, added=(str(added),)))
    with pytest.raises(SystemDeclarationError, match=r"'d/a' is beneath 'd', which"):
        load_trees(both)
