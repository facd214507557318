"""Training of a sequence model in pieces: each continues from the last step of the one before.

A run is a directory. It has the plan, the best model so far, a curve, and checkpoints. A checkpoint
has weights, optimizer, random state and the position in the data.

The optimizer is Adam with steps relative to the scale of each parameter, as in T5's Adafactor. This
is needed because weights of T5 differ in scale by a factor of two hundred. On a GPU Adam needs a
few operations, Adafactor thousands.
"""

from __future__ import annotations

import csv
import json
import math
import time
from collections.abc import Callable, Mapping
from contextlib import nullcontext
from dataclasses import dataclass, field
from pathlib import Path
from types import MappingProxyType
from typing import Any, NamedTuple

import msgspec
import numpy as np
import numpy.typing as npt
import torch
import transformers
from transformers import (
    EarlyStoppingCallback,
    GenerationConfig,
    Seq2SeqTrainer,
    Seq2SeqTrainingArguments,
    T5Config,
    T5ForConditionalGeneration,
    TrainerCallback,
)
from transformers.trainer_utils import get_last_checkpoint

from shioenv.errors import ModelError
from shioenv.files.durable import storage_errors
from shioenv.guests import package_version
from shioenv_model.files import write_card
from shioenv_model.training.passes import ReplayedPasses, fused
from shioenv_model.training.token_examples import SEEN, Examples

SIZES: Mapping[str, dict[str, int]] = MappingProxyType(
    {
        "tiny": {"d_model": 64, "d_kv": 16, "d_ff": 128, "num_layers": 2, "num_heads": 4},
        "mini": {
            "d_model": 256,
            "d_kv": 64,
            "d_ff": 1024,
            "num_heads": 4,
            "num_layers": 4,
            "num_decoder_layers": 2,
        },
        "small": {
            "d_model": 448,
            "d_kv": 64,
            "d_ff": 1536,
            "num_heads": 7,
            "num_layers": 4,
            "num_decoder_layers": 2,
        },
        "base": {
            "d_model": 576,
            "d_kv": 64,
            "d_ff": 2048,
            "num_heads": 9,
            "num_layers": 5,
            "num_decoder_layers": 3,
        },
    }
)
"""Sizes of models trained from scratch: 0.7, 7, 18 and 38 million parameters with 8,192 tokens.

The decoders have few layers, since they run once for each generated token.
"""

PLAN, CURVE = "plan.json", "curve.csv"
_CHECKPOINTS, _MODEL = "checkpoints", "model"
_SPENT = "seconds"
_WARM_UP = 0.05
_SOURCES = np.array(sorted(base << power for base in (48, 64) for power in range(11)))
_TARGETS = np.array([16 << power for power in range(13)])
"""Padded lengths: 48, 64, 96, 128 and so on for prompts; 16, 32, 64 and so on for targets.

With few lengths there are few shapes of batches. GPUs multiply matrices fast if the sides are
multiples of 8.
"""
_JUDGED = 2048
"""Maximum number of dev examples of each evaluation, drawn by the seed."""
_LEAST_SCALE = 1e-3
_CALIBRATED = 256
"""Maximum number of dev examples used to calibrate the model's confidence."""
LIMITS = (
    "The model generates likely answers. Nothing is executed: do not rely on it to decide whether "
    "a command is safe, and do not use its answers as ground truth for training or evaluation."
)
"""The model's limits, as stated on every card."""

Report = Callable[[str, int, int], None]


class TrainingPlan(msgspec.Struct, frozen=True, kw_only=True):
    """The parameters of a run apart from its examples; fixed once the run has begun."""

    size: str = "small"
    """One of `SIZES`; ignored with a `checkpoint`."""
    checkpoint: str = ""
    """Directory of the initial model: T5, CodeT5, or one that was trained here. Empty: random
    initialization."""
    steps: int = 20_000
    """Maximum number of steps of the run."""
    minutes: float = 0.0
    """Duration of the whole run in minutes, which also scales the learning rate schedule.

    0: the schedule depends on the steps, and the run ends by `steps` or `patience` only. With a
    duration, the resulting weights depend on the speed of the machine.
    """
    batch_tokens: int = 32_768
    """Maximum number of padded tokens of a step. A single example may have more."""
    learning_rate: float = 0.02
    """The peak learning rate, relative to the root mean square of each parameter."""
    dropout: float = 0.1
    """Dropout rate in training, 0 to 1; ignored with a `checkpoint`."""
    every: int = 500
    """Steps between evaluations on the dev examples, and between checkpoints."""
    patience: int = 8
    """Number of consecutive evaluations without a better loss after which the run ends."""
    seed: int = 0


@dataclass(frozen=True)
class TrainedPiece:
    """The result of a piece of a run."""

    step: int
    """Finished steps of the run, including those of earlier pieces."""
    steps: int
    """Steps of the plan."""
    ended: bool
    """Whether the run is over: all steps are done, or the loss stopped improving."""
    best_loss: float | None
    """The lowest loss on the dev examples; None before the first evaluation."""
    curve: list[dict[str, float]] = field(default_factory=list)


class Batches(torch.utils.data.Dataset):  # type: ignore[misc]
    """Batches of examples of similar length, made once. The trainer draws their order.

    Nearly all batches have one of few shapes, so that their passes can be recorded. If examples of
    a shape do not fill a batch, they are padded to the next longer target. The last ones make a
    smaller batch.
    """

    def __init__(self, examples: Examples, *, dev: bool, batch_tokens: int, seed: int) -> None:
        self._examples = examples
        numbers = np.random.default_rng(seed).permutation(examples.numbers(dev=dev))
        if dev:
            numbers = numbers[:_JUDGED]
        rows = examples.rows[numbers]
        sources, targets = _next(_SOURCES, rows["source"]), _next(_TARGETS, rows["target"])
        self.batches: list[Batch] = []
        for source in np.unique(sources):
            left = numbers[:0]
            for target in np.unique(targets[sources == source]):
                left = np.append(left, numbers[(sources == source) & (targets == target)])
                shape = int(source), int(target)
                most = max(1, batch_tokens // sum(shape))
                while len(left) >= most:
                    self.batches.append(Batch(left[:most], shape))
                    left = left[most:]
            if len(left):
                self.batches.append(Batch(left, shape))

    def __len__(self) -> int:
        return len(self.batches)

    def __getitem__(self, place: int) -> dict[str, torch.Tensor]:
        return padded(self._examples, self.batches[place])


class Batch(NamedTuple):
    """Examples of one pass."""

    numbers: npt.NDArray[np.int64]
    shape: tuple[int, int]
    """Padded number of tokens of each prompt and of each target."""


def _next(widths: npt.NDArray[np.int64], lengths: npt.NDArray[np.uint16]) -> npt.NDArray[np.int64]:
    found: npt.NDArray[np.int64] = widths[np.searchsorted(widths, lengths)]
    return found


def batch_of(examples: Examples, numbers: npt.NDArray[np.int64]) -> Batch:
    """Make one batch of examples, as wide as the longest prompt and the longest target."""
    rows = examples.rows[numbers]
    return Batch(numbers, (int(rows["source"].max()), int(rows["target"].max())))


def padded(examples: Examples, batch: Batch) -> dict[str, torch.Tensor]:
    """Return the model's input tensors: one row for each example, padded to the batch's shape."""
    source, target = batch.shape
    ids = np.full((len(batch.numbers), source), examples.codec.pad, dtype=np.int64)
    labels = np.full((len(batch.numbers), target), -100, dtype=np.int64)
    mask = np.zeros_like(ids)
    for place, number in enumerate(batch.numbers.tolist()):
        prompt, said = examples.source(number), examples.target(number)
        ids[place, : len(prompt)] = prompt
        mask[place, : len(prompt)] = 1
        labels[place, : len(said)] = said
    return {
        "input_ids": torch.from_numpy(ids),
        "attention_mask": torch.from_numpy(mask),
        "labels": torch.from_numpy(labels),
    }


class Clock:
    """The progress of a run: by its steps, or by its minutes if it has a duration."""

    def __init__(self, plan: TrainingPlan, begun: float, spent: float) -> None:
        """`begun`: start of this piece (`time.monotonic`); `spent`: seconds of the earlier ones."""
        self._plan, self._begun, self._before = plan, begun, spent

    @property
    def seconds(self) -> float:
        """Seconds of the run, including those of earlier pieces."""
        return self._before + time.monotonic() - self._begun

    def done(self, step: int) -> float:
        """Return the finished share of the run after `step` steps: at least 1.0 at its end."""
        by_steps = step / self._plan.steps
        if not self._plan.minutes:
            return by_steps
        return max(by_steps, self.seconds / (60 * self._plan.minutes))

    def rate(self, step: int) -> float:
        """Return the learning rate's share of its peak: linear warm-up, then cosine decay to 0."""
        done = min(self.done(step), 1.0)
        if done < _WARM_UP:
            return max(done, 1 / self._plan.steps) / _WARM_UP
        return 0.5 * (1 + math.cos(math.pi * (done - _WARM_UP) / (1 - _WARM_UP)))


def optimizer_of(model: Any, rate: float) -> torch.optim.Optimizer:
    """Create an Adam optimizer with steps relative to the scale of each parameter.

    The scale is the root mean square before the first step, rounded to one digit.
    """
    alike: dict[float, list[Any]] = {}
    for weight in model.parameters():
        scale = max(_LEAST_SCALE, float(weight.detach().square().mean().sqrt()))
        alike.setdefault(float(f"{scale:.1g}"), []).append(weight)
    groups = [{"params": some, "lr": rate * scale} for scale, some in alike.items()]
    return torch.optim.AdamW(groups, lr=rate, betas=(0.9, 0.98), weight_decay=0.0, fused=True)


class _Trainer(Seq2SeqTrainer):  # type: ignore[misc]
    """The library's trainer, with passes that are recorded and replayed on a GPU."""

    passes: ReplayedPasses | None = None

    def training_step(self, model: Any, inputs: Any, num_items_in_batch: Any = None) -> Any:
        if self.args.device.type != "cuda":
            return super().training_step(model, inputs, num_items_in_batch)
        model.train()
        if self.passes is None:
            few = fused if self.args.bf16 and not model.config.dropout_rate else nullcontext

            def loss_of(batch: Mapping[str, torch.Tensor]) -> Any:
                with few(model), self.compute_loss_context_manager():
                    return self.compute_loss(model, dict(batch))

            self.passes = ReplayedPasses(loss_of, list(model.parameters()))
        return self.passes(self._prepare_inputs(inputs))


class _Piece(TrainerCallback):  # type: ignore[misc]
    """Ends a piece with a checkpoint when its time is up, and updates the curve.

    Each checkpoint stores the duration of the run so far.
    """

    def __init__(self, directory: Path, clock: Clock, ends: float, report: Report) -> None:
        self._directory, self._clock, self._ends, self._report = directory, clock, ends, report

    def on_step_end(self, args: Any, state: Any, control: Any, **_: Any) -> None:
        self._report("steps", state.global_step, state.max_steps)
        if self._clock.done(state.global_step) >= 1:
            control.should_evaluate = control.should_save = control.should_training_stop = True
        elif time.monotonic() >= self._ends:
            control.should_save = control.should_training_stop = True

    def on_save(self, args: Any, state: Any, control: Any, **_: Any) -> None:
        checkpoint = Path(args.output_dir) / f"checkpoint-{state.global_step}"
        (checkpoint / _SPENT).write_text(f"{self._clock.seconds:.1f}\n", encoding="ascii")

    def on_log(self, args: Any, state: Any, control: Any, **_: Any) -> None:
        _write_curve(self._directory, curve_of(state.log_history))


def train(
    directory: Path,
    examples: Examples,
    plan: TrainingPlan,
    *,
    device: str = "cpu",
    minutes: float = 9.0,
    report: Report = lambda what, done, of: None,
) -> TrainedPiece:
    """Train for `minutes`, or to the end of the run, then write the best model so far.

    The model is written to `model` in the run's directory. Another call with the same plan and
    examples resumes the run. On the same device, pieces give the same weights as one run.

    At least one step is done, unless the run is over: then nothing is trained or written. A
    checkpoint and the answers for calibration take additional time.

    Errors: ModelError if the plan or the examples differ from those of the run, and for a missing
    device. ModelError for a faulty checkpoint, an unknown size, and examples without dev examples.
    DatasetStorageError if the directory is not writable.
    """
    begun = time.monotonic()
    if device == "cuda" and not torch.cuda.is_available():
        raise ModelError("this host has no CUDA device", hint="--device cpu")
    with storage_errors(directory):
        directory.mkdir(parents=True, exist_ok=True)
        _agree(directory, plan, examples)
    if device == "cuda":
        torch.cuda.set_stream(torch.cuda.Stream())  # the default one cannot be recorded
    transformers.logging.set_verbosity_error()
    transformers.logging.disable_progress_bar()
    transformers.set_seed(plan.seed)
    checkpoints = directory / _CHECKPOINTS
    last = get_last_checkpoint(str(checkpoints)) if checkpoints.is_dir() else None
    clock = Clock(plan, begun, _spent(last))
    model = new_model(examples, plan)
    optimizer = optimizer_of(model.to(device), plan.learning_rate)
    batches = {
        dev: Batches(examples, dev=dev, batch_tokens=plan.batch_tokens, seed=plan.seed)
        for dev in (False, True)
    }
    if not len(batches[True]):
        raise ModelError("too few examples for a held-out set", hint="use more material")
    trainer = _Trainer(
        model=model,
        args=_arguments(checkpoints, plan, device),
        train_dataset=batches[False],
        eval_dataset=batches[True],
        data_collator=lambda one: one[0],
        optimizers=(optimizer, torch.optim.lr_scheduler.LambdaLR(optimizer, clock.rate)),
        callbacks=[
            EarlyStoppingCallback(plan.patience),
            _Piece(directory, clock, begun + 60 * minutes, report),
        ],
    )
    trainer.remove_callback(transformers.PrinterCallback)
    state = _state(last)
    if not (state and _is_over(state, plan, clock)):
        trainer.train(resume_from_checkpoint=last)
        state = trainer.state
        curve = curve_of(state.log_history)
        _write_curve(directory, curve)
        _export(directory / _MODEL, trainer, examples, plan, device)
    assert state is not None
    best = state.best_metric
    return TrainedPiece(
        state.global_step,
        plan.steps,
        _is_over(state, plan, clock),
        None if best is None else float(best),
        curve_of(state.log_history),
    )


def _arguments(checkpoints: Path, plan: TrainingPlan, device: str) -> Seq2SeqTrainingArguments:
    return Seq2SeqTrainingArguments(
        output_dir=str(checkpoints),
        max_steps=plan.steps,
        per_device_train_batch_size=1,
        per_device_eval_batch_size=1,
        max_grad_norm=1.0,
        bf16=_multiplies_bf16(device),
        dataloader_num_workers=1 if device == "cuda" else 0,
        dataloader_persistent_workers=device == "cuda",
        logging_nan_inf_filter=False,  # the filter would synchronize with the device at every step
        use_cpu=device == "cpu",
        seed=plan.seed,
        data_seed=plan.seed,
        logging_steps=max(1, plan.every // 10),
        eval_strategy="steps",
        eval_steps=plan.every,
        save_strategy="steps",
        save_steps=plan.every,
        save_total_limit=2,
        load_best_model_at_end=True,
        metric_for_best_model="eval_loss",
        greater_is_better=False,
        restore_callback_states_from_checkpoint=True,
        prediction_loss_only=True,
        remove_unused_columns=False,
        report_to=[],
        disable_tqdm=True,
    )


def _multiplies_bf16(device: str) -> bool:
    """Whether the device multiplies bf16 in hardware: a GPU, or a processor with AMX."""
    if device == "cuda":
        return bool(torch.cuda.is_bf16_supported())
    return bool(torch.cpu._is_amx_tile_supported())


def _agree(directory: Path, plan: TrainingPlan, examples: Examples) -> None:
    """Write the plan and the facts about the examples at the start of a run.

    Errors: ModelError if the run began with another plan or other examples.
    """
    said = {"plan": msgspec.to_builtins(plan), "examples": examples.facts}
    file = directory / PLAN
    if not file.exists():
        file.write_text(json.dumps(said, ensure_ascii=False, indent=1) + "\n", encoding="utf-8")
        return
    known = json.loads(file.read_bytes())
    if known["plan"] != said["plan"] or known["examples"] != said["examples"]:
        raise ModelError(
            f"the run in {directory} has other settings or examples",
            hint="use its settings and examples, or another directory",
        )


def new_model(examples: Examples, plan: TrainingPlan) -> Any:
    """Create the initial model of a run: from scratch, or from the plan's checkpoint.

    Errors: ModelError for an unknown size or a missing checkpoint.
    """
    codec = examples.codec
    if plan.checkpoint:
        try:
            model = T5ForConditionalGeneration.from_pretrained(plan.checkpoint, dtype=torch.float32)
        except (OSError, ValueError) as error:
            raise ModelError(f"{plan.checkpoint} is not a T5 checkpoint: {error}") from None
        if model.config.vocab_size < codec.size:
            raise ModelError(
                f"the vocabulary of {plan.checkpoint} is smaller than that of the examples"
            )
    elif plan.size in SIZES:
        settings: dict[str, Any] = dict(SIZES[plan.size])
        config = T5Config(
            vocab_size=codec.size,
            pad_token_id=codec.pad,
            eos_token_id=codec.end,
            decoder_start_token_id=codec.pad,
            dropout_rate=plan.dropout,
            **settings,
        )
        model = T5ForConditionalGeneration(config)
    else:
        raise ModelError(f"unknown size {plan.size!r}", hint=", ".join(SIZES))
    model.generation_config = GenerationConfig(
        pad_token_id=codec.pad, eos_token_id=codec.end, decoder_start_token_id=codec.pad
    )
    return model


def _state(checkpoint: str | None) -> Any:
    if checkpoint is None:
        return None
    from transformers.trainer_callback import TrainerState

    return TrainerState.load_from_json(str(Path(checkpoint) / "trainer_state.json"))


def _spent(checkpoint: str | None) -> float:
    """Return for how many seconds a run had lasted at a checkpoint."""
    if checkpoint is None:
        return 0.0
    return float((Path(checkpoint) / _SPENT).read_text(encoding="ascii"))


def _is_over(state: Any, plan: TrainingPlan, clock: Clock) -> bool:
    if clock.done(state.global_step) >= 1:
        return True
    waited = state.stateful_callbacks.get("EarlyStoppingCallback", {})
    counted = waited.get("attributes", {}).get("early_stopping_patience_counter", 0)
    return bool(counted >= plan.patience)


def curve_of(log: list[dict[str, float]]) -> list[dict[str, float]]:
    """Return the rows of the curve, each with the measurements of one step.

    `loss` is that of the training examples, `dev_loss` that of the dev examples. `rate` is the
    learning rate.
    """
    found: dict[int, dict[str, float]] = {}
    for entry in log:
        row = found.setdefault(int(entry["step"]), {"step": int(entry["step"])})
        for ours, theirs in (
            ("loss", "loss"),
            ("dev_loss", "eval_loss"),
            ("rate", "learning_rate"),
        ):
            if theirs in entry:
                row[ours] = round(float(entry[theirs]), 6)
    return [found[step] for step in sorted(found) if len(found[step]) > 1]


def _write_curve(directory: Path, curve: list[dict[str, float]]) -> None:
    with (directory / CURVE).open("w", newline="", encoding="utf-8") as file:
        writer = csv.DictWriter(file, ("step", "loss", "dev_loss", "rate"))
        writer.writeheader()
        writer.writerows(curve)


def _export(
    directory: Path, trainer: Any, examples: Examples, plan: TrainingPlan, device: str
) -> None:
    """Write the files of a model for inference.

    These are the weights in bf16, the vocabulary, the world if there is one, the hashes of the
    inputs, and the card. The card has the accuracy on dev examples.
    """
    model = trainer.model.eval()
    directory.mkdir(exist_ok=True)
    figures = _calibration(model, examples, plan, device)
    examples.codec.save(directory)
    model.to(torch.bfloat16).save_pretrained(directory)
    world = examples.directory / "world.json"
    if world.exists():
        (directory / "world.json").write_bytes(world.read_bytes())
    (directory / SEEN).write_bytes((examples.directory / SEEN).read_bytes())
    card = {
        "name": directory.parent.name,
        "kind": "seq2seq",
        "systems": examples.facts.get("systems", {}),
        "material": examples.facts.get("material", []),
        "records": len(examples.numbers(dev=False)),
        "shape": examples.facts.get("shape", {}),
        "plan": msgspec.to_builtins(plan),
        "version": package_version(),
        "steps": trainer.state.global_step,
        "parameters": sum(each.numel() for each in model.parameters()),
        "learned": figures,
        "license": "Apache-2.0",
        "limits": LIMITS,
    }
    write_card(directory, card)


def _calibration(model: Any, examples: Examples, plan: TrainingPlan, device: str) -> dict[str, Any]:
    """Measure accuracy by probability on dev examples.

    `scores` and `shares` are the points of a piecewise linear function, as in a memory's `Ranker`.
    """
    from sklearn.isotonic import IsotonicRegression

    numbers = examples.numbers(dev=True)
    rng = np.random.default_rng(plan.seed)
    chosen = np.sort(rng.permutation(numbers)[:_CALIBRATED])
    rights: list[bool] = []
    scores: list[float] = []
    by_length = chosen[np.argsort(examples.rows["target"][chosen], kind="stable")]
    for part in np.array_split(by_length, max(1, len(by_length) // 32)):
        batch = padded(examples, batch_of(examples, part))
        longest = int((batch["labels"] != -100).sum(dim=1).max())
        with torch.no_grad():
            made = model.generate(
                input_ids=batch["input_ids"].to(device),
                attention_mask=batch["attention_mask"].to(device),
                max_new_tokens=longest + 1,
                do_sample=False,
                num_beams=1,
                return_dict_in_generate=True,
                output_logits=True,
            )
        sure = torch.stack(made.logits, dim=1).float().log_softmax(-1)
        written = made.sequences[:, 1:]
        chosen_ones = sure.gather(2, written[:, :, None])[:, :, 0]
        for row, number in enumerate(part):
            said = written[row].tolist()
            end = said.index(examples.codec.end) + 1 if examples.codec.end in said else len(said)
            rights.append(said[:end] == examples.target(int(number)).tolist())
            scores.append(float(chosen_ones[row, :end].sum().exp()))
    shares = IsotonicRegression(y_min=0.0, y_max=1.0, out_of_bounds="clip").fit(scores, rights)
    knots = np.unique(np.quantile(scores, np.linspace(0, 1, 21)))
    return {
        "held_back": len(rights),
        "right": round(float(np.mean(rights)), 4),
        "scores": [round(float(each), 6) for each in knots],
        "shares": [round(float(each), 4) for each in shares.predict(knots)],
    }
