"""A declaration by an untrusted author: all of it is data."""

from __future__ import annotations

import io
import os
import re
import stat
import tomllib
from collections.abc import Callable, Iterator, Mapping
from dataclasses import is_dataclass
from pathlib import Path
from typing import Annotated, Any, get_args, get_origin, get_type_hints

import pytest
import tomli_w
from typer.testing import CliRunner

from shioenv.cli.main import app
from shioenv.errors import SystemDeclarationError
from shioenv.system import image
from shioenv.system.answers import Answers
from shioenv.system.bootstrap import mmdebstrap_command
from shioenv.system.declare import (
    LARGEST_FILE,
    SystemDeclaration,
    load_declaration,
    parse_declaration,
    read_text,
)
from shioenv.system.home import load_home
from shioenv.system.proc import proc_files
from shioenv.system.processes import process_files
from shioenv.system.profile import root_files
from shioenv.system.values import checked

SHIPPED = load_declaration()

FREE = {
    "title", "comment", "environment", "vendor", "model_name", "command_line", "build", "command",
    "banner",
}  # fmt: skip
"""Fields that accept any line of text: it becomes only a file's or a process's own text."""

NO_LINE = (
    "a\nb", "\n", "a\n", "\na", "a\rb", "a\0b", "\0", "a\x0bb", "a\x0cb", "a\x1cb", "a\x1b[2Jb",
    "a\x7fb", "a\x85b", "a\u2028b", "a\u2029b", "x:x:0:0::/:/bin/sh\nevil::0:0::/:/bin/sh",
)  # fmt: skip

NO_WORD = (
    "--setup-hook=touch /tmp/x", "-x", "--", "-o/tmp/x", "$(touch x)", "`touch x`", "a;touch x",
    "a|b", "a&b", "a>b", "'", '"', "a b c d", "../../etc/cron.d/x", "..", "a/../../b", "./a",
    "[trusted=yes]", "deb [trusted=yes] http://a.test/ bookworm main", "copy:/etc/shadow",
    "deb file:///srv bookworm main", "a,b", "a:b:c", "?name(x)", "~nx", "%n", "{a,b}", "\\n", "#a",
)  # fmt: skip


def texts(annotation: Any, name: str = "") -> Iterator[tuple[str, Any]]:
    """Each text of a declaration: its field, and all its requirements."""
    kind: Any
    kind, *notes = get_args(annotation) if get_origin(annotation) is Annotated else (annotation,)
    if is_dataclass(kind):
        for field, hint in get_type_hints(kind, include_extras=True).items():
            yield from texts(hint, field)
    elif get_origin(kind) is Mapping:
        key, value = get_args(kind)
        if not notes:  # else the file's keys are among some that are listed
            yield from texts(key, f"{name} (key)")
        yield from texts(value, name)
    elif any(callable(note) for note in notes) or kind is str:
        yield name, annotation
    elif get_origin(kind) is tuple:
        yield from texts(get_args(kind)[0], name)


TEXTS = tuple(texts(SystemDeclaration))


def accepts(annotation: Any, text: str) -> bool:
    problems: list[str] = []
    checked(annotation, text, "$", problems)
    return not problems


def test_every_text_is_looked_at() -> None:
    names = {name for name, _ in TEXTS}
    assert names >= {"suite", "mirrors", "packages", "leave_out", "home", "shell", "uuid", "log"}
    assert len(TEXTS) > 60


@pytest.mark.parametrize(("name", "annotation"), TEXTS, ids=[name for name, _ in TEXTS])
def test_no_text_has_a_second_line_and_a_word_is_one(name: str, annotation: Any) -> None:
    refused = NO_LINE if name in FREE | {"log"} else (*NO_LINE, *NO_WORD)
    taken = [text for text in refused if accepts(annotation, text)]
    if name in ("home", "shell", "program", "target", "start_directories", "mount", "source"):
        assert set(taken) <= {"/"}
    elif name in ("flags", "bugs"):
        assert set(taken) <= {"a b c d"}
    elif name == "host" or name == "nameservers":
        assert set(taken) <= {"::1"}
    elif name == "model":
        assert not set(taken) & set(NO_LINE)
    else:
        assert taken == []


def declared(*changes: tuple[str, Any]) -> SystemDeclaration:
    """Return the default system with other values at these places, such as
    `machine.disks.0.label`."""
    data = tomllib.loads(read_text())
    for place, value in changes:
        *way, last = place.split(".")
        table: Any = data
        for step in way:
            table = table[int(step) if step.isdigit() else step]
        table[int(last) if isinstance(table, list) else last] = value
    return parse_declaration(tomli_w.dumps(data), source="theirs.toml")


def faults(*changes: tuple[str, Any]) -> str:
    with pytest.raises(SystemDeclarationError) as caught:
        declared(*changes)
    return str(caught.value)


@pytest.mark.parametrize(
    "mirror",
    [
        "--setup-hook=touch /tmp/x",
        "-",
        "/etc/passwd",
        "./here",
        "deb [trusted=yes] http://a.test/debian bookworm main",
        "deb [signed-by=/tmp/k.gpg] http://a.test/debian bookworm main",
        "deb  [ allow-insecure=yes ] http://a.test/debian bookworm main",
        "deb http://a.test/debian bookworm main\ndeb [trusted=yes] http://b.test x main",
        "deb http://a.test/debian bookworm main # x\n",
        "deb http://user:password@a.test/debian bookworm main",
        "deb file:///srv/debian bookworm main",
        "deb copy:/srv/debian bookworm main",
        "deb http://a.test/debian [trusted=yes] main",
        "deb\u00a0http://a.test/debian bookworm main",
        "deb\vhttp://a.test/debian bookworm main",
        "deb-src http://a.test/debian bookworm main",
        "http://a.test/debian",
        "",
    ],
)
def test_a_mirror_is_a_source_without_options(mirror: str) -> None:
    assert "$.distribution.mirrors[0]: expected a source" in faults(
        ("distribution.mirrors.0", mirror)
    )


@pytest.mark.parametrize(
    ("mirror", "said"),
    [
        ("deb file:///srv/debian bookworm main", "only http://.*sources.list.d"),
        ("deb copy:/srv/debian bookworm main", "only http://.*sources.list.d"),
        ("deb cdrom:[Debian]/ bookworm main", "only http://.*sources.list.d"),
        ("deb [arch=amd64] http://a.test/ bookworm main", "without options.*`architecture`"),
        ("deb [ trusted=yes ] http://a.test/ bookworm main", "without options.*sources.list.d"),
        ("deb [trusted=yes] file:///srv bookworm main", "without options.*sources.list.d"),
        ("deb http://user:pw@a.test/ bookworm main", "without user and password; .*list.d"),
        ("deb https://user@a.test/ bookworm main", "without user and password; .*list.d"),
        ("deb http://[2001:db8::1]/debian bookworm main", "IPv6 address: give it a name, or .*"),
        ("deb http://[::1]:8080/debian bookworm main", "IPv6 address: give it a name, or .*"),
        ("deb-src http://a.test/debian bookworm main", "not deb-src"),
        ("deb http://a.test/debian bookworm main # ours", "without a comment"),
        ("deb http://a.test/debian bookworm Main", "not with 'Main'"),
        ("deb http://a.test/debian ./", "not with './'"),
        ("deb http://a.test/debian bookworm", "with all words"),
        ("http://a.test/debian bookworm main", "not with 'http://a.test/debian'"),
    ],
)
def test_what_a_source_may_not_say_is_named_with_the_way_out(mirror: str, said: str) -> None:
    told = faults(("distribution.mirrors.0", mirror))
    assert re.search(rf"mirrors\[0\]: expected a source, .*{said}.*, got '", told), told


def test_words_of_a_source_may_stand_apart_and_a_package_may_name_the_architecture() -> None:
    written = declared(
        ("distribution.mirrors.0", " deb   http://a.test:80/debian/ \t bookworm  main contrib "),
        ("distribution.packages.0", "adduser:amd64"),
        ("distribution.packages.1", "bc:amd64=1.07.1-3+b1"),
    ).distribution
    assert written.mirrors[0] == "deb http://a.test:80/debian/ bookworm main contrib"
    assert written.packages[:2] == ("adduser:amd64", "bc:amd64=1.07.1-3+b1")


@pytest.mark.parametrize(
    ("package", "said"),
    [
        (
            "bash/bookworm-backports",
            "=VERSION selects a version, and `pockets` lists further suites",
        ),
        ("bash coreutils", "each package must be a separate item"),
        ("bash,coreutils", "each package must be a separate item"),
        ("bash ", "each package must be a separate item"),
        ("bash-", "`leave_out` lists"),
        ("./bash.deb", "files cannot be installed"),
        ("bash_5.2_amd64.deb", "files cannot be installed"),
        ("Bash", "lower case letters"),
        ("lib*", "patterns and conditions"),
        ("bash:i386", "is not the system's, amd64"),
        ("bash:arm64=5.2", "is not the system's, amd64"),
    ],
)
def test_what_a_package_may_not_say_is_named_with_the_way_out(package: str, said: str) -> None:
    told = faults(("distribution.packages.0", package))
    assert "$.distribution.packages[0]: " in told
    assert said in told


@pytest.mark.parametrize(
    "keyring",
    ["/tmp/k.gpg", "k.gpg", "/usr/share/keyrings/other.gpg", "/usr/share/keyrings",
     "/usr/share/keyrings/../../../tmp/debian-archive-keyring.gpg", "--setup-hook=touch x"],
)  # fmt: skip
def test_a_declaration_does_not_choose_whom_to_trust(keyring: str) -> None:
    assert "$.distribution.keyring: expected the archive's own" in faults(
        ("distribution.keyring", keyring)
    )


@pytest.mark.parametrize(
    ("place", "text"),
    [
        ("distribution.packages.0", "./evil.deb"),
        ("distribution.packages.0", "/tmp/evil.deb"),
        ("distribution.packages.0", "bash-"),
        ("distribution.packages.0", "?essential"),
        ("distribution.packages.0", "bash=1.0,/tmp/evil.deb"),
        ("distribution.leave_out.0", "/x\npre-invoke=touch /tmp/x"),
        ("distribution.leave_out.0", "x"),
        ("distribution.keep.0", "/x\npost-invoke=touch /tmp/x"),
        ("distribution.architecture", "amd64 --setup-hook=x"),
        ("distribution.suite", "-bookworm"),
        ("distribution.suite", "../../tmp/x"),
        ("distribution.pockets.0", "bookworm main\ndeb [trusted=yes] http://b.test x"),
        ("distribution.components.0", "main [trusted=yes]"),
        ("users.0.home", "/home/x:/bin/sh\nevil::0:0::/root:/bin/sh"),
        ("users.0.home", "/etc/passwd"),
        ("users.0.home", "/usr/bin"),
        ("users.0.home", "/home/../etc"),
        ("users.0.home", ""),
        ("users.0.home", f"/home/{'é' * 128}"),
        ("users.0.home", "/home" + "/a" * 200),
        ("users.0.home", "/var/run/x"),
        ("home.target", f"/home/{'é' * 128}"),
        ("session.start_directories.0", f"/home/{'é' * 128}"),
        ("machine.disks.0.mount", f"/{'é' * 128}"),
        ("machine.processes.0.program", f"/usr/{'é' * 128}"),
        ("users.0.shell", "/bin/sh\nevil::0:0::/root:/bin/sh"),
        ("users.0.comment", "x:/:/bin/sh"),
        ("users.0.comment", "x\u2028evil:x:0:0::/:/bin/sh"),
        ("users.0.name", "root"),
        ("users.0.name", "x:y"),
        ("groups.0.name", "root"),
        ("home.target", "/"),
        ("home.target", "/etc/cron.d"),
        ("home.target", "/proc/self"),
        ("home.source", "../../../tmp/tree"),
        ("home.source", "."),
        ("machine.hostname", "a\n127.0.0.1 b"),
        ("machine.domain", "a\nnameserver 8.8.8.8"),
        ("machine.domain", "-a"),
        ("machine.nameservers.0", "10.0.0.1\nsearch x"),
        ("machine.nameservers.0", "fe80::1%$(touch x)"),
        ("machine.interfaces.0.address", "1.2.3.4."),
        ("machine.interfaces.0.address", "\u0661.2.3.4"),
        ("machine.disks.0.label", "../../../etc/cron.d/x"),
        ("machine.disks.0.label", ".."),
        ("machine.disks.0.uuid", "../../x"),
        ("machine.disks.0.name", "null"),
        ("machine.disks.0.name", "tty"),
        ("machine.disks.0.mount", "/a b\nUUID=x"),
        ("machine.disks.0.mount", "/a b"),
        ("machine.disks.0.filesystem", "ext4 x"),
        ("machine.kernel.release", "../../../etc"),
        ("machine.kernel.release", "6.1/x"),
        ("machine.kernel.modules.0", "../../etc 1 0 - Live 0x0"),
        ("machine.kernel.modules.0", "a 1 0 ../../b, Live 0x0"),
        ("machine.kernel.modules.0", "a"),
        ("machine.kernel.log.0", "0.000000 a\n<0>b"),
        ("machine.kernel.log.0", "0.000000 " + "a" * 9000),
        ("machine.logins.0.host", "999.1.1.1"),
        ("machine.logins.0.host", "1.2.3.4.5"),
        ("machine.processes.0.terminal", "pts/\u0661"),
        ("name", "../x"),
        ("name", "theirs.toml"),
        ("name", "a" * 300),
    ],
)
def test_what_leads_elsewhere_is_refused_with_its_place(place: str, text: str) -> None:
    parts = [f"[{part}]" if part.isdigit() else f".{part}" for part in place.split(".")]
    if text == "root":
        parts = parts[:-1]
    assert f"theirs.toml: ${''.join(parts)}:" in faults((place, text))


@pytest.mark.parametrize(
    ("place", "value"),
    [
        ("instant", "0001-01-01T00:00:00+23:59"),
        ("instant", "9999-12-31T23:59:59-23:59"),
        ("instant", "1970-01-01T00:00:00Z"),
        ("instant", "1980-01-01T00:30:00+01:00"),
        ("instant", "2037-12-31T23:30:00-01:00"),
        ("instant", "2106-02-07T06:28:16Z"),
        ("machine.memory", "0"),
        ("machine.disk", "0"),
        ("machine.memory", "9" * 5000),
        ("machine.cpu.mhz", "nan"),
        ("machine.cpu.bogomips", "inf"),
        ("machine.load", "[nan, 0.0, 0.0]"),
        ("machine.uptime", "2147483648"),
        ("machine.processes.0.cpu", "inf"),
        ("machine.processes.0.started", "nan"),
        ("session.limits.cpu", "18446744073709551616"),
        ("schema", "1" * 400),
    ],
)
def test_numbers_and_instants_have_bounds(place: str, value: str) -> None:
    text = tomli_w.dumps(tomllib.loads(read_text()))
    mark = "987654321.125"
    *way, last = place.split(".")
    data = tomllib.loads(text)
    table: Any = data
    for step in way:
        table = table[int(step) if step.isdigit() else step]
    table[last] = float(mark)
    with pytest.raises(SystemDeclarationError):
        parse_declaration(tomli_w.dumps(data).replace(mark, value), source="theirs.toml")


@pytest.mark.parametrize(
    "text",
    [
        "a = " + "[" * 5000 + "]" * 5000,
        "a." * 3000 + "a = 1",
        "home = " + "{ a = " * 300 + "1" + " }" * 300,
        "[" + "home." * 300 + "x]\na = 1",
        "name = [" + "[" * 60 + "]" * 60 + "]",
        "name = " + "1" * 5000,
        "instant = 2025-02-31T00:00:00Z",
        "a = 1\r",
        "",
    ],
    ids=lambda text: text[:12],
)
def test_text_of_any_depth_is_one_short_error(text: str) -> None:
    with pytest.raises(SystemDeclarationError) as caught:
        parse_declaration(text, source="theirs.toml")
    assert len(str(caught.value)) < 5000


def pipe(place: Path) -> Path:
    os.mkfifo(place / "theirs.toml")
    return place / "theirs.toml"


def link_to_device(place: Path) -> Path:
    (place / "theirs.toml").symlink_to("/dev/zero")
    return place / "theirs.toml"


def large(place: Path) -> Path:
    with (place / "theirs.toml").open("wb") as file:
        file.truncate(LARGEST_FILE + 1)
    return place / "theirs.toml"


def undecodable(place: Path) -> Path:
    (place / "theirs.toml").write_bytes(b"\xff")
    return place / "theirs.toml"


def directory(place: Path) -> Path:
    (place / "theirs.toml").mkdir()
    return place / "theirs.toml"


@pytest.mark.parametrize("make", [pipe, link_to_device, large, undecodable, directory])
def test_only_a_regular_file_of_bounded_size_is_read(
    make: Callable[[Path], Path], tmp_path: Path
) -> None:
    with pytest.raises(SystemDeclarationError, match="cannot be read"):
        load_declaration(str(make(tmp_path)))


@pytest.mark.parametrize("newline", ["\n", "\r\n"])
def test_a_file_of_an_editor_elsewhere_is_read(newline: str, tmp_path: Path) -> None:
    """It begins with a byte order mark, or its lines end in CR LF."""
    text = f"\ufeff{read_text()}".replace('name = "debian-12"', 'name = "theirs"', 1)
    (tmp_path / "theirs.toml").write_text(text, encoding="utf-8", newline=newline)
    found = load_declaration(str(tmp_path / "theirs.toml"))
    assert (found.name, found.machine) == ("theirs", SHIPPED.machine)


@pytest.mark.parametrize("encoding", ["utf-16", "utf-32", "latin-1"])
def test_a_file_in_another_encoding_is_said_to_be_in_one(encoding: str, tmp_path: Path) -> None:
    (tmp_path / "theirs.toml").write_bytes("title = 'é'".encode(encoding))
    with pytest.raises(SystemDeclarationError, match="cannot be read: it is not UTF-8 text"):
        load_declaration(str(tmp_path / "theirs.toml"))


def test_the_command_holds_the_declaration_behind_its_options(tmp_path: Path) -> None:
    distribution = declared(
        ("distribution.packages.0", "g++"),
        ("distribution.leave_out.0", "/x[!a]*?"),
    ).distribution
    command = mmdebstrap_command(distribution, tmp_path / "base.tar", list(distribution.mirrors))
    end = command.index("--")
    known = (
        "--variant=", "--mode=", "--format=", "--architectures=", "--include=", "--aptopt=",
        "--dpkgopt=path-", "--keyring=/usr/share/keyrings/", "--customize-hook=test ",
    )  # fmt: skip
    assert [text for text in command[1:end] if not text.startswith(known)] == []
    assert sum("hook" in text for text in command) == 1
    assert command[end + 1 :] == ["bookworm", str(tmp_path / "base.tar"), *distribution.mirrors]


FREE_TEXT = "$(touch x); --x `touch x` ../../etc [trusted=yes] 'a\" # é"


def test_free_text_adds_no_line_and_no_path() -> None:
    """The system's files change only in the lines with the text."""
    theirs = declared(
        ("title", FREE_TEXT),
        ("users.0.comment", FREE_TEXT),
        ("session.environment.TERM", FREE_TEXT),
        ("machine.cpu.vendor", FREE_TEXT),
        ("machine.cpu.model_name", FREE_TEXT),
        ("machine.kernel.command_line", FREE_TEXT),
        ("machine.kernel.build", FREE_TEXT.replace("# é", "#é")),
        ("machine.kernel.log.0", f"0.000000 {FREE_TEXT}"),
        ("machine.disks.0.model", FREE_TEXT),
        ("machine.processes.0.command", FREE_TEXT),
    )
    before, after = files(SHIPPED), files(theirs)
    assert {name.rpartition("/")[2] for name in set(after) ^ set(before)} == {"model"}
    for name in before.keys() & after.keys():
        assert after[name].count(b"\n") == before[name].count(b"\n"), name


def files(declaration: SystemDeclaration) -> dict[str, bytes]:
    """Return the contents by path of a system's own files, as they are made on the host."""
    groups = b"root:x:0:\nadm:x:4:\nsudo:x:27:\nwww-data:x:33:\nusers:x:100:\n"
    group = image.ImageEntry("etc/group", stat.S_IFREG, 0o644, 0, 0, 0, size=len(groups))
    with io.BytesIO(groups) as base:
        entries = image.compose(
            declaration, {group.path: group}, base, load_home(declaration), root_files(declaration)
        )
        found = {entry.path: image.content(entry, base) for entry in entries}
    told = Answers("declared", "declared")
    found |= {f"proc/{name}": data for name, data in proc_files(declaration, told).items()}
    return found | process_files(declaration)


@pytest.mark.parametrize(
    "change",
    [
        ("distribution.mirrors", ["--setup-hook=touch MARK"]),
        ("distribution.mirrors", ["--customize-hook=touch MARK", "-q"]),
        ("distribution.leave_out", ["/x\npre-invoke=touch MARK"]),
        ("distribution.packages", ["bash --setup-hook=touch MARK"]),
        ("distribution.suite", "--setup-hook=touch MARK"),
        ("distribution.architecture", "amd64 --setup-hook=touch MARK"),
    ],
)
def test_building_what_somebody_sent_runs_nothing(
    change: tuple[str, Any], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("SHIOENV_CACHE", str(tmp_path / "cache"))
    data, mark = tomllib.loads(read_text()), tmp_path / "PWNED"
    table, key = change[0].split(".")
    data[table][key], data["name"] = change[1], "theirs"
    (tmp_path / "theirs.toml").write_text(tomli_w.dumps(data).replace("MARK", str(mark)))
    said = CliRunner().invoke(app, ["system", "build", str(tmp_path / "theirs.toml")])
    assert (said.exit_code, mark.exists()) == (SystemDeclarationError.exit_status, False)
    assert f"theirs.toml: $.{table}.{key}" in said.stderr
