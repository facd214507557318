"""Previews by the command line, by ordinary users, and of programs that install files."""

from __future__ import annotations

import json
import os
import select
import signal
import subprocess
import sys
from pathlib import Path

import pytest
from typer.testing import CliRunner

from previewing import CHANGES, applied, captured, digest, fill, listed, running
from shioenv.cli.main import app
from support.needs import needs

pytestmark = pytest.mark.xdist_group("preview")

SHIOENV = (sys.executable, "-m", "shioenv", "preview")


@pytest.fixture
def place(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """Make a directory with one file of every kind, and change to it."""
    place = tmp_path / "place"
    place.mkdir()
    monkeypatch.chdir(place)
    fill(place)
    return place


@pytest.mark.parametrize("job", ["sleep 300", "setsid sleep 300", "(sleep 300; touch late)"])
@pytest.mark.parametrize("where", ["", "> /dev/null 2>&1"])
def test_a_job_that_is_cut_off_is_said(place: Path, job: str, where: str) -> None:
    made = captured("sh", "-c", f"{job} {where} & echo on; exit 3")
    assert made.behavior.limits_hit == ("background_seconds",)
    assert (made.behavior.exit_code, made.behavior.output) == (3, b"on\n")
    said = CliRunner().invoke(app, ["preview", "--json", "--", "sh", "-c", f"{job} {where} &"])
    assert json.loads(said.stdout)["limits_hit"] == ["background_seconds"]
    assert "may make further changes" in said.stderr


def test_the_command_line(place: Path) -> None:
    (place / "given").write_text("given\n")
    script = "read line; echo $line; echo changed > /dev/stdin; echo more > more; exit 3"
    with (place / "given").open() as given:
        done = subprocess.run(
            [*SHIOENV, "--", "sh", "-c", script], stdin=given, capture_output=True
        )
    assert done.returncode == 3
    assert done.stdout == b"given\n"
    assert b"exit code 3\n  added   more  -rw-r--r-- " in done.stderr
    assert b"+++ b" + bytes(place) + b"/more\n@@ -0,0 +1 @@\n+more\n" in done.stderr
    assert (place / "given").read_text() == "given\n"


def in_own_mounts(script: str, *words: str) -> subprocess.CompletedProcess[bytes]:
    """Run a script that may mount, and then a preview of the words."""
    given = [f'{script} && exec "$@"', "sh", *SHIOENV, "--json", "--", *words]
    return subprocess.run(["unshare", "-m", "sh", "-c", *given], capture_output=True)


@needs("root")
def test_root_sees_no_secrets_of_any_home(place: Path) -> None:
    (place / ".ssh").mkdir()
    (place / ".ssh" / "id").write_text("secret")
    users = Path("/etc/passwd").read_text() + f"other:x:7531:7531::{place}:/bin/sh\n"
    (place / "passwd").write_text(users)
    done = in_own_mounts("mount --bind passwd /etc/passwd", "cat", ".ssh/id")
    document = json.loads(done.stdout)
    assert "secret" not in document["output"]
    assert str(place / ".ssh") in document["hidden"]


def test_a_host_that_allows_no_further_namespace_is_named(place: Path) -> None:
    script = 'echo 0 > /proc/sys/user/max_user_namespaces && exec "$@"'
    words = ["unshare", "--user", "--map-root-user", "--mount", "sh", "-c", script, "sh"]
    done = subprocess.run([*words, *SHIOENV, "--", "true"], capture_output=True)
    assert done.returncode == 125
    assert (
        b"this host does not allow previews: make namespaces: No space left on device"
        in done.stderr
    )


@pytest.mark.parametrize(("ending", "status"), [(signal.SIGINT, 130), (signal.SIGKILL, -9)])
def test_who_is_interrupted_leaves_nothing_behind(place: Path, ending: int, status: int) -> None:
    before = digest(place)
    script = "echo x > y; (setsid sleep 7541 &); echo ready; exec sleep 7541"
    words = [*SHIOENV, "--", "sh", "-c", script]
    with subprocess.Popen(words, stdout=subprocess.PIPE, stderr=subprocess.PIPE) as process:
        assert process.stdout is not None
        assert process.stdout.readline() == b"ready\n"
        left = [os.pidfd_open(pid) for pid in running("sleep", "7541")]
        process.send_signal(ending)
        _, said = process.communicate()
    assert process.returncode == status
    assert said == (b"interrupted\n" if ending == signal.SIGINT else b"")
    for descriptor in left:  # readable once the process has ended
        assert select.select([descriptor], [], [], 30)[0]
        os.close(descriptor)
    assert not list(running("7541"))
    assert digest(place) == before


@needs("root")
def test_where_the_root_cannot_be_layered_the_users_directory_is(place: Path) -> None:
    before = digest(place)
    rights = ["setpriv", "--bounding-set=-sys_admin", "--inh-caps=-sys_admin"]
    script = CHANGES + "echo x > /etc/shioenv-preview"
    words = [*rights, *SHIOENV, "--json", "--", "sh", "-c", script]
    done = subprocess.run(words, capture_output=True, env={**os.environ, "HOME": "/root"})
    document = json.loads(done.stdout)
    assert document["whole_root"] is False
    assert document["exit_code"] == 2
    assert (
        document["output"] == "sh: 9: cannot create /etc/shioenv-preview: Read-only file system\n"
    )
    assert any(place.is_relative_to(layer) for layer in document["layers"])
    assert ["m", "/fs/old", "/fs/renamed"] in document["context_patch"]
    assert "+three\n" in document["diff"]
    assert digest(place) == before


def test_a_preview_of_make_install_is_what_make_install_does(place: Path) -> None:
    (place / "program").write_text("#!/bin/sh\necho hi\n")
    (place / "Makefile").write_text(
        "install:\n"
        "\tinstall -d $(DESTDIR)/bin $(DESTDIR)/share/doc\n"
        "\tinstall -m 755 program $(DESTDIR)/bin/program\n"
        "\tinstall -m 644 text $(DESTDIR)/share/doc/text\n"
        "\tln -s program $(DESTDIR)/bin/alias\n"
    )
    was = listed(place)
    made = captured("make", "install", f"DESTDIR={place}/to")
    told = applied(was, made)
    subprocess.run(["make", "install", f"DESTDIR={place}/to"], check=True, capture_output=True)
    assert told == listed(place)


def test_contents_that_change_alone_are_shown(place: Path) -> None:
    (place / "rows").write_bytes(b"\xff" * 4096)
    (place / "words").write_text("one\nno newline")
    (place / "long").write_text("one\n" * 20_000)
    script = (
        "import os\n"
        "for name, new in (('rows', b'\\xfe'), ('words', b'two'), ('long', b'two')):\n"
        "    status = os.stat(name)\n"
        "    with open(name, 'r+b') as file: file.write(new)\n"
        "    os.utime(name, ns=(status.st_atime_ns, status.st_mtime_ns))\n"
    )
    words = [*SHIOENV, "--", sys.executable, "-c", script]
    done = subprocess.run(words, capture_output=True, text=True)
    large = "too large for a diff: 80000 and 80000 bytes"
    without_diff = f"Files a{place}/long and b{place}/long differ: {large}\n"
    without_diff += f"Binary files a{place}/rows and b{place}/rows differ\n"
    text = (
        f"diff --git a{place}/words b{place}/words\n"
        f"--- a{place}/words\n+++ b{place}/words\n@@ -1,2 +1,2 @@\n-one\n+two\n"
        " no newline\n\\ No newline at end of file\n"
    )
    assert without_diff in done.stderr
    assert text in done.stderr
    made = captured(sys.executable, "-c", script)
    assert made.diff == without_diff + text
    named = {operation[1] for operation in made.behavior.patch.operations}
    assert {"/fs/rows", "/fs/words", "/fs/long"} <= named


@needs("patch")
def test_the_printed_diff_is_applied(place: Path) -> None:
    script = "printf 'a\\r\\nb' > 'sp ace'; printf '\\fx' >> text; : > void; rm cut; chmod 755 old"
    done = subprocess.run([*SHIOENV, "--", "sh", "-c", script], capture_output=True)
    copy = place.parent / "copy"
    subprocess.run(["cp", "-a", str(place), str(copy)], check=True)
    strip = f"-p{len(place.parts)}"
    subprocess.run(["patch", "-s", strip, "-d", str(copy)], input=done.stderr, check=True)
    subprocess.run(["sh", "-c", script], check=True)
    contents, copied = (
        {
            path.name: (path.read_bytes(), path.stat().st_mode)
            for path in directory.iterdir()
            if path.is_file() and not path.is_symlink()
        }
        for directory in (place, copy)
    )
    assert contents == copied
