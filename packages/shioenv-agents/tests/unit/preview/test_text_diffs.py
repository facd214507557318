"""Changed texts are shown as diffs of bounded size; all other changed contents are listed."""

from __future__ import annotations

import hashlib
import stat

from shioenv.sandbox.base import FileChange, FileStat
from shioenv_agents.preview.texts import LARGEST_DIFF, LARGEST_TEXT, MOST_LINES, text_diff


def told(
    *sides: tuple[bytes, bytes | None, bytes | None], moved: tuple[bytes, ...] = ()
) -> tuple[str, bool]:
    """Return the diff of files given as path, content before and content after."""
    contents = {path: (before, after) for path, before, after in sides}
    changes = [FileChange(path, regular(before), regular(after)) for path, before, after in sides]
    return text_diff(changes, lambda change: contents[change.path], moved)


def regular(content: bytes | None) -> FileStat | None:
    if content is None:
        return None
    digest = hashlib.sha256(content).hexdigest()
    return FileStat(stat.S_IFREG | 0o644, 0, 0, len(content), 1, 0, 1, digest=digest)


def test_files_that_come_change_and_go_are_told_in_the_order_of_their_paths() -> None:
    text, left_out = told((b"/c", b"x\n", None), (b"/a", None, b"x\n"), (b"/b", b"x\n", b"y\n"))
    assert text == (
        "diff --git a/a b/a\nnew file mode 100644\n"
        "--- /dev/null\n+++ b/a\n@@ -0,0 +1 @@\n+x\n"
        "diff --git a/b b/b\n--- a/b\n+++ b/b\n@@ -1 +1 @@\n-x\n+y\n"
        "diff --git a/c b/c\ndeleted file mode 100644\n"
        "--- a/c\n+++ /dev/null\n@@ -1 +0,0 @@\n-x\n"
    )
    assert not left_out


def test_moved_and_equal_contents_are_left_out_and_binary_ones_are_listed() -> None:
    files = ((b"/a", None, b"\xff"), (b"/b", b"\0", b"x"), (b"/c", b"x", b"x"), (b"/d", None, b"x"))
    listed = "Binary files /dev/null and b/a differ\nBinary files a/b and b/b differ\n"
    assert told(*files, moved=(b"/d",)) == (listed, False)


def test_large_texts_are_listed_and_all_texts_past_the_bound() -> None:
    for content in (b"x" * (LARGEST_TEXT + 1), b"x\n" * (MOST_LINES + 1)):
        size = len(content)
        listed = f"Files /dev/null and b/a differ: too large for a diff: {size} bytes\n"
        assert told((b"/a", None, content)) == (listed, True)
    many = [(b"/%d" % number, None, b"x" * LARGEST_TEXT) for number in range(5)]
    text, left_out = told(*many)
    assert LARGEST_TEXT < len(text) <= LARGEST_DIFF + 1000
    assert left_out
    for number in range(5):
        assert f" b/{number} differ: too large" in text or f"+++ b/{number}\n" in text


def test_a_name_with_a_newline_stays_on_one_line() -> None:
    text, _ = told((b"/a\nb", None, b"x\n"))
    assert text.splitlines()[3] == '+++ "b/a\\nb"'
