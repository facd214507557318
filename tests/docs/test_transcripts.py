"""Commands and programs print what README.md shows, apart from machine-dependent values."""

from __future__ import annotations

import re
import signal
import subprocess
from pathlib import Path

import pytest

import docs_test
import transcripts
from support.needs import needs

ROOT = Path(__file__).parents[2]


README = transcripts.README.read_text(encoding="utf-8")
PARTS = list(transcripts.parts(README))

steady = transcripts.steady


@pytest.mark.usefixtures("system")
@pytest.mark.timeout(900)
def test_everything_prints_what_the_page_shows(tmp_path: Path) -> None:
    session = transcripts.Session(tmp_path)
    shown = [part for part in PARTS if part.kind != "plain"]
    assert {part.kind for part in shown} == {"command", "python"}
    for part in shown:
        assert steady(session.printed(part)) == steady(part.lines), part.text
    session.close()


def test_nothing_that_the_page_shows_is_left_unrun() -> None:
    """A block is run with its output, or is the installation, which `make fresh` follows."""
    plain = {part.language for part in PARTS if part.kind == "plain"} - {""}
    assert plain == {"sh", "python", "console"}
    for part in PARTS:
        if part.language == "console":
            assert part.lines == [], "a console block begins with a command"
    programs = [part.lines for part in PARTS if part.language == "python"]
    run = [part.text.splitlines() for part in PARTS if part.kind == "python"]
    assert programs == run, "a program stands before what it prints"
    (install,) = re.findall(r"```sh\n(.*?)```", README, re.DOTALL)
    assert install == "make setup && . .venv/bin/activate\n"


def first_commands(page: Path) -> list[str]:
    """Return the commands of the table for newcomers."""
    rows = re.findall(r"^\| [^|]+ \| `([^`|]+)` \| [^|]*\d[^|]* \| \[", page.read_text(), re.M)
    assert len(rows) == 4
    return rows


def test_the_home_of_the_site_names_the_same_first_commands() -> None:
    assert first_commands(transcripts.README) == first_commands(ROOT / "docs" / "index.md")


@needs("ssh")
@pytest.mark.usefixtures("system")
@pytest.mark.timeout(900)
def test_the_first_commands_run_in_order(tmp_path: Path) -> None:
    """The last one is a server, which stops when its page ends."""
    page, place = tmp_path / "page.md", tmp_path / "place"
    commands = "\n".join(f"```sh\n{each}\n```" for each in first_commands(transcripts.README))
    page.write_text(commands.replace("--port 2222", "--port 0"))
    place.mkdir()
    reader = docs_test.Reader(place, full=False, have=())
    outcome = reader.follow(docs_test.read_page(page))
    assert outcome.failures == []
    assert outcome.ran == 4


def test_the_public_address_is_one_variable() -> None:
    """A release sets it; every other place only uses it."""
    pages = [*ROOT.glob("*.md"), *(ROOT / "docs").rglob("*.md")]
    texts = {page: page.read_text(encoding="utf-8") for page in pages}
    assert [page.name for page, text in texts.items() if "SHIOENV_URL=" in text] == ["install.md"]
    cloned = re.findall(r"git clone (?:--depth 1 )?(\S+)", "".join(texts.values()))
    assert set(cloned) == {'"$SHIOENV_URL"'}


def test_the_page_is_what_its_parts_are() -> None:
    lines = []
    for part in PARTS:
        lines += [f"$ {part.text}"] if part.kind == "command" else []
        lines += part.lines
    assert "\n".join(lines) + "\n" == README


def test_make_fresh_follows_the_page() -> None:
    done = subprocess.run(
        ["scripts/fresh.sh", "--steps"], cwd=ROOT, capture_output=True, text=True, check=True
    )
    assert done.stdout.split() == ["setup", "demo", "test"]
    assert set(re.findall(r"(?:^|`)make ([a-z-]+)", README, re.MULTILINE)) == set(
        done.stdout.split()
    )
    targets = re.findall(r"^([a-z-]+):", (ROOT / "Makefile").read_text(), re.MULTILINE)
    assert set(done.stdout.split()) <= set(targets)


def test_commands_named_in_a_sentence_exist() -> None:
    named = re.findall(r"`(shioenv [a-z]+|--[a-z-]+ [a-z]+)`", re.sub(r"```.*?```", "", README))
    reference = "".join(page.read_text() for page in ROOT.glob("docs/reference/cli/*.md"))
    assert named
    for text in named:
        first = text.split()[0] if text.startswith("--") else f"# {text}"
        assert first in reference, text


def test_parts_are_what_runs_and_what_does_not() -> None:
    page = [
        "$ not in a block", "```console", "$ a", "one", "", "$ b", "```", "```sh", "$ c", "```",
        "```python", "x = 1", "```", "then", "```python", "print(x)", "```", "```text",
        "$ 1", "```",
        "```text", "$ d", "```",
    ]  # fmt: skip
    found = list(transcripts.parts("\n".join(page)))
    runs = [(part.kind, part.text, part.lines) for part in found if part.kind != "plain"]
    assert runs == [
        ("command", "a", ["one", ""]),
        ("command", "b", []),
        ("python", "print(x)", ["$ 1"]),
    ]


def test_a_page_that_shows_something_else_is_seen(tmp_path: Path) -> None:
    session = transcripts.Session(tmp_path)
    for kind, text, printed in [
        ("command", "echo a; echo b >&2", ["a", "b"]),
        ("command", "touch x", []),
        ("python", "y = 1\nprint(y)", ["1"]),
        ("python", "import os\nprint(os.listdir(), y)", ["['examples', 'x'] 1"]),
        ("command", "echo '3/9 records, 1 s left'; exit 1", []),
    ]:
        found = session.printed(transcripts.Part(kind, text))
        assert [sorted(line) for line in found] == [sorted(line) for line in printed]
    session.close()
    assert steady(["records  2", "time  1 s"]) != steady(["records  3", "time  1 s"])
    assert steady(["records  2", "time  1 s"]) == steady(["records  2", "time  2 s", "repeated  1"])


def test_an_interrupted_page_leaves_no_process_behind(tmp_path: Path) -> None:
    session = transcripts.Session(tmp_path, ())
    before = signal.signal(signal.SIGINT, signal.default_int_handler)
    try:
        with pytest.raises(KeyboardInterrupt):
            session.command("read; echo $$ > pid; kill -INT $PPID; exec sleep 99", "go\n")
    finally:
        signal.signal(signal.SIGINT, before)
    assert not Path("/proc", (tmp_path / "pid").read_text().strip()).exists()
