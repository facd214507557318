"""File names and patches as people read them."""

from __future__ import annotations

import subprocess

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from shioenv.domain.context import pointer
from shioenv.domain.names import file_key, name_text
from shioenv.domain.patch import ContextPatch
from shioenv.domain.readable import changes, file_name, readable_name
from shioenv.errors import PatchError

NAMES = st.binary(min_size=1, max_size=12).filter(lambda name: b"\0" not in name and name != b"/")


@pytest.mark.parametrize(
    ("name", "shown"),
    [
        (b"notes.txt", "notes.txt"),
        (b"a~b/c", "a~b/c"),
        ("größe".encode(), "größe"),
        (b"two words", "'two words'"),
        (b"it's", '"it\'s"'),
        (b"~", "'~'"),
        (b"a\nremoved /etc", r"$'a\nremoved /etc'"),
        (b"\x1b]0;x\x07", r"$'\e]0;x\x07'"),
        (b"back\\slash", r"'back\slash'"),
        (b"\xff\xfe", r"$'\xff\xfe'"),
        ("\u202egnp.exe".encode(), r"$'\u202egnp.exe'"),
        (b"env", "./env"),
    ],
)
def test_names_are_quoted_only_if_they_must_be(name: bytes, shown: str) -> None:
    assert readable_name(name_text(name)) == shown


@settings(max_examples=40, deadline=None)
@given(st.lists(NAMES, min_size=1, max_size=20))
def test_bash_reads_a_shown_name_as_the_file_and_terminals_are_safe(names: list[bytes]) -> None:
    words = [readable_name(name_text(name)) for name in names]
    assert all(word.isprintable() for word in words)
    script = f"printf '%s\\0' {' '.join(words)}".encode()
    done = subprocess.run(
        ["bash", "-c", script], capture_output=True, check=True, env={"LC_ALL": "C.UTF-8"}
    )
    assert done.stdout.split(b"\0")[:-1] == names


@given(NAMES, st.sampled_from([b"/home/ubuntu", b"/"]))
def test_a_pointer_gives_the_name_that_programs_use(name: bytes, start: bytes) -> None:
    for path in (name.lstrip(b"/") or b"x", b"/tmp/" + name):
        key = file_key(path, start)
        for place in (pointer("fs", key), pointer("fs", key, "perms")):
            assert file_name(place).encode("utf-8", "surrogateescape") in (path, path.lstrip(b"/"))


@pytest.mark.parametrize("place", ["", "/fs", "/env/X", "fs/x"])
def test_other_pointers_are_no_files(place: str) -> None:
    with pytest.raises(PatchError):
        file_name(place)


def test_below_the_root_relative_names_become_absolute() -> None:
    assert readable_name("root/.ssh", "/") == "/root/.ssh"
    assert readable_name(".", "/") == "/"
    assert readable_name("/tmp/x", "/") == "/tmp/x"


@given(st.text(alphabet="a/~\n\x1b\u009b\u202e\ud800'\" \\", max_size=8))
def test_every_change_is_one_safe_line(text: str) -> None:
    patch = ContextPatch(
        (
            ("a", pointer("fs", text), {"perms": text, "target": text, "size": text}),
            ("=", pointer("fs", "x", text), text),
            ("r", pointer("env", text)),
            ("a", pointer("settings", text), [text]),
            ("m", pointer("fs", "b"), pointer("fs", text)),
        )
    )
    assert all(str(change).isprintable() for change in changes(patch.operations))


def test_long_details_are_cut() -> None:
    (change,) = changes([("=", "/env/X", "x" * 500)])
    assert str(change) == f"changed env X  {'x' * 119}…"
