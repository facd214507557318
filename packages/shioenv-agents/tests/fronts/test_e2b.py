"""The sandboxes of the E2B API, used by the published SDK over HTTP."""

from __future__ import annotations

import asyncio
import inspect
import io
import re
import sys
from collections.abc import Iterator
from datetime import UTC, datetime, timedelta
from typing import Any

import pytest

from support.needs import needed_module, needs

needed_module("e2b")

import e2b  # noqa: E402
import httpx  # noqa: E402
from e2b import AsyncSandbox, Sandbox, SandboxException, SandboxQuery, SandboxState  # noqa: E402

from shioenv_agents.e2b.application import SDK  # noqa: E402
from support.e2b_server import KEYS, reached, serving  # noqa: E402
from support.needs import system_with_git  # noqa: E402
from support.paths import ROOT  # noqa: E402
from support.waiting import wait_until  # noqa: E402

pytestmark = pytest.mark.usefixtures("system")

PAGE = ROOT / "docs" / "how-to" / "e2b.md"


@pytest.fixture(scope="module")
def url() -> Iterator[str]:
    """The address of a server that accepts any key."""
    with serving() as (_, address):
        yield address


@pytest.fixture
def sandbox(url: str) -> Iterator[Sandbox]:
    """A new sandbox."""
    opened = Sandbox.create(**reached(url))
    yield opened
    opened.kill()


def rows() -> dict[str, dict[str, bool]]:
    """The methods on the page by their object, and whether each works."""
    found: dict[str, dict[str, bool]] = {}
    for name, works, refused in re.findall(
        r"^\| `(\w+)` \|([^|]*)\|([^|]*)\|$", PAGE.read_text(), re.M
    ):
        found[name] = {
            **dict.fromkeys(re.findall(r"`(\w+)`", works), True),
            **dict.fromkeys(re.findall(r"`(\w+)`", refused), False),
        }
    return found


def test_the_page_tells_of_every_public_method_of_this_version() -> None:
    objects: dict[str, Any] = {
        "Sandbox": Sandbox,
        "commands": sys.modules["e2b.sandbox_sync.commands.command"].Commands,
        "CommandHandle": e2b.CommandHandle,
        "files": sys.modules["e2b.sandbox_sync.filesystem.filesystem"].Filesystem,
        "WatchHandle": e2b.WatchHandle,
        "pty": sys.modules["e2b.sandbox_sync.commands.pty"].Pty,
        "git": e2b.Git,
        "SandboxPaginator": e2b.SandboxPaginator,
    }
    told = rows()
    assert told.keys() == objects.keys()
    for name, kind in objects.items():
        public = {each for each in dir(kind) if not each.startswith("_")}
        methods = {
            each
            for each in public
            if callable(getattr(kind, each)) and not inspect.isclass(getattr(kind, each))
        }
        assert told[name].keys() == methods, name
    flat = [works for each in told.values() for works in each.values()]
    assert f"{sum(flat)} of {len(flat)}" in PAGE.read_text()
    assert e2b.ConnectionConfig(api_key="x").headers["User-Agent"] == f"e2b-python-sdk/{SDK}"


def test_every_method_that_works_is_tested_here() -> None:
    source = inspect.getsource(sys.modules[__name__])
    for each in rows().values():
        for method, works in each.items():
            assert not works or f".{method}(" in source, method


def test_a_sandbox_is_made_found_and_ended(url: str) -> None:
    there = reached(url)
    before = datetime.now(UTC) - timedelta(seconds=1)
    made = Sandbox.create(metadata={"of": "a test"}, timeout=100, **there)
    again = Sandbox.connect(made.sandbox_id, **there)
    made.commands.run("echo here > /tmp/f")
    assert again.files.read("/tmp/f") == "here\n"
    told = again.get_info()
    assert (told.sandbox_id, told.metadata, told.template_id) == (
        made.sandbox_id,
        {"of": "a test"},
        "base",
    )
    assert before < told.started_at < told.end_at
    again.set_timeout(1000)
    assert again.get_info().end_at > told.end_at
    again.connect(timeout=10)  # shortens nothing
    assert again.get_info().end_at > told.end_at
    assert made.is_running()
    assert made.kill()
    assert not made.kill()
    assert not made.is_running()
    with pytest.raises(e2b.SandboxNotFoundException):
        Sandbox.connect(made.sandbox_id, **there)
    with pytest.raises(e2b.SandboxNotRunningException):
        made.commands.run("true")
    assert Sandbox.create("debian-12", **there).kill()


def test_sandboxes_are_listed_by_page_and_property(url: str) -> None:
    there = reached(url, "e2b_of_the_list")
    made = [Sandbox.create(metadata={"n": str(n)}, **there) for n in range(3)]
    try:
        made[1].pause()
        pages = Sandbox.list(limit=2, **there)
        first = pages.next_items()
        assert pages.has_next
        found = [*first, *pages.next_items()]
        assert not pages.has_next
        assert [each.sandbox_id for each in found] == [each.sandbox_id for each in made]
        newest = Sandbox.list(order="desc", limit=1, **there).next_items()
        assert [each.sandbox_id for each in newest] == [made[2].sandbox_id]
        for query, expected in (
            (SandboxQuery(metadata={"n": "2"}), made[2:]),
            (SandboxQuery(state=[SandboxState.PAUSED]), made[1:2]),
            (SandboxQuery(template="other"), []),
            (SandboxQuery(started_after=datetime.now(UTC) + timedelta(days=1)), []),
        ):
            chosen = Sandbox.list(query=query, **there).next_items()
            assert [each.sandbox_id for each in chosen] == [each.sandbox_id for each in expected]
    finally:
        for each in made:
            each.kill()


def test_a_paused_sandbox_stands_still_and_goes_on(sandbox: Sandbox) -> None:
    ticking = sandbox.commands.run(
        "for i in 1 2 3 4; do echo $i; echo $i > /tmp/tick; sleep .1; done", background=True
    )
    assert sandbox.pause()
    assert not sandbox.pause()
    assert sandbox.get_info().state is SandboxState.PAUSED
    assert not sandbox.is_running()
    with pytest.raises(e2b.SandboxNotRunningException):
        sandbox.files.read("/tmp/tick")
    sandbox.connect()
    assert ticking.wait().stdout == "1\n2\n3\n4\n"


@pytest.mark.parametrize("how", ["pause", "connect"])
def test_a_pause_without_memory_keeps_the_files_alone(sandbox: Sandbox, how: str) -> None:
    sleeping = sandbox.commands.run("echo kept > /tmp/f; sleep 300", background=True)
    wait_until(lambda: sandbox.files.exists("/tmp/f"), "the file")
    if how == "pause":
        sandbox.pause(mode="filesystem")
        sandbox.connect()
    else:
        sandbox.beta_pause()
        sandbox.connect(on_resume="reboot")
    with pytest.raises(e2b.CommandExitException):
        sleeping.wait()
    assert sandbox.files.read("/tmp/f") == "kept\n"


CHANGES = r"""
rm -r /etc/apt /var/log; ln -s /tmp /var/log; rm /bin/ls; mkdir /bin/ls
mkdir -p /srv/a /srv/-T; echo one > /srv/a/f; ln /srv/a/f /srv/a/g; chmod 4751 /srv/a/g
chown 1000:5 /srv/a; ln /etc/hostname /etc/linked; mkfifo /srv/pipe; chmod 700 /etc/passwd
ln -s nowhere /srv/a/link; touch -h -d 1999-01-01 /srv/a/link; truncate -s 1G /srv/sparse
touch -d "2001-01-01 01:02:03.123456789" /srv/a/f; echo x > $'/srv/o\\dd\n name'
mv /usr/share/doc /usr/share/docs; echo x > /dev/shm/f; setfacl -m u:1000:r /etc/group
head -c 3000000 /dev/urandom > /root/data; rm /usr/bin/perl /usr/bin/head; chmod 0 /srv
"""
"""Changes of every kind, also of the programs that a copy is made with."""

ALL_FILES = r"""
{ find / \( -path /proc -o -path /sys \) -prune -o -printf '%p %M %n %U:%G %T@ %l ' \
  \( -type d -printf '\n' -o -printf '%s\n' \)
find /srv /root /dev/shm /etc -type f -size -9M -exec sha256sum {} +; } | sort
"""


def test_snapshots_and_forks_have_exactly_the_files(url: str) -> None:
    there = reached(url, "e2b_of_snapshots")
    source = Sandbox.create(envs={"A": "5"}, metadata={"of": "a test"}, **there)
    source.commands.run(CHANGES, user="root")
    expected = source.commands.run(ALL_FILES).stdout
    taken = source.create_snapshot()
    forks = source.fork(count=2, timeout=100)
    source.commands.run("rm -r /srv/a")
    source.kill()
    made = Sandbox.create(taken.snapshot_id, **there)
    for each in (made, *forks):
        assert isinstance(each, Sandbox)
        assert each.commands.run(ALL_FILES).stdout == expected
    fork = forks[0]
    assert isinstance(fork, Sandbox)
    assert fork.commands.run("echo $A").stdout == "5\n"
    assert fork.get_info().metadata == {"of": "a test"}
    assert made.get_info().template_id == taken.snapshot_id
    fork.files.write("/srv/a/f", "two\n")  # copies are independent, and can be copied again
    again = fork.fork()[0]
    assert isinstance(again, Sandbox)
    assert (again.files.read("/srv/a/f"), made.files.read("/srv/a/f")) == ("two\n", "one\n")
    for each in (made, *forks, again):
        assert isinstance(each, Sandbox)
        each.kill()
    assert Sandbox.delete_snapshot(taken.snapshot_id, **there)


def test_snapshots_are_listed_named_and_deleted(url: str) -> None:
    there = reached(url, "e2b_of_names")
    one, other = Sandbox.create(**there), Sandbox.create(**there)
    try:
        first, second = one.create_snapshot(name="first"), other.create_snapshot()
        assert (first.names, second.names) == (["first"], [])
        assert one.list_snapshots().next_items() == [first]
        pages = Sandbox.list_snapshots(limit=1, **there)
        assert (pages.next_items(), pages.has_next) == ([first], True)
        assert (pages.next_items(), pages.has_next) == ([second], False)
        other.files.write("/tmp/f", "newer")
        newer = other.create_snapshot(name="first", mode="filesystem")
        assert Sandbox.list_snapshots(name="first", **there).next_items() == [newer]
        named = Sandbox.create("first", **there)
        assert named.files.read("/tmp/f") == "newer"
        named.kill()
        assert Sandbox.delete_snapshot(second.snapshot_id, **there)
        assert not Sandbox.delete_snapshot(second.snapshot_id, **there)
        assert not Sandbox.delete_snapshot(first.snapshot_id, **there)  # it was replaced
        with pytest.raises(SandboxException, match="404"):
            Sandbox.create(second.snapshot_id, **there)
        with pytest.raises(SandboxException, match="no name of a snapshot"):
            one.create_snapshot(name="../x")
        for name in ("base", "debian-12", "debian-12-dev"):
            with pytest.raises(SandboxException, match="is the name of a template"):
                one.create_snapshot(name=name)
        Sandbox.delete_snapshot("first", **there)
    finally:
        one.kill()
        other.kill()


def test_a_sandbox_with_running_commands_is_not_copied(sandbox: Sandbox) -> None:
    sleeping = sandbox.commands.run("sleep 301", background=True)
    for copy in (sandbox.create_snapshot, sandbox.fork):
        with pytest.raises(
            SandboxException, match=r"409.* running processes before this: sleep 301"
        ):
            copy()
    assert sleeping.kill()
    sandbox.commands.run("echo kept > /tmp/f; sleep 300 &")
    sandbox.pause(mode="filesystem")  # ends the processes
    copied = sandbox.fork()[0]
    assert isinstance(copied, Sandbox)
    assert copied.files.read("/tmp/f") == "kept\n"
    assert copied.kill()


def test_a_sandbox_ends_or_pauses_when_its_time_is_over(url: str) -> None:
    there = reached(url)
    short = Sandbox.create(timeout=1, **there)
    kept = Sandbox.create(
        timeout=1, lifecycle={"on_timeout": "pause", "auto_resume": True}, **there
    )
    wait_until(lambda: not short.is_running(), "the end of the sandbox")
    wait_until(lambda: kept.get_info().state is SandboxState.PAUSED, "the pause")
    kept.set_timeout(100)
    assert kept.commands.run("echo on").stdout == "on\n"  # the request resumes it
    assert kept.kill()


def test_commands_have_the_user_directory_and_variables_that_were_asked_for(url: str) -> None:
    opened = Sandbox.create(envs={"A": "1", "B": "1"}, **reached(url))
    try:
        run = opened.commands.run
        done = run("echo out; echo err >&2; pwd; id -un")
        assert (done.stdout, done.stderr) == ("out\n/home/ubuntu\nroot\n", "err\n")
        assert run("echo $A$B", envs={"B": "2"}).stdout == "12\n"
        assert run("pwd; id -un; echo ~", cwd="/tmp", user="alice").stdout == (
            "/tmp\nalice\n/home/alice\n"
        )
        with pytest.raises(e2b.CommandExitException) as raised:
            run("echo why >&2; exit 3")
        assert (raised.value.exit_code, raised.value.stderr) == (3, "why\n")
        pieces: list[str] = []
        run("for i in 1 2; do echo $i; sleep .1; done", on_stdout=pieces.append)
        assert pieces == ["1\n", "2\n"]
        large = run("head -c 3000000 /dev/zero | tr '\\0' x")
        assert large.stdout == "x" * 3_000_000
    finally:
        opened.kill()


def test_commands_in_the_background_are_fed_followed_and_killed(sandbox: Sandbox) -> None:
    cat = sandbox.commands.run("cat; echo over", background=True, stdin=True)
    assert [(each.pid, each.args[-1]) for each in sandbox.commands.list()] == [
        (cat.pid, "cat; echo over")
    ]
    other = sandbox.commands.connect(cat.pid)
    cat.send_stdin("1\n")
    sandbox.commands.send_stdin(cat.pid, b"2\n")
    sandbox.commands.stream_input(cat.pid, ["3\n", "4\n"])
    sandbox.commands.close_stdin(cat.pid)
    assert cat.wait().stdout == "1\n2\n3\n4\nover\n"
    assert other.wait().stdout == "1\n2\n3\n4\nover\n"
    second = sandbox.commands.run("cat", background=True, stdin=True)
    second.close_stdin()
    assert second.wait().exit_code == 0
    slept = sandbox.commands.run("sleep 300", background=True)
    assert slept.kill()
    with pytest.raises(e2b.CommandExitException) as raised:
        slept.wait()
    assert (raised.value.exit_code, raised.value.error) == (-1, "signal: killed")
    assert not sandbox.commands.kill(slept.pid)
    left = sandbox.commands.run("sleep 300", background=True)
    left.disconnect()
    assert sandbox.commands.kill(left.pid)
    wait_until(lambda: not sandbox.commands.kill(left.pid), "the end of the command")
    with pytest.raises(e2b.NotFoundException):
        sandbox.commands.connect(left.pid)
    with pytest.raises(SandboxException, match="no standard input"):
        sandbox.commands.send_stdin(sandbox.commands.run("sleep 9", background=True).pid, "x")


def test_a_command_is_killed_at_its_time(sandbox: Sandbox) -> None:
    with pytest.raises(e2b.TimeoutException):
        sandbox.commands.run("sleep 300", timeout=0.5)
    wait_until(lambda: not sandbox.commands.list(), "the end of the command")


def test_a_terminal_is_typed_into_resized_and_killed(sandbox: Sandbox) -> None:
    shown: list[bytes] = []
    terminal = sandbox.pty.create(e2b.PtySize(rows=20, cols=60), envs={"A": "5"}, user="alice")
    sandbox.pty.resize(terminal.pid, e2b.PtySize(rows=31, cols=71))
    sandbox.pty.send_stdin(terminal.pid, b"stty size; echo $A $(id -un); exit 4\n")
    with pytest.raises(e2b.CommandExitException) as raised:
        terminal.wait(on_pty=lambda data: shown.append(bytes(data)))
    assert raised.value.exit_code == 4
    assert b"31 71\r\n" in b"".join(shown)
    assert b"5 alice\r\n" in b"".join(shown)
    second = sandbox.pty.create(e2b.PtySize(rows=20, cols=60))
    joined = sandbox.pty.connect(second.pid)
    sandbox.pty.stream_input(second.pid, [b"exit", b" 0\n"])
    assert joined.wait().exit_code == 0
    third = sandbox.pty.create(e2b.PtySize(rows=20, cols=60))
    assert sandbox.pty.kill(third.pid)
    wait_until(lambda: not sandbox.pty.kill(third.pid), "the end of the terminal")


def test_files_are_written_read_and_described(sandbox: Sandbox) -> None:
    files = sandbox.files
    assert files.write("new/a.txt", "größer").path == "/home/ubuntu/new/a.txt"
    assert files.read("/home/ubuntu/new/a.txt") == "größer"
    data = bytes(range(256)) * 8000
    for given in (data, io.BytesIO(data), iter([data[:5], data[5:]])):
        files.write("/tmp/b", given)
        assert files.read("/tmp/b", format="bytes") == data
    with files.read("/tmp/b", format="stream") as stream:
        assert b"".join(stream) == data
    both = files.write_files([{"path": "x", "data": "1"}, {"path": "/tmp/y", "data": b"2"}])
    assert [each.path for each in both] == ["/home/ubuntu/x", "/tmp/y"]
    sandbox.commands.run("chmod 640 x; chown alice: x; ln -s x link; mkfifo pipe")
    told = files.get_info("x")
    assert (told.name, told.size, told.mode, told.owner) == ("x", 1, 0o640, "alice")
    assert told.permissions == "-rw-r-----"
    link = files.get_info("link")
    assert (link.type, link.symlink_target) == (e2b.FileType.SYMLINK, "x")
    assert files.exists("x")
    assert not files.exists("nothing")
    for path, error in (
        ("nothing", e2b.FileNotFoundException),
        ("new", e2b.InvalidArgumentException),
        ("pipe", e2b.InvalidArgumentException),
    ):
        with pytest.raises(error):
            files.read(path)
    with pytest.raises(e2b.InvalidArgumentException):
        files.write("new", "over a directory")
    with pytest.raises(SandboxException, match="Permission denied"):
        files.write("/etc/passwd", "", user="alice")


def test_directories_are_made_listed_and_removed(sandbox: Sandbox) -> None:
    files = sandbox.files
    assert files.make_dir("/srv/a/b")
    assert not files.make_dir("/srv/a/b")
    files.write("/srv/a/b/-f\n", "1")
    assert [each.path for each in files.list("/srv/a")] == ["/srv/a/b"]
    below = files.list("/srv/a", depth=2)
    assert [(each.name, each.type) for each in below] == [
        ("b", e2b.FileType.DIR),
        ("-f\n", e2b.FileType.FILE),
    ]
    moved = files.rename("/srv/a/b", "/srv/c/d")
    assert (moved.path, moved.type) == ("/srv/c/d", e2b.FileType.DIR)
    assert files.exists("/srv/c/d/-f\n")
    files.remove("/srv/c")
    assert not files.exists("/srv/c")
    files.remove("/srv/c")
    for wrong in ("/srv/none", "/etc/passwd"):
        with pytest.raises(SandboxException):
            files.list(wrong)
    with pytest.raises(e2b.FileNotFoundException):
        files.rename("/srv/none", "/srv/x")


def test_changes_of_files_are_watched(sandbox: Sandbox) -> None:
    sandbox.files.make_dir("/srv/old")
    watch = sandbox.files.watch_dir("/srv", recursive=True)
    flat = sandbox.files.watch_dir("/srv")
    sandbox.commands.run(
        "cd /srv; echo x > f; chmod 600 f; mv f g; rm g; echo y > old/h; mkdir new"
    )
    expected = [
        *(("f", "create"), ("f", "write"), ("f", "chmod"), ("f", "rename"), ("g", "create")),
        *(("g", "remove"), ("old/h", "create"), ("old/h", "write"), ("new", "create")),
    ]
    seen: list[tuple[str, str]] = []

    def has_all() -> bool:
        seen.extend((each.name, each.type.value) for each in watch.get_new_events())
        return len(seen) >= len(expected)

    wait_until(has_all, "the events")
    assert seen == expected
    sandbox.commands.run("echo z > /srv/new/i")
    wait_until(lambda: any(e.name == "new/i" for e in watch.get_new_events()), "a new directory's")
    assert {each.name for each in flat.get_new_events()} == {"f", "g", "new"}
    assert not sandbox.commands.list()  # watchers are not the client's commands
    watch.stop()
    with pytest.raises(SandboxException):
        watch.get_new_events()
    for path, error in (
        ("/no", e2b.FileNotFoundException),
        ("/etc/passwd", e2b.InvalidArgumentException),
    ):
        with pytest.raises(error):
            sandbox.files.watch_dir(path)


def test_signed_addresses_lead_to_one_file(sandbox: Sandbox) -> None:
    sandbox.files.write("/tmp/f", "signed")
    address = sandbox.download_url("/tmp/f", use_signature_expiration=60)
    assert httpx.get(address).text == "signed"
    assert httpx.get(sandbox.download_url("/tmp/f")).text == "signed"
    sent = httpx.post(sandbox.upload_url("/tmp/g"), files={"file": b"sent"})
    assert sent.status_code == 200
    assert sandbox.files.read("/tmp/g") == "sent"
    for wrong in (
        address.replace("tmp", "etc"),
        address.replace("signature=v1_", "signature=v1_x"),
        sandbox.download_url("/tmp/f", use_signature_expiration=-60),
        address.replace("signature_expiration=", "signature_expiration=9"),
    ):
        assert httpx.get(wrong).status_code == 502
    assert httpx.post(address, files={"file": b"x"}).status_code == 502


def test_the_asynchronous_client_works_too(url: str) -> None:
    async def script() -> None:
        there = reached(url)
        sandbox = await AsyncSandbox.create(**there)
        done = await asyncio.gather(*(sandbox.commands.run(f"echo {n}") for n in range(8)))
        assert [each.stdout for each in done] == [f"{n}\n" for n in range(8)]
        await sandbox.files.write("/tmp/f", "one")
        assert await sandbox.files.read("/tmp/f") == "one"
        seen: asyncio.Queue[e2b.FilesystemEvent] = asyncio.Queue()
        watch = await sandbox.files.watch_dir("/tmp", on_event=seen.put)
        await sandbox.files.write("/tmp/g", "two")
        assert (await asyncio.wait_for(seen.get(), 30)).name == "g"
        await watch.stop()
        shown = bytearray()
        terminal = await sandbox.pty.create(
            e2b.PtySize(rows=9, cols=40), on_data=lambda data: shown.extend(data)
        )
        await sandbox.pty.send_stdin(terminal.pid, b"echo $((6*7)); exit\n")
        assert (await terminal.wait()).exit_code == 0
        assert b"42\r\n" in shown
        assert await sandbox.pause()
        assert not await sandbox.is_running()
        same = await AsyncSandbox.connect(sandbox.sandbox_id, **there)
        assert await same.kill()

    asyncio.run(script())


def test_what_the_server_lacks_is_refused_by_name(sandbox: Sandbox) -> None:
    with pytest.raises(SandboxException, match=r"501: this server does not support .*/metrics"):
        sandbox.get_metrics()


@pytest.mark.parametrize(
    "options",
    [
        {"template": "no-such-template"},
        {"template": "../../etc/passwd"},
        {"template": "x.toml"},
        {"allow_internet_access": True},
        {"network": {"allow_out": ["1.1.1.1"]}},
        {"volume_mounts": {"/mnt": "volume"}},
        {"timeout": 1_000_000},
        {"timeout": -1},
    ],
)
def test_sandboxes_that_cannot_be_had_are_refused(url: str, options: dict[str, Any]) -> None:
    with pytest.raises(SandboxException, match=r"400|404"):
        Sandbox.create(**options, **reached(url))


def test_rules_that_only_deny_are_accepted(url: str) -> None:
    denied = {"deny_out": ["0.0.0.0/0"]}
    opened = Sandbox.create(
        allow_internet_access=False,
        network=denied,
        **reached(url),
    )
    opened.update_network({"deny_out": ["0.0.0.0/0"]})
    with pytest.raises(SandboxException, match="allowOut"):
        opened.update_network({"allow_out": ["1.1.1.1"]})
    opened.kill()


@needs("git in a system")
def test_repositories_are_worked_on(url: str) -> None:
    opened = Sandbox.create(system_with_git(), **reached(url))
    git, here = opened.git, "/srv/a"
    try:
        git.init("/srv/up.git", bare=True, initial_branch="main")
        git.init(here, initial_branch="main")
        git.configure_user("A", "a@example.org")
        opened.files.write(f"{here}/f", "1\n")
        git.add(here)
        git.commit(here, "first")
        git.create_branch(here, "other")
        git.checkout_branch(here, "main")
        assert sorted(git.branches(here).branches) == ["main", "other"]
        git.delete_branch(here, "other")
        git.remote_add(here, "origin", "/srv/up.git")
        assert git.remote_get(here, "origin") == "/srv/up.git"
        git.push(here, remote="origin", branch="main")
        git.clone("/srv/up.git", "/srv/b")
        git.pull("/srv/b")
        assert opened.files.read("/srv/b/f") == "1\n"
        opened.files.write(f"{here}/f", "2\n")
        assert [each.name for each in git.status(here).file_status] == ["f"]
        git.restore(here, paths=["f"])
        git.reset(here, mode="hard")
        assert opened.files.read(f"{here}/f") == "1\n"
        git.set_config("pull.rebase", "false")
        assert git.get_config("pull.rebase") == "false"
        git.dangerously_authenticate("somebody", "secret", host="example.org")
    finally:
        opened.kill()


def test_keys_of_the_server_are_needed(tmp_path: Any) -> None:
    file = tmp_path / "keys"
    file.write_text("\n".join(KEYS))
    with serving("--key-file", str(file)) as (_, address):
        with pytest.raises(e2b.AuthenticationException):
            Sandbox.create(**reached(address, "e2b_other"))
        one = Sandbox.create(**reached(address))
        assert one.commands.run("echo in").stdout == "in\n"
