"""Agents that attempt tasks: three scripts of different strength, and any language model.

An agent receives only the prompt and the output of its lines. The scripts parse the wording of the
prompts, so their results measure the relative difficulty of tasks, and not the ability of models.
"""

from __future__ import annotations

import json
import os
import re
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from functools import cache, partial
from pathlib import Path
from typing import Any, Final, TypeAlias

import msgspec

from shioenv.bash.words import quoted
from shioenv.behavior.observe import SandboxRunner
from shioenv.domain.behavior import Behavior
from shioenv.domain.runner import State
from shioenv.endpoint import Endpoint
from shioenv.errors import Abstained
from shioenv.live.answerer import Answerer, answerer_package, load_model
from shioenv.recording.execution_cache import sources_digest
from shioenv_agents.tasks.episode import Episode
from shioenv_agents.tasks.make import Report, on_machines, parts_of
from shioenv_agents.tasks.task import LENGTHS, GoalKind, Task, length_of

TURNS: Final = 8
"""Default maximum number of lines that an agent may type."""

Agent: TypeAlias = Callable[[Task], Callable[[Sequence[str]], str | None]]
"""An agent: a function that maps a task to a function that returns the next line.

The inner function receives the conversation so far: the prompt, then alternately a line and its
output. None means that the agent gives up.
"""


class Attempt(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """The result of an agent's attempt at a task."""

    agent: str
    solved: bool
    progress: float
    """The fraction of the goal that holds at the end, 0 to 1."""
    turns: int
    """The number of typed lines."""


def attempted(task: Task, machine: SandboxRunner, name: str, agent: Agent, turns: int) -> Attempt:
    """Let an agent attempt a task in at most `turns` lines.

    Errors: those of `Episode`, and of the agent.
    """
    episode = Episode(task, machine, turns)
    said, reply = [episode.prompt], agent(task)
    while not episode.over:
        line = reply(said)
        if line is None:
            break
        said += [line, episode.act(line).text]
    verdict = episode.verdict
    return Attempt(
        agent=name, solved=verdict.passed, progress=verdict.progress, turns=episode.turns
    )


def attempts(
    tasks: Sequence[Task],
    name: str,
    *,
    agent: Agent | None = None,
    turns: int = TURNS,
    system: str | None = None,
    workers: int | None = None,
    kept: Path | None = None,
    report: Report = lambda done, total: None,
) -> list[Attempt]:
    """Let an agent attempt each task on a pristine machine, and return the results in order.

    `agent` defaults to `AGENTS[name]`. `kept` is as for `make_tasks`. Errors:
    TaskError for a task of another build of its system; those of sandboxes, and of the agent.
    """
    do = partial(attempted, name=name, agent=agent or AGENTS[name], turns=turns)
    plan = [msgspec.to_builtins(list(tasks)), name, description_of(do.keywords["agent"]), turns]
    parts = parts_of(kept, "tried", plan, Attempt, ["shioenv.endpoint"])
    return on_machines(do, tasks, system=system, workers=workers, report=report, parts=parts)


def description_of(agent: Agent) -> str:
    """Return what determines an agent's behavior besides this code: function, settings and model.

    It distinguishes the stored attempts and task sets of agents that share a name.
    """
    function, settings = agent, {}
    if isinstance(agent, partial):
        function, settings = agent.func, agent.keywords
    name = f"{function.__module__}.{getattr(function, '__qualname__', repr(function))}"
    digest = _model_digest() if function is model else ""
    return json.dumps([name, {key: repr(value) for key, value in settings.items()}, digest])


def _model_digest() -> str:
    """Return a hash of the package that provides models, including the default model."""
    return sources_digest(answerer_package())


def results_of(
    tasks: Sequence[Task], tried: Mapping[str, Sequence[Attempt]]
) -> list[dict[str, Any]]:
    """Summarise attempts as a row for each agent and group of tasks: by kind, by length, and all.

    A row holds `agent`, `by`, `group`, `tasks`, `solved`, the mean `progress` and mean `turns`.
    """
    groups: dict[str, tuple[Callable[[Task], str], Sequence[str]]] = {
        "kind": (lambda task: task.kind.value, [kind.value for kind in GoalKind]),
        "length": (length_of, LENGTHS),
        "all": (lambda task: "all", ["all"]),
    }
    rows = []
    for agent, attempts in tried.items():
        pairs = list(zip(tasks, attempts, strict=True))
        for by, (key, names) in groups.items():
            found: dict[str, list[Attempt]] = {}
            for task, attempt in pairs:
                found.setdefault(key(task), []).append(attempt)
            for name in names:
                if of := found.get(name):
                    rows.append(
                        {
                            "agent": agent,
                            "by": by,
                            "group": name,
                            "tasks": len(of),
                            "solved": sum(one.solved for one in of),
                            "progress": round(sum(one.progress for one in of) / len(of), 3),
                            "turns": round(sum(one.turns for one in of) / len(of), 2),
                        }
                    )
    return rows


# ---- the scripts


def scripted(lines: Iterable[str]) -> Callable[[Sequence[str]], str | None]:
    """Return an agent's function that types lines one after the other, then gives up."""
    left = iter(lines)
    return lambda said: next(left, None)


def recorded(task: Task) -> Callable[[Sequence[str]], str | None]:
    """Look around, then type the known solution; this reaches every goal."""
    return scripted(["pwd; ls", task.solution])


def idle(task: Task) -> Callable[[Sequence[str]], str | None]:
    """Look around and do nothing; this reaches no goal."""
    return scripted(["ls -la", "ls -la"])


def names(task: Task) -> Callable[[Sequence[str]], str | None]:
    """Guess one command from the kind of work, and pass it the names in the prompt."""
    said = _names(task.prompt)
    kind = task.prompt.partition("\n")[0].partition("`. ")[2]
    first = next((command for begin, command in _KINDS.items() if kind.startswith(begin)), "ls")
    if "\n\nPrint " in task.prompt:
        first = "cat"
    words = [said[-1], said[0]] if first == "ln -s" and len(said) == 2 else said[:2]
    return scripted(["ls", f"{first} {' '.join(words)}"])


def facts(task: Task) -> Callable[[Sequence[str]], str | None]:
    """Achieve each fact of the prompt with a separate command, and print simple outputs.

    Simple outputs are the content or the lines of files, printed by `cat`.
    """
    return scripted(["\n".join(by_fact(task.prompt)) or "ls"])


def model(task: Task) -> Callable[[Sequence[str]], str | None]:
    """Do what `facts` does; for an output, ask the default model about many pipelines.

    Pipelines are ordered by how well they match the prompt. The agent types the first one that is
    predicted to print something, succeed and change nothing.
    """
    if "\n\nPrint " not in task.prompt:
        return facts(task)
    lines = list(dict.fromkeys(proposals(task.prompt)))
    for line in lines:
        answer = _predicted(line, task)
        if answer and answer.output and not answer.exit_code and not answer.patch.operations:
            return scripted([line])
    return scripted(lines[:1] or ["ls"])


@cache
def _loaded() -> Answerer:
    return load_model()


def _predicted(line: str, task: Task) -> Behavior | None:
    try:
        return _loaded().run(line, State(cwd=task.cwd))
    except Abstained:
        return None


def prompted(name: str, url: str = "") -> Agent:
    """Return an agent that queries a language model over OpenAI's protocol.

    Errors: those of `Endpoint.check`. The returned agent raises those of `Endpoint.reply`.
    """
    url = url or os.environ.get("OPENAI_BASE_URL", "")
    Endpoint("an agent", url).check()
    return partial(_prompted, name=name, url=url)


def _prompted(task: Task, *, name: str, url: str) -> Callable[[Sequence[str]], str | None]:
    endpoint = Endpoint("an agent", url)

    def reply(said: Sequence[str]) -> str:
        roles = ("user", "assistant")
        messages = [{"role": roles[n % 2], "content": text} for n, text in enumerate(said)]
        request = {"model": name, "messages": messages, "max_tokens": 500}
        text = endpoint.reply(request)["text"]
        fenced = re.search(r"```(?:\w*\n)?(.*?)```", text, re.DOTALL)
        return (fenced[1] if fenced else text).strip() or ":"

    return reply


SCRIPTS: Final = ("names", "facts", "model")
"""The agents that measure difficulty, the weakest first."""

AGENTS: Final[dict[str, Agent]] = {
    "names": names,
    "facts": facts,
    "model": model,
    "recorded": recorded,
    "idle": idle,
}


# ---- parsing of prompts


_KINDS: Final[Mapping[str, str]] = {
    "Copy ": "cp -r",
    "Create a director": "mkdir",
    "Create some director": "mkdir",
    "Create a named pipe": "mkfifo",
    "Create some named pipes": "mkfifo",
    "Create a symbolic link": "ln -s",
    "Create a hard link": "ln",
    "Create ": "touch",
    "Change the modification time": "touch",
    "Move or rename ": "mv",
    "Change the shell's working directory": "cd",
    "Remove ": "rm -r",
}
"""First words of a prompt's summary sentence, each with a command that may do that work."""


def _names(prompt: str) -> list[str]:
    """Return the distinct words in backquotes, quoted for Bash, without the start directory."""
    _, _, rest = prompt.partition("`.")
    rest = rest.partition("\n\nRelative paths start from")[0]
    return list(dict.fromkeys(re.findall(r"`([^`\n]+)`", rest)))


_LINK: Final = "(?:the symbolic link )?"
_FACTS: Final[tuple[tuple[str, str], ...]] = (
    (r"`(.+)` no longer exists", "rm -rf {0}"),
    (r"`(.+)` has been moved to `(.+)`", "mv -T {0} {1}"),
    (r"`(.+)` is a hard link to `(.+)`", "ln -f {1} {0}"),
    (r"`(.+)` has the original content of `(.+)`", "cat {1} > {0}"),
    (r"`(.+)` is empty", ": > {0}"),
    (r"`(.+)` contains only the first (\d+) bytes? of its original content", "truncate -s {1} {0}"),
    (r"the size of `(.+)` is (\d+) bytes?", "truncate -s {1} {0}"),
    (r"the symbolic link `(.+)` points to `(.+)`", "ln -sfn {1} {0}"),
    (rf"the owner of {_LINK}`(.+)` is (\S+)", "chown -h {1} {0}"),
    (rf"the group of {_LINK}`(.+)` is (\S+)", "chgrp -h {1} {0}"),
    (rf"the modification time of {_LINK}`(.+)` is the current time", "touch -hc {0}"),
    (rf"the modification time of {_LINK}`(.+)` is ([-\d]+ [\d:]+ UTC)", "touch -hcd '{1}' {0}"),
    (r"the shell's working directory is `(.+)`", "cd {0}"),
    (r"the shell's umask is (\d+)", "umask {0}"),
    (r"the shell exports the variable `(.+)` with the value `(.*)`", "export {0}={1}"),
    (r"the shell exports no variable `(.+)`", "unset {0}"),
    (r"the shell variable `(.+)` is not exported and has the value `(.*)`", "{0}={1}"),
    (r"the shell alias `(.+)` has the value `(.*)`", "alias {0}={1}"),
    (r"the host name is `(.+)`", "hostname {0}"),
)
"""The wording of each fact, and a command that achieves it; `by_fact` handles contents.

Words in backquotes are already quoted for Bash.
"""


LONGEST: Final = 4000
"""Maximum characters of a fact; longer lines are not parsed."""

_PERMISSIONS: Final = r"([0-7]{4}) \([rwxsStT-]{9}\)"
_ENTRY: Final = (
    rf"`(.+)` is a (regular file|directory|named pipe): permissions {_PERMISSIONS}, "
    r"owner (\S+), group ([^,\s]+)"
)
_LINK_ENTRY: Final = r"`(.+)` is a symbolic link to `(.+)`: owner (\S+), group ([^,\s]+)"
_SHOWN: Final = re.compile(
    r"- `(?P<name>[^`\n]+)` contains (?P<how>exactly|its original content, followed by) this text, "
    r"with(?P<bare>out)? a newline at the end:\n"
    r"(?P<fence>`{3,})\n(?P<text>.*?)\n(?P=fence)",
    re.DOTALL,
)


def by_fact(prompt: str) -> Iterator[str]:
    """Yield Bash commands that achieve the facts of a prompt one by one."""
    later = []
    for match in _SHOWN.finditer(prompt):
        text = match["text"] + ("" if match["bare"] else "\n")
        sign = ">" if match["how"] == "exactly" else ">>"
        yield f"printf %s {quoted(text, always=True)} {sign} {match['name']}"
    for line in _SHOWN.sub("", prompt).splitlines():
        fact = line.removeprefix("- ")
        if len(fact) > LONGEST:
            continue
        if entry := re.match(_ENTRY, fact):
            name, kind, mode, owner, group = entry.groups()
            if kind != "regular file":
                yield f"{'mkdir' if kind == 'directory' else 'mkfifo'} {name}"
            later.append(f"chown {owner}:{group} {name}; chmod {mode} {name}")
            if size := re.search(r", size (\d+) bytes?", fact):
                later.append(f"truncate -s {size[1]} {name}")
            if date := re.search(r", modified ([-\d]+ [\d:]+ UTC)$", fact):
                later.append(f"touch -hcd '{date[1]}' {name}")
        elif link := re.match(_LINK_ENTRY, fact):
            yield "ln -sfn {1} {0} && chown -h {2}:{3} {0}".format(*link.groups())
        elif perms := re.fullmatch(rf"the permissions of `(.+)` are {_PERMISSIONS}", fact):
            yield f"chmod {perms[2]} {perms[1]}"
        else:
            for said, done in _FACTS:
                if known := re.fullmatch(said, fact):
                    yield done.format(*known.groups())
                    break
    yield from later
    printed = re.search(
        r"^Print the lines of ((?:`[^`]+`(?:, then those of )?)+)\.?$", prompt, re.M
    )
    if printed:
        yield f"cat {' '.join(re.findall('`([^`]+)`', printed[1]))}"


_STEPS: Final[tuple[tuple[str, str], ...]] = (
    (r"sort .*as numbers.*in reverse", "sort -rn"),
    (r"sort .*as numbers", "sort -n"),
    (r"sort .*in reverse", "sort -r"),
    (r"sort .*only the first of equal", "sort -u"),
    (r"sort ", "sort"),
    (r"merge adjacent .* not repeated", "uniq -d"),
    (r"merge adjacent .*number of merged", "uniq -c"),
    (r"merge adjacent", "uniq"),
    (r"lines that equal neither", "uniq -u"),
    (r"only the first (?:line|(\d+) lines)$", "head -n {0}"),
    (r"only the last (?:line|(\d+) lines)$", "tail -n {0}"),
    (r"drop the last (?:line|(\d+) lines)$", "head -n -{0}"),
    (r"the lines from line (\d+) on", "tail -n +{0}"),
    (r"the number of (l|w)\w+$", "wc -{0}"),
    (r"only characters? ([\d,-]+)", "cut -c {0}"),
    (r"only fields? ([\d,-]+) of each line, with a tab", "cut -f {0}"),
    (r"only fields? ([\d,-]+) of each line, with `([^`]+)`", "cut -d {1} -f {0}"),
    (r"pieces of at most (\d+) columns?", "fold -w {0}"),
    (r"reverse the order of the characters", "rev"),
    (r"put its number", "cat -n"),
    (r"do not (?:match|contain) the .* `([^`]+)`", "grep -v {0}"),
    (r"(?:match|contain) the .* `([^`]+)`", "grep {0}"),
    (r"delete the characters of the set `([^`]+)`", "tr -d {0}"),
    (r"characters of the set `([^`]+)` by those of the set `([^`]+)`", "tr {0} {1}"),
)
"""The wording of each step of an output, and a filter that may implement it.

A missing number counts as 1.
"""

_WHOLE: Final[tuple[tuple[str, str], ...]] = (
    (r"the number of lines in (.+)", "wc -l {0}"),
    (r"the number of words in (.+)", "wc -w {0}"),
    (r"the numbers of .* in (.+)", "wc {0}"),
    (r"the names of the entries of (`[^`]+`)", "ls {0}"),
    (r"the paths of .* among (`[^`]+`) and everything", "find {0}"),
    (r"the last component of (.+)", "basename -a {0}"),
    (r"the paths? (.+) without (?:its|their) last", "dirname {0}"),
    (r"the absolute path of (`[^`]+`)", "readlink -f {0}"),
    (r"the target of the symbolic link (`[^`]+`)", "readlink {0}"),
    (r"the total disk usage of (`[^`]+`), in units of 1024", "du -sk {0}"),
    (r"the total apparent size of (?:each directory in )?(`[^`]+`)", "du -sb {0}"),
    (r"the absolute path of the working directory", "pwd"),
    (r"your user name", "whoami"),
    (r"the values? of the environment variables? (.+)", "printenv {0}"),
    (r"the names of your groups", "groups"),
    (r"the release of the kernel", "uname -r"),
    (r"the hardware architecture", "uname -m"),
    (r"the host name", "uname -n"),
    (r"your user ID", "id -u"),
    (r"the type of (.+), as determined", "file {0}"),
    (r"the sorted files (`.+`) and (`.+`) that are in both", "comm -12 {0} {1}"),
)
"""The wording of each complete output, and a command that may print it."""


def proposals(prompt: str) -> Iterator[str]:
    """Yield pipelines that may print the requested output, the most likely first."""
    asked = prompt.partition("\n\nPrint ")[2].partition("\n\n")[0].rstrip(".")
    begin, *steps = asked.removeprefix("the result of these steps: take ").split("; ")
    line = f"cat {_words(begin)}"
    for said, done in _WHOLE:
        if match := re.search(said, begin):
            line = done.format(*map(_words, match.groups()))
            break
    pipelines = [line]
    for step in steps:
        for said, done in _STEPS:
            if match := re.search(said, step):
                line += f" | {done.format(*(value or '1' for value in match.groups()))}"
                pipelines.append(line)
                break
    yield from reversed(pipelines)


def _words(text: str) -> str:
    """Return the words in backquotes, separated by spaces."""
    return " ".join(word for word in re.findall("`([^`]+)`", text) if word != "total")
