"""Change our sampling and score into the paper's, one setting at a time, for long inputs.

The paper's mean score falls to .346 at 11 arguments; ours does not. Each step keeps the switches of
all earlier ones. `STEPS` was fixed before the first run.
"""

from __future__ import annotations

import json
import math
from collections import Counter
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import replace
from functools import partial
from itertools import groupby, islice
from pathlib import Path
from typing import Any

from msgspec.json import Decoder

from shioenv.behavior.compare import Channel, compared, levenshtein_similarity, similarity
from shioenv.dataset.questions import read_questions
from shioenv.domain.behavior import Behavior
from shioenv.domain.inputs import Argument, Input, Role, Token
from shioenv.domain.runner import Runner
from shioenv.errors import UsageError
from shioenv.files.durable import atomic_write
from shioenv.grammar.parse import InputParser
from shioenv.irreducibility.score import SegmentScore
from shioenv.irreducibility.scoring import THE_PAPERS, Scoring
from shioenv.seeding import generator
from shioenv.synthesis.drawing import Drawing
from shioenv.synthesis.policy import LengthPolicy, UniformPolicy
from shioenv.synthesis.sample import draw_samples, grammars_for, sample
from shioenv.synthesis.traces import Sample
from shioenv.system.catalogue import catalogue
from shioenv.text import fixed, rounded
from shioenv_eval.adapting.adapt import adapt_inputs
from shioenv_eval.report.markup import Table
from shioenv_eval.report.means import bootstrapped
from shioenv_paper.exact import SkippedInputError, scored, timely
from shioenv_paper.experiment_journal import InputJournal, Tried
from shioenv_paper.experiment_output import Findings, experiment
from shioenv_paper.length_groups import PAPER_LENGTH, PAPER_MEANS
from shioenv_paper.reference import rewritten
from shioenv_paper.setting import ExperimentSetting, answers

NAME = "steps"
COUNT = 300
"""Number of inputs of each step at full size."""

LENGTHS = (9, 10, 11)
"""Numbers of arguments of all inputs. Few inputs of the reference implementation have more."""

OURS = {"stop": 0.1, "once": True, "values": 0.5}
"""Policy settings of the first step: as `mixed` without its usage table, for long inputs."""

SAMPLING: Mapping[str, str] = {
    "ours": "GCS, each option at most once, half of the values generated from their kind",
    "repeated options": "options are drawn with repetition",
    "equal productions": "all productions of a nonterminal are equally likely",
    "packed operands": "consecutive operands are one argument",
    "reference commands": "commands as often as in the reference implementation's long inputs",
    "reference inputs, adapted": (
        "the reference implementation's productions, with names of our system"
    ),
    "reference inputs": "names that our system lacks stay, so more inputs fail",
}
"""Steps that change the inputs. The last three need inputs of the reference implementation."""

RULES: Mapping[str, str] = {
    "failures": "two failures with the same exit code are the same",
    "rewritten": "outputs are compared without case, blanks and digits",
    "Levenshtein": "similarity is 1 - Levenshtein distance / longer length, not the indel ratio",
    "smoothed": "numerator and denominator are increased by one",
}
"""Steps that change the score, from the executions of the last sampling step."""

STEPS = {**SAMPLING, **RULES}

EXAMINED = 40
"""Number of candidates drawn for each input that the step `reference commands` selects."""


class Stepped(Tried, frozen=True):
    """An input, executed and scored; no scores if it was skipped."""

    text: str
    scores: tuple[float, ...] | None
    """The score by our rules, then the scores with the `RULES` added one after the other."""
    fails: bool = False


@experiment(NAME)
def run_steps(
    setting: ExperimentSetting,
    *,
    count: int = COUNT,
    inputs: Path | None = None,
    scoring: Scoring = THE_PAPERS,
) -> Findings:
    """Execute and score `count` inputs of each step.

    `inputs` is a file with inputs of the paper's reference implementation. Errors: those of
    `experiment`, `read_questions`, `InputJournal` and the executor.
    """
    from shioenv_paper import experiment_charts

    made = {name: list(islice(found, count)) for name, found in _samples(setting, count, inputs)}
    found = {name: _scores(setting, name, samples, scoring) for name, samples in made.items()}
    last = list(found)[-1]
    scores = {name: [one.scores[0] for one in kept if one.scores] for name, kept in found.items()}
    by_rules = {
        name: [one.scores[-1] for one in kept if one.scores] for name, kept in found.items()
    }
    for place, rule in enumerate(RULES, 1):
        scores[rule] = [one.scores[place] for one in found[last] if one.scores]
    means = {name: bootstrapped(values) for name, values in scores.items() if values}
    stated = PAPER_MEANS["gcs"]
    rows, before = [], None
    for name, mean in means.items():
        fails = [one.fails for one in found.get(name, found[last]) if one.scores]
        interval = f"{fixed(mean.value)} ({fixed(mean.low)} to {fixed(mean.high)})"
        change = "" if before is None else f"{mean.value - before:+.3f}"
        failing = f"{sum(fails) / len(fails):.0%}"
        ruled = by_rules.get(name)
        all_rules = fixed(math.fsum(ruled) / len(ruled)) if ruled else ""
        rows.append((name, STEPS[name], str(mean.count), interval, change, failing, all_rules))
        before = mean.value
    assert before is not None
    table = Table(
        "Mean score of inputs with 9 to 11 arguments, one switch a step",
        "Each row has the mean R* with its 95% interval, the change from the row above, and the "
        "share of inputs that fail. Each step keeps the switches above it. *By all rules* is the "
        "mean score of the same inputs with the last four steps added. "
        f"The paper reports {stated} at {PAPER_LENGTH} arguments; the last step differs from that "
        f"by {before - stated:+.3f}.",
        ("step", "switch", "inputs", "R*", "change", "fail", "by all rules"),
        rows,
    )
    return Findings(
        title="From our sampling to the paper's",
        data={
            "scores": {
                "step": [name for name, several in found.items() for _ in several],
                "input": [one.text for several in found.values() for one in several],
                "scores": [one.scores for several in found.values() for one in several],
            }
        },
        tables=[table],
        chart=experiment_charts.draw_steps(means, stated),
        counts={name: len(several) for name, several in found.items()},
        parameters={"inputs of each step": count, "budget": scoring.budget},
        summary={
            **{name: rounded(mean.value) for name, mean in means.items()},
            "last step minus the paper's": rounded(before - stated),
        },
    )


def _samples(
    setting: ExperimentSetting, count: int, inputs: Path | None
) -> Iterator[tuple[str, Iterable[Sample]]]:
    """Yield the samples of each sampling step."""
    system = setting.system
    cwd = system.declaration.session.start_directories[0]
    drawing = Drawing(
        seed=setting.seed, policy="paper", composite_share=0.0, start_directories=(cwd,)
    )
    grammars = grammars_for(system, drawing)
    drawn = partial(draw_samples, drawing, catalogue=partial(catalogue, system))
    setting.data.mkdir(parents=True, exist_ok=True)
    atomic_write(settings := setting.data / "once.json", json.dumps(OURS).encode())
    once = sample(replace(drawing, policy=str(settings)), system=system, grammars=grammars)
    yield "ours", _of_lengths(once)
    yield "repeated options", drawn(grammars=grammars, policy=LengthPolicy(LENGTHS))
    equal = LengthPolicy(LENGTHS, UniformPolicy())
    yield "equal productions", drawn(grammars=grammars, policy=equal)
    longer = LengthPolicy(range(LENGTHS[0], 17), UniformPolicy())
    long = partial(draw_samples, replace(drawing, horizon=16), catalogue=partial(catalogue, system))
    yield "packed operands", _of_lengths(map(_packed, long(grammars=grammars, policy=longer)))
    if inputs is None:
        return
    parser = InputParser(grammars)

    def read(texts: Iterable[str]) -> list[Sample]:
        parsed = (parser.parse(text) for text in dict.fromkeys(texts))
        single = [Sample(one, cwd, False, ()) for one in parsed if len(one.segments) == 1]
        kept = [*_of_lengths(single)]
        generator(setting.seed, "steps").shuffle(kept)
        return kept

    questions = read_questions(inputs)
    theirs = read(question.input for question in questions)
    long_texts = {one.input.text for one in theirs}
    questions = [one for one in questions if parser.parse(one.input).text in long_texts]
    known = {word: one for one in grammars for word in one.command_tokens}
    wanted = Counter(name for one in theirs if (name := _command(one)) in known)
    if not wanted:
        raise UsageError(f"{inputs} has no inputs of {LENGTHS[0]} to {LENGTHS[-1]} arguments")
    chosen = tuple({known[name] for name in wanted})
    some = map(_packed, long(grammars=chosen, policy=longer, count=EXAMINED * count))
    yield "reference commands", _in_proportion(_of_lengths(some), wanted, count)
    adapted = adapt_inputs(questions, system, seed=setting.seed).questions
    yield "reference inputs, adapted", read(question.input for question in adapted)
    yield "reference inputs", theirs


def _of_lengths(samples: Iterable[Sample]) -> Iterator[Sample]:
    return (one for one in samples if one.input.n_arguments in LENGTHS)


def _command(sample: Sample) -> str:
    return sample.input.tokens[0].argument.text


def _packed(sample: Sample) -> Sample:
    """Join consecutive operands into one argument."""
    tokens: list[Token] = []
    runs = groupby(sample.input.tokens, lambda token: _is_operand(token))
    for operands, run in runs:
        if not operands:
            tokens += run
            continue
        text = " ".join(token.argument.text for token in run)
        tokens.append(Token(Argument(text), Role.ARGUMENT))
    return replace(sample, input=Input(tuple(tokens)))


def _is_operand(token: Token) -> bool:
    argument = token.argument
    return token.role is Role.ARGUMENT and not (
        argument.joins_left or argument.joins_right or argument.text.startswith("-")
    )


def _in_proportion(samples: Iterable[Sample], wanted: Counter[str], count: int) -> list[Sample]:
    """Choose samples whose commands have these proportions."""
    total = wanted.total()
    left = {name: math.ceil(count * n / total) for name, n in wanted.items()}
    chosen = []
    for one in samples:
        if left.get(_command(one), 0) > 0:
            left[_command(one)] -= 1
            chosen.append(one)
    return chosen


def _scores(
    setting: ExperimentSetting, name: str, samples: Sequence[Sample], scoring: Scoring
) -> list[Stepped]:
    """Execute and score the samples of a step. Results of earlier calls are reused."""
    plan: dict[str, Any] = {
        "format": "shioenv-steps",
        "seed": setting.seed,
        "system": setting.system.digest,
        "budget": scoring.budget,
        "estimator": scoring.estimator,
    }
    directory = setting.data / f"steps-{list(SAMPLING).index(name)}"
    with InputJournal(directory, plan, Decoder(Stepped).decode) as journal:
        texts = [one.input.text for one in samples]
        there = {number: one for number, one in journal.tried.items() if number < len(texts)}
        kept = {number for number, one in there.items() if one.text == texts[number]}
        tasks = [task for task in enumerate(samples) if task[0] not in kept]

        def report(done: int) -> None:
            setting.report(f"inputs of {name!r}", done, len(samples))

        job = setting.job(partial(stepped, seed=setting.seed, scoring=scoring))
        done = len(kept)
        for _, answer in answers(setting.executor, job, tasks, report, done=done):
            journal.add(answer)
        return [journal.tried[number] for number in range(len(samples))]


def stepped(runner: Runner, task: tuple[int, Sample], *, seed: int, scoring: Scoring) -> Stepped:
    """Execute and score an input by our rules and by `RULES`. Errors: those of the runner."""
    number, one = task
    run, seen = timely(runner, one), dict[str, Behavior]()

    def behave(text: str) -> Behavior:
        behavior = run(text)
        seen.setdefault(text, behavior)
        return behavior

    try:
        score = scored(one, behave, scoring, generator(seed, "score", number))
    except SkippedInputError:
        return Stepped(number, one.input.text, None)
    (segment,) = score.segments
    by_rule = tuple(_by_rules(segment, seen[one.input.text], seen))
    return Stepped(number, one.input.text, by_rule, seen[one.input.text].exit_code != 0)


def _by_rules(
    segment: SegmentScore, whole: Behavior, seen: Mapping[str, Behavior]
) -> Iterator[float]:
    """Yield the score by our rules, then the scores with the `RULES` added one after the other."""
    threshold = segment.noise_threshold
    assert threshold is not None
    weights, differing = [], [list[bool]() for _ in range(4)]
    for contrast in segment.contrasts:
        other, ours = seen[contrast.text], contrast.difference
        elsewhere = ours is not None and ours.channel is not Channel.OUTPUT
        alike = whole.exit_code != 0 and other.exit_code == whole.exit_code
        outputs = [rewritten(compared(one.output)) for one in (whole, other)]
        weights.append(contrast.weight)
        for found, differs in zip(
            differing,
            (
                ours is not None,
                ours is not None and not alike,
                not alike and (elsewhere or similarity(*outputs) <= threshold),
                not alike and (elsewhere or levenshtein_similarity(*outputs) <= threshold),
            ),
            strict=True,
        ):
            found.append(differs)
    total = math.fsum(weights)
    hits = [math.fsum(w for w, it in zip(weights, found, strict=True) if it) for found in differing]
    yield from (one / total for one in hits)
    yield (1 + hits[-1]) / (1 + total)
