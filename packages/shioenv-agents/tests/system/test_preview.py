"""A preview tells what running the command does, and leaves everything as it was."""

from __future__ import annotations

import hashlib
import json
import os
import pwd
import select
import signal
import socket
import stat
import subprocess
import sys
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
from typer.testing import CliRunner

from shioenv.cli.main import app
from shioenv.domain.names import name_text
from shioenv.errors import UsageError
from shioenv_agents.preview.preview import USUAL_LIMITS, Preview, preview
from support.needs import needs

pytestmark = pytest.mark.xdist_group("preview")

SHIOENV = (sys.executable, "-m", "shioenv", "preview")
CHANGES = r"""
echo three >> text; printf '\000\001' > binary; chmod 600 sparse
mkdir -p new/deep; echo x > new/deep/f
mv old renamed; rm -r gone; ln -sf text link; ln text twin; truncate -s 3 cut
: > empty; rmdir bare; mkfifo pipe2
touch "$(printf 'a\nb')" "$(printf 'b\377d')" 'c\d'
rm 'to be a directory'; mkdir 'to be a directory'
rm -r 'to be a file'; echo now > 'to be a file'; mv moved somewhere; chmod 1777 open
"""


@pytest.fixture
def place(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A directory with one of everything, and the working directory."""
    place = tmp_path / "place"
    place.mkdir()
    monkeypatch.chdir(place)
    for name in ("text", "old", "cut", "twin of hard", "to be a directory"):
        (place / name).write_text(f"one\ntwo {name}\n")
    for name in ("gone/in", "moved/in", "to be a file/in"):
        (place / name).parent.mkdir()
        (place / name).write_text(f"{name}\n")
    (place / "bare").mkdir()
    (place / "open").mkdir()
    (place / "link").symlink_to("nowhere")
    (place / "hard").hardlink_to(place / "twin of hard")
    os.mkfifo(place / "pipe")
    with (place / "sparse").open("wb") as file:
        file.truncate(1 << 20)
    with socket.socket(socket.AF_UNIX) as bound:
        bound.bind(str(place / "socket"))
    Path(os.fsdecode(bytes(place) + b"/n\n\xff")).write_bytes(b"\xff")
    os.setxattr(place / "text", "user.kept", b"value")
    return place


def digest(top: Path) -> str:
    """What there is below a directory: numbers but times of access, contents, attributes."""
    told = hashlib.sha256()
    for directory, names, files in os.walk(bytes(top)):
        names.sort()
        for name in sorted((*names, *files, b".")):
            path = os.path.join(directory, name)
            status = os.lstat(path)
            fields = list(status[:7])
            told.update(repr((path, fields, status.st_mtime_ns, status.st_ctime_ns)).encode())
            told.update(repr(status.st_blocks).encode())
            if stat.S_ISREG(status.st_mode):
                told.update(Path(os.fsdecode(path)).read_bytes())
            if stat.S_ISLNK(status.st_mode):
                told.update(os.readlink(path))
            for attribute in os.listxattr(path, follow_symlinks=False):
                told.update(os.getxattr(path, attribute, follow_symlinks=False))
    return told.hexdigest()


def listed(top: Path) -> dict[str, tuple[Any, ...]]:
    """What a context tells of everything in a directory, without times and directories' sizes."""
    found: dict[str, tuple[Any, ...]] = {}
    for directory, names, files in os.walk(bytes(top)):
        for name in (*names, *files):
            path = os.path.join(directory, name)
            status = os.lstat(path)
            is_directory = stat.S_ISDIR(status.st_mode)
            target = os.readlink(path) if stat.S_ISLNK(status.st_mode) else None
            found[name_text(os.path.relpath(path, bytes(top)))] = (
                stat.filemode(status.st_mode),
                status.st_nlink,
                None if is_directory else status.st_size,
                target and name_text(target),
            )
    return found


CLOCK = ("month", "day", "year", "time")
"""Fields of a file that change where a minute ends between two listings."""


def applied(before: dict[str, tuple[Any, ...]], made: Preview) -> dict[str, tuple[Any, ...]]:
    """The listing after a patch."""
    operations = made.behavior.patch.operations
    kept = [one for one in operations if one[0] != "=" or not str(one[1]).endswith(CLOCK)]
    patch = replace(made.behavior.patch, operations=tuple(kept))
    fields = ("perms", "links", "size", "target")
    fs = {name: dict(zip(fields, values, strict=True)) for name, values in before.items()}
    after = patch.apply({"fs": {".": {}, **fs}})["fs"]
    return {
        name: tuple(
            None if field == "size" and entry["perms"][0] == "d" else entry.get(field)
            for field in fields
        )
        for name, entry in after.items()
        if name != "."
    }


def captured(*command: str, **options: Any) -> Preview:
    return preview(command, capture=True, **options)


def test_what_is_told_is_what_running_does_and_nothing_is_done(place: Path) -> None:
    before, was = digest(place), listed(place)
    made = captured("sh", "-c", CHANGES)
    assert made.behavior.output == b""
    assert made.behavior.exit_code == 0
    assert digest(place) == before
    told = applied(was, made)
    subprocess.run(["sh", "-c", CHANGES], check=True)
    assert told == listed(place)
    contents = made.behavior.content_digests
    assert contents["new/deep/f"] == hashlib.sha256(b"x\n").hexdigest()
    assert contents["text"] == hashlib.sha256((place / "text").read_bytes()).hexdigest()
    moves = [operation for operation in made.behavior.patch.operations if operation[0] == "m"]
    assert ("m", "/fs/old", "/fs/renamed") in moves
    assert ("m", "/fs/moved", "/fs/somewhere") in moves
    assert "@@ -1,2 +1,3 @@\n one\n two text\n+three\n" in made.diff
    assert "two old" not in made.diff


def test_the_host_is_as_before(place: Path) -> None:
    mounts = Path("/proc/self/mountinfo").read_text()
    made = captured(
        "sh", "-c", "sleep 7531 & echo x > /dev/shm/x; echo y > /tmp/shioenv-preview; :"
    )
    assert made.behavior.exit_code == 0
    assert Path("/proc/self/mountinfo").read_text() == mounts
    assert not list(running("7531"))
    assert not Path("/tmp/shioenv-preview").exists()
    assert "/tmp/shioenv-preview" in made.behavior.content_digests


def running(*words: str) -> Iterator[int]:
    """The processes of the host that were started with these words."""
    for directory in Path("/proc").glob("[0-9]*"):
        try:
            given = (directory / "cmdline").read_bytes().split(b"\0")
        except OSError:
            continue
        if all(word.encode() in given for word in words):
            yield int(directory.name)


@pytest.mark.parametrize(
    ("command", "code"),
    [(["false"], 1), (["sh", "-c", "kill -9 $$"], 137), (["no-such"], 127), (["/etc"], 126)],
)
def test_exit_codes_are_those_of_the_command(place: Path, command: list[str], code: int) -> None:
    assert captured(*command).behavior.exit_code == code


def test_time_ends_it(place: Path) -> None:
    made = captured(
        "sh", "-c", "echo x > y; exec sleep 60", limits=replace(USUAL_LIMITS, wall_seconds=0.3)
    )
    assert made.behavior.timed_out
    assert made.behavior.exit_code == 124
    assert "y" in made.behavior.content_digests


@pytest.mark.parametrize("job", ["sleep 300", "setsid sleep 300", "(sleep 300; touch late)"])
@pytest.mark.parametrize("where", ["", "> /dev/null 2>&1"])
def test_a_job_that_is_cut_off_is_said(place: Path, job: str, where: str) -> None:
    made = captured("sh", "-c", f"{job} {where} & echo on; exit 3")
    assert made.behavior.limits_hit == ("background_seconds",)
    assert (made.behavior.exit_code, made.behavior.output) == (3, b"on\n")
    said = CliRunner().invoke(app, ["preview", "--json", "--", "sh", "-c", f"{job} {where} &"])
    assert json.loads(said.stdout)["limits_hit"] == ["background_seconds"]
    assert "may change more than is shown here" in said.stderr


def test_a_job_that_ends_in_time_is_shown(place: Path) -> None:
    patient = replace(USUAL_LIMITS, background_seconds=20.0)
    made = captured("sh", "-c", "(sleep 0.03; touch late) > /dev/null 2>&1 &", limits=patient)
    assert ["a", "/fs/late"] in [
        list(operation[:2]) for operation in made.behavior.patch.operations
    ]
    assert made.behavior.limits_hit == ()


def test_the_command_line(place: Path) -> None:
    (place / "given").write_text("given\n")
    script = "read line; echo $line; echo changed > /dev/stdin; echo more > more; exit 3"
    with (place / "given").open() as given:
        done = subprocess.run(
            [*SHIOENV, "--", "sh", "-c", script], stdin=given, capture_output=True
        )
    assert done.returncode == 3
    assert done.stdout == b"given\n"
    assert b"exit code 3\n  added   /fs/more  -rw-r--r-- " in done.stderr
    assert b"+++ b" + bytes(place) + b"/more\n@@ -0,0 +1 @@\n+more\n" in done.stderr
    assert (place / "given").read_text() == "given\n"


def test_the_exit_status_tells_the_command_from_the_preview(place: Path) -> None:
    script = "echo -n out; exit 4"
    done = CliRunner().invoke(app, ["preview", "--json", "sh", "-c", script])
    document = json.loads(done.stdout)
    assert (done.exit_code, document["exit_code"], document["output"]) == (4, 4, "out")
    assert document["context_patch"] == []
    assert CliRunner().invoke(app, ["preview", "--no-such-option", "true"]).exit_code == 125
    done = CliRunner().invoke(app, ["preview", "--root", "/no/such", "true"])
    assert (done.exit_code, "SHIO-U01" in done.stderr) == (125, True)


def test_hidden_paths(place: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("HOME", str(place))
    (place / ".ssh").mkdir()
    (place / ".ssh" / "id").write_text("secret")
    (place / ".netrc").write_text("secret")
    (place / "token").write_text("secret")
    script = "cat .ssh/id; cat .netrc; cat token; echo x > .netrc; echo x > .ssh/new; :"
    made = captured("sh", "-c", script, hide=["token"])
    assert b"secret" not in made.behavior.output
    assert not made.behavior.patch
    hidden = {path for path in made.hidden if Path(path).is_relative_to(place)}
    assert hidden == {str(place / name) for name in (".ssh", ".netrc", "token")}
    assert captured("cat", ".netrc", show=["~/.netrc"]).behavior.output == b"secret"
    with pytest.raises(UsageError, match="is not hidden"):
        captured("true", show=["token"])
    with pytest.raises(UsageError, match="is hidden by"):
        captured("true", root=".ssh")


def in_own_mounts(script: str, *words: str) -> subprocess.CompletedProcess[bytes]:
    """Runs a script that may mount, and then a preview of the words."""
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


def test_who_calls_sudo_has_secrets_too(place: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (place / ".netrc").write_text("secret")
    user = pwd.struct_passwd(("other", "x", 7531, 7531, "", str(place), "/bin/sh"))
    monkeypatch.setattr(pwd, "getpwnam", {"other": user}.__getitem__)  # as a directory tells it
    monkeypatch.setenv("SUDO_USER", "other")
    assert str(place / ".netrc") in captured("true").hidden
    monkeypatch.setenv("SUDO_USER", "nobody knows")
    assert str(place / ".netrc") not in captured("true").hidden


def test_a_host_that_allows_no_further_namespace_is_named(place: Path) -> None:
    script = 'echo 0 > /proc/sys/user/max_user_namespaces && exec "$@"'
    words = ["unshare", "--user", "--map-root-user", "--mount", "sh", "-c", script, "sh"]
    done = subprocess.run([*words, *SHIOENV, "--", "true"], capture_output=True)
    assert done.returncode == 125
    assert b"no preview on this host: make namespaces: No space left on device" in done.stderr


def test_network(place: Path) -> None:
    with socket.create_server(("127.0.0.1", 0)) as server:
        port = server.getsockname()[1]
        script = f"exec 3<> /dev/tcp/127.0.0.1/{port}"
        assert captured("bash", "-c", script).behavior.exit_code != 0
        assert captured("bash", "-c", script, network=True).behavior.exit_code == 0
    own = (
        "import socket; s = socket.create_server(('127.0.0.1', 80)); "
        "socket.create_connection(s.getsockname())"
    )
    assert captured(sys.executable, "-c", own).behavior.exit_code == 0


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
