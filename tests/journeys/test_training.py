# ruff: noqa: E402 - what is imported needs what may not be installed
"""A model of a few thousand weights, trained for a few steps: in pieces as in one."""

from __future__ import annotations

import time
from contextlib import nullcontext
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import msgspec
import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from support.needs import needed_module

torch = needed_module("torch")
needed_module("transformers")

from shioenv.bash.normal import normal
from shioenv.domain.behavior import Behavior
from shioenv.domain.patch import ContextPatch
from shioenv.errors import Abstained, ModelError
from shioenv_eval.results import trained_on
from shioenv_model.files import load_model, load_seq2seq, opened, pack
from shioenv_model.model import Model
from shioenv_model.predictors.seq2seq import Seq2seqPredictor
from shioenv_model.sequence.codec import Codec, Writing
from shioenv_model.sequence.compact import ERRORS, OUTPUT, DocumentNames, Now, Target, target_of
from shioenv_model.sequence.prompts import Prompter
from shioenv_model.sequence.seq2seq import Seq2seq
from shioenv_model.training.passes import fused
from shioenv_model.training.sequence import Batches, Clock, TrainingPlan, new_model, train
from shioenv_model.training.token_examples import ROW, Examples, TrainingExample, write_examples
from support.evaluation_fakes import case, did, suite_of
from support.small_world import HOME, small_memory, small_world

NOW = Now("Oct", 16, 2025, "19:43")
PLAN = TrainingPlan(
    size="tiny", steps=6, batch_tokens=512, every=2, learning_rate=3e-3, patience=50, seed=3
)
PRINTED = {
    "cat a.txt": b"one\ntw", "cat b.txt": b"x\ny\nz one\n", "echo hi": b"hi\n", "echo ha": b"ha\n",
    "pwd": f"{HOME}\n".encode(), "head -n 1 a.txt": b"one\n", "cat sub/inner.txt": b"in\n",
    "wc -c a.txt": b"6 a.txt\n", "echo 1": b"1\n", "echo 2": b"2\n",
}  # fmt: skip


def asked() -> dict[str, Behavior]:
    did = {text: Behavior(0, said, stdout=said, stderr=b"") for text, said in PRINTED.items()}
    did["rm a.txt"] = Behavior(0, b"", ContextPatch((("r", "/fs/a.txt"),)))
    did["cat gone"] = Behavior(1, b"cat: gone: no\n", stdout=b"", stderr=b"cat: gone: no\n")
    return did


@pytest.fixture(scope="module")
def examples(tmp_path_factory: pytest.TempPathFactory) -> Examples:
    torch.set_num_threads(1)
    directory = tmp_path_factory.mktemp("examples")
    state = small_world().state()
    prompter = Prompter()
    told = []
    for text, behavior in asked().items():
        target = target_of(behavior, DocumentNames(state.before.document), NOW)
        assert target is not None
        told.append((prompter.prompt(text, state, NOW), target))
    codec = Codec.learned((text for text, _ in told), 300)
    made = []
    for number, (text, target) in enumerate(told):
        numbers = codec.encode_target(target)
        assert numbers is not None
        said = text.partition("\n")[0].removeprefix("$ ")
        made.append(
            TrainingExample(codec.encode(text), numbers, number % 6 == 5, said, normal(said))
        )
    facts = {
        "systems": {"small": {"digest": "0", "now": NOW.text}},
        "shape": {"source_tokens": 400, "target_tokens": 60, "neighbours": 0},
    }
    write_examples(directory, codec, made, facts)
    (directory / "world.json").write_bytes(small_world().to_json())
    return Examples(directory)


@pytest.fixture(scope="module")
def whole(examples: Examples, tmp_path_factory: pytest.TempPathFactory) -> Path:
    run = tmp_path_factory.mktemp("whole")
    assert train(run, examples, PLAN).ended
    return run


def weights(run: Path) -> dict[str, Any]:
    from safetensors.torch import load_file

    last = max((run / "checkpoints").iterdir(), key=lambda path: int(path.name.split("-")[1]))
    return dict(load_file(last / "model.safetensors"))


def test_a_run_in_pieces_gives_the_weights_of_one_that_was_never_interrupted(
    examples: Examples, whole: Path, tmp_path: Path
) -> None:
    pieces = [train(tmp_path, examples, PLAN, minutes=0) for _ in range(PLAN.steps)]
    assert [piece.step for piece in pieces] == list(range(1, PLAN.steps + 1))
    assert [piece.ended for piece in pieces] == [False] * (PLAN.steps - 1) + [True]
    expected, found = weights(whole), weights(tmp_path)
    assert expected.keys() == found.keys()
    assert all(torch.equal(each, found[name]) for name, each in expected.items())
    assert (tmp_path / "curve.csv").read_bytes() == (whole / "curve.csv").read_bytes()
    last = train(tmp_path, examples, PLAN)
    assert (last.step, last.ended) == (PLAN.steps, True)


def test_what_no_longer_gets_better_on_dev_stops(examples: Examples, tmp_path: Path) -> None:
    plan = msgspec.structs.replace(PLAN, learning_rate=0.0, steps=40, every=1, patience=2)
    first = train(tmp_path, examples, plan, minutes=0)  # counted over pieces, too
    done = train(tmp_path, examples, plan)
    assert (first.step, first.ended) == (1, False)
    assert (done.step, done.ended) == (3, True)
    assert train(tmp_path, examples, plan).step == 3


def test_a_run_within_minutes_ends_with_them(examples: Examples, tmp_path: Path) -> None:
    plan = msgspec.structs.replace(PLAN, steps=10_000, minutes=1e-6)
    done = train(tmp_path, examples, plan)
    assert (done.step, done.ended) == (1, True)
    assert done.best_loss is not None, "its last weights are judged, too"
    assert (tmp_path / "model" / "model.json").exists()
    assert train(tmp_path, examples, plan).step == 1


def test_minutes_count_over_pieces(examples: Examples, tmp_path: Path) -> None:
    plan = msgspec.structs.replace(PLAN, steps=10_000, minutes=0.5)
    first = train(tmp_path, examples, plan, minutes=0)
    assert (first.step, first.ended) == (1, False)
    (spent,) = tmp_path.glob("checkpoints/checkpoint-1/seconds")
    assert 0 < float(spent.read_text()) < 30
    spent.write_text("30.0\n")
    assert train(tmp_path, examples, plan, minutes=9).ended


@pytest.mark.parametrize("minutes", [0.0, 1.0])
def test_the_rate_rises_in_a_line_and_falls_to_nothing(minutes: float) -> None:
    plan = TrainingPlan(steps=1000, minutes=minutes)

    def rate(share: float) -> float:
        if not minutes:
            return Clock(plan, time.monotonic(), 0).rate(round(1000 * share))
        return Clock(plan, time.monotonic(), 60 * share).rate(0)

    rates = [rate(share) for share in (0, 0.025, 0.05, 0.25, 0.525, 0.9, 1, 1.2)]
    expected = [0.02, 0.5, 1, 0.89, 0.5, 0.027, 0, 0]
    assert rates == pytest.approx(expected, abs=0.01)


def test_another_seed_gives_other_weights(examples: Examples, whole: Path, tmp_path: Path) -> None:
    train(tmp_path, examples, msgspec.structs.replace(PLAN, seed=4), minutes=0)
    found = weights(tmp_path)
    assert not all(torch.equal(each, found[name]) for name, each in weights(whole).items())


def test_a_run_does_not_go_on_with_another_plan(examples: Examples, whole: Path) -> None:
    with pytest.raises(ModelError, match="other settings"):
        train(whole, examples, msgspec.structs.replace(PLAN, learning_rate=1e-4))


def test_a_run_begins_from_a_checkpoint_of_t5(
    examples: Examples, whole: Path, tmp_path: Path
) -> None:
    plan = msgspec.structs.replace(PLAN, checkpoint=str(whole / "model"))
    train(tmp_path, examples, plan, minutes=0)
    before, after = weights(whole), weights(tmp_path)
    assert before.keys() == after.keys()
    name = "shared.weight"
    assert float((before[name] - after[name]).abs().max()) < 0.1  # one step away


def test_what_a_model_writes_always_fits_and_it_says_how_sure_it_is(whole: Path) -> None:
    model = Seq2seq(whole / "model")
    assert [key in model.card for key in ("plan", "systems", "learned")] == [True] * 3
    for text in (*PRINTED, "rm b.txt", "cd sub", "touch x"):
        try:
            answer = model.answer(text)
        except Abstained:  # it wrote on and on
            continue
        assert 0 <= answer.confidence <= 1
        answer.behavior.patch.apply(small_world().state().before.document)


def test_what_a_model_was_trained_on_can_be_told_of_its_file(
    examples: Examples, whole: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path / "cache"))
    packed = tmp_path / "mine.model"
    pack(whole / "model", packed)
    texts = list(asked())
    judging = set(examples.numbers(dev=True).tolist())
    assert judging
    made = suite_of(*(case(did("x\n"), text=text) for text in [*texts, "cat  a.txt", "cat other"]))
    found = trained_on(made, Seq2seqPredictor(load_seq2seq(packed), "one").training)
    assert found.inputs == len(texts) - len(judging)
    assert found.text == (set(range(len(texts))) - judging) | {len(texts)}
    assert found.form >= found.text | {len(texts) + 1}


def test_a_model_is_packed_opened_and_stands_beside_a_memory(
    whole: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path / "cache"))
    small_memory(tmp_path / "memory")
    packed = tmp_path / "mine.model"
    pack(whole / "model", packed)
    assert {path.name for path in opened(packed).iterdir()} >= {"model.safetensors", "model.json"}
    router = load_model(tmp_path / "memory", seq2seq=packed)
    assert "step 6" in router.version
    assert router.run("cat a.txt").output == b"one\ntw"  # answered by execution, without the model
    router.answer("cat b.txt")
    assert load_seq2seq(packed).version == Seq2seq(whole / "model").version
    with pytest.raises(ModelError, match="together with a memory"):
        load_model(packed)


class Sure:
    """Gives one answer, with the configured confidence."""

    version = "sure"

    def __init__(self, confidence: float) -> None:
        self.confidence = confidence

    def run(self, shell_input: str, state: Any = None) -> Behavior:
        return Behavior(7, b"written\n", stdout=b"written\n", stderr=b"")

    def answer(self, shell_input: str, state: Any = None) -> Any:
        from shioenv.domain.runner import Answer

        return Answer(self.run(shell_input), self.confidence, "sure: written")


def test_the_surer_of_model_and_memory_is_taken(tmp_path: Path) -> None:
    memory = small_memory(tmp_path)
    assert Model(memory, written=Sure(1.0)).answer("cat sub/inner.txt").source == "sure: written"
    unsure = Model(memory, written=Sure(0.0)).answer("cat sub/inner.txt")
    assert unsure.source.startswith("memory")
    exact = Model(memory, written=Sure(1.0)).answer("cat a.txt")
    assert exact.source.startswith("memory: the same")
    piped = Model(memory, written=Sure(1.0)).answer("cat a.txt | head -n 1")
    assert piped.behavior.output == b"written\n"
    assert "beside sure" in Model(memory, written=Sure(1.0)).version


def test_a_target_is_the_same_once_it_was_tokens(examples: Examples) -> None:
    codec = examples.codec
    target = Target(127, ((OUTPUT, "ä <output> </s>\n".encode()), (ERRORS, b"bad")), "-a.txt\n")
    numbers = codec.encode_target(target)
    assert numbers is not None
    assert codec.decode_target(numbers) == target
    assert codec.decode_target(numbers[:-1]) is None
    assert codec.encode_target(replace(target, printed=((OUTPUT, b"\xff"),))) is None


def test_tokens_that_cannot_stand_next_are_refused(examples: Examples) -> None:
    codec = examples.codec
    names = DocumentNames(small_world().state().before.document)
    writing = Writing(codec, names)
    assert writing.after(codec.end) is None
    assert writing.after(codec.output) is None
    assert writing.after(codec.pad) is None
    for token in codec.encode("25"):
        after = writing.after(token)
        assert after is not None
        writing = after
    assert writing.after(codec.encode("6")[0]) is None  # no exit code has three digits so large
    patched = writing.after(codec.patch)
    assert patched is not None
    assert patched.after(codec.output) is None
    assert patched.after(codec.encode("q")[0]) is None
    assert patched.after(codec.end) is not None


def test_a_prompt_tells_what_the_operands_are() -> None:
    state = small_world().state()
    prompt = Prompter().prompt("wc -l b.txt gone link sub", state, NOW)
    assert prompt.splitlines() == [
        "$ wc -l b.txt gone link sub",
        f"@ {HOME} root 2025-10-16 19:43",
        "f b.txt -rw-r--r-- 1 root root 9 2025-10-16 19:43 l2 w4 c9",
        "|x", "|y", "/z one",
        "m gone",
        "l link lrwxrwxrwx 1 root root 5 2025-10-16 19:43 >a.txt l1 w2 c6",
        "|one", "/tw",
        "d sub drwxr-xr-x 1 root root 4096 2025-10-16 08:00 n1: inner.txt",
    ]  # fmt: skip
    piped = Prompter().prompt("sort -r", replace(state, stdin=b"b\na\n"), NOW)
    assert piped.splitlines()[2:5] == ["x l2 w2 c4", "|b", "|a"]


def test_neighbours_stand_in_a_prompt_but_not_the_input_itself(tmp_path: Path) -> None:
    memory = small_memory(tmp_path)
    prompter = Prompter(memory, 2)
    state = memory.world.state()
    assert "~ cat a.txt" in prompter.prompt("cat b.txt", state, NOW)
    with_itself = prompter.prompt("cat a.txt", state, NOW)
    without = prompter.prompt("cat a.txt", state, NOW, without_itself=True)
    assert "~ cat a.txt" in with_itself
    assert "~ cat a.txt" not in without


@given(
    st.lists(st.tuples(st.integers(1, 900), st.integers(1, 512)), max_size=300),
    st.integers(64, 4096),
)
def test_each_example_is_in_one_batch_of_few_shapes(
    lengths: list[tuple[int, int]], batch_tokens: int
) -> None:
    rows = np.zeros(len(lengths), dtype=ROW)
    rows["source"], rows["target"] = [*zip(*lengths, strict=True)] or ([], [])
    batches = Batches(_Lengths(rows), dev=False, batch_tokens=batch_tokens, seed=1).batches  # type: ignore[arg-type]
    assert sorted(n for batch in batches for n in batch.numbers) == list(range(len(lengths)))
    for numbers, (source, target) in batches:
        assert rows["source"][numbers].max() <= source
        assert rows["target"][numbers].max() <= target
        assert len(numbers) == 1 or len(numbers) * (source + target) <= batch_tokens
    widths = {batch.shape for batch in batches}
    shapes = {(len(batch.numbers), batch.shape) for batch in batches}
    assert len(widths) <= 10 * 6
    assert len(shapes) <= len(widths) + len({source for source, _ in widths})


@dataclass
class _Lengths:
    """Examples that provide only their lengths."""

    rows: Any

    def numbers(self, *, dev: bool) -> Any:
        return np.arange(len(self.rows))


def test_fused_passes_are_those_of_the_library_but_for_rounding(examples: Examples) -> None:
    """Both are equally far from the pass in float32, loss and gradients."""
    batch = Batches(examples, dev=False, batch_tokens=4096, seed=0)[0]
    plan = msgspec.structs.replace(PLAN, dropout=0.0)
    gradients: dict[str, list[Any]] = {}
    losses: dict[str, float] = {}
    for way in ("float32", "library", "fused"):
        torch.manual_seed(5)
        model = new_model(examples, plan).train()
        few = fused(model) if way == "fused" else nullcontext()
        with (
            torch.compiler.set_stance("force_eager"),
            few,
            torch.autocast("cpu", torch.bfloat16, enabled=way != "float32"),
        ):
            loss = model(**batch).loss
        loss.backward()
        losses[way] = loss.item()
        gradients[way] = [weight.grad for weight in model.parameters()]
    exact = gradients["float32"]
    size = sum(float(each.square().sum()) for each in exact)

    def gap(way: str) -> float:
        pairs = zip(gradients[way], exact, strict=True)
        return sum(float((one - other).square().sum()) for one, other in pairs) / size

    assert gap("fused") < 1.5 * gap("library")
    assert abs(losses["fused"] - losses["float32"]) < 0.01 * losses["float32"]
    assert model.config._attn_implementation == "sdpa"
    assert not [each for each in model.modules() if "forward" in vars(each)]
