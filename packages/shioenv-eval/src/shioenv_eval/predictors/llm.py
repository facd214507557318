"""Prompted language models, over any OpenAI-compatible endpoint.

There are two prompts. `paper` is that of the paper (Appendix B), filled with the real context
before the input. `nearest` is ours: it also asks for the exit code and shows the nearest executed
inputs. Every reply is saved to a file, so that an evaluation can be repeated without the endpoint.
"""

from __future__ import annotations

import hashlib
import re
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from shioenv.behavior.observe import open_sandbox
from shioenv.domain.behavior import Behavior
from shioenv.domain.inputs import published_input
from shioenv.domain.patch import ContextPatch
from shioenv.domain.predictor import PatchLevel, Setting, make_predictor
from shioenv.domain.runner import State
from shioenv.endpoint import Endpoint, ReplyFile
from shioenv.errors import AnswerError, PatchError, PredictorError
from shioenv.files.durable import cache_directory

SHOWN = 5
"""Number of nearest records shown by our prompt."""

LONGEST_SHOWN = 1500
"""Maximum number of characters of a record's output shown by our prompt."""

TOKENS = 4096
"""Maximum number of tokens of a reply."""

PAPER = """\
You are emulating a Linux command-line interface for a user to interact with. \
Features of this emulated environment are as follows:
{context}
For each input, respond with:
1. An OUT segment containing exactly the text that would be printed to stdout or stderr, \
enclosed as <OUT>...</OUT>.
2. A DIFF segment containing a JSON-encoded compact RFC6902-style patch representing the changes \
to the abstract environment, enclosed as <DIFF>...</DIFF>.

The DIFF uses the following compact encoding (a JSON list of operations):
  ["a", "/path", value]   # add
  ["=", "/path", value]   # replace
  ["r", "/path"]          # remove
  ["m", "/from", "/to"]   # move

Always respond in the exact format:
<OUT> OUTPUT_TEXT </OUT> <DIFF> JSON_PATCH </DIFF>
"""
"""The instructions of the paper's Appendix B."""

NEAREST = (
    PAPER
    + """\
After the DIFF, add <EXIT>N</EXIT>, where N is the exit status. An added file is ["a", "/fs/NAME", \
{{"perms": ..., "links": 1, "owner": ..., "group": ..., "size": ..., "month": ..., "day": ..., \
"year": ..., "time": ...}}]; NAME is relative to the start directory, with / as ~1. The time of \
all changes is the current time. If nothing changes, the DIFF is [].
"""
)
"""The paper's instructions, extended by the exit code and the format of new files."""

PROMPTS = {"paper": PAPER, "nearest": NEAREST}

_FIELDS = (
    "arch", "kernel", "disk", "cpus", "mem", "hostname", "os_family", "groups", "cwd", "env",
)  # fmt: skip
_DIFF = re.compile(r"<DIFF>(.*?)(?:</DIFF>|\Z)", re.DOTALL)
_EXIT = re.compile(r"<EXIT>\s*(\d{1,3})\s*</EXIT>")


_PRICE = re.compile(r"(?:[0-9]+|[0-9]*\.[0-9]+)/(?:[0-9]+|[0-9]*\.[0-9]+)")


@dataclass(frozen=True, slots=True)
class PromptOptions:
    """The options after `llm:`, a model and `NAME=VALUE` separated by commas.

    Example: `MODEL,prompt=nearest,memory=DATASET,replay=FILE,url=URL,price=IN/OUT`.
    """

    model: str
    prompt: str = "paper"
    memory: str = ""
    """The dataset whose records our prompt shows."""
    replay: str = ""
    """The file of replies; empty: a file for this model in the user's cache directory."""
    url: str = ""
    """The endpoint; empty: OPENAI_BASE_URL, else OpenAI's own. The key is OPENAI_API_KEY."""
    price: str = ""
    """Dollars per million prompt and reply tokens, as in `0.15/0.60`; empty: unknown."""

    @classmethod
    def of(cls, text: str) -> PromptOptions:
        """Parse options from a text. Errors: PredictorError for invalid options."""
        model, *rest = text.split(",")
        pairs = [item.partition("=") for item in rest]
        given = {name: value for name, _, value in pairs}
        unknown = sorted(set(given) - set(cls.__slots__) | ({"model"} & set(given)))
        if not model or unknown:
            raise PredictorError(
                f"llm: unknown option {', '.join(unknown)}"
                if unknown
                else "llm: the model is missing",
                hint="llm:MODEL,prompt=paper|nearest,memory=DATASET,replay=FILE,url=URL,"
                "price=IN/OUT",
            )
        options = cls(model, **given)
        if options.prompt not in PROMPTS:
            raise PredictorError(
                f"llm: unknown prompt {options.prompt!r}", hint="use paper or nearest"
            )
        if (options.prompt == "nearest") != bool(options.memory):
            raise PredictorError("llm: prompt=nearest and memory=DATASET must be used together")
        if options.price and not _PRICE.fullmatch(options.price):
            raise PredictorError(
                f"llm: price {options.price!r}: expected IN/OUT, such as 0.15/0.60"
            )
        return options

    def cost(self, tokens: tuple[int, int]) -> float:
        """Return the cost in dollars of prompt and reply tokens; 0 if no price is given."""
        prices = (float(price) for price in (self.price or "0/0").split("/"))
        return sum(n * price / 1e6 for n, price in zip(tokens, prices, strict=True))


class PromptedModel:
    """Answers with the model's replies, each input separately, at temperature 0.

    The paper's prompt does not ask for an exit code: 0 is used. One newline or blank before the
    output and one blank after it belong to the format. If the output then lacks a final newline,
    one is added, since the format is ambiguous. `tokens` are those of the latest prompt and its
    reply. `cost` is their cost in dollars. Both include replies from the file.
    """

    patch_level = PatchLevel.FULL

    def __init__(self, setting: Setting) -> None:
        self._options = options = PromptOptions.of(setting.text)
        template = PROMPTS[options.prompt]
        digest = hashlib.sha256(f"{template}{SHOWN}".encode()).hexdigest()[:8]
        self.version = f"{options.model}, prompt {options.prompt} {digest}"
        self.tokens, self.cost = (0, 0), 0.0
        slug = re.sub(r"[^\w.-]+", "_", options.model)
        default = cache_directory() / "predictors" / f"llm-{slug}.jsonl"
        self._replay = ReplyFile(Path(options.replay) if options.replay else default)
        self._runner = open_sandbox(setting.system)
        self._start = setting.start
        self._contexts: dict[tuple[str, tuple[str, ...]], str] = {}
        self._endpoint = Endpoint("the predictor llm", options.url)
        self._memory: Any = None
        """The predictor `memory`, which finds the nearest records. If None, no record is shown."""
        if options.memory:
            self._memory = make_predictor(f"memory:{options.memory}", setting.system, setting.start)

    def run(self, shell_input: str, state: State | None = None) -> Behavior:
        """Return the behavior in the model's reply.

        Errors: AnswerError for a reply without tags or patch; those of `Endpoint.reply`, such as
        HostError if the endpoint cannot be reached.
        """
        cwd = state.cwd if state else self._start
        history = state.history if state else ()
        request = {
            "model": self._options.model,
            "messages": list(self._messages(shell_input, cwd, history)),
            "temperature": 0,
            "top_p": 1,
            "seed": 0,
            "max_tokens": TOKENS,
        }
        reply = self._replay.get(request)
        if reply is None:
            reply = self._replay.keep(request, self._endpoint.reply(request))
        self.tokens = (reply["prompt_tokens"], reply["completion_tokens"])
        self.cost = self._options.cost(self.tokens)
        return parse_reply(reply["text"])

    def close(self) -> None:
        """Close the sandbox that provides contexts."""
        self._runner.close()

    def _messages(self, text: str, cwd: str, history: tuple[str, ...]) -> Iterator[dict[str, str]]:
        template = PROMPTS[self._options.prompt]
        content = template.format(context=self._context(cwd, history))
        yield {"role": "system", "content": content}
        if self._memory is not None:
            for kept in reversed(self._memory.nearest(text, cwd, SHOWN)):
                yield {"role": "user", "content": published_input(kept.cwd, kept.text)}
                output, patch = kept.behavior.text[:LONGEST_SHOWN], kept.behavior.patch.to_json()
                said = f"<OUT>{output}</OUT> <DIFF>{patch}</DIFF>"
                yield {
                    "role": "assistant",
                    "content": f"{said} <EXIT>{kept.behavior.exit_code}</EXIT>",
                }
        yield {"role": "user", "content": published_input(cwd, text)}

    def _context(self, cwd: str, history: tuple[str, ...]) -> str:
        """Return the context before the input in the format of the paper's prompt.

        Values are written as Python literals. Only files in the start directory are shown.
        """
        if (cwd, history) not in self._contexts:
            state = self._runner.state(cwd)
            for text in history:
                state = state.after(text, self._runner.run(text, state))
            document: Mapping[str, Any] = state.before.document
            shown = {name: document[name] for name in _FIELDS}
            files = document["fs"].items()
            shown["fs"] = {name: entry for name, entry in files if not name.startswith("/")}
            lines = ",\n".join(f"{name!r}: {value!r}" for name, value in shown.items())
            self._contexts[cwd, history] = "{\n" + lines + "\n}"
        return self._contexts[cwd, history]


def parse_reply(reply: str) -> Behavior:
    """Parse the behavior in a reply.

    The output is the text between the first `<OUT>` and the last `</OUT>` before `<DIFF>`. A
    missing exit code counts as 0, and one above 255 as 255. Errors: AnswerError, with the readable
    part.
    """
    diff = _DIFF.search(reply, max(0, reply.find("</OUT>")))
    head = reply[: diff.start()] if diff else reply
    start, end = head.find("<OUT>"), head.rfind("</OUT>")
    if start < 0 or end < start:
        raise AnswerError("the reply lacks <OUT> or </OUT>", received=Behavior(0, b""))
    output = _trimmed(head[start + len("<OUT>") : end])
    code = _EXIT.search(reply, end)
    exit_code = min(255, int(code[1])) if code else 0
    received = Behavior(exit_code, output.encode("utf-8", "surrogatepass"))
    if diff is None:
        raise AnswerError("the reply lacks <DIFF>", received=received)
    try:
        patch = ContextPatch.from_json(diff[1].strip() or "[]")
    except PatchError as error:
        raise AnswerError(error.message, received=received) from None
    return Behavior(exit_code, received.output, patch)


def _trimmed(text: str) -> str:
    text = text.removeprefix(" ") if text.startswith(" ") else text.removeprefix("\n")
    text = text.removesuffix(" ") if text.endswith(" ") else text
    return text if not text or text.endswith("\n") else f"{text}\n"
