"""`patch` and `git apply` turn the files before a command into those after it."""

from __future__ import annotations

import hashlib
import os
import stat
import subprocess
import tempfile
from pathlib import Path

import pytest
from hypothesis import example, given, settings
from hypothesis import strategies as st

from shioenv.sandbox.base import FileChange, FileStat
from shioenv_agents.preview.texts import text_diff
from support.needs import needs

PIECES = [
    *(b"", b"a", b"b", b"\n", b"\n", b"\r\n", b"\f", b"\v", b"\r", b"\x1c", b"\t", b" "),
    *(b"--- a", b"+++ b", b"@@", b"\\", b"diff --git a/a b/a", b"Binary files differ"),
    *("\u2028".encode(), "\x85".encode(), "é".encode(), b"\x1b[31m"),
]
TEXTS = st.lists(st.sampled_from(PIECES), max_size=12).map(b"".join)
CONTENTS = st.one_of(st.none(), TEXTS, TEXTS, st.binary(max_size=8))
NAMES = st.tuples(
    st.sampled_from([b"", b"d/", b"d e/\xfe\n/"]),
    st.lists(
        st.sampled_from([*b"ab .-~\"'\\\t\r\n#\x01\x7f\xff", *"é".encode()]), min_size=1, max_size=8
    )
    .map(bytes)
    .filter(lambda name: name not in (b".", b"..")),
).map(b"".join)
MODES = st.sampled_from([0o644, 0o755])
FILES = st.dictionaries(
    NAMES, st.tuples(CONTENTS, CONTENTS, st.tuples(MODES, MODES)), min_size=1, max_size=3
)
SAME = (0o644, 0o644)


def side(content: bytes | None, mode: int) -> FileStat | None:
    if content is None:
        return None
    digest = hashlib.sha256(content).hexdigest()
    return FileStat(stat.S_IFREG | mode, 0, 0, len(content), 1, 0, 1, digest=digest)


def write(path: Path, content: bytes | None, mode: int) -> None:
    if content is not None:
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_bytes(content)
        path.chmod(mode)


def is_text(content: bytes | None) -> bool:
    try:
        return b"\0" not in (content or b"").decode().encode()
    except UnicodeDecodeError:
        return False


@pytest.mark.parametrize("tool", [pytest.param("patch", marks=needs("patch")), "git"])
@settings(max_examples=30, deadline=None)
@given(files=FILES)
@example(files={b"sp ace": (b"x", b"x\n", SAME)})
@example(files={b"li\nes": (b"x\n", b"y", SAME)})
@example(files={b"end ": (b"x\n", b"x", (0o644, 0o755))})
@example(files={b"new": (None, b"", SAME), b"gone": (b"", None, SAME)})
@example(files={b"a b  c": (b"x", b"x", (0o644, 0o755))})
@example(files={b" ": (None, b"", SAME), b"a": (b"", b"x", SAME)})
@example(files={b"binary": (b"\xff", b"\xfe", SAME), b"text": (b"\r\n", b"\n", SAME)})
def test_applied_it_gives_what_the_command_made(
    tool: str, files: dict[bytes, tuple[bytes | None, bytes | None, tuple[int, int]]]
) -> None:
    changes = [
        FileChange(b"/" + name, side(before, modes[0]), side(after, modes[1]))
        for name, (before, after, modes) in files.items()
    ]
    diff, is_cut = text_diff(changes, lambda change: files[change.path[1:]][:2])
    assert not is_cut
    with tempfile.TemporaryDirectory() as top:
        expected = {}
        binary = 0
        for name, (before, after, modes) in files.items():
            path = Path(top) / os.fsdecode(name)
            write(path, before, modes[0])
            is_shown = before == after or (is_text(before) and is_text(after))
            binary += not is_shown
            expected[path] = (after, modes[1]) if is_shown else (before, modes[0])
        lines = diff.split("\n")
        assert all(line.startswith("Binary files ") for line in lines[:binary])
        words = ["patch", "--quiet", "--no-backup-if-mismatch", "-p1"]
        if tool == "git":
            words = ["git", "apply", "--whitespace=nowarn", "-p1"]
        environment = {**os.environ, "GIT_CEILING_DIRECTORIES": str(Path(top).parent)}
        if diff.count("\n") > binary:  # neither tool takes a diff of nothing else
            done = subprocess.run(
                words, cwd=top, input=diff.encode(), capture_output=True, env=environment
            )
            assert done.returncode == 0, (done, diff)
        for path, (content, mode) in expected.items():
            assert path.exists() == (content is not None), diff
            if content is not None:
                assert path.read_bytes() == content, diff
                assert stat.S_IMODE(path.stat().st_mode) == mode


@pytest.mark.parametrize(
    ("before", "after", "listed"),
    [
        (b"\xff\n", b"\xfe\n", "Binary files a/f and b/f differ\n"),
        (b"a\0", None, "Binary files a/f and /dev/null differ\n"),
        (
            None,
            b"x" * 70_000,
            "Files /dev/null and b/f differ: too large for a diff: 70000 bytes\n",
        ),
        (b"", b"\n" * 5000, "Files a/f and b/f differ: too large for a diff: 0 and 5000 bytes\n"),
    ],
)
def test_what_has_no_diff_is_listed(before: bytes | None, after: bytes | None, listed: str) -> None:
    change = FileChange(b"/f", side(before, 0o644), side(after, 0o644))
    assert text_diff([change], lambda _: (before, after))[0] == listed


def test_contents_that_cannot_be_read_are_listed() -> None:
    change = FileChange(b"/f", side(b"old\n", 0), side(b"new\n", 0o644))
    expected = "Files a/f and b/f differ: the content "
    assert text_diff([change], lambda _: (None, b"new\n")) == (f"{expected}cannot be read\n", True)
    assert text_diff([change], lambda _: (b"odd\n", b"new\n"))[0].startswith(f"{expected}changed")
