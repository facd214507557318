import hashlib
import json
import stat
from dataclasses import replace
from typing import Any

import pytest

from shioenv.behavior import capture, shell_state
from shioenv.behavior.capture import CLOCK_SLACK, Recorder
from shioenv.domain.behavior import Behavior
from shioenv.errors import ContextError
from shioenv.sandbox.base import Execution, FileChange, FileStat

BASELINE = (
    b"\0declare -p\n"
    b'declare -- BASH="/bin/bash"\n'
    b'declare -- BASH_EXECUTION_STRING=":"\n'
    b"declare -i BASHPID\n"
    b'declare -ir EUID="0"\n'
    b'declare -x HOME="/"\n'
    b"declare -- IFS=$' \\t\\n'\n"
    b'declare -x PWD="/home/ubuntu"\n'
    b'declare -i RANDOM="4"\n'
    b'declare -x SHLVL="1"\n'
    b'declare -- _=""\n'
    b"\0shopt -p\nshopt -u extglob\nshopt -s sourcepath\n"
    b"\0set +o\nset +o errexit\nset -o hashall\nset +o interactive-comments\n"
    b"\0ulimit -a\ncore file size              (blocks, -c) 0\n"
    b"open files                          (-n) 1024\n"
    b"\0alias -p\n"
    b"\0umask\n0022\n"
    b"\0trap -p\n"
    b"\0groups\n0\n"
)
STARTED = 1_800_000_000.0
INSTANT = 1_760_640_180.0  # 2025-10-16 18:43 UTC
FIXTURE = 1_759_000_000 * 10**9  # 2025-09-27 19:06 UTC
NOW = int((STARTED + 0.2) * 10**9)


def recorder(**options: Any) -> Recorder:
    return Recorder(
        **{
            "start": "/home/ubuntu",
            "baseline": BASELINE,
            "users": {0: "root", 1000: "ubuntu"},
            "groups": {0: "root", 27: "sudo", 1000: "ubuntu"},
            "instant": INSTANT,
            **options,
        }
    )


def execution(**options: Any) -> Execution:
    return Execution(
        **{
            "exit_code": 0,
            "output": b"",
            "shell": BASELINE,
            "cwd": b"/home/ubuntu",
            "started": STARTED,
            "ended": STARTED + 1,
            **options,
        }
    )


def shell(*changes: tuple[bytes, bytes]) -> Behavior:
    dump = BASELINE
    for old, new in changes:
        assert old in dump
        dump = dump.replace(old, new, 1)
    return recorder().behavior(execution(shell=dump))


def appended(section: str, content: bytes) -> bytes:
    header = f"\0{section}\n".encode()
    assert header in BASELINE
    return BASELINE.replace(header, header + content)


def file(inode: int, **options: Any) -> FileStat:
    found = FileStat(
        mode=0o100644, uid=1000, gid=1000, size=5, links=1, mtime_ns=FIXTURE, inode=inode
    )
    return replace(found, **options)


def directory(inode: int, **options: Any) -> FileStat:
    return file(inode, **{"mode": 0o040755, "size": 4096, "links": 2, **options})


def patch(*changes: tuple[bytes, FileStat | None, FileStat | None], **options: Any) -> list[Any]:
    return operations(behavior(*changes, **options))


def behavior(*changes: tuple[bytes, FileStat | None, FileStat | None], **options: Any) -> Behavior:
    found = tuple(FileChange(*change) for change in changes)
    return recorder(**options).behavior(execution(changes=found))


def operations(found: Behavior) -> list[Any]:
    document: list[Any] = json.loads(found.patch.to_json())
    return document


class TestShell:
    def test_an_untouched_shell_changed_nothing(self) -> None:
        found = recorder().behavior(execution(output=b"x", exit_code=3))
        assert found == Behavior(3, b"x")

    def test_variables_that_count_or_tell_the_input_are_left_out(self) -> None:
        found = shell(
            (b'RANDOM="4"', b'RANDOM="77"'),
            (b'declare -- _=""', b'declare -x _="x\ny"'),
            (b'STRING=":"', b"STRING=$'a\\nb'"),
            (b"-i BASHPID\n", b'-i BASHPID="7"\ndeclare -x OLDPWD="/"\n'),
        )
        assert found == Behavior(0, b"")

    def test_a_run_that_changes_no_state_is_not_parsed(
        self, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        ready = recorder()
        monkeypatch.setattr(shell_state, "section_state", None)
        dump = BASELINE.replace(b'RANDOM="4"', b'RANDOM="5"').replace(b'SHLVL="1"', b'SHLVL="0"')
        dump = dump.replace(b'STRING=":"', b'STRING="ls -la"')
        assert ready.behavior(execution(shell=dump)).shell_state_known

    def test_exported_variables_are_env_and_others_are_settings(self) -> None:
        added = b'declare -x A="x \\"q\\" \\$y"\ndeclare -- B=$\'a\\nb\\377\'\n'
        found = shell((b"declare -ir EUID", added + b"declare -ir EUID"))
        assert operations(found) == [
            ["a", "/env/A", 'x "q" $y'],
            ["a", "/settings/B", "a\nb\\xff"],
        ]

    def test_exporting_moves_a_variable(self) -> None:
        found = shell((b"declare -- BASH=", b"declare -x BASH="))
        assert operations(found) == [["a", "/env/BASH", "/bin/bash"], ["r", "/settings/BASH"]]

    def test_arrays_and_attributes_are_text(self) -> None:
        added = (
            b'declare -a L=([0]="1" [1]="a) (b")\ndeclare -A M=(["k y"]="1" [$\'\\n\']="2" )\n'
            b'declare -x N\ndeclare -r R="1"\n'
        )
        found = shell((b"declare -x PWD", added + b"declare -x PWD"))
        assert operations(found) == [
            ["a", "/settings/L", '([0]="1" [1]="a) (b")'],
            ["a", "/settings/M", '(["k y"]="1" [$\'\\n\']="2" )'],
            ["a", "/settings/N", "declare -x N"],
            ["a", "/settings/R", 'declare -r R="1"'],
        ]

    def test_a_value_that_looks_like_declarations_is_one_value(self) -> None:
        value = b'declare -- Z="\ndeclare -i RANDOM="5"\n'
        found = shell((b"declare -x PWD", value + b"declare -x PWD"))
        assert not found.shell_state_known
        raw = b'declare -- Z="\ndeclare -i RANDOM=\\"5\\"\n"\n'
        found = shell((b"declare -x PWD", raw + b"declare -x PWD"))
        assert operations(found) == [["a", "/settings/Z", '\ndeclare -i RANDOM="5"\n']]

    def test_a_variable_that_is_gone_is_removed(self) -> None:
        assert operations(shell((b'declare -x HOME="/"\n', b""))) == [["r", "/env/HOME"]]

    def test_exec_counting_the_level_down_is_no_change(self) -> None:
        assert not shell((b'SHLVL="1"', b'SHLVL="0"')).patch
        assert operations(shell((b'declare -x SHLVL="1"\n', b""))) == [["r", "/env/SHLVL"]]
        lowered = b'declare -x SHLVL="0"\ndeclare -x SHLVL="7"\n'
        assert shell((b'declare -x SHLVL="1"\n', lowered)).patch
        assert operations(shell((b'SHLVL="1"', b'SHLVL="9"'))) == [["=", "/env/SHLVL", "9"]]

    def test_options_limits_umask_and_groups(self) -> None:
        found = shell(
            (b"-u extglob", b"-s extglob"),
            (b"+o errexit", b"-o errexit"),
            (b"(-n) 1024", b"(-n) 64"),
            (b"0022", b"0077"),
            (b"groups\n0\n", b"groups\n0 27 99\n"),
        )
        assert operations(found) == [
            ["=", "/groups", ["root", "sudo", "99"]],
            ["=", "/limits/open files", "64"],
            ["=", "/settings/-o errexit", True],
            ["=", "/shell_options/extglob", True],
            ["=", "/umask", "0077"],
        ]

    def test_functions_aliases_and_traps(self) -> None:
        found = shell(
            (
                b"groups\n0\n",
                b"groups\n0\n\0function\nf () \n{ \n    ls\n}\n"
                b"\0function\ng-h () \n{ \n    :\n}\ndeclare -fx g-h\n",
            ),
            (b"alias -p\n", b"alias -p\nalias l='ls -l'\nalias q=\\'\nalias r='it'\\''s\nb'\n"),
            (b"trap -p\n", b"trap -p\ntrap -- 'rm x' EXIT\n"),
        )
        assert operations(found) == [
            ["a", "/aliases/l", "ls -l"],
            ["a", "/aliases/q", "'"],
            ["a", "/aliases/r", "it's\nb"],
            ["a", "/env/BASH_FUNC_g-h%%", "() { \n    :\n}"],
            ["a", "/functions/f", "{ \n    ls\n}"],
            ["a", "/functions/g-h", "{ \n    :\n}"],
            ["a", "/settings/trap EXIT", "rm x"],
        ]

    def test_the_working_directory(self) -> None:
        found = recorder().behavior(execution(cwd=b"/tmp/\xff"))
        assert operations(found) == [["=", "/cwd", "/tmp/\\xff"]]

    def test_an_unknown_state_is_said_so(self) -> None:
        found = recorder().behavior(execution(shell=None, cwd=None, signal=9, exit_code=137))
        assert not found.shell_state_known
        assert found.died_by_signal == 9
        assert not found.patch

    @pytest.mark.parametrize(
        "dump",
        [
            b"",
            b"\0",
            b"\0" * 5000,
            b"x" + BASELINE,
            BASELINE[:-40],
            BASELINE + BASELINE,
            BASELINE.replace(b"\0umask", b"\0mask"),
            BASELINE.replace(b"\0umask", b"\0groups"),
            BASELINE.replace(b"\0groups\n0\n", b"\0groups"),
            BASELINE.replace(b"0022", b"rwx"),
            BASELINE.replace(b"groups\n0", b"groups\n-1"),
            BASELINE.replace(b"groups\n0", b"groups\n" + b"9" * 5000),
            appended("declare -p", b"rm -rf /\n"),
            appended("declare -p", b'declare -x A="\n'),
            BASELINE + b"\0function\n}\n",
            BASELINE + b"\0function\nf () \n",
            BASELINE + b"\0function\nf () \n{ \n    ls\n}\n" * 9999,
            appended("shopt -p", b"shopt -s \xff\n"),
            appended("ulimit -a", b"a" * 5000 + b"(-c) 0\n"),
            appended("alias -p", b"alias a=b\n"),
            appended("trap -p", b"trap -- x INT\n"),
            appended("set +o", b"set -o\n"),
        ],
    )
    def test_a_hostile_dump_is_unknown_and_never_an_error(self, dump: bytes) -> None:
        found = recorder().behavior(execution(shell=dump))
        assert not found.shell_state_known
        assert not found.patch

    def test_a_baseline_that_is_no_dump_is_refused(self) -> None:
        with pytest.raises(ContextError, match="cannot parse"):
            recorder(baseline=b"")


class TestFiles:
    def test_a_new_file_is_an_entry_with_the_systems_instant(self) -> None:
        found = behavior((b"/home/ubuntu/a", None, file(9, mtime_ns=NOW, digest="00")))
        assert operations(found) == [
            [
                "a",
                "/fs/a",
                {
                    "perms": "-rw-r--r--",
                    "links": 1,
                    "owner": "ubuntu",
                    "group": "ubuntu",
                    "size": 5,
                    "month": "Oct",
                    "day": 16,
                    "year": 2025,
                    "time": "18:43",
                },
            ]
        ]
        assert found.content_digests == {"a": "00"}

    @pytest.mark.parametrize(
        ("seconds", "year"), [(-0.04, 2025), (1.04, 2025), (-0.06, 2027), (1.06, 2027)]
    )
    def test_only_times_within_the_run_are_the_instant(self, seconds: float, year: int) -> None:
        moment = int((STARTED + seconds) * 10**9)
        assert patch((b"/a", None, file(9, mtime_ns=moment)))[0][2]["year"] == year

    @pytest.mark.parametrize(
        ("seconds", "clock"),
        [(-0.04, "18:43"), (59.9, "18:43"), (60.1, "18:44"), (3599, "19:42")],
    )
    def test_the_instant_goes_on_within_the_run(self, seconds: float, clock: str) -> None:
        new = file(9, mtime_ns=int((STARTED + seconds) * 10**9))
        own = (STARTED - CLOCK_SLACK, STARTED + 4000)
        assert recorder().entry(new, own=own).time == clock

    @pytest.mark.parametrize("mtime_ns", [-(10**27), 10**28, -1, 0])
    def test_any_time_can_be_written(self, mtime_ns: int) -> None:
        assert patch((b"/a", None, file(9, mtime_ns=mtime_ns)))

    def test_names_are_relative_inside_the_start_directory_and_absolute_outside(self) -> None:
        found = patch(
            (b"/home/ubuntu/scripts/run.sh", file(1), None),
            (b"/home/ubuntu2", file(2), None),
            (b"/etc/passwd", file(3), None),
            (b"/home/ubuntu/a\xff\\~\n b", file(4), None),
            (b"/home/ubuntu", directory(5), directory(5, mode=0o040700)),
        )
        assert found == [
            ["=", "/fs/./perms", "drwx------"],
            ["r", "/fs/a\\xff\\\\~0\n b"],
            ["r", "/fs/scripts~1run.sh"],
            ["r", "/fs/~1etc~1passwd"],
            ["r", "/fs/~1home~1ubuntu2"],
        ]

    def test_at_the_root_every_name_is_relative(self) -> None:
        assert recorder(start="/").name(b"/etc/x") == "etc/x"
        assert recorder(start="/").name(b"/") == "."

    def test_only_what_changed_of_a_file_is_written(self) -> None:
        before = file(1, digest="00")
        assert patch((b"/a", before, replace(before, mode=0o104755, uid=7))) == [
            ["=", "/fs/~1a/owner", "7"],
            ["=", "/fs/~1a/perms", "-rwsr-xr-x"],
        ]

    def test_a_touched_file_that_looks_the_same_is_no_change(self) -> None:
        before = file(1, digest="00")
        found = behavior((b"/a", before, replace(before, inode=77, mtime_ns=FIXTURE + 1)))
        assert not found.patch
        assert not found.content_digests

    def test_content_of_the_same_size_tells_by_its_digest(self) -> None:
        before = file(1, digest="00")
        found = behavior((b"/a", before, replace(before, digest="11")))
        entry = recorder().entry(before).to_json()
        assert operations(found) == [["=", "/fs/~1a", entry]]
        assert found.content_digests == {"/a": "11"}

    def test_content_read_after_alone_is_another(self) -> None:
        before = file(1)
        assert behavior((b"/a", before, replace(before, digest="11"))).content_digests == {
            "/a": "11"
        }
        assert not behavior((b"/a", before, replace(before, mode=0o100600))).content_digests

    def test_links_devices_and_kinds(self) -> None:
        found = patch(
            (b"/d", None, file(2, mode=stat.S_IFCHR | 0o1660, rdev=259)),
            (b"/k", file(3), file(4, mode=0o120777, target=b"x")),
            (b"/l", None, file(1, mode=0o120777, target=b"a\\b")),
        )
        assert found[0][2]["perms"] == "crw-rw---T"
        assert found[1:3] == [
            ["=", "/fs/~1k/perms", "lrwxrwxrwx"],
            ["a", "/fs/~1k/target", "x"],
        ]
        assert found[3][2]["target"] == "a\\\\b"

    def test_a_directory_whose_entries_changed_says_nothing_of_its_own(self) -> None:
        found = patch(
            (b"/d", directory(1), directory(1, mtime_ns=NOW, size=60, links=1)),
            (b"/d/a", None, file(2)),
        )
        assert [item[1] for item in found] == ["/fs/~1d~1a"]

    def test_but_its_permissions_are_recorded(self) -> None:
        found = patch(
            (b"/d", directory(1), directory(1, mtime_ns=NOW, mode=0o041777)),
            (b"/d/a", file(2), None),
        )
        assert found == [["=", "/fs/~1d/perms", "drwxrwxrwt"], ["r", "/fs/~1d~1a"]]

    def test_a_directory_whose_entries_came_and_went_has_a_new_time_only(self) -> None:
        found = patch((b"/d", directory(1), directory(1, mtime_ns=NOW, size=40, links=1)))
        assert {item[1].rpartition("/")[2] for item in found} == {"month", "day", "time"}

    def test_new_directories_have_true_links_and_size(self) -> None:
        found = patch(
            (b"/d", None, directory(1, size=60, links=1)),
            (b"/d/e", None, directory(2, size=40, links=1)),
            (b"/d/f", None, file(3)),
        )
        assert [(item[1], item[2]["links"], item[2]["size"]) for item in found] == [
            ("/fs/~1d", 3, 4096),
            ("/fs/~1d~1e", 2, 4096),
            ("/fs/~1d~1f", 1, 5),
        ]

    def test_a_renamed_file_is_moved(self) -> None:
        found = behavior((b"/a", file(1, digest="00"), None), (b"/b", None, file(1, digest="00")))
        assert operations(found) == [["m", "/fs/~1a", "/fs/~1b"]]
        assert not found.content_digests

    @pytest.mark.parametrize(
        "after",
        [
            file(2, digest="00"),
            file(1, digest="11"),
            file(1, digest="00", mode=0o100600),
            file(1, digest="00", mtime_ns=FIXTURE + 1),
            file(1, digest="00", uid=0),
            file(1, digest="00", links=2),
        ],
    )
    def test_anything_else_is_removed_and_added(self, after: FileStat) -> None:
        found = patch((b"/a", file(1, digest="00"), None), (b"/b", None, after))
        assert [item[0] for item in found] == ["r", "a"]

    def test_a_renamed_directory_moves_each_entry_parents_first(self) -> None:
        old = {b"": directory(1, links=3, size=84), b"/s": directory(2), b"/s/f": file(3)}
        new = {b"": directory(1, links=1, size=60), b"/s": directory(2, links=1), b"/s/f": file(3)}
        found = patch(
            *((b"/d" + name, stats, None) for name, stats in old.items()),
            *((b"/e" + name, None, stats) for name, stats in new.items()),
        )
        assert found == [
            ["m", "/fs/~1d", "/fs/~1e"],
            ["m", "/fs/~1d~1s", "/fs/~1e~1s"],
            ["m", "/fs/~1d~1s~1f", "/fs/~1e~1s~1f"],
        ]

    def test_order_of_changes_does_not_matter(self) -> None:
        changes = [(f"/{n}".encode(), file(n), None) for n in range(6)]
        changes += [(f"/x{n}".encode(), None, file(n % 3)) for n in range(6)]  # type: ignore[misc]
        assert patch(*changes) == patch(*changes[::-1])

    def test_a_patch_past_its_bound_is_cut_and_its_whole_told_apart(
        self, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        monkeypatch.setattr(capture, "MAX_OPERATIONS", 3)
        removed = [(f"/{n}".encode(), file(n), None) for n in range(3)]
        assert not behavior(*removed).patch_truncated
        found = behavior(*removed, (b"/3", file(9), None))
        assert found.patch_truncated
        assert len(found.patch.operations) == 3
        assert len(found.patch_digest or "") == len(hashlib.sha256().hexdigest())
        assert found.patch_digest != behavior(*removed, (b"/4", file(9), None)).patch_digest


class TestContext:
    def test_patches_apply_to_the_context_before(self) -> None:
        files = {
            b"/home/ubuntu": directory(1),
            b"/home/ubuntu/a": file(2, digest="0"),
            b"/etc/b": file(3),
        }
        ready = recorder()
        before = ready.context({"arch": "x86_64", "hostname": "ubuntu"}, files)
        dump = BASELINE.replace(b'HOME="/"', b'HOME="/root"')
        changes = (
            FileChange(b"/home/ubuntu/a", files[b"/home/ubuntu/a"], None),
            FileChange(b"/home/ubuntu/c", None, files[b"/home/ubuntu/a"]),
            FileChange(b"/etc/b", files[b"/etc/b"], file(3, size=6)),
        )
        found = ready.behavior(execution(shell=dump, cwd=b"/etc", changes=changes))
        after = found.patch.apply(before.document)
        assert set(after["fs"]) == {".", "c", "/etc/b"}
        assert after["fs"]["/etc/b"]["size"] == 6
        assert (after["cwd"], after["env"]["HOME"]) == ("/etc", "/root")
        assert before.document["cwd"] == "/home/ubuntu"
        assert before.document["limits"] == {"core file size": "0", "open files": "1024"}


def test_the_network_after_is_compared_with_the_one_before() -> None:
    link = {"ifname": "eth0", "mtu": 1500, "flags": ["UP", "BROADCAST"], "stats64": {"rx": 1}}
    address = {"ifname": "eth0", "addr_info": [{"local": "10.0.0.2", "prefixlen": 24}]}
    before = {"links": [link], "addresses": [address], "routes": [], "firewall": []}
    after = {
        "links": [{**link, "mtu": 9000, "stats64": {"rx": 5}}],
        "addresses": [{**address, "addr_info": []}],
        "routes": [{"dst": "default", "gateway": "10.0.0.1", "dev": "eth0", "flags": []}],
        "firewall": ["-A INPUT -j DROP"],
    }
    ready = recorder(network=json.dumps(before).encode)
    found = ready.behavior(execution(network=json.dumps(after).encode()))
    assert operations(found) == [
        ["=", "/firewall", ["-A INPUT -j DROP"]],
        ["r", "/network/addresses/eth0"],
        ["=", "/network/links/eth0/mtu", 9000],
        ["=", "/network/routes", ["dst default gateway 10.0.0.1 dev eth0"]],
    ]


@pytest.mark.parametrize("rules", ["7", "zz", {}, None, "746162"])
def test_any_firewall_and_network_can_be_read(rules: object) -> None:
    document = json.dumps({"firewall": rules, "links": [3], "routes": {}}).encode()
    assert recorder().behavior(execution(network=document)).shell_state_known
    assert recorder().behavior(execution(network=b"{" * 100_000)).shell_state_known


def test_a_firewall_in_hexadecimal_is_lines_without_counters() -> None:
    rules = b"table ip t {\n\n  tcp dport 22 counter packets 3 bytes 180 drop\n}\n"
    document = json.dumps({"firewall": rules.hex()}).encode()
    found = recorder().behavior(execution(network=document))
    assert operations(found) == [
        ["=", "/firewall", ["table ip t {", "tcp dport 22 counter drop", "}"]]
    ]


def test_flags_of_the_execution_are_flags_of_the_behavior() -> None:
    found = recorder().behavior(
        execution(exit_code=124, timed_out=True, output_truncated=True, stdout=b"a", stderr=b"b")
    )
    assert found.timed_out
    assert found.volatile
    assert found.output_truncated
    assert (found.stdout, found.stderr) == (b"a", b"b")
