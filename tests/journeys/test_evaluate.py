"""Predictors in separate processes: their answers are kept, judged and reported."""

from __future__ import annotations

import json
import pickle
import sys
import tempfile
from importlib.metadata import entry_points
from pathlib import Path

import pytest

from shioenv.domain.behavior import Behavior
from shioenv.domain.predictor import BROUGHT_BY, GROUP, make_predictor
from shioenv.errors import MissingExtraError, PredictorError, SuiteError, UsageError
from shioenv_eval.evaluate import Evaluation, evaluate, read_evaluation
from shioenv_eval.metrics import Status
from shioenv_eval.predictors.recording import answer_from
from shioenv_eval.results import trained_on
from shioenv_eval.suite import Suite, read_suite, write_suite
from shioenv_model.model import Model
from support.evaluation_fakes import added, case, did, suite_of
from support.installed import install_predictor
from support.nightly import NIGHTLY, by_day
from support.small_world import small_memory

PROGRAM = """
import json, os, sys, time
for line in sys.stdin:
    question = json.loads(line)
    text = question.get("input")
    if "log" in sys.argv[1:2]:
        open(sys.argv[2], "a").write(line)
    answer = {"exit_code": 0, "output": "x\\n", "version": "seven", "confidence": 0.5}
    if text == "die":
        os._exit(9)
    if text == "hang":
        time.sleep(60)
    if text == "decline":
        answer = {"abstained": True, "source": "too hard"}
    if text == "nonsense":
        answer = "{"
    if text == "half":
        answer["context_patch"] = 5
    if text == "where":
        answer["output"] = question["cwd"] + " " + " ".join(question["history"]) + "\\n"
    print(json.dumps(answer) if answer != "{" else answer, flush=True)
"""


@pytest.fixture
def program(tmp_path: Path) -> str:
    path = tmp_path / "program.py"
    path.write_text(PROGRAM)
    return f"command:{sys.executable} {path}"


def suite(tmp_path: Path, *texts: str) -> Suite:
    path = tmp_path / "made.suite"
    write_suite(suite_of(*(case(did("x\n"), text=text) for text in texts)), path)
    return read_suite(path)


def statuses(done: Evaluation) -> list[str]:
    return [said.status.value for said in done.predictors[0].said]


def test_what_goes_wrong_with_one_input_is_counted_and_named(tmp_path: Path, program: str) -> None:
    texts = ("right", "die", "hang", "decline", "nonsense", "half", "right again")
    done = evaluate(suite(tmp_path, *texts), [program], workers=2, timeout=4)
    assert statuses(done) == [
        "answered", "crashed", "timed_out", "abstained", "invalid", "invalid", "answered",
    ]  # fmt: skip
    said = done.predictors[0].said
    assert "ended with status 9" in said[1].why
    assert said[2].why == "no answer within 4 s"
    assert said[3].why == "too hard"
    assert said[5].behavior is not None
    assert said[5].behavior.output == b"x\n"
    group = done.document["predictors"][program]["all"]
    assert group["n"] == 7
    assert group["em"][0] == pytest.approx(2 / 7, abs=1e-4)
    assert group["em_output"][0] == pytest.approx(3 / 7, abs=1e-4)
    for name, share in {"crashed": 1, "timed_out": 1, "abstained": 1, "invalid": 2}.items():
        assert group[name][0] == pytest.approx(share / 7, abs=1e-4), name


def test_the_shape_that_programs_read(tmp_path: Path) -> None:
    done = evaluate(suite(tmp_path, "ls", "ls | sort"), ["trivial", "errors"], workers=1)
    document = json.loads(json.dumps(done.document))
    assert list(document["predictors"]) == ["trivial", "errors"]
    for facts in document["predictors"].values():
        assert facts["version"] == "1"
        assert facts["patch_level"] == "full"
        for group, n in {"single": 1, "multi": 1, "all": 2}.items():
            assert facts[group]["n"] == n
            for name in ("em", "em_masked", "em_exit", "em_files", "em_output", "em_patch",
                         "o_es", "djs", "abstained", "ms_p50", "ms_p95"):  # fmt: skip
                assert len(facts[group][name]) == 3, name
    (pair,) = document["differences"]
    assert (pair["first"], pair["second"]) == ("trivial", "errors")
    assert len(pair["all"]["em"]) == 3
    assert document["unable"] == {}


def test_answers_are_kept_and_only_what_is_missing_is_asked(tmp_path: Path, program: str) -> None:
    log = tmp_path / "log"
    name = f"{program} log {log}"
    made = suite(tmp_path, "a", "b", "c")
    out = tmp_path / "out"
    first = evaluate(made, [name], out, workers=1)
    asked = log.read_text().count('"input"')
    assert asked == 3
    second = evaluate(made, [name, "trivial"], out, workers=1)
    assert log.read_text().count('"input"') == asked, "everything was there"
    assert second.predictors[0].said == first.predictors[0].said
    (kept,) = [path for path in (out / "answers").glob("*.ndjson") if "command" in path.name]
    lines = kept.read_bytes().splitlines(keepends=True)
    kept.write_bytes(b"".join(lines[:2]))
    evaluate(made, [name], out, workers=1)
    assert log.read_text().count('"input"') == asked + 1
    again = read_evaluation(out)
    assert [one.name for one in again.predictors] == [name, "trivial"]
    assert again.document["predictors"]["trivial"]["all"]["n"] == 3
    assert json.loads((out / "results.json").read_text())["predictors"][name]["all"]["n"] == 3


def test_a_program_that_was_changed_is_asked_anew(tmp_path: Path, program: str) -> None:
    path = tmp_path / "program.py"
    path.write_text(PROGRAM.replace(', "version": "seven"', ""))
    made = suite(tmp_path, "a")
    out = tmp_path / "out"
    assert evaluate(made, [program], out, workers=1).document["predictors"][program]["all"]["em"][0]
    path.write_text(path.read_text().replace('"x\\n"', '"y\\n"'))
    done = evaluate(made, [program], out, workers=1)
    assert done.document["predictors"][program]["all"]["em"][0] == 0


def test_the_directory_of_another_suite_is_refused(tmp_path: Path) -> None:
    evaluate(suite(tmp_path, "a"), ["trivial"], tmp_path / "out", workers=1)
    with pytest.raises(UsageError, match="another suite"):
        evaluate(suite(tmp_path, "b"), ["trivial"], tmp_path / "out", workers=1)
    with pytest.raises(SuiteError, match="contains no evaluation"):
        read_evaluation(tmp_path)


def test_a_predictor_that_cannot_run_here_is_named_and_the_others_run(tmp_path: Path) -> None:
    names = ["recording:/nowhere", "trivial", "command:/nowhere/at/all"]
    done = evaluate(suite(tmp_path, "a"), names, workers=1)
    assert [one.name for one in done.predictors] == ["trivial"]
    assert set(done.document["unable"]) == {names[0], names[2]}
    assert "cannot be read" in done.document["unable"][names[0]]
    with pytest.raises(PredictorError, match="unknown predictor") as caught:
        evaluate(suite(tmp_path, "a"), ["trivia"], workers=1)
    assert "trivial" in str(caught.value)


def test_a_recording_answers_by_text_start_directory_and_history(tmp_path: Path) -> None:
    lines = [
        {"version": "of May", "patch_level": "files"},
        {"input": "a", "output": "x\n"},
        {"input": "b", "output": "x\n", "cwd": "/elsewhere"},
        {"input": "c", "output_b64": "eAo=", "context_patch": [list(added("f"))]},
        {"input": "d", "output": "x\n", "history": ["cd /"]},
    ]
    path = tmp_path / "answers.jsonl"
    path.write_text("".join(json.dumps(line) + "\n" for line in lines))
    done = evaluate(suite(tmp_path, "a", "b", "c", "d"), [f"recording:{path}"], workers=1)
    assert statuses(done) == ["answered", "abstained", "answered", "abstained"]
    facts = done.document["predictors"][f"recording:{path}"]
    assert (facts["version"], facts["patch_level"]) == ("of May", "files")
    assert done.predictors[0].marks[0].em == 1
    assert (done.predictors[0].marks[2].em_output, done.predictors[0].marks[2].em) == (1, 0)


def test_a_program_is_told_where_an_input_starts(tmp_path: Path, program: str) -> None:
    done = evaluate(suite(tmp_path, "where"), [program], workers=1)
    (said,) = done.predictors[0].said
    assert said.status is Status.ANSWERED
    assert said.behavior is not None
    assert said.behavior.output == b"/home/ubuntu \n"
    assert said.confidence == 0.5


def test_what_was_trained_on_is_told_and_set_aside(tmp_path: Path) -> None:
    made = suite(tmp_path, "ls -l a", "ls -l b", "cat c", "wc d")
    inputs = tmp_path / "trained"
    inputs.write_text("cd /home/ubuntu; ls -l a\ncat z -n\nsort x\n")
    path = tmp_path / "answers.jsonl"
    lines: list[dict[str, object]] = [{"training": str(inputs)}]
    lines += [{"input": text, "output": "x\n"} for text in ("ls -l a", "wc d")]
    lines += [{"input": text, "output": "y\n"} for text in ("ls -l b", "cat c")]
    path.write_text("".join(json.dumps(line) + "\n" for line in lines))
    name = f"recording:{path}"
    facts = evaluate(made, [name], tmp_path / "out", workers=1).document["predictors"][name]
    assert facts["training"] == {"data": str(inputs), "inputs": 3, "text": 0.25, "form": 0.5}
    everything = facts["all"]
    assert everything["em"][0] == 0.5
    assert everything["em_new_text"][0] == pytest.approx(1 / 3, abs=1e-4), "without ls -l a"
    assert everything["em_new_form"][0] == 0.5, "without both ls -l: cat is wrong, wc right"
    again = read_evaluation(tmp_path / "out").document["predictors"][name]
    assert again["all"]["em_new_form"] == everything["em_new_form"]


def test_a_memory_was_trained_on_what_it_holds(tmp_path: Path) -> None:
    memory = small_memory(tmp_path / "memory")
    made = suite(tmp_path, "cat a.txt", "cat nowhere", "wc d", "rm -r  other")
    training = pickle.loads(pickle.dumps(Model(memory).training))  # as from a worker
    found = trained_on(made, training)
    assert found.data == str(tmp_path / "memory")
    assert found.inputs == len(memory.index)
    assert (set(found.text), set(found.form)) == ({0, 3}, {0, 1, 3})


@NIGHTLY
def test_whatever_ends_a_predictor_nothing_of_it_stays_behind(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    scratch, log = tmp_path / "scratch", tmp_path / "log"
    scratch.mkdir()
    monkeypatch.setattr(tempfile, "tempdir", str(scratch))
    path = tmp_path / "messy.py"
    path.write_text(
        "import json, sys, tempfile, time\n"
        "for line in sys.stdin:\n"
        "    made = tempfile.mkdtemp()\n"
        f"    print(made, file=open({str(log)!r}, 'a'))\n"
        "    text = json.loads(line).get('input')\n"
        "    time.sleep(60 if text == 'hang' else 0)\n"
        "    sys.exit(9) if text == 'die' else print('{\"output\": \"x\\\\n\"}', flush=True)\n"
    )
    name = f"command:{sys.executable} {path}"
    done = evaluate(suite(tmp_path, "a", "hang", "die", "b"), [name], workers=2, timeout=4)
    assert statuses(done) == ["answered", "timed_out", "crashed", "answered"]
    made = [Path(line) for line in log.read_text().splitlines()]
    assert len(made) >= 4
    assert all(each.is_relative_to(scratch) for each in made)
    assert list(scratch.iterdir()) == []


@pytest.mark.parametrize(("name", "extra"), [("memory:./nowhere", "model"), ("trivial", "eval")])
def test_a_predictor_of_a_package_that_is_missing_names_the_extra(
    name: str, extra: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("shioenv.guests.entry_points", lambda group: ())
    with pytest.raises(MissingExtraError, match=f"needs shioenv-{extra}, which is not") as caught:
        make_predictor(name, "debian-12", "/home/ubuntu")
    assert (caught.value.hint or "").endswith(f"'shioenv[{extra}]'")


def test_the_core_knows_which_extra_brings_each_of_our_predictors() -> None:
    brought = {name: extra for extra, names in BROUGHT_BY.items() for name in names.split()}
    assert set(brought) == {
        point.name for point in entry_points(group=GROUP) if point.value.startswith("shioenv")
    }


def test_other_packages_add_theirs_by_entry_point(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    source = (
        "from shioenv.domain.behavior import Behavior\n"
        "class Mine:\n"
        "    def __init__(self, setting):\n"
        "        self.version, self.patch_level = setting.text, 'files'\n"
        "    def run(self, text, state=None):\n"
        "        return Behavior(0, b'x\\n')\n"
    )
    install_predictor(tmp_path, monkeypatch, "mine:Mine", source)
    done = evaluate(suite(tmp_path, "a"), ["mine:weights.bin"], workers=1)
    facts = done.document["predictors"]["mine:weights.bin"]
    assert (facts["version"], facts["patch_level"]) == ("weights.bin", "files")
    assert facts["all"]["em"][0] == 1


NO_ANSWERS = {
    "cat": ("/bin/cat", "the answer has no output; its keys: 'input', 'cwd', 'history'"),
    "misspelt": ("""echo '{"outptu": "x", "exit_code": 0}'""", "'outptu'; did you mean output?"),
    "another case": ("""echo '{"output": "x", "exitCode": 0}'""", "did you mean exit_code?"),
    "a number": ("""echo '{"output_b64": 5}'""", "invalid output"),
    "a list": ("echo '[]'", "expected a JSON object"),
    "a text": ("echo hello", "not JSON"),
    "nothing": ("echo '{}'", "the answer has no output"),
}


@pytest.mark.parametrize("kind", by_day([*NO_ANSWERS], 3))
def test_a_predictor_without_any_answer_is_not_judged(tmp_path: Path, kind: str) -> None:
    does, why = NO_ANSWERS[kind]
    path = tmp_path / "program.sh"
    answers = f"while read -r line; do printf '%s\\n' \"$line\" | {does}; done"
    path.write_text(f"read -r hello; echo '{{}}'; {answers}")
    name, out = f"command:sh {path}", tmp_path / "out"
    done = evaluate(suite(tmp_path, "a", "b"), [name, "trivial"], out, workers=1)
    assert [one.name for one in done.predictors] == ["trivial"]
    assert "none of its 2 answers is valid; the first, to 'a': " in done.unable[name]
    assert why in done.unable[name]
    assert read_evaluation(out).unable == done.unable
    assert not list((out / "answers").glob("command*.ndjson")), "it is asked again"


def test_what_stands_beside_an_answer_is_left_alone() -> None:
    document = {"output": "", "outputs": 1, "input": "a", "timeout": 3, "patch": [], "note": "x"}
    assert answer_from(document).behavior == Behavior(0, b"")
