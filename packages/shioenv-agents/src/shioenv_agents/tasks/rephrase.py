"""Prompts as a language model would put them, by any endpoint that speaks OpenAI's protocol."""

from __future__ import annotations

from collections.abc import Callable, Iterable
from itertools import pairwise
from pathlib import Path
from typing import Final

from msgspec.structs import replace

from shioenv.endpoint import Endpoint, ReplyFile
from shioenv.files.cache import cache_directory
from shioenv_agents.tasks.task import Task

TOKENS: Final = 400
"""Most tokens of a reply."""

INSTRUCTIONS: Final = """\
You will be shown what has to be done on a Linux machine. Say it as a colleague would who wants \
it done: plain English, one to three sentences, what for if that is easy to guess. Name no \
command, no option and no flag. Contents of files are listed elsewhere: do not repeat them. Reply \
with these sentences alone.
"""


def rephrased(
    tasks: Iterable[Task],
    model: str,
    *,
    url: str = "",
    replay: Path | None = None,
    report: Callable[[int, int], None] = lambda done, total: None,
) -> list[Task]:
    """The tasks, each with the model's words before its prompt, which stays: it holds the facts.

    A reply that is empty or tells how the task is done (`tells_how`) is left out. Replies are kept
    in the file `replay` (None: a file in the user's cache directory), and taken from there the next
    time. `url` is the endpoint's address. Errors: those of `asked` and `Endpoint.reply`.
    """
    tasks = list(tasks)
    kept = ReplyFile(replay or cache_directory() / "prompts.jsonl")
    endpoint = asked(url)
    done = []
    for number, task in enumerate(tasks, 1):
        request = {
            "model": model,
            "messages": [
                {"role": "system", "content": INSTRUCTIONS},
                {"role": "user", "content": task.prompt},
            ],
            "temperature": 0,
            "seed": 0,
            "max_tokens": TOKENS,
        }
        reply = kept.get(request) or kept.keep(request, endpoint.reply(request))
        said = " ".join(reply["text"].split())
        tells = not said or tells_how(said, task.solution)
        done.append(task if tells else replace(task, prompt=f"{said}\n\n{task.prompt}"))
        report(number, len(tasks))
    return done


def asked(url: str) -> Endpoint:
    """The endpoint that `rephrased` asks, checked. Errors: those of `Endpoint.check`."""
    endpoint = Endpoint("writing prompts", url)
    endpoint.check()
    return endpoint


def tells_how(said: str, solution: str) -> bool:
    """Whether a text holds an option of the solution, or two words of the solution in a row."""
    words = {word.strip("`'\"().,;:") for word in said.split()}
    given = solution.split()
    options = {word for word in given if word.startswith("-") and len(word) > 1}
    return bool(options & words) or any(f"{one} {next_}" in said for one, next_ in pairwise(given))
