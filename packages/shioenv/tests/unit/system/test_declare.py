from dataclasses import replace
from datetime import UTC, datetime
from pathlib import Path

import pytest

from shioenv.errors import SystemDeclarationError, UnknownSystemError
from shioenv.system import store
from shioenv.system.declare import declared_names, load_declaration, parse_declaration, read_text
from shioenv.system.values import UNLIMITED


def faults(text: str) -> str:
    with pytest.raises(SystemDeclarationError) as caught:
        parse_declaration(text, source="test.toml")
    return str(caught.value)


def edited(old: str, new: str) -> str:
    text = read_text("debian-12")
    assert old in text
    return text.replace(old, new, 1)


def test_the_shipped_systems_parse_and_two_show_the_papers_machine() -> None:
    assert declared_names() == ("debian-12", "debian-12-dev", "ubuntu-24.04")
    for name in ("debian-12", "ubuntu-24.04"):
        machine = load_declaration(name).machine
        assert machine.hostname == "ubuntu"
        assert machine.cpu.count == 1
        assert machine.memory == 216 << 20
        assert machine.disk == 512 << 20
        assert load_declaration(name).start_directory == "/home/ubuntu"
        assert load_declaration(name).session.user == "root"


def test_the_ubuntu_declaration_differs_only_in_what_ubuntu_is() -> None:
    debian, ubuntu = load_declaration("debian-12"), load_declaration("ubuntu-24.04")
    assert ubuntu.distribution.suite == "noble"
    assert ubuntu.distribution.os_family == "ubuntu-24"
    assert debian.distribution.packages == ubuntu.distribution.packages
    same = replace(
        ubuntu,
        name=debian.name,
        title=debian.title,
        distribution=debian.distribution,
        machine=replace(
            ubuntu.machine, kernel=debian.machine.kernel, sockets=debian.machine.sockets
        ),
    )
    assert same == debian


def test_the_development_machine_is_debian_with_more() -> None:
    debian, dev = load_declaration("debian-12"), load_declaration("debian-12-dev")
    assert {*debian.distribution.packages} - {*dev.distribution.packages} == {"vim-tiny"}
    assert dev.home == replace(debian.home, added=("project",))
    assert dev.start_directory == debian.start_directory
    same = replace(
        dev.machine,
        memory=debian.machine.memory,
        disk=debian.machine.disk,
        disks=debian.machine.disks,
        kernel=replace(dev.machine.kernel, log=debian.machine.kernel.log),
    )
    assert same == debian.machine


def test_the_default_is_debian() -> None:
    assert load_declaration() == load_declaration("debian-12")


def test_an_unknown_name_is_answered_with_the_nearest() -> None:
    with pytest.raises(UnknownSystemError, match=r"did you mean debian-12\?"):
        load_declaration("debian12")


def test_every_fault_is_reported_at_once_with_its_place() -> None:
    text = edited('memory = "216M"', 'memroy = "1"\nmemory = "216 MB"')
    text = text.replace("uid = 1001", 'uid = "x"')
    message = faults(text)
    assert "test.toml: $.machine.memroy: unknown key; did you mean memory?" in message
    assert "$.machine.memory: expected a size such as \"216M\", got '216 MB'" in message
    assert "$.users[1].uid: expected a whole number from 1 to 65533, got 'x'" in message
    assert "SHIO-S01" in message


def test_a_missing_table_is_one_fault() -> None:
    message = faults('schema = 1\nname = "x"\n')
    assert "$.machine: is missing" in message
    assert "$.machine.memory" not in message


@pytest.mark.parametrize(
    ("old", "new", "expected"),
    [
        ('group = "ubuntu"\ncomment', 'group = "ubunto"\ncomment', "did you mean ubuntu?"),
        ("uid = 1002", "uid = 1001", "1001 is already taken"),
        ('mac = "52:54', 'mac = "52-54', "$.machine.interfaces[0].mac"),
        ("prefix = 24", "prefix = 33", "expected a whole number from 1 to 32, got 33"),
        ('size = "64M"', "size = 1000", "expected a multiple of 512 bytes, got 1000"),
        ("nofile = [1024, 65536]", "nofile = [8, 4]", "soft at most hard"),
        ("nofile = [1024, 65536]", "nofiles = 4", "did you mean nofile?"),
        ('start_directories = ["/home/ubuntu"]', "start_directories = []", "at least one"),
        ('["/home/ubuntu"]', '["home/../x"]', "start_directories[0]: expected an absolute path"),
        ('umask = "0022"', 'umask = "0099"', "an octal mask"),
        ("begin = 2025-10-16T08:04:11Z", "begin = 2025-10-17T00:00:00Z", "after the instant"),
        ("instant = 2025-10-16T19:43:00Z", 'instant = "now"', "expected a date and time"),
        ("instant = 2025-10-16T19:43:00Z", "instant = 2025-10-16T19:43:00", "with its zone"),
        ('hostname = "ubuntu"', 'hostname = "-x"', "a host name"),
        ('"bsdextrautils",', '"bsdextrautils",\n  "bsdextrautils",', "listed twice"),
        ('"0.012741 Memory', '"12 Memory', "$.machine.kernel.log[35]"),
        ('family = "debian"', 'family = "fedora"', "expected debian or ubuntu"),
        ('target = "/home/ubuntu"', 'target = "/home/ubuntu/"', "expected an absolute path"),
        ('HOME = "/root"', '"A B" = "/root"', "a shell variable's name"),
        ("load = [0.08, 0.03, 0.01]", "load = [1]", "expected three numbers"),
        ('components = ["main"]', "components = [5, 6]", "components[1]: expected a string, got 6"),
        ('"0.012741 Memory', '"9.000000 Memory', "expected times in ascending order"),
        ('name = "eth0"', 'name = "lo"', "an interface name other than lo"),
        ('address = "::"', 'address = "192.0.2.1"', "the machine has no address 192.0.2.1"),
        ('address = "::"', 'address = "0.0.0.0"', "sockets[1]: duplicate socket"),
        ("peer_port = 51514", "peer_port = 0", "sockets[2]: peer and peer_port must both"),
        ("process = 812", "process = 813", "sockets[2].process: no process 813 is declared"),
        ("peer_port = 51514", 'peer_port = 51514\nbanner = "x"', "only a listening socket"),
        ('pid_file = "/run/sshd.pid"', 'pid_file = "/etc/passwd"', "a file such as /run/x.pid"),
        ("pid = 1\nparent = 0\n", "pid = 1\n", "parent: the process would be its own ancestor"),
        ("pid = 903\nparent = 827", "pid = 903\nparent = 904", "would be its own ancestor"),
        ("schema = 1", "schema = 2", "unsupported version 2"),
    ],
)
def test_what_cannot_be_meant_is_refused(old: str, new: str, expected: str) -> None:
    assert expected in faults(edited(old, new))


def test_text_that_is_no_toml_is_said_to_be_none() -> None:
    assert "not TOML" in faults("a = = 1")


def test_limits_take_numbers_words_and_pairs() -> None:
    limits = load_declaration().session.limits
    assert limits["nofile"] == (1024, 65536)
    assert limits["cpu"] == (UNLIMITED, UNLIMITED)
    assert limits["core"] == (0, UNLIMITED)


def test_the_machine_was_booted_before_the_instant() -> None:
    declaration = load_declaration()
    assert declaration.boot_time < declaration.instant
    assert declaration.boot_time == datetime(2025, 10, 15, 16, 40, tzinfo=UTC)


def test_a_shipped_systems_fingerprint_is_computed_again_after_a_change(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    computed = []

    def compute(declaration: object, text: str) -> str:
        computed.append(text)
        return str(len(computed))

    monkeypatch.setattr("shioenv.system.build.fingerprint", compute)
    monkeypatch.setattr(store, "systems_directory", lambda: tmp_path)
    (tmp_path / "home").mkdir()
    file = tmp_path / "home/notes.txt"
    file.write_text("one")
    declaration = load_declaration("debian-12")

    def found(asked: str = "debian-12") -> str:
        return store._fingerprint(declaration, "text of this test", asked)

    assert [found(), found()] == ["1", "1"]
    file.write_text("other")
    assert [found(), found()] == ["2", "2"]
    assert [found("mine.toml"), found("mine.toml")] == ["3", "4"]
