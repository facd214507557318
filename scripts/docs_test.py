"""Run every command and every program of the how-to guides and the tutorials.

    .venv/bin/python scripts/docs_test.py [PAGE ...] [--full] [--have NAMES] [--since REVISION]
                                        [--within SECONDS]

Each page runs in order, in a new directory that shows parts of the clone, with a separate home
directory and cache; the cache shares the built system `debian-12`. Without `--have network`, pip
finds only the packages of the clone's environment, and so changes nothing in it. Blocks of `sh` and
`bash` are scripts, and lines of `console` that begin with "$ " are commands. Blocks of `python` are
programs that share their names. A command `shioenv serve …` runs until the page ends, or until the
next server starts. The exit status is checked, and the output that the page shows below a command.

Comments `<!-- docs-test: … -->` before a block declare exceptions; docs/how-to/develop.md has all.

Each line of a shown output must be printed, in this order; the page may leave lines out. Lines that
`transcripts.steady` recognises may differ in their values. Of JSON each shown key must be printed.
"""

from __future__ import annotations

import argparse
import json
import math
import os
import re
import shutil
import signal
import subprocess
import sys
import tempfile
import time
from collections import Counter
from collections.abc import Collection, Iterable
from dataclasses import dataclass, field
from pathlib import Path

from transcripts import ROOT, Done, Fence, Session, fences, printed_lines, steady

sys.path.insert(0, str(ROOT / "tests"))
from support.needs import NEEDS

PAGES = sorted([*ROOT.glob("docs/how-to/*.md"), *ROOT.glob("docs/tutorial/*.md")])

PROGRAMS = ("docker", "pipx", "podman", "rsync", "sbatch", "skopeo", "uv")
"""Programs that only pages use, not tests."""

DECLARED = {
    "mirror": "a Debian mirror",
    "an Ubuntu mirror": "an Ubuntu mirror, and its keys",
    "network": "a package index or another server",
    "minutes": "minutes whose work no number reduces; `--full` runs these",
    "hours": "more time than a night has",
    "an idle machine": "a host without other work, for what compares times",
    "a GPU": "a GPU",
    "other machines": "other machines, or a cluster of them",
    "a spare machine": "a host that packages, users or settings may be changed on",
    "a model server": "an endpoint that serves a language model, or an account there",
    "a person": "somebody at a terminal",
    "the repository's address": "the address in place of `…`",
    "a file of others": "data that is not part of the clone",
}
"""Requirements that no program can detect; `--have NAMES` declares them as met."""

LONGEST = 7200
"""Seconds that a block may take: some take ten minutes, and a busy machine is ten times slower."""

TIME = "more time than was given"
"""The missing requirement of blocks once `--within` is over."""

RUN = {"sh", "bash", "console", "python"}
DATA = {"text", "json", "toml", "yaml", "ini"}
"""Languages of fenced blocks: those that run, and those that do not."""

CLONE = (".venv", "benchmarks", "containers", "examples", "packages", "scripts", "soak")

SERVER = re.compile(r"\s*shioenv serve (?!replay\b)")
READY = "running on "
"""The text that a server prints once it listens."""

_COMMENT = re.compile(r"<!-- docs-test: (.*?)\s*-->", re.DOTALL)
_NUMBER = re.compile(r"\d[\d,.]*")


class PageError(Exception):
    """A page with an invalid declaration."""


@dataclass
class Block:
    """A fenced block, or one command of a block of `console`."""

    page: Path
    line: int
    """The line number of its first line."""

    language: str
    text: str
    shown: list[str] | None = None
    """The output that the page shows; None where it shows none."""

    given: list[str] = field(default_factory=list)
    needs: list[str] = field(default_factory=list)
    reductions: list[tuple[str, str, bool]] = field(default_factory=list)
    """Each replacement: old text, new text, and whether it applies only in a quick run."""

    exit: int = 0
    file: str = ""
    typed: str = ""
    shape: bool = False
    example: bool = False
    at: str = ""

    @property
    def place(self) -> str:
        """Return the page and the line."""
        return f"{_name(self.page)}:{self.line}"

    @property
    def runs(self) -> bool:
        """Whether the block is run, and not data."""
        return self.language in RUN and not self.file

    def reduced(self, full: bool) -> str:
        """Return the text with smaller numbers."""
        text = self.text
        for long, short, quick in self.reductions:
            if not (quick and full):
                text = short.join(_standing(long).split(text))
        return text

    def missing(self, full: bool, have: Collection[str]) -> list[str]:
        """Return the requirements of the block that this host lacks."""
        return [name for name in self.needs if name not in have and not _is_met(name, full)]


def _is_met(name: str, full: bool) -> bool:
    if name in DECLARED:
        return name == "minutes" and full
    return NEEDS[name].met() if name in NEEDS else shutil.which(name) is not None


def read_page(page: Path) -> list[Block]:
    """Parse the blocks of a page. Errors: PageError for a wrong declaration."""
    blocks: list[Block] = []
    last: Block | None = None
    """The block whose output may follow."""
    for fence in fences(page.read_text(encoding="utf-8")):
        text, declared = _between(fence.before)
        written = any(one.startswith("file ") for one in declared)
        if last and not text and not written and fence.language in ("text", "json"):
            last.shown = fence.lines
            _declare(last, declared)
            last = None
            continue
        found = _blocks(page, fence)
        for block in found:
            _declare(block, declared)
            _check(block)
            declared = [one for one in declared if not one.startswith(("given", "types"))]
        for long, _, _ in found[0].reductions:
            if not any(_standing(long).search(block.text) for block in found):
                raise PageError(f"{found[0].place}: {long} stands nowhere in the block")
        blocks += found
        last = found[0] if found[0].runs and fence.language != "console" else None
    return blocks


def _between(lines: list[str]) -> tuple[str, list[str]]:
    """Return the text between two blocks without comments, and the declarations of the second one.

    A declaration comes directly before its block; blank lines do not count.
    """
    text = "\n".join(lines)
    end = len(text)
    declared: list[str] = []
    for found in reversed(list(_COMMENT.finditer(text))):
        if text[found.end() : end].strip():
            break
        declared.insert(0, found[1])
        end = found.start()
    if _COMMENT.search(text[:end]):
        raise PageError(f"a declaration stands before no block: {_COMMENT.findall(text[:end])}")
    return text[:end].strip(), declared


def _blocks(page: Path, fence: Fence) -> list[Block]:
    """Yield the fenced block, or each command of a block of `console` with its output."""
    if fence.language != "console":
        return [Block(page, fence.line, fence.language, "\n".join(fence.lines) + "\n")]
    blocks: list[Block] = []
    for line, text in enumerate(fence.lines, fence.line):
        if text.startswith("$ "):
            blocks.append(Block(page, line, "console", text.removeprefix("$ ")))
        elif blocks:
            blocks[-1].shown = [*(blocks[-1].shown or []), text]
        else:
            break
    if not blocks:
        raise PageError(f"{page}:{fence.line}: a console block begins with a command: $ …")
    return blocks


def _declare(block: Block, declared: Iterable[str]) -> None:
    """Take over the declarations before a block, or before its output. Errors: PageError."""
    for text in declared:
        word, _, rest = text.partition(" ")
        if " -> " in text:
            quick = word == "quick"
            long, _, short = (rest if quick else text).partition(" -> ")
            block.reductions.append((long, short, quick))
        elif word == "needs":
            block.needs += [name.strip() for name in rest.split(",")]
        elif word == "exit" and rest.isdecimal():
            block.exit = int(rest)
        elif word == "file" and rest:
            block.file = rest
        elif text.startswith("given\n"):
            block.given.append(text.removeprefix("given\n"))
        elif text.startswith("types\n"):
            block.typed = text.removeprefix("types\n") + "\n"
        elif word == "at" and rest.startswith("/"):
            block.at = rest
        elif text in ("shape", "example"):
            setattr(block, text, True)
        else:
            raise PageError(f"{block.place}: unknown declaration {text!r}")


def _check(block: Block) -> None:
    """Errors: PageError."""
    if block.language not in RUN | DATA:
        known = ", ".join(sorted(RUN | DATA))
        raise PageError(f"{block.place}: a block of the language {block.language!r}, not {known}")
    shows = re.search(r"^(\$ |shioenv )", block.text, re.MULTILINE)
    if shows and not block.runs and not block.file:
        raise PageError(f"{block.place}: a command in a block of {block.language}; use sh")
    for name in block.needs:
        if name not in DECLARED and name not in NEEDS and name not in PROGRAMS:
            raise PageError(f"{block.place}: needs {name!r}, which no list of needs has")
    for long, short, _ in block.reductions:
        if _NUMBER.sub("#", long) != _NUMBER.sub("#", short):
            raise PageError(f"{block.place}: {long} -> {short} changes more than numbers")
        pairs = zip(_numbers(long), _numbers(short), strict=True)
        if not all(less <= more for more, less in pairs):
            raise PageError(f"{block.place}: {long} -> {short} makes a number larger")
    lines = [line for line in block.text.splitlines() if line.strip()]
    if block.runs and any(SERVER.match(line) for line in lines[:-1]):
        raise PageError(f"{block.place}: a server stands before other commands of its block")


def _standing(text: str) -> re.Pattern[str]:
    """Match a text where its numbers are whole numbers of the block."""
    return re.compile(rf"(?<!\d){re.escape(text)}(?!\d)")


def _numbers(text: str) -> list[float]:
    return [float(number.replace(",", "").rstrip(".")) for number in _NUMBER.findall(text)]


_PREAMBLE = """set -eEo pipefail
trap 'echo "line $((LINENO - 2)) failed: $BASH_COMMAND" >&2' ERR
"""
"""Ends a script at its first failure, and prints the failing line of the block."""


@dataclass
class Outcome:
    """The results of the blocks of one page."""

    ran: int = 0
    compared: int = 0
    lacking: list[tuple[Block, list[str]]] = field(default_factory=list)
    failures: list[str] = field(default_factory=list)
    seconds: float = 0.0


class Reader:
    """Runs the blocks of a page, in a separate directory, home and cache."""

    def __init__(
        self,
        place: Path,
        *,
        full: bool,
        have: Collection[str],
        until: float = math.inf,
    ) -> None:
        self.full, self.have, self.until = full, have, until
        """The latest start of a block, as a reading of the monotonic clock."""
        for name in ("page", "home", "tmp"):
            (place / name).mkdir()
        share_system(place / "cache")
        offline = {} if "network" in have else {"PIP_NO_INDEX": "1"}
        self.directory = place / "page"
        self.session = Session(
            self.directory,
            CLONE,
            {
                "HOME": str(place / "home"), "SHIOENV_CACHE": str(place / "cache"),
                "TMPDIR": str(place / "tmp"), **offline,
            },
        )  # fmt: skip
        self._server: subprocess.Popen[bytes] | None = None

    def follow(self, blocks: Iterable[Block]) -> Outcome:
        """Run the blocks of a page, and write its files."""
        outcome, began = Outcome(), time.monotonic()
        try:
            for block in blocks:
                self._follow(block, outcome)
            if self._server is not None and (why := self._stop()):
                outcome.failures.append(why)
        finally:
            self._stop()
            self.session.close()
        outcome.seconds = time.monotonic() - began
        return outcome

    def _follow(self, block: Block, outcome: Outcome) -> None:
        missing = block.missing(self.full, self.have)
        if block.runs and time.monotonic() > self.until:
            missing.append(TIME)
        if missing:
            outcome.lacking.append((block, missing))
            return
        for script in block.given:
            done = self._script(script)
            if done.status:
                outcome.failures.append(_failure(block, "what is given fails", script, done))
        text = block.reduced(self.full)
        if block.file:
            (self.directory / block.file).write_text(text, encoding="utf-8")
        if not block.runs:
            return
        outcome.ran += 1
        if block.language == "python":
            done = self.session.program(text, block.typed, LONGEST)
        else:
            done = self._script(text, block.typed)
        if done.status != block.exit:
            why = f"exit status {done.status}" + (f", not {block.exit}" if block.exit else "")
            outcome.failures.append(_failure(block, why, text, done))
        elif block.shown is not None and not block.example:
            outcome.compared += 1
            output = done.output
            if block.at:
                output = output.replace(str(self.directory), block.at)
            printed = printed_lines(output)
            shape = block.shape or text != block.text
            lost = lacking(printed, block.shown, shape=shape)
            if lost:
                why = "the page shows what is not printed:\n    " + "\n    ".join(lost)
                outcome.failures.append(_failure(block, why, text, done))

    def _script(self, text: str, typed: str = "") -> Done:
        lines = text.splitlines()
        server = lines.pop() if lines and SERVER.match(lines[-1]) else None
        done = Done(0, "")
        if any(lines):
            done = self.session.command(_PREAMBLE + "\n".join(lines), typed, LONGEST)
        if server is not None and not done.status:
            return self._serve(server)
        return done

    def _serve(self, command: str) -> Done:
        """Start a server and wait until it listens; the one before is stopped."""
        if self._server is not None and (why := self._stop()):
            return Done(1, why)
        log = self.directory.parent / "server.log"
        with log.open("wb") as file:
            self._server = subprocess.Popen(
                ["bash", "-c", f"exec {command.strip()}"], cwd=self.directory,
                env=self.session.environment, start_new_session=True,
                stdin=subprocess.DEVNULL, stdout=file, stderr=subprocess.STDOUT,
            )  # fmt: skip
        until = time.monotonic() + LONGEST
        while READY not in (text := log.read_text(errors="replace")):
            if (status := self._server.poll()) is not None:
                self._server = None
                return Done(status or 1, text)
            if time.monotonic() > until:
                self._stop()
                return Done(124, text)
            time.sleep(0.05)
        return Done(0, text)

    def _stop(self) -> str:
        """End the server as Ctrl-C does; return the error, or ""."""
        server, self._server = self._server, None
        if server is None:
            return ""
        if server.poll() is None:
            server.send_signal(signal.SIGINT)
            try:
                server.wait(60)
            except subprocess.TimeoutExpired:
                os.killpg(server.pid, signal.SIGKILL)
                server.wait()
        if server.returncode in (0, 130):
            return ""
        log = (self.directory.parent / "server.log").read_text(errors="replace")
        return f"a server ended with status {server.returncode}:\n{log}"


def lacking(printed: list[str], shown: list[str], *, shape: bool = False) -> list[str]:
    """Return the shown output that was not printed: keys if it is JSON, else lines, in order."""
    if shown[:1] and shown[0].startswith("{"):
        text = "\n".join(printed)
        keys = dict.fromkeys(re.findall(r'"[\w.-]+":', "\n".join(shown)))
        return [key for key in keys if key not in text]
    rest = iter(_comparable(printed, shape))
    return [line for line in _comparable(shown, shape) if line and line not in rest]


def _comparable(lines: list[str], shape: bool) -> list[str]:
    lines = steady([line.rstrip() for line in lines])
    if not shape:
        return lines
    lines = [re.sub(r"\b(?=[a-f]*\d)[0-9a-f]{8,}\b", "#", line) for line in lines]
    return [" ".join(re.sub(r"-?\d[\d.,:]*", "#", line).split()) for line in lines]


def _name(page: Path) -> Path:
    return page.relative_to(ROOT) if page.is_relative_to(ROOT) else page


def _failure(block: Block, why: str, text: str, done: Done) -> str:
    """Return the message about a failed block: place, command and output."""
    came = (done.output + done.errors).strip().splitlines()
    cut = [f"… {len(came) - 40} lines …"] if len(came) > 40 else []
    parts = [
        f"{block.place}: {why}",
        *(f"  $ {line}" for line in text.strip().splitlines()),
        *(f"  | {line}" for line in [*cut, *came[-40:]]),
    ]
    return "\n".join(parts)


def share_system(cache: Path) -> None:
    """Make a cache that has the built system `debian-12` of this host's cache, by links."""
    from shioenv.files.durable import cache_directory
    from shioenv.system.store import build_system

    build_system()
    there = cache_directory()
    for name in ("names", "systems", "bases"):
        (cache / name).mkdir(parents=True)
    content = (there / "names" / "debian-12.json").read_text(encoding="utf-8")
    (cache / "names" / "debian-12.json").write_text(content, encoding="utf-8")
    digest = json.loads(content)["digest"]
    (cache / "systems" / digest).symlink_to(there / "systems" / digest)
    for base in (there / "bases").glob("*.tar"):
        (cache / "bases" / base.name).symlink_to(base)


def changed_since(revision: str) -> list[Path]:
    """The pages that changed since a revision, the latest change first; all if git lacks it."""
    logged = _git("log", "--format=", "--name-only", "--diff-merges=first-parent", f"{revision}..")
    if logged is None:
        print(f"{revision} is not in this clone: every page is run", flush=True)
        return PAGES
    uncommitted = _git("diff", "--name-only", "HEAD") or []
    named = [ROOT / name for name in dict.fromkeys([*uncommitted, *logged])]
    return [page for page in named if page in PAGES]


def _git(*words: str) -> list[str] | None:
    """Return the names of pages that git prints; None where it fails."""
    command = ["git", *words, "--", *map(str, PAGES)]
    done = subprocess.run(command, cwd=ROOT, capture_output=True, text=True, check=False)
    return None if done.returncode else done.stdout.split()


def main(words: list[str] | None = None) -> int:
    """Run pages. Return 1 where a block fails, 2 where a page declares something wrong."""
    parser = argparse.ArgumentParser(description="Run the commands and programs of pages.")
    parser.add_argument("pages", nargs="*", type=Path, default=[])
    parser.add_argument("--full", action="store_true", help="no `quick` reductions; `minutes` too")
    parser.add_argument("--have", default="", help="what this host has, by names with commas")
    parser.add_argument("--since", help="only pages that changed since this revision")
    parser.add_argument(
        "--within", type=float, default=math.inf, help="begin no block after these seconds"
    )
    asked = parser.parse_args(words)
    have = {name.strip() for name in asked.have.split(",")} - {""}
    pages = [page.resolve() for page in asked.pages] or PAGES
    if asked.since:
        pages = [page for page in changed_since(asked.since) if page in pages]
    until = time.monotonic() + asked.within
    try:
        if unknown := have - set(DECLARED):
            raise PageError(f"unknown: {', '.join(unknown)}; known: {', '.join(DECLARED)}")
        read = {page: read_page(page) for page in pages}
    except PageError as error:
        print(f"error: {error}", file=sys.stderr)
        return 2
    outcomes = {}
    for page, blocks in read.items():
        with tempfile.TemporaryDirectory(prefix="shioenv-docs-") as place:
            reader = Reader(Path(place), full=asked.full, have=have, until=until)
            outcomes[page] = outcome = reader.follow(blocks)
        print(_row(page, outcome), flush=True)
        for failure in outcome.failures:
            print(failure, flush=True)
    _sum(outcomes.values())
    return int(any(outcome.failures for outcome in outcomes.values()))


def _row(page: Path, outcome: Outcome) -> str:
    return (
        f"{_name(page)}: {outcome.ran} run; "
        f"{outcome.compared} outputs compared; {len(outcome.lacking)} not run; "
        f"{len(outcome.failures)} failed; {outcome.seconds:.0f} s"
    )


def _sum(outcomes: Collection[Outcome]) -> None:
    """Print every block that was not run with the reason, then all counts."""
    waiting = [each for outcome in outcomes for each in outcome.lacking]
    for block, missing in waiting:
        print(f"not run: {block.place} needs {', '.join(missing)}: {block.text.split(chr(10))[0]}")
    counted = Counter(name for _, missing in waiting for name in missing)
    needed = ", ".join(f"{name} {count}" for name, count in sorted(counted.items()))
    print(
        f"{len(outcomes)} pages: {sum(one.ran for one in outcomes)} blocks run, "
        f"{len(waiting)} not run"
        + (f" for want of {needed}" if needed else "")
        + f", {sum(len(one.failures) for one in outcomes)} failed"
    )


if __name__ == "__main__":
    sys.exit(main())
