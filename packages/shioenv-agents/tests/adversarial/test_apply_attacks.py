"""Races and hostile files against `preview --apply`: all or nothing, and never outside."""

from __future__ import annotations

import hashlib
import json
import os
import shutil
import socket
import subprocess
import sys
import time
from collections.abc import Callable
from contextlib import suppress
from pathlib import Path
from typing import Any

import pytest

from shioenv.errors import UsageError
from shioenv.sandbox.base import FileChange, FileStat
from shioenv_agents.preview import kernel
from shioenv_agents.preview.apply import UNDO, Application
from shioenv_agents.preview.layered_run import preview
from support.needs import needs
from support.waiting import let_time_pass

LATER = 1_000_000_000
"""Nanoseconds by which an application's start is late: the files were made just before."""


def status_of(path: Path) -> FileStat:
    found = path.lstat()
    is_file = path.is_file() and not path.is_symlink()
    return FileStat(
        mode=found.st_mode,
        uid=found.st_uid,
        gid=found.st_gid,
        size=found.st_size,
        links=found.st_nlink,
        mtime_ns=found.st_mtime_ns,
        inode=found.st_ino,
        target=os.fsencode(path.readlink()) if path.is_symlink() else None,
        digest=hashlib.sha256(path.read_bytes()).hexdigest() if is_file else None,
    )


def tree(directory: Path) -> dict[str, Any]:
    """Return the files of a tree, without times and without the undo directory."""
    found: dict[str, Any] = {}
    for path in sorted(directory.rglob("*")):
        name = str(path.relative_to(directory))
        if not name.startswith(UNDO):
            kind = path.lstat().st_mode
            content = path.read_bytes() if path.is_file() and not path.is_symlink() else None
            found[name] = kind, content, path.readlink() if path.is_symlink() else None
    return found


class Place:
    """A directory with files, a layer with other versions of them, and a directory outside."""

    def __init__(self, home: Path) -> None:
        self.real, self.layer, self.outside = home / "real", home / "layer", home / "outside"
        self.outside.mkdir()
        (self.outside / "precious").write_text("precious")
        (self.real / "sub").mkdir(parents=True)
        (self.real / "a").write_text("old a")
        (self.real / "gone").write_text("gone")
        (self.real / "sub" / "b").write_text("old b")
        (self.real / "link").symlink_to("a")
        shutil.copytree(self.real, self.layer, symlinks=True)
        (self.layer / "gone").unlink()
        (self.layer / "a").write_text("new a")
        (self.layer / "sub" / "b").write_text("new b")
        (self.layer / "link").unlink()
        (self.layer / "link").symlink_to("sub/b")
        (self.layer / "new").mkdir()
        (self.layer / "new" / "c").write_text("c")
        self.root = os.open(self.real, os.O_RDONLY | os.O_DIRECTORY)
        self.names = ("a", "gone", "link", "new", "new/c", "sub/b")

    def changes(self) -> list[FileChange]:
        return [self.change(name) for name in self.names]

    def change(self, name: str) -> FileChange:
        sides = [
            status_of(side / name) if os.path.lexists(side / name) else None
            for side in (self.real, self.layer)
        ]
        return FileChange(os.fsencode(self.real / name), *sides)

    def _there(self, path: bytes) -> Path:
        return self.layer / Path(os.fsdecode(path)).relative_to(self.real)

    def apply(self, changes: list[FileChange], started_ns: int | None = None) -> str:
        started = time.time_ns() + LATER if started_ns is None else started_ns
        application = Application(self.root, str(self.real), started)
        return application.apply(
            changes,
            lambda path: os.open(self._there(path), os.O_RDONLY),
            lambda path: os.fsencode(self._there(path).readlink()),
        )


@pytest.fixture
def place(tmp_path: Path) -> Place:
    return Place(tmp_path)


def test_all_changes_are_made_and_old_versions_are_kept(place: Place) -> None:
    undo = Path(place.apply(place.changes()))
    assert tree(place.real) == tree(place.layer)
    kept = {row["name"]: row["old"] for row in json.loads((undo / "changes.json").read_text())}
    assert (undo / kept["a"]).read_text() == "old a"
    assert (undo / kept["gone"]).read_text() == "gone"
    assert (undo / kept["link"]).readlink() == Path("a")
    assert place.apply([]) == ""


def swap_file_for_link(place: Place) -> None:
    (place.real / "a").unlink()
    (place.real / "a").symlink_to(place.outside / "precious")


def swap_directory_for_link(place: Place) -> None:
    (place.real / "sub").rename(place.real / "moved")
    shutil.copy2(place.real / "moved" / "b", place.outside / "b")
    (place.real / "sub").symlink_to(place.outside)


def move_directory_out(place: Place) -> None:
    (place.real / "sub").rename(place.outside / "sub")


def move_everything_out(place: Place) -> None:
    place.real.rename(place.outside / "real")
    place.real.mkdir()


def change_content_and_restore_times(place: Place) -> None:
    times = (place.real / "a").stat()
    (place.real / "a").write_text("OLD a")
    os.utime(place.real / "a", ns=(times.st_atime_ns, times.st_mtime_ns))


def add_hard_link(place: Place) -> None:
    os.link(place.real / "a", place.outside / "name")


def swap_for_hard_link(place: Place) -> None:
    (place.real / "a").unlink()
    os.link(place.outside / "precious", place.real / "a")


def change_rights(place: Place) -> None:
    (place.real / "a").chmod(0o600)


def swap_for_socket(place: Place) -> None:
    (place.real / "a").unlink()
    with socket.socket(socket.AF_UNIX) as made:
        here = os.open(".", os.O_RDONLY)
        try:
            os.chdir(place.real)
            made.bind("a")
        finally:
            os.fchdir(here)
            os.close(here)


def swap_for_fifo(place: Place) -> None:
    (place.real / "a").unlink()
    os.mkfifo(place.real / "a")


def swap_for_directory(place: Place) -> None:
    (place.real / "a").unlink()
    (place.real / "a").mkdir()


def remove(place: Place) -> None:
    (place.real / "gone").unlink()


def add_at_new_name(place: Place) -> None:
    (place.real / "new").symlink_to(place.outside)


def fake_undo_directory(place: Place) -> None:
    (place.real / UNDO).symlink_to(place.outside)


def open_undo_directory(place: Place) -> None:
    (place.real / UNDO).mkdir()
    (place.real / UNDO).chmod(0o777)


def change_layer(place: Place) -> None:
    (place.layer / "a").write_text("NEW a")


ATTACKS: tuple[Callable[[Place], None], ...] = (
    swap_file_for_link,
    swap_directory_for_link,
    move_directory_out,
    move_everything_out,
    change_content_and_restore_times,
    add_hard_link,
    swap_for_hard_link,
    change_rights,
    swap_for_socket,
    swap_for_fifo,
    swap_for_directory,
    remove,
    add_at_new_name,
    fake_undo_directory,
    open_undo_directory,
    change_layer,
)


@pytest.mark.parametrize("attack", ATTACKS, ids=lambda attack: attack.__name__)
def test_what_happens_after_the_preview_stops_it(
    place: Place, attack: Callable[[Place], None]
) -> None:
    changes = place.changes()
    attack(place)
    before = tree(place.real), tree(place.outside)
    with pytest.raises(UsageError, match="nothing was applied"):
        place.apply(changes)
    assert (tree(place.real), tree(place.outside)) == before


@pytest.mark.parametrize("turn", range(5))
@pytest.mark.parametrize(
    "attack",
    [swap_file_for_link, swap_directory_for_link, move_directory_out, change_rights, remove],
    ids=lambda attack: attack.__name__,
)
def test_what_happens_during_the_changes_undoes_them(
    place: Place, attack: Callable[[Place], None], turn: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The attack comes directly before one of the renames, after every check of its file."""
    changes, rename = place.changes(), kernel.rename
    outside: list[Any] = []

    def raced(*given: Any) -> None:
        nonlocal turn
        turn -= 1
        if turn == -1:
            with suppress(FileNotFoundError):  # the file is no longer there
                attack(place)
            outside.append(tree(place.outside))
        rename(*given)

    monkeypatch.setattr(kernel, "rename", raced)
    expected = tree(place.layer)
    try:
        place.apply(changes)
    except (UsageError, OSError):
        assert not (place.real / "new" / "c").exists()
        assert (place.real / "link").readlink() == Path("a")
    else:  # the attack came after the change of its file
        ours = tree(place.real)
        assert ours.keys() - {"moved", "moved/b", "sub"} <= expected.keys() | {"a"}
    assert (place.outside / "precious").read_text() == "precious"
    written = {
        name
        for name, (_, content, _) in tree(place.outside).items()
        if content == b"c" or (content == b"new b" and name not in (outside or [{}])[0])
    }
    assert not written


def test_a_change_of_another_in_the_last_moment_is_put_back(
    place: Place, monkeypatch: pytest.MonkeyPatch
) -> None:
    changes, rename = place.changes(), kernel.rename
    pending = [True]

    def raced(old: int, old_name: bytes, new: int, new_name: bytes, how: int) -> None:
        if pending and b"a" in (old_name, new_name):
            pending.clear()
            (place.real / "a").write_text("of another")
        rename(old, old_name, new, new_name, how)

    monkeypatch.setattr(kernel, "rename", raced)
    with pytest.raises(UsageError, match="nothing was applied"):
        place.apply(changes)
    assert (place.real / "a").read_text() == "of another"
    assert (place.real / "sub" / "b").read_text() == "old b"
    assert (place.real / "gone").read_text() == "gone"


@pytest.mark.parametrize("name", ["user.note", "security.capability"])
def test_attributes_that_no_preview_reports_stop_it(place: Place, name: str) -> None:
    changes = place.changes()
    value = b"\x01\x00\x00\x02" + bytes(16) if name.startswith("security") else b"x"
    try:
        os.setxattr(place.real / "a", name, value)
    except OSError:  # this file system or this user has no such attributes
        return
    with pytest.raises(UsageError, match=r"extended attributes|changed"):
        place.apply(changes)


def test_a_file_that_changed_while_the_command_ran_stops_it(place: Place) -> None:
    changes = place.changes()
    with pytest.raises(UsageError, match="while the command ran"):
        place.apply(changes, started_ns=(place.real / "a").stat().st_ctime_ns)


@pytest.mark.parametrize("mode", [0o4755, 0o2755, 0o1755])
def test_privileged_bits_are_never_set(place: Place, mode: int) -> None:
    (place.layer / "a").chmod(mode)
    with pytest.raises(UsageError, match="bit"):
        place.apply(place.changes())
    assert tree(place.real)["a"][1] == b"old a"


def test_paths_outside_and_other_file_systems_are_refused(place: Place) -> None:
    side = status_of(place.layer / "a")
    for path in (place.outside / "x", place.real.parent / "real2", place.real / UNDO / "x"):
        with pytest.raises(UsageError, match="nothing was applied"):
            place.apply([FileChange(os.fsencode(path), None, side)])
    application = Application(place.root, str(place.real), time.time_ns() + LATER)
    application._device += 1
    with pytest.raises(UsageError, match="nothing was applied"):
        application.apply(place.changes(), lambda path: -1, lambda path: b"")
    assert tree(place.outside) == {"precious": tree(place.outside)["precious"]}


@needs("root")
def test_files_of_others_keep_their_owner(place: Place) -> None:
    for side in (place.real, place.layer):
        os.chown(side / "a", 12, 34)
    place.apply(place.changes())
    found = (place.real / "a").stat()
    assert (found.st_uid, found.st_gid) == (12, 34)


HOSTILE = (
    "echo x > ../outside/precious",
    "ln -s ../outside out; echo x > out/precious",
    "mkfifo pipe",
    "chmod 4755 a",
    "rm a; mkdir a",
    "ln a b; echo more >> a",
    "mkdir .shioenv-undo; ln -s /etc .shioenv-undo/x",
    "echo x > new; false",
)


def test_hostile_commands_change_nothing_for_real(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    place = Place(tmp_path)
    (place.real / "b").unlink(missing_ok=True)
    let_time_pass(0.1, "the files are older than the preview")
    monkeypatch.chdir(place.real)
    before = tree(place.real), tree(place.outside)
    for command in HOSTILE:
        words = ["sh", "-c", command]
        with suppress(UsageError):
            made = preview(words, capture=True, apply=lambda made: made.behavior.exit_code == 0)
            assert made.behavior.exit_code != 0, command
            assert made.undo is None
        assert (tree(place.real), tree(place.outside)) == before, command


def test_the_command_line_applies_what_it_shows(tmp_path: Path) -> None:
    place = Place(tmp_path)
    let_time_pass(0.1, "the files are older than the preview")
    words = [sys.executable, "-m", "shioenv.cli.main", "preview", "--apply", "--json", "--"]
    done = subprocess.run(
        [*words, "sh", "-c", "sed -i s/old/new/ a sub/b; rm gone; mkdir new; echo -n c > new/c"],
        cwd=place.real,
        stdin=subprocess.DEVNULL,
        capture_output=True,
        text=True,
    )
    assert done.returncode == 0, done.stderr
    undo = Path(json.loads(done.stdout)["undo"])
    assert undo.parent == place.real / UNDO
    (place.layer / "link").unlink()
    (place.layer / "link").symlink_to("a")
    assert tree(place.real) == tree(place.layer)
