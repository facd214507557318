"""Derivation of an input's patch from an emulator's files."""

from __future__ import annotations

from shioenv.domain.patch import ContextPatch
from shioenv_eval.patches import changed_files, operations
from shioenv_eval.predictors.tree import EmulatedFile, file_changes_patch

FILE = EmulatedFile("file", 0o644, 100.0, b"x")
DIRECTORY = EmulatedFile("directory", 0o755, 100.0)
BEFORE = {"/home/u": DIRECTORY, "/home/u/a": FILE, "/home/u/b": FILE, "/etc/c": FILE}


def told(after: dict[str, EmulatedFile]) -> frozenset[tuple[str, str]]:
    patch = file_changes_patch(BEFORE, after, "/home/u")
    assert isinstance(patch, ContextPatch)
    return changed_files(operations(patch))


def test_files_are_added_removed_and_changed_by_their_names_in_the_start_directory() -> None:
    after = {
        "/home/u": EmulatedFile("directory", 0o755, 200.0),
        "/home/u/a": EmulatedFile("file", 0o644, 200.0, b"y"),
        "/home/u/new": FILE,
        "/etc/c": EmulatedFile("file", 0o600, 100.0, b"x"),
    }
    assert told(after) == {
        ("changed", "a"),
        ("removed", "b"),
        ("added", "new"),
        ("changed", "/etc/c"),
    }


def test_a_touched_file_has_changed_a_directory_whose_time_alone_did_has_not() -> None:
    assert told({**BEFORE, "/home/u/a": EmulatedFile("file", 0o644, 101.0, b"x")}) == {
        ("changed", "a")
    }
    assert told({**BEFORE, "/home/u": EmulatedFile("directory", 0o755, 101.0)}) == frozenset()
    assert told({**BEFORE, "/home/u": EmulatedFile("directory", 0o700, 100.0)}) == {
        ("changed", ".")
    }
    assert told(BEFORE) == frozenset()
    assert told({**BEFORE, "/home/u/a": EmulatedFile("symlink", 0o777, 100.0, "b")}) == {
        ("changed", "a")
    }
