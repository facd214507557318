"""Emulators loaded with the system's files, as predictors."""

from __future__ import annotations

import json
import os
import re
import subprocess
import sys
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest
from typer.testing import CliRunner

from shioenv.cli.main import app
from shioenv.domain.predictor import PatchLevel, Predictor, make_predictor
from shioenv.domain.runner import State
from shioenv.system.store import System
from shioenv_eval.metrics import PredictorAnswer
from shioenv_eval.patches import changed_files, operations
from shioenv_eval.predictor_pool import Bounds, PredictorPool
from shioenv_eval.predictors.bashkit import Bashkit
from shioenv_eval.predictors.references import InPlace, in_place
from support.needs import needs
from support.nightly import LARGER, NIGHTLY, by_day, scaled

pytestmark = pytest.mark.usefixtures("system")
HOME = "/home/ubuntu"


EMULATORS = ["bashkit", pytest.param("just-bash", marks=needs("node", "npm")), "cowrie"]


@pytest.fixture(scope="module")
def emulators(system: System) -> Iterator[Callable[[str], Predictor]]:
    """Make each emulator once: one takes seconds to load the system's files."""
    made: dict[str, Predictor] = {}

    def of(name: str) -> Predictor:
        if name not in made:
            made[name] = make_predictor(name, "debian-12", HOME)
        return made[name]

    yield of
    for one in made.values():
        getattr(one, "close", lambda: None)()


@pytest.fixture(scope="module", params=EMULATORS)
def emulator(request: pytest.FixtureRequest, emulators: Callable[[str], Predictor]) -> Predictor:
    return emulators(request.param)


@needs("shioenv-model")
def test_predict_lets_an_emulator_answer_for_stages() -> None:
    text = "cat documents/names.txt | tr a-z A-Z | nl -ba | head -2"
    given = ["predict", text, "--json"]
    said = {
        stages: json.loads(CliRunner().invoke(app, [*given, *stages]).stdout)
        for stages in ((), ("--stages", "bashkit"))
    }
    assert "bashkit" not in said[()]["source"] + said[()]["model"]
    by = said["--stages", "bashkit"]
    assert by["source"].endswith("stages by bashkit")
    assert "stages by bashkit" in by["model"]
    assert by["steps"][-1]["source"] == "bashkit"


def test_it_says_what_it_is(emulator: Predictor) -> None:
    assert emulator.patch_level == PatchLevel.FILES
    assert emulator.version[0].isdigit()


def test_it_has_the_files_of_the_system(emulator: Predictor) -> None:
    assert emulator.run("cat documents/names.txt | head -1").output
    assert b"ubuntu:x:" in emulator.run("cat /etc/passwd").output
    assert emulator.run("pwd").output == b"/home/ubuntu\n"
    assert b"2025-10-14" in emulator.run("ls -l documents/notes.txt").output or (
        b"Oct 14" in emulator.run("ls -l documents/notes.txt").output
    )


@pytest.mark.parametrize("name", EMULATORS[:2])
def test_a_program_that_it_lacks_is_not_found_and_not_read_as_a_script(
    name: str, emulators: Callable[[str], Predictor]
) -> None:
    said = emulators(name).run("lsblk")
    assert b"command not found" in said.output
    assert said.exit_code == 127


def test_what_one_input_did_is_told_and_gone_before_the_next(emulator: Predictor) -> None:
    text = "mkdir new; echo x > new/file; rm documents/todo.txt; echo y >> /etc/motd"
    done = emulator.run(text)
    assert changed_files(operations(done.patch)) >= {
        ("added", "new"), ("added", "new/file"), ("removed", "documents/todo.txt"),
    }  # fmt: skip
    again = emulator.run("ls documents; ls new; cat /etc/motd")
    assert b"todo.txt" in again.output
    assert b"No such file" in again.output
    assert not again.output.endswith(b"\ny\n")
    assert not again.patch
    assert emulator.run("false").exit_code == 1


def test_a_history_leads_to_the_state_and_is_not_the_answer(emulator: Predictor) -> None:
    state = State(cwd="/tmp", history=("echo one > file", "x=5"))
    done = emulator.run("cat file; echo $x; pwd; rm file", state)
    assert done.output == b"one\n5\n/tmp\n"
    assert changed_files(operations(done.patch)) == {("removed", "file")}


def test_a_directory_that_was_removed_is_back_before_the_next_input(emulator: Predictor) -> None:
    for _ in range(2):
        done = emulator.run("rmdir data/empty; ls data")
        assert changed_files(operations(done.patch)) == {("removed", "data/empty")}
        assert b"empty" not in done.output


def test_a_history_is_no_change_of_an_input_that_cannot_be_parsed(emulator: Predictor) -> None:
    state = State(cwd=HOME, history=("rm -rf -- data documents",))
    for text in ("echo ${PATH##*:}", "echo 'a"):
        assert not emulator.run(text, state).patch


CHANGES = (
    "rm -r documents data",
    "rm README.md; mkdir README.md; echo x > README.md/inside",
    "rm -r documents; echo x > documents",
    "mv documents papers; mv data documents",
    "chmod 700 . documents documents/notes.txt; chmod -R a-w logs",
    "rm latest.log; ln -s documents/notes.txt latest.log",
    "rm latest.log; echo x > latest.log; ln -s nowhere logs/error.log.1",
    "touch documents logs/app.log; cp -p logs/app.log documents/notes.txt",
    "rm -r /home/ubuntu /home/alice",
    "rmdir /media; rm -r /home /srv",
    "rmdir /media; touch /media",
    "echo x > /etc/motd; rm /etc/passwd; mkdir -p /var/new/deep; chmod 000 /root /tmp",
    "echo x > /usr/local/notes; chmod 700 /usr/share; rm /usr/lib/os-release",
    "echo x > /lib/notes; mkdir /boot/grub; touch /boot/grub/grub.cfg",
    "echo x > /sbin/tool",
    "echo x > ${PATH%%:*}/tool",
    "cd /; cd u*; mkdir here",
)
LISTED = (
    "find /home /root /tmp /etc /var /srv /run /media /boot /usr -printf '%p %y %m %s %T@ %l\\n'"
)


@pytest.fixture(scope="module")
def bashkit(emulators: Callable[[str], Predictor]) -> Bashkit:
    made = emulators("bashkit")
    assert isinstance(made, Bashkit)
    return made


@pytest.mark.parametrize("text", by_day(CHANGES, 6))
def test_files_are_put_back_after_an_input(bashkit: Bashkit, text: str) -> None:
    def shown() -> str:
        return bashkit.run(f"{LISTED}; cat README.md documents/notes.txt /etc/motd").output.decode()

    before = shown()
    assert bashkit.run(text).patch.operations
    after = shown()
    made = re.compile(r"( l \d+ \d+) [\d.]+")  # a link has the time at which it was made
    assert made.sub(r"\1", before) == made.sub(r"\1", after)


def test_a_directory_has_nothing_that_the_system_lacks(bashkit: Bashkit, system: System) -> None:
    listed = bashkit.run("find /home /etc /var /tmp /srv /opt").output.decode().splitlines()
    assert len(listed) > 1000
    assert not {path for path in listed if path not in system.index}


def test_a_program_that_bashkit_lacks_is_not_found(bashkit: Bashkit) -> None:
    for name in ("dmesg", "ethtool", "w"):
        done = bashkit.run(name)
        assert done.exit_code == 127
        assert b"not found" in done.output
    assert bashkit.run("cd /usr/bin && pwd").output == b"/usr/bin\n"


@pytest.fixture(scope="module")
def pool() -> Iterator[PredictorPool]:
    with PredictorPool("bashkit", "debian-12", HOME, 1, Bounds(answer=20)) as made:
        yield made


def said(pool: PredictorPool, *texts: str, cwd: str = HOME) -> list[PredictorAnswer]:
    tasks = [(number, (text, State(cwd=cwd))) for number, text in enumerate(texts)]
    answers = dict(pool.said(tasks))
    return [answers[number] for number in range(len(texts))]


def test_many_questions_at_once_are_answered_as_each_by_itself(pool: PredictorPool) -> None:
    texts = ("rm -r documents", "ls", "echo x > /etc/hostname", "cat /etc/hostname", "rm data/*")
    alone = [said(pool, text)[0] for text in texts]
    together = said(pool, *texts, "ls /etc")
    assert [one.behavior for one in together[:5]] == [one.behavior for one in alone]
    assert alone[3].behavior is not None
    assert alone[3].behavior.output == b"ubuntu\n"
    assert alone[2].behavior is not None
    assert alone[2].behavior.patch.operations


@LARGER
@pytest.mark.parametrize(
    ("texts", "cwd"),
    [
        (("echo x > /etc/zz", "cat /etc/zz; rm /etc/zz"), HOME),
        (("echo x > zz", "cat zz; rm zz"), "/var"),
        (("cd /; cd e*; echo x > zz", "cd ..; cd ../etc; cat zz; rm zz"), HOME),
        (("echo x > /lib/zz", "cat /usr/lib/zz; rm /usr/lib/zz"), HOME),
        (("echo x > zz", "cat zz; rm zz"), "/usr/share"),
    ][:: scaled(5, 1)],
)
def test_a_question_does_not_see_what_another_wrote_far_away(
    pool: PredictorPool, texts: tuple[str, str], cwd: str
) -> None:
    alone = [said(pool, text, cwd=cwd)[0].behavior for text in texts]
    assert [one.behavior for one in said(pool, *texts, cwd=cwd)] == alone
    assert alone[0] is not None
    assert alone[0].patch.operations
    assert alone[1] is not None
    assert alone[1].exit_code == 1


@NIGHTLY
def test_a_change_that_no_name_announces_is_found_behind_all_questions() -> None:
    made = make_predictor("bashkit", "debian-12", HOME)
    assert isinstance(made, Bashkit)
    hidden = r"for d in 'us\162' 'et\143'; do echo x > $(printf '\057'$d)/zz; done"
    done = made.together(made.run, [hidden, "cat /usr/zz /etc/zz"])
    assert len(done[0].patch.operations) >= 2
    assert done[1].exit_code == 1


def test_bashkit_is_called_on_real_files(tmp_path: Path) -> None:
    """This is how a script of `shioenv conform` runs it."""
    (tmp_path / "names").write_text("one\n")
    text = "cat names; echo two > new; cat missing; exit 3"
    done = subprocess.run(
        ["bash", "-c", f'{Bashkit.shell} "$1"', "-", text],
        cwd=tmp_path, capture_output=True, text=True,
        env={"PATH": f"{Path(sys.executable).parent}:{os.environ['PATH']}"},
    )  # fmt: skip
    assert (done.returncode, done.stderr) == (3, "")
    assert done.stdout.startswith("one\n")
    assert "missing" in done.stdout
    assert (tmp_path / "new").read_text() == "two\n"


def test_nothing_stands_in_place_of_the_default_systems_programs(system: System) -> None:
    assert in_place(system) is None


def test_a_program_in_place_of_others_is_called_by_its_other_names(tmp_path: Path) -> None:
    program = tmp_path / "multi"
    program.write_text('#!/bin/sh\necho "${0##*/} is called with $*"\n')
    program.chmod(0o755)
    other = InPlace(str(program), ("[", "wc"), "multi", "1:2+b1")
    done = subprocess.run(
        ["bash", "-c", f'{other.shell} "$1"', "-", "wc -l x; [ 1; cat /dev/null"],
        capture_output=True, text=True,
    )  # fmt: skip
    # Bash has a builtin `[`, which complains
    assert done.stdout == "wc is called with -l x\n"
    assert other.install == "apt-get install multi=1:2+b1"
