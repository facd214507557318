"""Training material made by recipe: datasets, each with a seed, a policy and a count."""

from __future__ import annotations

import hashlib
import json
import math
import random
import re
import stat
import string
import tempfile
from collections.abc import Callable, Sequence
from contextlib import suppress
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import Any

import msgspec

from shioenv.dataset.external import CommandList, import_commands
from shioenv.dataset.generate import Destination, Progress, generate
from shioenv.dataset.manifest import MANIFEST, finished_manifest, read_manifest
from shioenv.dataset.record_reader import read_contexts, read_records
from shioenv.dataset.select import Selection, select
from shioenv.domain.inputs import Role
from shioenv.errors import ModelError, UnknownDatasetError, did_you_mean
from shioenv.execution.job import Executor
from shioenv.files.documents import fault, parse_toml
from shioenv.files.durable import atomic_write, storage_errors
from shioenv.files.regular import LARGEST_LIST, lines_of, read_regular
from shioenv.grammar.library import load_grammars
from shioenv.irreducibility.scoring import THE_PAPERS, UNSCORED
from shioenv.synthesis.drawing import Drawing
from shioenv.synthesis.sample import sample
from shioenv.synthesis.samplers import HORIZON
from shioenv.system.store import System, find_system
from shioenv_model.memory.world import World, world_of
from shioenv_model.training.material_samplers import (
    CROSSED,
    PIPED,
    behind_pipes,
    crossed,
    stage_inputs,
)

RECIPES = Path(__file__).parent / "recipes"
"""The directory of the recipes shipped with the package."""

SCHEMA = 1

MADE_BY = "recipe.toml"
"""The file with the recipe in a material's directory."""

PROBES = "probes"
"""The sampler of inputs that run a command alone, with `--help`, and with each possible option.

The options are all letters and digits, each without an operand and with a file of the home tree.
"""

FILTERS = "filters"
"""The sampler of commands that people write after a `|`, but with a file after `<` as standard
input."""

_PLAIN = re.compile(r"[\w./-]+", re.ASCII)
_LETTERS = string.ascii_letters + string.digits


class MaterialPart(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """One dataset of a material: executed inputs, scored if there are bounds on scores."""

    name: str
    """The name of the dataset's directory."""
    count: int
    """Number of records."""
    seed: int
    policy: str = ""
    """The sampling policy. "" is the default. The default is `paper` for `ucs` and `ucs-universal`,
    else `people`."""
    commands: tuple[str, ...] = ()
    """Grammars from which inputs are drawn, as in `Drawing.commands`."""
    sampler: str = "gcs"
    """`gcs`, `ucs`, `ucs-universal`, `probes`, `filters`, `crossed` or `stages`.

    `probes` and `filters` have no policy. `crossed`: single commands in which each operand and each
    value is replaced by others, one at a time. `stages`: commands after a pipe, whose input is
    recorded output of earlier parts.
    """
    horizon: int = HORIZON
    """Maximum number of arguments of one command."""
    composite_share: float = 0.0
    """Share of inputs with several commands."""
    mistakes: float = 0.0
    """Share of inputs with an injected mistake."""
    session_length: int = 1
    """Number of inputs in one session, typed in sequence in the same shell."""
    inputs: str = ""
    """A file of inputs to execute instead of sampled ones; `sampler` names the file's source.

    Each line has the format of `dataset import`. The first `count` lines are used, or all if there
    are fewer. The path is relative to the recipe or to the working directory.
    """
    min_irreducibility: float | None = None
    max_irreducibility: float | None = None
    min_necessary: float | None = None
    """Bounds on the scores of records.

    Inputs are drawn and scored until enough meet the bounds. So bounds are invalid with `inputs`,
    and with samplers other than `gcs`, `ucs` and `ucs-universal`. Parts with the same sampling
    share the scored inputs, in the directory `pools`.
    """

    @property
    def selection(self) -> Selection | None:
        """The bounds on scores; None if there are none. Errors: UsageError."""
        bounds = self.min_irreducibility, self.max_irreducibility, self.min_necessary
        if bounds == (None, None, None):
            return None
        low, high, necessary = bounds
        return Selection(
            min_irreducibility=low, max_irreducibility=high, min_necessary=necessary,
            count=self.count,
        )  # fmt: skip

    @property
    def chosen_policy(self) -> str:
        """The policy, or the default of the part's sampler."""
        return self.policy or ("paper" if self.sampler in ("ucs", "ucs-universal") else "people")

    @property
    def drawing(self) -> Drawing:
        """The sampling parameters of the inputs."""
        return Drawing(
            sampler=self.sampler,
            policy=self.chosen_policy,
            seed=self.seed,
            commands=self.commands,
            horizon=self.horizon,
            composite_share=self.composite_share,
            mistakes=self.mistakes,
            session_length=self.session_length,
        )


class Recipe(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """The parts of a material."""

    schema: int
    part: list[MaterialPart]


@dataclass(frozen=True)
class Material:
    """The result of a recipe."""

    directories: tuple[Path, ...]
    """A dataset for each part, in order."""
    digest: str
    """SHA-256 (hex) of the recipe's file."""


def recipe_names() -> list[str]:
    """Return the names of the shipped recipes."""
    return sorted(path.stem for path in RECIPES.glob("*.toml"))


def find_recipe(name: str | Path) -> Path:
    """Find the file of a recipe by path or by name. Errors: ModelError."""
    path, shipped = Path(name), RECIPES / f"{name}.toml"
    if path.is_file():
        return path
    if str(name) in recipe_names():
        return shipped
    raise ModelError(f"unknown recipe {name}", hint=did_you_mean(str(name), recipe_names()))


def read_recipe(path: Path) -> Recipe:
    """Read a recipe. Errors: ModelError, with the fault and its place."""
    try:
        recipe = msgspec.convert(parse_toml(path.read_bytes()), Recipe)
    except OSError as error:
        raise ModelError(f"{path} cannot be read: {error.strerror}", named=error) from None
    except (msgspec.DecodeError, ValueError) as error:
        raise ModelError(f"{path}: {fault(error)}") from None
    names = [part.name for part in recipe.part]
    wrong = [name for name in names if "/" in name or name.startswith(".") or not name]
    if recipe.schema != SCHEMA or not names or wrong or len(set(names)) < len(names):
        raise ModelError(f"{path}: each part needs a unique name, and schema must be {SCHEMA}")
    listed = (PROBES, FILTERS, CROSSED, PIPED)
    for part in recipe.part:
        if part.selection is not None and (part.inputs or part.sampler in listed):
            raise ModelError(
                f"{path}: {part.name} has bounds on scores, but its inputs are not scored",
                hint="remove the bounds, or use the samplers gcs, ucs or ucs-universal",
            )
    return recipe


def make_material(
    recipe: str | Path,
    directory: Path,
    executor: Executor,
    system: str | None = None,
    report: Callable[[str, int, int, int], None] = lambda part, done, total, kept: None,
) -> Material:
    """Make the datasets of a recipe in a directory, one for each part.

    A repeated call resumes an interrupted one. `report` receives the part's name, and the numbers
    of records that are finished, requested, and present at the start. Errors: ModelError for the
    recipe; those of `generate`.
    """
    path = find_recipe(recipe)
    parts = read_recipe(path).part
    said = path.read_bytes()
    with storage_errors(directory):
        directory.mkdir(parents=True, exist_ok=True)
        atomic_write(directory / MADE_BY, said)
    made: list[Path] = []
    for part in parts:
        target = directory / part.name
        told = partial(report, part.name)
        made.append(target)
        if part.inputs:
            lines = _listed(path.parent, part)
            _execute(part, lines, target, system, executor, told)
            continue
        if part.selection is not None:
            _select(part, part.selection, directory, system, executor, report)
            continue
        if part.sampler in (PROBES, FILTERS, CROSSED, PIPED):
            built = find_system(system)
            if part.sampler == PROBES:
                lines = probe_inputs(built, part.count, part.seed)
            elif part.sampler == FILTERS:
                lines = filters(built, part.count, part.seed)
            elif part.sampler == CROSSED:
                lines = crossed(built, part.count, part.seed, part.chosen_policy)
            else:
                lines = stage_inputs(built, made[:-1], part.count, part.seed, part.chosen_policy)
            _execute(part, lines, target, system, executor, told)
            continue
        generate(
            Destination(target, "zstd"),
            count=part.count,
            drawing=part.drawing,
            scoring=UNSCORED,
            system=system,
            executor=executor,
            report=partial(_tell, told),
        )
    return Material(tuple(made), hashlib.sha256(said).hexdigest())


def _listed(beside: Path, part: MaterialPart) -> list[str]:
    """Read the lines of a part's file of inputs. Errors: ModelError."""
    found = [path for path in (beside / part.inputs, Path(part.inputs)) if path.is_file()]
    if not found:
        raise ModelError(
            f"{part.name} needs the file {part.inputs}, which does not exist",
            hint=f"create it from a list of commands: shioenv suite adapt FILE --out {part.inputs}",
        )
    lines = lines_of(read_regular(found[0], LARGEST_LIST).decode())
    return [line for line in lines if line.strip()][: part.count]


def _select(
    part: MaterialPart,
    selection: Selection,
    directory: Path,
    system: str | None,
    executor: Executor,
    report: Callable[[str, int, int, int], None],
) -> None:
    """Draw and score inputs until enough of them meet the bounds, and select these."""
    target = directory / part.name
    if (target / MANIFEST).exists():
        finished_manifest(target)
        return
    drawn = hashlib.sha256(msgspec.json.encode(part.drawing)).hexdigest()
    pool = directory / "pools" / drawn[:12]
    wanted = part.count
    while True:
        with suppress(UnknownDatasetError):  # an unfinished pool that is larger is completed first
            wanted = max(wanted, read_manifest(pool).count)
        generate(
            Destination(pool, "zstd"),
            count=wanted,
            drawing=part.drawing,
            scoring=THE_PAPERS,
            system=system,
            executor=executor,
            report=partial(_tell, partial(report, f"the pool of {part.name}")),
        )
        found = sum(map(selection.keeps, read_records(pool)))
        if found >= part.count:
            break
        wanted = enlarged(wanted, found, part.count)
    select(pool, target, selection)


def enlarged(count: int, found: int, wanted: int) -> int:
    """Return how many records to generate in total, so that `wanted` of them are of a given kind.

    Among the `count` records so far, `found` are of that kind. The result assumes that this share
    remains the same, and adds 5% to the missing records.
    """
    return count + math.ceil(1.05 * (wanted - found) * count / max(found, 1))


def probe_inputs(system: System, count: int, seed: int) -> list[str]:
    """Return inputs that run each command alone, with `--help`, and with options.

    Each letter and digit is tried as an option, without an operand and with a file of the home
    tree. `nosuch` is tried as a long option. Files and order are drawn by the seed. The result has
    at most `count` lines of a command list.
    """
    files = _files(system)
    rng = random.Random(seed)
    made: list[str] = []
    for grammar in load_grammars(host_clock=system.host_clock):
        command = " ".join(grammar.command_tokens[0].split()) or grammar.name
        if "-" in grammar.name and grammar.name.startswith(f"{command}-"):
            command = grammar.name.replace("-", " ", 1)
        alone = json.dumps({"input": command}) if command == "[" else command  # `[` is invalid JSON
        made += [alone, f"{command} --help", f"{command} --version", f"{command} --nosuch"]
        made.append(f"{command} {rng.choice(files)}")
        for letter in _LETTERS:
            made.append(f"{command} -{letter}")
            made.append(f"{command} -{letter} {rng.choice(files)}")
    rng.shuffle(made)
    return made[:count]


def filters(system: System, count: int, seed: int) -> list[str]:
    """Return commands that people write after a `|`, but with a file after `<` as standard input.

    The files are in the home tree. All commands are distinct, and drawn by the seed.
    """
    files = _files(system)
    rng = random.Random(seed)
    made: dict[str, None] = {}
    for drawn in sample(Drawing(policy="people", composite_share=1.0, seed=seed), system=system):
        for command in behind_pipes(drawn.input):
            plain = all(token.role is not Role.OPERATOR for token in command.tokens)
            if plain and command.tokens[0].argument.text != "xargs":  # a rule answers xargs
                made[f"{command.text} < {rng.choice(files)}"] = None
            if len(made) == count:
                return list(made)
    return list(made)


def _files(system: System) -> list[str]:
    """Return the home tree's regular files without quoting, relative to the start directory."""
    home = system.declaration.start_directory
    return [
        entry.path.removeprefix(f"{home}/")
        for entry in system.beneath(home)
        if stat.S_ISREG(entry.mode) and _PLAIN.fullmatch(entry.path)
    ]


def _execute(
    part: MaterialPart,
    lines: Sequence[str],
    directory: Path,
    system: str | None,
    executor: Executor,
    report: Callable[[int, int, int], None],
) -> None:
    """Make a dataset from the lines of a command list."""
    with tempfile.TemporaryDirectory(prefix="shioenv-lines-") as name:
        path = Path(name) / part.sampler
        path.write_text("".join(f"{line}\n" for line in lines))
        start = find_system(system).declaration.start_directory
        import_commands(
            CommandList(path, sampler=part.sampler, seed=part.seed, start_directories=(start,)),
            directory,
            scoring=UNSCORED,
            system=system,
            executor=executor,
            report=partial(_tell, report),
        )


def _tell(report: Callable[[int, int, int], None], progress: Progress) -> None:
    report(progress.done, progress.count, progress.kept)


def system_of(dataset: Path) -> System:
    """Return the built system on which a dataset was made.

    Errors: ModelError if another build now has the system's name; those of `read_manifest` and
    `find_system`.
    """
    plan = read_manifest(dataset).plan
    built = find_system(plan.system)
    if plan.system_digest != built.digest:
        raise ModelError(
            f"{dataset} was made on {plan.system} with the digest {plan.system_digest:.12}…; "
            f"{plan.system} now has the digest {built.digest:.12}…",
            hint="a model contains files of the system: generate the dataset again on this build",
        )
    return built


def world_in(dataset: Path) -> tuple[System, World]:
    """Return the built system on which a dataset was made, and its world in the start directory.

    Errors: ModelError if the dataset has no context; those of `system_of`.
    """
    built, contexts = system_of(dataset), read_contexts(dataset)
    start = built.declaration.start_directory
    context = contexts.get(start) or next(iter(contexts.values()), None)
    if context is None:
        raise ModelError(
            f"{dataset} has no context files next to its records",
            hint="create such datasets with `shioenv train material`",
        )
    return built, world_of(built, context)


def described(dataset: Path) -> dict[str, Any]:
    """Return the entry of a dataset in the card of a model trained on it.

    It has the sampling parameters of the dataset, its system, version, grammars and recipe. The
    recipe is "" if the dataset has none. Errors: those of `read_manifest`.
    """
    manifest = read_manifest(dataset)
    plan = manifest.plan
    file = dataset.parent / MADE_BY
    names = [part.name for part in read_recipe(file).part] if file.is_file() else []
    recipe = hashlib.sha256(file.read_bytes()).hexdigest() if dataset.name in names else ""
    return {
        "sampler": plan.drawing.sampler,
        "policy": plan.drawing.policy,
        "seed": plan.drawing.seed,
        "records": manifest.records,
        "system": plan.system,
        "version": plan.version,
        "grammar_digest": plan.grammar_digest,
        "recipe_sha256": recipe,
    }


def datasets_in(directory: Path) -> list[Path]:
    """Return the datasets of a material, or the directory itself if it is a dataset.

    Errors: those of `finished_manifest`, also for an unfinished dataset.
    """
    if (directory / MANIFEST).exists():
        finished_manifest(directory)
        return [directory]
    found = sorted(path.parent for path in directory.glob(f"*/{MANIFEST}"))
    if not found:
        finished_manifest(directory)
    for each in found:
        finished_manifest(each)
    return found
