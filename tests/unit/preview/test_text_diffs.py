"""Changed texts are shown as diffs of bounded size; what is no text is not."""

from __future__ import annotations

import stat

from shioenv.preview.texts import LARGEST_DIFF, LARGEST_TEXT, MOST_LINES, text_diff
from shioenv.sandbox.base import FileChange, FileStat


def told(
    *sides: tuple[bytes, bytes | None, bytes | None], moved: tuple[bytes, ...] = ()
) -> tuple[str, bool]:
    """The diff of files given as path, content before and content after."""
    contents = {path: (before, after) for path, before, after in sides}
    changes = [FileChange(path, regular(before), regular(after)) for path, before, after in sides]
    return text_diff(changes, lambda change: contents[change.path], moved)


def regular(content: bytes | None) -> FileStat | None:
    if content is None:
        return None
    digest = str(hash(content))
    return FileStat(stat.S_IFREG | 0o644, 0, 0, len(content), 1, 0, 1, digest=digest)


def test_files_that_come_change_and_go_are_told_in_the_order_of_their_paths() -> None:
    text, left_out = told((b"/c", b"x\n", None), (b"/a", None, b"x\n"), (b"/b", b"x\n", b"y\n"))
    assert text == (
        "--- /dev/null\n+++ b/a\n@@ -0,0 +1 @@\n+x\n"
        "--- a/b\n+++ b/b\n@@ -1 +1 @@\n-x\n+y\n"
        "--- a/c\n+++ /dev/null\n@@ -1 +0,0 @@\n-x\n"
    )
    assert not left_out


def test_what_is_no_text_or_moved_or_the_same_is_not_told() -> None:
    files = ((b"/a", None, b"\xff"), (b"/b", None, b"\0"), (b"/c", b"x", b"x"), (b"/d", None, b"x"))
    assert told(*files, moved=(b"/d",)) == ("", False)


def test_large_texts_are_left_out_and_that_is_said() -> None:
    assert told((b"/a", None, b"x" * (LARGEST_TEXT + 1))) == ("", True)
    assert told((b"/a", None, b"x\n" * (MOST_LINES + 1))) == ("", True)
    many = [(b"/%d" % number, None, b"x" * LARGEST_TEXT) for number in range(5)]
    text, left_out = told(*many)
    assert 0 < len(text) <= LARGEST_DIFF
    assert left_out


def test_a_name_with_a_newline_stands_on_one_line() -> None:
    text, _ = told((b"/a\nb", None, b"x\n"))
    assert text.splitlines()[1] == '+++ "b/a\\nb"'
