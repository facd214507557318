# ruff: noqa: E402 - what is imported needs what may not be installed
"""A run that begins from a model of CodeT5's kind takes its tokens and weights."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from support.needs import needed_module

torch = needed_module("torch")
transformers = needed_module("transformers")

from shioenv.errors import ModelError
from shioenv_model.sequence.codec import Codec
from shioenv_model.sequence.compact import OUTPUT, PATCH, Target
from shioenv_model.sequence.seq2seq import Seq2seq
from shioenv_model.training.sequence import SIZES, TrainingPlan, train
from shioenv_model.training.token_examples import Examples, TrainingExample, write_examples
from support.small_world import small_world

MARKS = ["<pad>", "<s>", "</s>", "<unk>", "<mask>", *(f"<extra_id_{place}>" for place in range(3))]


@pytest.fixture
def checkpoint(tmp_path: Path) -> Path:
    """The files of CodeT5's repository: words and merges, no `tokenizer.json`."""
    from tokenizers import Tokenizer, models, pre_tokenizers, trainers

    torch.set_num_threads(1)
    learned = Tokenizer(models.BPE())
    learned.pre_tokenizer = pre_tokenizers.ByteLevel(add_prefix_space=False)
    trainer = trainers.BpeTrainer(
        vocab_size=300,
        special_tokens=MARKS,
        initial_alphabet=pre_tokenizers.ByteLevel.alphabet(),
        show_progress=False,
    )
    learned.train_from_iterator(["cat a.txt one two three cat b.txt"] * 3, trainer)
    model = json.loads(learned.to_str())["model"]
    directory = tmp_path / "codet5"
    directory.mkdir()
    (directory / "vocab.json").write_text(json.dumps(model["vocab"]))
    merges = [" ".join(each) for each in model["merges"]]
    (directory / "merges.txt").write_text("#version: 0.2\n" + "\n".join(merges) + "\n")
    said = {
        "tokenizer_class": "RobertaTokenizer", "add_prefix_space": False, "pad_token": "<pad>",
        "eos_token": "</s>", "bos_token": "<s>", "unk_token": "<unk>", "mask_token": "<mask>",
        "cls_token": "<s>", "sep_token": "</s>", "additional_special_tokens": MARKS[5:],
    }  # fmt: skip
    (directory / "tokenizer_config.json").write_text(json.dumps(said))
    config = transformers.T5Config(
        vocab_size=320, decoder_start_token_id=0, pad_token_id=0, eos_token_id=2, **SIZES["tiny"]
    )
    torch.manual_seed(5)
    transformers.T5ForConditionalGeneration(config).save_pretrained(directory)
    return directory


def test_its_tokens_give_back_what_they_were_given(checkpoint: Path) -> None:
    codec = Codec.read(checkpoint)
    target = Target(1, ((OUTPUT, "  ä\t<s>\n\n </s>".encode()),), "-a.txt\n")
    numbers = codec.encode_target(target)
    assert numbers is not None
    assert codec.decode_target(numbers) == target
    assert (codec.pad, codec.end) == (0, 2)
    assert PATCH not in codec.tokenizer.get_vocab()


def test_its_weights_are_where_a_run_begins(checkpoint: Path, tmp_path: Path) -> None:
    codec = Codec.read(checkpoint)
    numbers = codec.encode_target(Target(0, ((OUTPUT, b"one\n"),)))
    assert numbers is not None
    made = [
        TrainingExample(
            codec.encode(f"$ {text}\n"), numbers, dev=text == "echo 0", text=text, form=text
        )
        for text in (f"echo {each}" for each in range(4))
    ]
    shape = {"source_tokens": 64, "target_tokens": 12, "neighbours": 0}
    systems = {"small": {"digest": "0", "now": "2025-10-16 19:43"}}
    write_examples(tmp_path / "examples", codec, made, {"systems": systems, "shape": shape})
    (tmp_path / "examples" / "world.json").write_bytes(small_world().to_json())
    examples = Examples(tmp_path / "examples")
    plan = TrainingPlan(
        checkpoint=str(checkpoint), steps=1, every=1, learning_rate=1e-9, batch_tokens=512
    )
    assert train(tmp_path / "run", examples, plan).ended
    before = transformers.T5ForConditionalGeneration.from_pretrained(checkpoint).state_dict()
    model = Seq2seq(tmp_path / "run" / "model")
    after = model._model.state_dict()
    assert before.keys() == after.keys()
    assert all(torch.allclose(each, after[name], atol=0.02) for name, each in before.items())
    small = transformers.T5Config(vocab_size=100, **SIZES["tiny"])
    transformers.T5ForConditionalGeneration(small).save_pretrained(tmp_path / "small")
    with pytest.raises(ModelError, match="the vocabulary of"):
        train(tmp_path / "other", examples, TrainingPlan(checkpoint=str(tmp_path / "small")))


def test_what_is_no_checkpoint_says_so(tmp_path: Path) -> None:
    with pytest.raises(ModelError, match="no valid tokenizer"):
        Codec.read(tmp_path)
