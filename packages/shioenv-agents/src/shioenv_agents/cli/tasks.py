"""`shioenv tasks`: make, certify, run and export tasks for agents."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from shioenv.cli import printing, shared
from shioenv.cli.progress import Meter, counting
from shioenv.text import share as share_of

if TYPE_CHECKING:
    from shioenv_agents.tasks.agents import Agent
    from shioenv_agents.tasks.task import Task

app = typer.Typer(
    name="tasks", no_args_is_help=True, help="Make, certify, run and export tasks for agents."
)

SHOWN = 20
"""Maximum faults printed; `--json` has all of them."""

AgentModel = Annotated[
    str | None,
    typer.Option(
        "--language-model", metavar="MODEL", help="Also run this language model on the tasks."
    ),
]
AgentUrl = Annotated[
    str | None,
    typer.Option(
        "--endpoint",
        metavar="URL",
        help="The model's endpoint, with OpenAI's protocol (default: OPENAI_BASE_URL). The key is "
        "OPENAI_API_KEY.",
    ),
]

File = Annotated[Path, typer.Argument(metavar="FILE", help="The file of tasks (JSON Lines).")]


@shared.command(app, "shioenv tasks make ./dataset --out tasks.jsonl")
def make(
    directory: shared.Directory,
    *,
    out: Annotated[
        Path, typer.Option(metavar="FILE", help="The file of tasks to write (JSON Lines).")
    ],
    min_irreducibility: Annotated[
        float,
        typer.Option(
            min=0, max=1, metavar="X", help="Minimum irreducibility of records that become tasks."
        ),
    ] = 0.7,
    prompt_model: Annotated[
        str | None,
        typer.Option(
            "--language-model",
            metavar="MODEL",
            help="Language model that writes an introduction to each prompt (extra: llm).",
        ),
    ] = None,
    prompt_url: AgentUrl = None,
    workers: shared.Workers = None,
    limits: shared.LimitsOptions,
    system: shared.SystemName = None,
) -> shared.Printout:
    """Make tasks from the records of a dataset.

    A task asks for a state of the machine, for an output, or for both. A record becomes a task if
    its exit code is 0, it is not volatile, and it is irreducible enough. Its prompt must describe
    the effect of the input in plain English without revealing the input. Each task is proved: the
    recorded input passes the check, while doing nothing fails, and so does the input without one
    of its arguments. With --language-model, each prompt begins with the model's description of the
    task; the generated facts follow.
    """
    from shioenv.dataset.manifest import read_manifest
    from shioenv.dataset.record_reader import read_records
    from shioenv.errors import TaskError, UsageError
    from shioenv.files.durable import refuse_existing
    from shioenv_agents.tasks.make import make_tasks
    from shioenv_agents.tasks.prompt import checked_endpoint, rephrased
    from shioenv_agents.tasks.task import write_tasks

    if prompt_url and not prompt_model:
        raise UsageError("--endpoint needs --language-model", hint="--language-model MODEL")
    if prompt_model:
        checked_endpoint(prompt_url or "")
    refuse_existing(out)
    manifest = read_manifest(directory)
    printing.note_unfinished(directory, manifest)
    with counting("records") as report:
        made = make_tasks(
            read_records(directory, unfinished=True),
            min_irreducibility=min_irreducibility,
            system=system,
            limits=limits.limits(),
            workers=workers,
            report=report,
        )
    tasks = made.tasks
    if not tasks:
        raise TaskError(
            f"none of the {manifest.records:,} records of {directory} makes a task",
            hint="lower --min-irreducibility, add records, or give the dataset's --system",
        )
    if prompt_model:
        with counting("prompts") as report:
            tasks = rephrased(tasks, prompt_model, url=prompt_url or "", report=report)
    write_tasks(tasks, out)
    kinds = Counter(task.kind.value for task in tasks)
    document = {
        "file": str(out),
        "tasks": len(tasks),
        "of": manifest.records,
        "kinds": dict(kinds),
        "refused": made.refused,
        "commands": dict(Counter(name for task in tasks for name in task.commands).most_common()),
    }
    named = ", ".join(f"{number} {name}" for name, number in kinds.most_common())
    part = share_of(len(tasks), manifest.records)
    number = printing.counted(len(tasks), "task")
    line = f"{out}: {number} of {manifest.records:,} records ({part}): {named}"
    return shared.Printout(document, [line], indent=2)


@shared.command(app, "shioenv tasks verify ./tasks.jsonl")
def verify(
    file: File, workers: shared.Workers = None, system: shared.SystemName = None
) -> shared.Printout:
    """Prove every task of a file again.

    A task is proved if its solution passes, while doing nothing fails, and so does a part of the
    solution. The exit status is 1 if a task is not proved.
    """
    from shioenv_agents.tasks.certify import verify_tasks
    from shioenv_agents.tasks.task import read_tasks

    tasks = read_tasks(file)
    with counting("tasks") as report:
        found = verify_tasks(tasks, system=system, workers=workers, report=report)
    faults = _faults(tasks, found)
    lines = list(_faulty(faults))
    lines.append(f"proved: {len(tasks) - len(faults):,} of {printing.counted(len(tasks), 'task')}")
    document = {"tasks": len(tasks), "proved": len(tasks) - len(faults), "faulty": faults}
    return shared.Printout(document, lines, indent=2, status=1 if faults else 0)


@shared.command(app, "shioenv tasks compose ./tasks.jsonl --lines 50 --broken 50 --out more.jsonl")
def compose(
    file: File,
    *,
    out: Annotated[Path, typer.Option(metavar="FILE", help="The file of tasks to write.")],
    lines: Annotated[
        int, typer.Option(min=0, metavar="N", help="Maximum tasks of two to four lines.")
    ] = 50,
    broken: Annotated[
        int, typer.Option(min=0, metavar="N", help="Maximum tasks of broken machines.")
    ] = 50,
    seed: shared.Seed = 0,
    workers: shared.Workers = None,
    system: shared.SystemName = None,
) -> shared.Printout:
    """Compose longer tasks from the tasks of a file.

    A task of several lines joins solutions; if possible, a later line uses a file that an earlier
    one made. On a broken machine, the solutions of one or two tasks have been typed already and
    must be undone. Each task is proved: its solution passes, while doing nothing fails, and so does
    the solution without any one of its lines.
    """
    from shioenv.errors import TaskError
    from shioenv.files.durable import refuse_existing
    from shioenv_agents.tasks.task import read_tasks, write_tasks
    from shioenv_agents.tasks.task_composition import composed_tasks

    refuse_existing(out)
    with counting("tasks") as report:
        made = composed_tasks(
            read_tasks(file),
            lines=lines,
            broken=broken,
            seed=seed,
            system=system,
            workers=workers,
            report=report,
        )
    tasks = made.tasks
    if not tasks:
        raise TaskError(
            f"the tasks in {file} give no task of several lines and no broken machine",
            hint="add tasks, or use another --seed",
        )
    write_tasks(tasks, out)
    several = sum(not task.history for task in tasks)
    document = {"file": str(out), "tasks": len(tasks), "lines": several, "refused": made.refused}
    document["broken"] = len(tasks) - several
    number = printing.counted(several, "task")
    line = f"{out}: {number} of several lines, {len(tasks) - several:,} of broken machines"
    return shared.Printout(document, [line], indent=2)


@shared.command(app, "shioenv tasks history --out history.jsonl --count 24")
def history(
    *,
    out: Annotated[Path, typer.Option(metavar="FILE", help="The file of tasks to write.")],
    count: Annotated[int, typer.Option(min=1, metavar="N", help="Maximum number of tasks.")] = 24,
    seed: shared.Seed = 0,
    workers: shared.Workers = None,
    system: shared.SystemName = None,
) -> shared.Printout:
    """Make tasks in the Git repository of the system debian-12-dev.

    They are of three families: restore files from the history, repair a project whose tests fail,
    and count requests of a log. Each solution has at least four lines. Tasks are proved as by
    `tasks compose`.
    """
    from shioenv.errors import TaskError
    from shioenv.files.durable import refuse_existing
    from shioenv_agents.tasks.history import history_tasks
    from shioenv_agents.tasks.task import write_tasks

    refuse_existing(out)
    with counting("tasks") as report:
        made = history_tasks(count, seed=seed, system=system, workers=workers, report=report)
    if not made.tasks:
        raise TaskError("no task could be proved", hint="use another --seed")
    write_tasks(made.tasks, out)
    document = {"file": str(out), "tasks": len(made.tasks), "refused": made.refused}
    line = f"{out}: {printing.counted(len(made.tasks), 'task')}"
    return shared.Printout(document, [line], indent=2)


@shared.command(app, "shioenv tasks certify ./tasks.jsonl --out certified.jsonl --runs 20")
def certify(
    file: Annotated[
        Path,
        typer.Argument(
            metavar="FILE|DIR",
            help="A file of tasks (JSON Lines), or a directory of Harbor folders.",
        ),
    ],
    *,
    out: Annotated[
        Path | None,
        typer.Option(metavar="FILE|DIR", help="Where to write the tasks, or folders, that pass."),
    ] = None,
    k: Annotated[
        int,
        typer.Option(
            "--runs",
            min=1,
            metavar="N",
            help="Runs of the solution, and of nothing. With --check, the maximum; fewer if the "
            "certificate has fewer.",
        ),
    ] = 20,
    check: Annotated[
        bool,
        typer.Option("--check", help="Check existing certificates; write nothing."),
    ] = False,
    rebase: Annotated[
        bool,
        typer.Option("--rebase", help="Adopt tasks of another build or release, with new prompts."),
    ] = False,
    workers: shared.Workers = None,
    system: shared.SystemName = None,
) -> shared.Printout:
    """Certify tasks, or check their certificates.

    With --out, tasks without faults are written, each with its certificate. It is a fault if the
    solution fails in one of the runs, or under load. So is a prompt that does not state every fact
    of the goal, or a solution that a prompt or file reveals. Doing nothing and near misses must
    fail, and other correct answers must pass. First, once for each build of the system, known
    attacks try to pass the check without doing a task. In Harbor folders, the folder's own files
    judge the answers; the folder gets a `certificate.json`. A stopped command resumes.

    --check repeats the checks recorded in the certificates, and lists the fields that it cannot
    check again.
    The exit status is 1 if a checked certificate no longer holds. --rebase rewrites the prompts of
    tasks from another release in this release's wording.
    """
    from functools import partial

    from shioenv.errors import UsageError
    from shioenv_agents.tasks.certify import SEALED, UNSEALED, certify_file, recheck_tasks
    from shioenv_agents.tasks.harbor.trial_certification import certify_folders, recheck_folders
    from shioenv_agents.tasks.task import read_tasks

    if check == (out is not None):
        raise UsageError(
            "tasks certify needs either --out or --check",
            hint="add --out FILE to certify, or --check to check certificates",
        )
    if rebase and (check or file.is_dir()):
        raise UsageError(
            "--rebase needs a file of tasks and --out",
            hint="certify the file with --rebase, then export it again",
        )
    with counting("tasks") as report:
        if out is not None:
            of_file = partial(certify_file, rebase=rebase)
            certify_all = certify_folders if file.is_dir() else of_file
            tasks = certify_all(
                file, out, k=k, system=system, workers=workers, report=report, note=printing.note
            )
            found = [task.certificate.faults if task.certificate else () for task in tasks]
        else:
            again = partial(recheck_tasks, k=k, system=system, workers=workers, report=report)
            if file.is_dir():
                tasks, found = recheck_folders(file, again)
            else:
                tasks = read_tasks(file)
                found = again(tasks)
    faulty = _faults(tasks, found)
    lines = list(_faulty(faulty))
    lines.append(
        f"certified: {len(tasks) - len(faulty):,} of {printing.counted(len(tasks), 'task')}"
    )
    document = {"tasks": len(tasks), "certified": len(tasks) - len(faulty), "faulty": faulty}
    if check:
        document |= {"by_digest_alone": list(SEALED), "unchecked": list(UNSEALED)}
        lines.append(f"checked only by the certificate's digest: {', '.join(SEALED)}")
        lines.append(f"not checked: {', '.join(UNSEALED)}")
    return shared.Printout(document, lines, indent=2, status=1 if check and faulty else 0)


def _agents(model: str | None, url: str | None) -> dict[str, Agent]:
    """Return the scripted agents, and the named language model, if any, by name."""
    from shioenv.errors import UsageError
    from shioenv_agents.tasks.agents import AGENTS, prompted

    if url and not model:
        raise UsageError("--endpoint needs --language-model", hint="--language-model MODEL")
    if model in AGENTS:
        raise UsageError(
            f"{model!r} is a scripted agent, not a language model",
            hint="use a model of the endpoint; --agent selects scripted agents",
        )
    return {**AGENTS, **({model: prompted(model, url or "")} if model else {})}


def _faults(tasks: Sequence[Task], found: Sequence[tuple[str, ...]]) -> list[dict[str, Any]]:
    """Return the faulty tasks as JSON objects, each with its faults."""
    return [
        {"id": task.id, "solution": task.solution, "faults": list(faults)}
        for task, faults in zip(tasks, found, strict=True)
        if faults
    ]


def _faulty(faulty: list[dict[str, Any]]) -> Iterator[str]:
    """Yield lines about the first faulty tasks."""
    for one in faulty[:SHOWN]:
        faults = printing.printable(", ".join(one["faults"]))
        yield f"{one['id']}: {printing.printable(one['solution'])}: {faults}"
    if len(faulty) > SHOWN:
        yield f"and {len(faulty) - SHOWN} more (--json)"


@shared.command(app, "shioenv tasks set ./tasks --count 300 --runs 3", name="set")
def make_set(
    directory: Annotated[
        Path,
        typer.Argument(
            metavar="DIR",
            help="The set's directory, created if missing. The same command resumes.",
        ),
    ],
    *,
    count: Annotated[
        int, typer.Option(min=3, metavar="N", help="Number of tasks to make.")
    ] = 10_000,
    seed: shared.Seed = 0,
    k: Annotated[
        int,
        typer.Option("--runs", min=1, metavar="N", help="Runs of each solution, and of nothing."),
    ] = 20,
    share: Annotated[
        float,
        typer.Option(
            min=0.001,
            max=1,
            metavar="X",
            help="Maximum share of one-line tasks with the same command; three times as much for "
            "longer tasks.",
        ),
    ] = 0.05,
    without_harbor: Annotated[
        bool, typer.Option("--without-harbor", help="Write no Harbor folders.")
    ] = False,
    model: AgentModel = None,
    url: AgentUrl = None,
    workers: shared.Workers = None,
    system: shared.SystemName = None,
) -> shared.Printout:
    """Make a set of certified tasks from a seed.

    The command draws and executes inputs, composes and certifies tasks, runs agents on them, and
    splits them. A third of the tasks has one line, a third several lines, and a third is about
    broken machines. No part of the split contains a normal form of another part. Three scripted
    agents attempt each task, and so does the language model, if given. The manifest counts refused
    tasks by reason. After Ctrl-C or a crash, the same command resumes. The exit status is 1 if
    tasks are missing at the end.
    """
    from shioenv_agents.tasks.agents import SCRIPTS
    from shioenv_agents.tasks.sets import SetPlan
    from shioenv_agents.tasks.sets import make_set as made_set

    agents = _agents(model, url)
    tried = (*SCRIPTS, *([model] if model else []))
    stopped = f"stopped; finished steps are saved in {directory}: run the same command to resume"
    with Meter(lasting=True, stopped=stopped) as meter:
        made = made_set(
            directory,
            SetPlan(count=count, seed=seed, k=k, share=share, agents=tried),
            agents=agents,
            harbor=not without_harbor,
            system=system,
            workers=workers,
            tell=meter.update,
            note=meter.print_note,
        )
    manifest = made.manifest
    rows = {
        "set": str(directory),
        "tasks": f"{manifest['tasks']:,} of {count:,}, from {manifest['records']:,} records",
        **{name: f"{number:,}" for name, number in manifest["lengths"].items()},
        **{part: f"{sum(of.values()):,}" for part, of in manifest["parts"].items()},
        **{
            f"solved by {agent}": ", ".join(
                f"{share_of(done, of)} {length}" for length, (done, of) in lengths.items()
            )
            for agent, lengths in manifest["solved_by"].items()
        },
    }
    if not without_harbor:
        rows["Harbor"] = f"{sum(manifest['harbor']['written'].values()):,} folders"
    refused = sum(sum(why.values()) for why in manifest["refused"].values())
    rows["refused"] = f"{refused:,}, by reason in {directory / 'manifest.json'}"
    status = 0 if made.complete else 1
    return shared.Printout(dict(manifest), printing.rows(rows), indent=2, status=status)


@shared.command(app, "shioenv tasks evaluate ./tasks.jsonl --count 100")
def evaluate(
    file: File,
    *,
    count: Annotated[
        int, typer.Option(min=1, metavar="N", help="Number of tasks, spread over the file.")
    ] = 100,
    agent: Annotated[
        list[str] | None,
        typer.Option(
            metavar="NAME",
            autocompletion=shared.completing("shioenv_agents.tasks.agents:AGENTS"),
            help="A scripted agent: names, facts, model (default: these three), recorded (types "
            "the solution), idle (does nothing). May be repeated.",
        ),
    ] = None,
    model: AgentModel = None,
    url: AgentUrl = None,
    max_turns: Annotated[int, typer.Option(min=1, metavar="N", help="Maximum lines per task.")] = 8,
    workers: shared.Workers = None,
    system: shared.SystemName = None,
) -> shared.Printout:
    """Run agents on tasks and report the share solved, by kind and length.

    The scripted agents parse the wording of the prompts. Their results show which tasks are harder
    than others, not what models can do. --language-model uses any endpoint with OpenAI's protocol.
    """
    from shioenv.errors import UsageError, did_you_mean
    from shioenv_agents.tasks.agents import AGENTS, SCRIPTS, attempts, results_of
    from shioenv_agents.tasks.task import read_tasks

    agents = _agents(model, url)
    for name in agent or ():
        if name not in AGENTS:
            raise UsageError(
                f"unknown agent {name!r} for --agent", hint=did_you_mean(name, list(AGENTS))
            )
    names = list(dict.fromkeys((*(agent or SCRIPTS), *([model] if model else []))))
    tasks = read_tasks(file)
    count = min(count, len(tasks))
    chosen = [tasks[number * len(tasks) // count] for number in range(count)]
    tried = {}
    for name in names:
        with counting(f"tries of {name}") as report:
            tried[name] = attempts(
                chosen, name, agent=agents[name], turns=max_turns, system=system,
                workers=workers, report=report,
            )  # fmt: skip
    rows = results_of(chosen, tried)
    lines = [f"{'agent':12}{'group':16}{'tasks':>7}{'solved':>8}{'progress':>10}{'lines':>7}"]
    for row in rows:
        part = share_of(row["solved"], row["tasks"], 0)
        lines.append(
            f"{row['agent'][:11]:12}{row['group']:16}{row['tasks']:7}{part:>8}"
            f"{row['progress']:10.2f}{row['turns']:7.1f}"
        )
    document = {"file": str(file), "tasks": count, "results": rows}
    return shared.Printout(document, lines, indent=2)


@shared.command(app, "shioenv tasks export ./tasks.jsonl --out ./harbor")
def export(
    file: File,
    *,
    harbor: Annotated[
        Path,
        typer.Option(
            "--out", metavar="DIR", help="The directory to write, with a folder for each task."
        ),
    ],
    image: Annotated[
        str | None,
        typer.Option(
            metavar="IMAGE",
            help="Reference of the system's pushed image, for environments that pull it.",
        ),
    ] = None,
) -> shared.Printout:
    """Export tasks as folders for `harbor run`.

    Harbor judges results on a separate machine, which receives only files. Therefore tasks about
    the state of the shell, the network, the host name or file times are refused. So are tasks whose
    solution does not pass there twice. A task's history becomes part of its image.
    """
    from shioenv_agents.tasks.harbor.task_folders import export_tasks
    from shioenv_agents.tasks.task import read_tasks

    tasks = read_tasks(file)
    with counting("tasks") as report:
        done = export_tasks(tasks, harbor, image=image, report=report)
    document = {
        "directory": str(harbor),
        "written": len(done.written),
        "of": len(tasks),
        "reasons": done.reasons,
        "refused": done.refused,
    }
    folders = printing.counted(len(done.written), "folder")
    lines = [f"{harbor}: {folders} of {printing.counted(len(tasks), 'task')}"]
    lines += [f"  {count:,} refused: {why}" for why, count in done.reasons.items()]
    return shared.Printout(document, lines, indent=2)


@shared.command(app, "shioenv tasks push ./tasks somebody/shell-tasks --license cc-by-4.0")
def push(
    source: Annotated[
        Path, typer.Argument(metavar="PATH", help="A directory of `tasks set`, or a file of tasks.")
    ],
    repository: shared.HubRepository,
    *,
    licence: shared.CardLicense,
    private: shared.PrivateRepository = False,
) -> shared.Printout:
    """Publish tasks on a hub: a split for each part, in one commit.

    The repository then has these files and no others. Needs the extra shioenv[hub], and a token in
    HF_TOKEN.
    """
    from tempfile import TemporaryDirectory

    from shioenv.endpoint import push_folder
    from shioenv_agents.tasks.publish import write_layout

    with TemporaryDirectory(prefix="shioenv-push-") as place:
        splits = write_layout(source, Path(place) / "tasks", licence)
        tasks = printing.counted(sum(splits.values()), "task")
        url = push_folder(
            Path(place) / "tasks", repository, private=private, message=f"Publish {tasks}"
        )
    document = {"repository": repository, "url": url, "splits": splits}
    return shared.Printout(document, [f"{tasks} of {source} are in {url}"])


@shared.command(app, "shioenv tasks show ./tasks.jsonl --count 3")
def show(
    file: File,
    count: Annotated[
        int, typer.Option(min=1, metavar="N", help="Number of tasks, spread over the file.")
    ] = 5,
    solutions: Annotated[
        bool, typer.Option("--solutions", help="Also show the recorded solutions.")
    ] = False,
) -> Iterator[shared.Printout]:
    """Show the prompts of some tasks, as agents receive them."""
    from shioenv_agents.tasks.task import encode, read_tasks

    tasks = read_tasks(file)
    step = max(1, len(tasks) // count)
    for task in tasks[: step * count : step]:
        lines = [f"task {task.id} ({task.kind.value})"]
        lines += [f"  {printing.printable(line)}" for line in task.prompt.split("\n")]
        if solutions:
            lines.append(f"  $ {printing.printable(task.solution)}")
        yield shared.Printout(encode(task), [*lines, ""])
