"""A memory of executed inputs that answers new ones: nearest inputs, rewritten and ranked.

`ours` is the queried command, `theirs` that of a neighbour, a similar record. A memory only reads
files in a directory: it starts no process and needs no built system.
"""

from __future__ import annotations

import hashlib
import math
import os
import re
import stat
from collections import Counter
from collections.abc import Callable, Sequence
from contextlib import suppress
from dataclasses import dataclass, replace
from functools import cached_property, lru_cache
from pathlib import Path
from typing import TYPE_CHECKING

import numpy as np

from shioenv.domain.behavior import Behavior
from shioenv.domain.context import keys
from shioenv.domain.inputs import published_input
from shioenv.domain.patch import ContextPatch, Operation
from shioenv.domain.runner import Answer, State
from shioenv.errors import Abstained, PatchError
from shioenv.grammar.library import shipped_headers
from shioenv_model.bash.work import answering, spend, uncounted
from shioenv_model.composition.call import Call
from shioenv_model.composition.composed_inputs import uses_start_values
from shioenv_model.composition.opening import read_redirected_input, umask_of
from shioenv_model.memory.example_records import recorded_behavior
from shioenv_model.memory.facts import (
    directory_tree,
    here,
    listing,
    resolved_operands,
    valued_options,
)
from shioenv_model.memory.forms import Forms
from shioenv_model.memory.index import Index
from shioenv_model.memory.rank import (
    Candidate,
    CandidateGroup,
    Numbers,
    Ranker,
    address_host,
    command_difference,
    contradicts,
    features,
    load_ranker,
    untrained,
)
from shioenv_model.memory.rewrite import (
    CONTENTS,
    COUNTS,
    DETAILS,
    INDUCED,
    WORDS,
    Kept,
    Taken,
    fillings,
)
from shioenv_model.memory.sources import ALL, Sources
from shioenv_model.memory.translation import Translation
from shioenv_model.memory.world import World, read_world

if TYPE_CHECKING:
    from shioenv_model.memory.example_records import Induced, Record
    from shioenv_model.memory.explain import Inducer

LOOKED_AT = 60
"""Number of records parsed for one answer (our choice: the nearest was always among them)."""

ASKED = 25
"""Maximum number of records rewritten for one answer."""

EXACT, VOLATILE = 0.99, 0.7
"""Probability that an input behaves as in its record: any input, a volatile input. Our choice from
measurements on typed inputs: an answer counts as correct if it equals one of five runs."""

STAGE = 0.3
"""The factor applied to a confidence (our choice) for each of three conditions.

- The command reads a pipe, and its neighbour did not.
- The command lists a directory whose contents differ from those at recording time.
- The value of a word of the command is unknown.
"""

EXAMPLES = 24
"""Maximum number of records with the same options from which a function is induced."""

ENOUGH = 3
"""Number of examples that a function must explain to rank above a record (our choice)."""

_FIND = 5_000
"""Steps counted for every answer, in addition to those of its parts."""

_NAME = re.compile(r"[\w.][\w.+-]*")
_BY_CONTENT = (CONTENTS, COUNTS, INDUCED)
_MOVES = re.compile(r"\b(?:cd|pushd|popd)\b")


@dataclass(frozen=True)
class Finding:
    """A memory's answer for an input, with its evidence."""

    answer: Answer
    nearest: tuple[tuple[str, float], ...] = ()
    """Executed inputs, each with its distance, nearest first."""
    alternatives: tuple[tuple[Behavior, float], ...] = ()
    """Other answers, each with the ranker's probability."""


class Memory:
    """Answers single commands, and other inputs if exactly these were executed."""

    def __init__(
        self, directory: str | Path, ranker: Ranker | None = None, base: Memory | None = None
    ) -> None:
        """Open a directory with an index (`write_index`) and a world. Errors: ModelError.

        `ranker` replaces the ranker in the directory. `base` is a memory of another machine,
        with far more records. It answers, by translation, what no record has exactly.
        """
        directory = Path(directory)
        self.index = Index(directory)
        self.world = read_world(directory)
        self.base = base
        kept = directory / "ranker.npz"
        without: Ranker = base.ranker if base else untrained()
        self.ranker: Ranker = ranker or (load_ranker(kept) if os.path.lexists(kept) else without)
        self._forms = Forms()
        self.taken = lru_cache(maxsize=500)(self._taken)
        """Parse a record's command, by the record's number; None if it is not a single command."""
        self._translated = lru_cache(maxsize=8)(self._translate)

    @cached_property
    def digest(self) -> str:
        """A hash of the index's head, ranker and base: the first twelve digits of SHA-256."""
        directory = self.index.directory
        kept = [directory / name for name in ("index.json", "ranker.npz")]
        parts = [each.read_bytes() for each in kept if each.exists()]
        parts += [self.base.digest.encode()] if self.base else []
        return hashlib.sha256(b"".join(parts)).hexdigest()[:12]

    @cached_property
    def _umask(self) -> int:
        """The umask with which the records were executed."""
        return umask_of(self.world.state(self.world.start))

    def run(self, shell_input: str, state: State | None = None) -> Behavior:
        """Return only the behavior of the answer."""
        return self.answer(shell_input, state).behavior

    def answer(self, shell_input: str, state: State | None = None) -> Answer:
        """Answer an input from the behaviors of the nearest records.

        The confidence is the share of such answers that are correct. Errors: Abstained if no input
        of the same utility was executed.
        """
        return self.find(shell_input, state).answer

    def find(self, shell_input: str, state: State | None = None) -> Finding:
        """Return the answer of `answer`, with the records that support it."""
        with answering(shell_input):
            spend(_FIND)
            state = self.world.placed(state)
            exact = self.exact(shell_input, state)
            if exact is not None:
                return Finding(exact, ((shell_input.strip(), 0.0),))
            return self.near(Call.parse(shell_input), state)

    def near(self, call: Call, state: State, sources: Sources = ALL) -> Finding:
        """Answer a command from the nearest records. A record of the same input is not looked up.

        Only `sources` are used: records, functions or both. The state must have a machine
        (`World.placed`). Errors: those of `answer`.
        """
        with suppress(Abstained):
            if self.base is not None:
                return self.base.near(call, state, sources)
        spend(_FIND)
        ours = self.take(call, state)
        if ours is None:
            raise Abstained("no command is in it")
        candidates = self.candidates(ours, state, sources=sources)
        if not candidates:
            raise Abstained(f"nothing like {call.text!r:.60} was executed")
        order, scores = self.ranked(ours, candidates, state)
        fitting = [place for place in order if _fits(candidates[place].kept, state)]
        best = fitting[0] if fitting else order[0]
        chosen = candidates[best]
        behavior = recorded_behavior(chosen.kept, state, fits=bool(fitting))
        behavior = _masked(behavior, ours, state, self._umask)
        behavior = _with_digests(_with_quotes(behavior, ours), ours)
        sure = self.ranker.confidence(float(scores[best])) if fitting else 0.0
        if not len(self.ranker.scores):
            sure = 0.9 * math.exp(-chosen.distance)
        if _is_fed(ours) and chosen.how not in _BY_CONTENT:
            theirs = self.taken(chosen.number)
            sure *= 1.0 if theirs is not None and _is_fed(theirs) else STAGE
        if self._is_away(state) and chosen.how != INDUCED and self._is_moved(ours, state):
            told = {kept.key for _, kept in self._examples(ours, -1)[1]}
            told_less = len(told) == 1 and not self._is_stale(chosen.kept, ours, state)
            sure *= 1.0 if told_less else STAGE  # the answer depends on the directory's contents
        if ours.form.guessed:
            sure *= STAGE
        text = self.index.entry(chosen.number).text
        others = [
            (recorded_behavior(candidates[place].kept, state), float(scores[place]))
            for place in [place for place in fitting if place != best][:3]
        ]
        source = f"memory: {chosen.note}{text} ({chosen.distance:.2f} away)"
        return Finding(Answer(behavior, sure, source), self._nearest(candidates), tuple(others))

    def exact(self, shell_input: str, state: State | None = None) -> Answer | None:
        """Return the recorded behavior of the same input in the pristine state.

        Return None if there is no such record, or if the state is not pristine. Also return None
        for inputs that inspect the shell's initial state, which differs in older records.
        """
        if uses_start_values(shell_input):
            return None
        state = self.world.placed(state)
        if state.context is not None or state.stdin or not self._is_own(state):
            return None
        for entry in self.index.exact(state.cwd, shell_input.strip()):
            kept = self.index.behavior(entry.behavior)
            sure = VOLATILE if kept.volatile else EXACT
            behavior = _from_start(recorded_behavior(kept, state), entry.text, state.cwd)
            ours = self.take(Call.parse(entry.text), state) if behavior.patch else None
            behavior = _with_digests(behavior, ours) if ours else behavior
            return Answer(behavior, sure, "memory: the same input")
        return None

    def _is_own(self, state: State) -> bool:
        """Whether a pristine state is of the machine on which the records were made."""
        if isinstance(state.pristine, World):
            return self._translation(state) is None
        own = self.world.state(state.cwd).before.document
        theirs = state.before.document
        return all(own.get(name) == theirs.get(name) for name in ("fs", "hostname"))

    def _translation(self, state: State) -> Translation | None:
        """Return the translation from the memory's machine to that of the state; None if equal."""
        theirs = state.pristine
        if not isinstance(theirs, World) or theirs is self.world:
            return None
        return self._translated(theirs)

    def _translate(self, theirs: World) -> Translation | None:
        same = theirs.contents == self.world.contents
        if same and theirs.state().before == self.world.state(theirs.start).before:
            return None
        return Translation(self.world, theirs)

    def take(self, call: Call, state: State) -> Taken | None:
        """Parse a command in the state where it is to run; None if there is no command.

        The content of a file after `<` is the command's standard input.
        """
        return taken(call, state, self._forms)

    def candidates(
        self, ours: Taken, state: State, without: int = -1, *, sources: Sources = ALL
    ) -> list[Candidate]:
        """Return candidate answers from the nearest records, leaving out the record `without`.

        Functions are induced from records even if the records themselves give no answer.
        """
        spend(LOOKED_AT * (len(ours.form.options) + len(ours.operands)))
        made = self._rewritten(ours, state, without) if sources.records else []
        induced = self._inducer.induce(ours, without) if sources.functions else None
        return made if induced is None else [*made, self._candidate(induced, made)]

    def _rewritten(self, ours: Taken, state: State, without: int) -> list[Candidate]:
        """Rewrite the behaviors of the nearest records for the queried command."""
        before, cwd = state.before.document["fs"], state.before.document["cwd"]
        translation = self._translation(state)
        ranked: list[tuple[float, int, Taken, list[float]]] = []
        for number in self._near(ours, without):
            theirs = self.taken(number)
            if theirs is not None:
                pair = command_difference(ours, theirs)
                far = float(np.dot(self.ranker.weights, pair))
                where = self.index.entry(number).cwd
                far += 0.5 * ((translation.named(where) if translation else where) != cwd)
                ranked.append((far, number, theirs, pair))
        ranked.sort(key=lambda each: each[:2])
        ranked = ranked[:ASKED]
        groups: dict[tuple[int, str, str], CandidateGroup] = {}
        for place, (far, number, theirs, pair) in enumerate(ranked):
            entry = self.index.entry(number)
            kept, was = self.index.behavior(entry.behavior), self.world.state(entry.cwd).before
            for how, filled in fillings(
                ours, theirs, kept, before, was.document["fs"], translation
            ):
                group = groups.get(filled.key)
                if group is None:
                    added = len(filled.output) - len(kept.output)
                    left = _leftover(ours, theirs, filled)
                    group = CandidateGroup(filled, how, number, pair, far, place, added, left)
                    groups[filled.key] = group
                group.add(number, far, ranked[0][0], filled.key == kept.key)
        return [group.candidate for group in groups.values()]

    def _near(self, ours: Taken, without: int) -> list[int]:
        """Return the records to consider. For addresses, the same hosts come first."""
        hosts = {address_host(each.word) for each in ours.operands if each.kind in "UH"}
        numbers = self.index.near(ours, LOOKED_AT * (4 if hosts else 1), without)
        if hosts:
            texts = {number: self.index.entry(number).text for number in numbers}
            numbers.sort(key=lambda number: not any(each in texts[number] for each in hosts))
        return numbers[:LOOKED_AT]

    @cached_property
    def _inducer(self) -> Inducer:
        """The inducer, imported on first use (a sixth of the time of a model's imports)."""
        from shioenv_model.memory.explain import Inducer

        return Inducer(self._examples, self._with_option, self._matching)

    def _candidate(self, induced: Induced, made: Sequence[Candidate]) -> Candidate:
        """Return the candidate for a function's answer, with the records that agree."""
        theirs = self.taken(induced.number)
        pair = command_difference(induced.asked, theirs or induced.asked)
        far = float(np.dot(self.ranker.weights, pair))
        same = [each for each in made if each.kept.key == induced.kept.key]
        return Candidate(
            kept=induced.kept, how=INDUCED, number=induced.number, pair=pair, distance=far, place=0,
            near=sum(each.near for each in same), all=sum(each.all for each in same),
            votes=induced.agreed, unchanged=len(same), added=0, leftover=False,
            note=f"{induced.name}, found from {induced.agreed} examples like ",
        )  # fmt: skip

    def _examples(self, taken: Taken, without: int) -> tuple[list[int], list[tuple[Taken, Kept]]]:
        """Return the numbers, commands and behaviors of records with exactly these options."""
        names = Counter(name for name, _ in taken.form.options)
        found = self._enough(
            EXAMPLES,
            lambda asked: self.index.alike(taken, asked, without),
            lambda theirs: Counter(name for name, _ in theirs.form.options) == names,
        )
        return [number for number, _, _ in found], [(theirs, kept) for _, theirs, kept in found]

    def _with_option(self, utility: str, name: str, count: int, alone: bool) -> list[Record]:
        """See `WithOption`."""
        return self._enough(
            count,
            lambda asked: self.index.with_option(utility, name, asked, alone=alone),
            lambda theirs: not name or name in dict(theirs.form.options),
        )

    def _enough(
        self, count: int, numbers: Callable[[int], list[int]], fits: Callable[[Taken], bool]
    ) -> list[Record]:
        """Return at most `count` records that fit; those without output come last.

        The index may also return records that do not fit, since it cannot distinguish all options.
        More are read if too few fit or, unless all fit, if too few have output.
        """
        found: list[Record] = []
        for asked in (count, 4 * count, 16 * count):
            given = numbers(asked)
            found = [each for each in self._records(given) if fits(each[1])]
            told = [each for each in found if each[2].output]
            telling = len(found) == len(given) or 4 * len(told) >= count
            if len(given) < asked or (2 * len(found) >= count and telling):
                break
        if len(found) <= count:
            return found
        silent = [each for each in found if not each[2].output]
        return [*told[:: max(1, len(told) // count)], *silent][:count]

    def _matching(self, utility: str, part: str, pattern: str, count: int) -> list[Record]:
        """See `Matching`."""
        return self._records(self.index.holding(utility, part, pattern)[:count])

    def _records(self, numbers: Sequence[int]) -> list[Record]:
        """Return the records that are single commands, each with its number and behavior."""
        found: list[Record] = []
        for number in numbers:
            theirs = self.taken(number)
            if theirs is not None:
                kept = self.index.behavior(self.index.entry(number).behavior)
                found.append((number, theirs, kept))
        return found

    def ranked(
        self, ours: Taken, candidates: Sequence[Candidate], state: State
    ) -> tuple[list[int], Numbers]:
        """Return the candidates' indices, best first, and the probability of each candidate."""
        scores = self.ranker.probability(features(ours, candidates))
        order = self._order(candidates, scores)
        if not any(_has_our_options(each) for each in candidates):
            order.sort(key=lambda place: candidates[place].how != INDUCED)
        # records are valid on one pristine machine and for one input text, functions for any
        fed = _is_fed(ours)
        if fed or self._is_away(state):
            least = 1 if fed or self._is_moved(ours, state) else ENOUGH
            order.sort(key=lambda place: not _is_found(candidates[place], least))
        order.sort(key=lambda place: contradicts(candidates[place].kept, ours, state))
        return order, scores

    def _order(self, candidates: Sequence[Candidate], scores: Numbers) -> list[int]:
        """Return the candidates' indices, best first."""
        if len(self.ranker.scores):
            return sorted(range(len(candidates)), key=lambda place: -scores[place])
        ways = (INDUCED, CONTENTS, DETAILS, WORDS, COUNTS)
        ranks = [(-each.near, ways.index(each.how)) for each in candidates]
        return sorted(range(len(candidates)), key=lambda place: ranks[place])

    def _is_away(self, state: State) -> bool:
        """Whether the state differs from the pristine state in which the records were executed."""
        return state.context is not None or self._translation(state) is not None

    def _is_moved(self, ours: Taken, state: State) -> bool:
        """Whether a directory that a command lists contains other names than at recording time."""
        return any(names != old for names, old in self._listings(ours, state))

    def _is_stale(self, kept: Kept, ours: Taken, state: State) -> bool:
        """Whether an answer mentions a file that is missing now in a directory that is listed."""
        gone = {
            name.rstrip("/@|=*")
            for names, old in self._listings(ours, state)
            for name in set(old or ()) - set(names or ())
        }
        return any(match[0] in gone for match in _NAME.finditer(kept.output))

    def _listings(
        self, ours: Taken, state: State
    ) -> list[tuple[tuple[str, ...] | None, tuple[str, ...] | None]]:
        """Return the names in the directories that a command lists, now and at recording time."""
        named = [(each.path, each.names) for each in ours.operands if each.kind == "d"]
        if not ours.operands:
            named = [(state.before.document["cwd"], ours.here)]
        translation = self._translation(state)
        fresh = self.world.state(self.world.start if translation else state.cwd)
        return [
            (names, listing(translation.back(path) if translation else path, fresh))
            for path, names in named
        ]

    def _nearest(self, candidates: Sequence[Candidate]) -> tuple[tuple[str, float], ...]:
        near = {each.number: each.distance for each in candidates}
        ranked = sorted(near.items(), key=lambda pair: pair[1])[:5]
        return tuple((self.index.entry(number).text, far) for number, far in ranked)

    def _taken(self, number: int) -> Taken | None:
        entry = self.index.entry(number)
        with uncounted():
            return self.take(Call.parse(entry.text), self.world.state(entry.cwd))


def taken(call: Call, state: State, forms: Forms) -> Taken | None:
    """See `Memory.take`."""
    call, state = read_redirected_input(call, state) or (call, state)
    words = call.words if call.reads is None else (*call.words, "<", call.reads)
    form = forms.form(words, state)
    if form is None:
        return None
    apart = resolved_operands(form, state), here(form, state), valued_options(form, state)
    return Taken(form, *apart, tree=directory_tree(".", state), from_file=call.from_file)


def _has_our_options(candidate: Candidate) -> bool:
    return candidate.how != INDUCED and not any(candidate.pair[:2])


def _is_found(candidate: Candidate, least: int) -> bool:
    """Whether the answer is that of a function that explains at least `least` examples."""
    return candidate.how == INDUCED and candidate.votes >= least


def _is_fed(taken: Taken) -> bool:
    return any(each.kind == "x" for each in taken.operands)


def _leftover(ours: Taken, theirs: Taken, filled: Kept) -> bool:
    """Whether the answer still mentions an operand that only the neighbour had."""
    own = {each.word for each in ours.operands}
    return any(
        len(each.word) > 2 and each.word not in own and each.word in filled.output
        for each in theirs.operands
    )


def _fits(kept: Kept, state: State) -> bool:
    if kept.patch == "[]":
        return True
    try:
        ContextPatch.from_json(kept.patch).apply(state.before.document)
    except PatchError:
        return False
    return True


def _masked(behavior: Behavior, ours: Taken, state: State, old: int) -> Behavior:
    """Return the behavior with new files' permissions adapted to the state's umask.

    `old` is the umask of the records. Permissions that the old umask removed from a new file are
    added if the state's umask allows them, unless the file is a copy.
    """
    mask = umask_of(state)
    if mask == old or any(name in ("-m", "--mode") for name, _ in ours.form.options):
        return behavior
    copied = any(each.content is not None for each in ours.operands)
    kinds = {"-": (stat.S_IFREG, 0o666), "d": (stat.S_IFDIR, 0o777)}
    operations: list[Operation] = []
    for operation in behavior.patch.operations:
        made = operation[2] if operation[0] == "a" and operation[1].startswith("/fs/") else None
        if isinstance(made, dict) and (kind := kinds.get(str(made.get("perms"))[:1])):
            form, most = kind
            if made["perms"] == stat.filemode(form | most & ~old):
                left = most & ~(mask | old if copied else mask)
                operation = ("a", operation[1], made | {"perms": stat.filemode(form | left)})
        operations.append(operation)
    return replace(behavior, patch=ContextPatch(tuple(operations)))


def _with_quotes(behavior: Behavior, ours: Taken) -> Behavior:
    """Return the behavior with names in error messages quoted, if the program quotes them.

    Programs of coreutils that open files quote a name with special characters.
    """
    header = shipped_headers().get(ours.form.utility)
    quotes = header is not None and header.package == "coreutils" and header.traits.opens
    if not behavior.exit_code or not quotes:
        return behavior
    for each in ours.operands:
        if re.search(r"[\s\"*?;&|<>()$`\\!#]", each.word):
            old, new = (os.fsencode(f": {word}: ") for word in (each.word, f"'{each.word}'"))
            behavior = replace(
                behavior,
                output=behavior.output.replace(old, new),
                stderr=behavior.stderr and behavior.stderr.replace(old, new),
            )
    return behavior


def _with_digests(behavior: Behavior, ours: Taken) -> Behavior:
    """Return the behavior with digests of the created files whose contents are known.

    A new file is either empty or assumed to copy a named file of the same size.
    """
    known = {len(each.content): each.content for each in ours.operands if each.content is not None}
    digests: dict[str, str] = {}
    for operation in behavior.patch.operations:
        area, *names = keys(operation[1]) or [""]
        made = operation[2] if operation[0] == "a" else None
        if area == "fs" and len(names) == 1 and isinstance(made, dict):
            content = b"" if made.get("size") == 0 else known.get(made.get("size", -1))
            if content is not None and str(made.get("perms", "")).startswith("-"):
                digests[names[0]] = hashlib.sha256(content).hexdigest()
    return replace(behavior, content_digests=digests) if digests else behavior


def _from_start(behavior: Behavior, text: str, cwd: str) -> Behavior:
    """Adapt a record's behavior to a shell that starts in its directory (D-27).

    In older records, a `cd` was executed before the input. It appears in the shell's command line,
    and as `OLDPWD` if the environment is listed. But an input that changes the directory itself
    sets `OLDPWD` in any case.
    """
    old = os.fsencode(published_input(cwd, text))
    place = re.escape(os.fsencode(cwd))
    listed = re.compile(rb"^(declare -x |export |)OLDPWD=(['\"]?)" + place + rb"\2\n", re.MULTILINE)

    def corrected(output: bytes) -> bytes:
        output = output.replace(old, os.fsencode(text))
        if b"OLDPWD=" not in output or _MOVES.search(text):
            return output
        return listed.sub(lambda found: found[1] and found[1] + b"OLDPWD\n", output)

    return replace(
        behavior,
        output=corrected(behavior.output),
        stdout=behavior.stdout and corrected(behavior.stdout),
        stderr=behavior.stderr and corrected(behavior.stderr),
    )
