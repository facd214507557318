"""The default model: answers by rule, from memory, and by guessing; and its metadata."""

from __future__ import annotations

import json
import subprocess
import sys
from dataclasses import replace
from pathlib import Path

import pytest
import zstandard

from shioenv.domain.behavior import Behavior
from shioenv.domain.context import Context
from shioenv.domain.runner import State
from shioenv.errors import Abstained, ModelError
from shioenv.live.model_shell import ModelShell
from shioenv_model.files import (
    SHIPPED,
    load_model,
    opened,
    pack,
    read_card,
    write_card,
)
from shioenv_model.memory.index import sizes
from shioenv_model.memory.index_writer import write_index
from shioenv_model.memory.memory import Memory
from shioenv_model.memory.rewrite import Kept
from shioenv_model.memory.world import World
from shioenv_model.model import Model
from shioenv_model.rules.words import insert_directory, unnamed, without_name
from shioenv_model.single_commands import GUESSED
from support.runner_conformance import run_checks
from support.small_world import CONTENTS, HOME, small_memory, small_world

AT = b"bash: line 1: cd: ", b": No such file or directory\n"


@pytest.fixture(scope="module")
def model(tmp_path_factory: pytest.TempPathFactory) -> Model:
    return Model(small_memory(tmp_path_factory.mktemp("memory")), {"name": "small"})


@pytest.mark.parametrize(
    ("text", "output", "exit_code"),
    [
        ("cat a.txt", b"one\ntw", 0),
        ("cat nothere || pwd", b"cat: nothere: No such file or directory\n/home/ubuntu\n", 1),
        ("cat a.txt | head -n 1", b"one\n", 0),
        ("head -n 1 < a.txt", b"one\n", 0),
        ("cat gone; cat a.txt", b"cat: gone: No such file or directory\none\ntw", 0),
        ("echo hi > new.txt; cat a.txt > sub", b"bash: line 1: sub: Is a directory\n", 1),
        ("echo hi > nowhere/x", b"bash: line 1: nowhere/x: No such file or directory\n", 1),
        ("cd sub; pwd", b"/home/ubuntu/sub\n", 0),
        ("cd sub; ls", b"inner.txt\n", 0),
        ("touch new; ls", b"a.txt\nb.txt\nlink\nnew\nother\nrun.sh\nsub\n", 0),
        ("cd sub; cd ..; pwd; cd sub; cd nowhere", b"/home/ubuntu\n%snowhere%s" % AT, 1),
        ("cd sub; cd ../a.txt", b"bash: line 1: cd: ../a.txt: Not a directory\n", 1),
        ("cd sub; cd ..; cd -; cd -", b"/home/ubuntu/sub\n/home/ubuntu\n", 0),
        ("PATH=/none; cat a.txt", b"bash: line 1: cat: command not found\n", 127),
        ("A='x y' nosuchthing", b"bash: line 1: nosuchthing: command not found\n", 127),
        ("nosuchthing -x", b"bash: line 1: nosuchthing: command not found\n", 127),
        ("x=5; [$x -eq 5", b"bash: line 1: [5: command not found\n", 127),
        ('X=hell; export X; ["$X" a', b"bash: line 1: [hell: command not found\n", 127),
    ],
)
def test_what_is_put_together(model: Model, text: str, output: bytes, exit_code: int) -> None:
    answer = model.answer(text)
    assert answer.behavior.output == output
    assert answer.behavior.exit_code == (0 if "||" in text else exit_code)


def test_a_directory_has_the_time_of_what_came_and_went(model: Model) -> None:
    made = model.answer("touch new; rm a.txt").behavior.patch.operations
    assert [operation[1] for operation in made] == ["/fs/a.txt", "/fs/new"]
    came_and_went = model.answer("touch sub/q; rm sub/q").behavior.patch
    gone = model.answer("rm -r other; pwd").behavior
    assert (gone.output, len(gone.patch.operations)) == (f"{HOME}\n".encode(), 2)
    assert came_and_went.operations == (("=", "/fs/sub/time", "19:43"),)


@pytest.mark.parametrize(
    ("text", "perms"),
    [
        ("umask 077; touch new", "-rw-------"),
        ("umask 002; touch new", "-rw-rw-r--"),
        ("umask 077; : > new", "-rw-------"),
        ("umask 027; cat a.txt > new", "-rw-r-----"),
        ("umask 077; umask 022; touch new", "-rw-r--r--"),
    ],
)
def test_a_new_file_has_the_permissions_that_the_umask_leaves(
    model: Model, text: str, perms: str
) -> None:
    made = model.answer(text).behavior.patch.operations
    (entry,) = [operation[2] for operation in made if operation[1] == "/fs/new"]
    assert entry["perms"] == perms


@pytest.mark.parametrize(
    ("history", "text", "output"),
    [
        (("f() { cat a.txt; }",), "f", b"one\ntw"),
        (("f() { echo one; }", "f() { cat $1; }"), "f a.txt", b"one\ntw"),
        (("f() { echo one; }", "unset -f f"), "f", b"bash: line 3: f: command not found\n"),
        (("f() { g() { pwd; }; }",), "g", b"bash: line 2: g: command not found\n"),
    ],
)
def test_a_function_is_there_in_later_lines(
    model: Model, history: tuple[str, ...], text: str, output: bytes
) -> None:
    assert model.answer(text, State(cwd=HOME, history=history)).behavior.output == output


def test_no_answer_is_surer_than_what_led_to_it(model: Model) -> None:
    guessed = model.answer("coproc nosuch")
    assert guessed.confidence == 0
    after = [
        model.answer("pwd", State(cwd=HOME, history=(text,))) for text in ("pwd", "coproc nosuch")
    ]
    assert after[0].confidence > 0.5
    assert after[1].confidence == 0
    assert after[0].behavior == after[1].behavior


def test_a_record_of_a_directory_that_changed_is_doubted(model: Model) -> None:
    sure = [model.answer(text).confidence for text in ("rm a.txt; ls -l", "cat a.txt; ls -l")]
    assert sure[0] < 0.5 * sure[1]


def test_a_directory_that_is_not_named_is_a_dot() -> None:
    said = b"4\t/etc/apt\n/etc\n/etc:\nfind: '/etc/x': no\n/etcetera\n/tmp/etc\n"
    dotted = b"4\t./apt\n.\n.:\nfind: './x': no\n/etcetera\n/tmp/etc\n"
    assert without_name(Behavior(0, said, stdout=said), "/etc") == Behavior(
        0, dotted, stdout=dotted
    )


@pytest.mark.parametrize(
    ("text", "with_name"),
    [
        ("ls", "ls /etc"),
        ("ls -la -h", "ls -la -h /etc"),
        ("find . -name '*.d'", "find /etc -name '*.d'"),
        ("find", "find /etc"),
        ("du -s .", "du -s /etc"),
        ("ls apt", None),
        ("find apt -name x", None),
        ("lsblk", None),
    ],
)
def test_commands_that_work_where_they_are(text: str, with_name: str | None) -> None:
    fresh = small_world().state()
    document = {**fresh.before.document, "cwd": "/etc"}
    state = replace(fresh, cwd="/etc", context=Context(document))
    assert unnamed(text, state, HOME) is (with_name is not None)
    assert not unnamed(text, fresh, HOME)
    if with_name is not None:
        assert insert_directory(text, "/etc") == with_name


@pytest.mark.parametrize(
    ("text", "usual"),
    [
        ("egrep 'a|b' a.txt", "grep -E 'a|b' a.txt"), ("fgrep -c . a.txt", "grep -F -c . a.txt"),
        ("rgrep x sub", "grep -r x sub"), ("tar xf a.tar", "tar -xf a.tar"),
    ],
)  # fmt: skip
def test_another_spelling_is_asked_about_as_the_usual_one(
    text: str, usual: str, model: Model
) -> None:
    spelled, plain = model.answer(text), model.answer(usual)
    assert "other spelling" in model.steps[-1].asked or model.steps[-1].input == usual
    assert (spelled.behavior, spelled.confidence) == (plain.behavior, plain.confidence)


def test_what_calls_nothing_changes_the_shell_alone(model: Model) -> None:
    answer = model.answer("a=1 b=2")
    assert [operation[1] for operation in answer.behavior.patch.operations] == [
        "/settings/a",
        "/settings/b",
    ]
    for text in ("# nothing", ""):
        assert model.answer(text).behavior == Behavior(0, b"")


def test_a_redirection_makes_a_file_of_its_length(model: Model) -> None:
    patch = model.run("echo hi > new.txt").patch
    assert [operation[:2] for operation in patch.operations] == [("a", "/fs/new.txt")]
    assert patch.operations[0][2]["size"] == 3
    patch = model.run("echo hi >> a.txt").patch
    assert ("=", "/fs/a.txt/size", 9) in patch.operations


def test_what_was_written_is_read_again(model: Model) -> None:
    state = State(cwd=HOME, history=("echo hi > new.txt",))
    assert model.run("head -n 1 < new.txt", state).output == b"hi\n"
    assert model.reached(state).entry("new.txt") is not None
    assert model.reached(replace(state, history=())).entry("new.txt") is None


@pytest.mark.parametrize("line", ["echo hi > new", "echo h > x; echo hi > new"])
def test_a_shell_that_is_asked_reads_what_it_wrote(model: Model, line: str) -> None:
    shell = ModelShell(model, model.world.state())
    shell.run(line)
    assert shell.state.read("new") == b"hi\n"
    shell.run("rm a.txt")
    assert shell.state.read("a.txt") is None


def test_a_patch_of_the_past_is_no_patch_of_now(model: Model) -> None:
    state = State(cwd=HOME, history=("rm a.txt",))
    assert model.reached(state).entry("a.txt") is None
    again = model.answer("rm a.txt", state).behavior
    again.patch.apply(model.reached(state).before.document)


def test_a_shell_keeps_its_status_and_where_it_was_between_lines(model: Model) -> None:
    def after(*rows: str) -> State:
        return State(cwd=HOME, history=rows)

    for rows, text, said in (
        (("cat gone",), "echo $?", b"1\n"),
        (("cat gone", "pwd"), "echo $?", b"0\n"),
        (("cd sub",), "cd -", f"{HOME}\n".encode()),
        (("cd sub", "cd /"), "cd - >/dev/null; pwd", f"{HOME}/sub\n".encode()),
        (("cd sub; cd /",), "cd -", f"{HOME}/sub\n".encode()),
        (("set -- a b", "shift"), "echo $1 $#", b"b 1\n"),
        (("x=(a b)", "x+=(c)"), "echo ${x[2]} ${#x[@]}", b"c 3\n"),
        (("exit 3", "pwd"), "pwd", b""),
    ):
        assert model.run(text, after(*rows)).output == said, (rows, text)
    unsure = model.answer("cd -", after("coproc cd sub; cd /"))
    assert (unsure.confidence, unsure.source[: len(GUESSED)]) == (0, GUESSED)


def test_what_nobody_knows_is_a_marked_guess(model: Model) -> None:
    for text in ("[[ a", "fc -l", "cat a.txt; fc -l"):
        answer = model.answer(text)
        guessed = [step for step in model.steps if step.answer.source.startswith(GUESSED)]
        assert answer.confidence == 0
        assert answer.source.startswith(GUESSED) or guessed


def test_where_it_is_less_sure_than_asked_for_it_abstains(model: Model) -> None:
    careful = Model(model.memory, abstain_below=0.3)
    assert careful.answer("cat a.txt").behavior.output == b"one\ntw"
    for text in ("[[ a", "cat a.txt; fc -l"):
        with pytest.raises(Abstained, match=r"confidence of 0\.00, below 0\.3"):
            careful.run(text)
    assert "sure of 0.3" in careful.version


def test_another_machine_is_answered_of_its_own_files(model: Model) -> None:
    contents = {f"{HOME}/{name}": content for name, content in CONTENTS.items()}
    contents[f"{HOME}/a.txt"] = b"two\nthree\n"
    document = small_world().state().before.document
    files = {**document["fs"], "a.txt": {**document["fs"]["a.txt"], "size": 10}}
    there = World(Context({**document, "fs": files}), contents)
    elsewhere = Model(model.memory, world=there)
    assert model.answer("cat a.txt").source == "memory: the same input"
    found = elsewhere.answer("cat a.txt")
    assert found.behavior.output == b"two\nthree\n"
    assert elsewhere.answer("cd sub; cat ../a.txt | head -n 1").behavior.output == b"two\n"
    assert "another machine" in elsewhere.version
    assert model.memory.exact("cat a.txt", small_world().state()), "the same machine, told anew"


def test_an_answer_names_its_steps(model: Model) -> None:
    model.answer("cat nothere; pwd")
    assert [step.input for step in model.steps] == ["cat nothere", "pwd"]
    assert model.steps[0].nearest[0][0] == "cat gone"


class Shouting:
    """Answers stages in capitals."""

    def run(self, shell_input: str, state: State | None = None) -> Behavior:
        output = state.stdin.upper() if state else b""
        return Behavior(0, output, stdout=output, stderr=b"")


def test_stages_by_another_are_named(model: Model) -> None:
    loud = Model(model.memory, stages=Shouting(), stages_name="shouting")
    answer = loud.answer("cat a.txt | head -n 1")
    assert answer.behavior.output == b"ONE\nTW"
    assert "shouting" in answer.source
    assert "shouting" in loud.version
    assert "shouting" not in loud.answer("cat a.txt").source
    assert "shouting" not in loud.answer("head -n 1 a.txt; pwd").source


def test_a_model_is_one_file_that_is_what_it_was(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("SHIOENV_CACHE", str(tmp_path / "cache"))
    directory = tmp_path / "made"
    small_memory(directory)
    write_card(directory, {"name": "small", "system_digest": "5" * 64})
    pack(directory, tmp_path / "small.model")
    first = (tmp_path / "small.model").read_bytes()
    pack(directory, tmp_path / "again.model")
    assert first == (tmp_path / "again.model").read_bytes()
    model = load_model(tmp_path / "small.model")
    assert model.run("cat a.txt").output == b"one\ntw"
    assert "555555555555" in model.version
    assert read_card(opened(tmp_path / "small.model"))["name"] == "small"
    with pytest.raises(ModelError):
        load_model("nosuchmodel")


@pytest.mark.parametrize("name", ["../evil", "other.txt"])
def test_a_file_that_is_no_model_is_refused(tmp_path: Path, name: str) -> None:
    import io
    import tarfile

    archive = io.BytesIO()
    with tarfile.open(fileobj=archive, mode="w") as tar:
        member = tarfile.TarInfo(name)
        member.size = 1
        tar.addfile(member, io.BytesIO(b"x"))
    path = tmp_path / "evil.model"
    path.write_bytes(zstandard.compress(archive.getvalue()))
    with pytest.raises(ModelError):
        opened(path)
    path.write_bytes(b"nothing")
    with pytest.raises(ModelError):
        opened(path)


_ALONE = """
import os, subprocess, sys, json
def refuse(*given, **more):
    raise SystemExit("a process was started")
for name in ("fork", "posix_spawn", "posix_spawnp", "system", "execve", "forkpty", "popen"):
    setattr(os, name, refuse)
subprocess.Popen.__init__ = refuse
import resource
resource.setrlimit(resource.RLIMIT_NPROC, (0, 0))
sys.addaudithook(lambda event, args: refuse() if event in (
    "subprocess.Popen", "os.fork", "os.forkpty", "os.exec", "os.posix_spawn", "os.system"
) else None)
import shioenv
model = shioenv.load_model(sys.argv[1])
said = [model.answer(text) for text in json.loads(sys.argv[2])]
print(json.dumps([[each.behavior.exit_code, each.behavior.text] for each in said]))
"""


def test_it_starts_no_process_and_needs_no_system(tmp_path: Path) -> None:
    directory = tmp_path / "made"
    small_memory(directory)
    inputs = [
        "cat a.txt",
        "cat a.txt | head -n 1",
        "echo hi > x; pwd",
        "for i in 1 2; do pwd; done",
    ]
    done = subprocess.run(
        [sys.executable, "-c", _ALONE, str(directory), json.dumps(inputs)],
        env={
            "PATH": "/nowhere",
            "OPENBLAS_NUM_THREADS": "1",
            "PYTHONPATH": ":".join(sys.path),
            "SHIOENV_CACHE": str(tmp_path / "cache"),
        },
        capture_output=True,
        text=True,
        check=False,
    )
    assert done.returncode == 0, done.stderr
    said = json.loads(done.stdout)
    assert said[0] == [0, "one\ntw"]
    assert said[1] == [0, "one\n"]
    assert said[3] == [0, f"{HOME}\n{HOME}\n"]
    assert not (tmp_path / "cache" / "systems").exists()


def test_the_model_that_comes_with_the_package(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("SHIOENV_CACHE", str(tmp_path))
    file = SHIPPED / "default.model"
    assert file.stat().st_size <= 16 << 20  # the whole package is of this size nearly
    model = load_model()
    assert model.run("wc -l scripts/*.sh | tail -1").output == b"  41 total\n"
    assert model.run("cat nosuchfile").exit_code == 1
    per_record = sum(
        size
        for name, size in sizes(opened(file))
        if name in ("rows.npy", "frames.npy", "index.json")
    ) / len(model.memory.index)
    assert per_record <= 60
    assert sum(size for _, size in sizes(opened(file))) <= 80_000_000
    assert model.card["system"] == "debian-12"
    assert len(model.card["system_digest"]) == 64
    assert "not" in model.card["limits"]


def test_the_model_is_a_runner_like_any_other(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("SHIOENV_CACHE", str(tmp_path))
    model = load_model()
    failures = [
        result for result in run_checks(model, model.memory.world.state()) if result.failure
    ]
    assert failures == []


def test_a_directory_has_the_time_of_what_a_line_before_made_in_it(model: Model) -> None:
    """The patch of a whole line lacks that time, and the next line lists it."""
    reached = model.reached(State(cwd=HOME, history=("touch sub/new",)))
    entry = reached.entry("sub")
    assert entry is not None
    assert entry.time == "19:43"


@pytest.mark.parametrize(
    ("text", "output", "exit_code"),
    [
        ("cd -", b"bash: line 1: cd: OLDPWD not set\n", 1),
        ("cd -L -; pwd", b"bash: line 1: cd: OLDPWD not set\n/home/ubuntu\n", 0),
        ("x=-; cd $x", b"bash: line 1: cd: OLDPWD not set\n", 1),
        ("(cd sub); cd -- -", b"bash: line 1: cd: OLDPWD not set\n", 1),
        ("echo ~- [${OLDPWD-unset}] $_", b"~- [unset] bash\n", 0),
        ("cd . && cd -", b"/home/ubuntu\n", 0),
        ("cd sub; echo $OLDPWD; cd -L -", b"/home/ubuntu\n/home/ubuntu\n", 0),
        ('x=$BASH_EXECUTION_STRING; echo "$x"; pwd', None, 0),
    ],
)
def test_nothing_led_to_the_start_directory(
    model: Model, text: str, output: bytes | None, exit_code: int
) -> None:
    behavior = model.run(text)
    expected = f"{text}\n{HOME}\n".encode() if output is None else output
    assert (behavior.output, behavior.exit_code) == (expected, exit_code)


def test_records_of_an_executed_cd_answer_as_later_ones_do(tmp_path: Path) -> None:
    """Until D-27 inputs followed a `cd`, which records show."""
    listed = f'declare -x HOME="/root"\ndeclare -x OLDPWD="{HOME}"\ndeclare -x PWD="{HOME}"\n'
    kept = {
        "cd -": Kept(0, f"{HOME}\n", "[]"),
        "export -p": Kept(0, listed, "[]"),
        "env -u HOME": Kept(0, f"A=1\nOLDPWD={HOME}\nPWD={HOME}\n", "[]"),
        "cd sub; export -p": Kept(0, listed, "[]"),
        "ps -f; true": Kept(0, f"bash -c cd {HOME}; ps -f; true\n", "[]"),
    }
    write_index(tmp_path, [(HOME, text, None, each) for text, each in kept.items()])
    (tmp_path / "world.json").write_bytes(small_world().to_json())
    model = Model(Memory(tmp_path))
    assert model.run("cd -").exit_code == 1
    assert model.run("export -p").output == listed.replace(f'OLDPWD="{HOME}"', "OLDPWD").encode()
    assert model.run("env -u HOME").output == f"A=1\nPWD={HOME}\n".encode()
    assert model.run("cd sub; export -p").output == listed.encode()
    assert model.run("ps -f; true").output == b"bash -c ps -f; true\n"
