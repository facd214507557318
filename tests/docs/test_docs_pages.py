"""The runner of `make docs-test`, and the declarations in pages for it."""

from __future__ import annotations

import subprocess
from pathlib import Path

import pytest

import docs_test
import transcripts
from docs_test import DECLARED, Block, Outcome, PageError, Reader, changed_since, lacking, read_page


def page(tmp_path: Path, text: str) -> Path:
    """Return a page in which ''' replaces the fences."""
    file = tmp_path / "page.md"
    file.write_text(text.replace("'''", "```"), encoding="utf-8")
    return file


def read(tmp_path: Path, text: str) -> list[Block]:
    return read_page(page(tmp_path, text))


def follow(tmp_path: Path, text: str, *, full: bool = False, have: set[str] = set()) -> Outcome:  # noqa: B006
    place = tmp_path / "place"
    place.mkdir()
    reader = Reader(place, full=full, have=have)
    return reader.follow(read(tmp_path, text))


def test_every_page_declares_what_its_blocks_need() -> None:
    """Each block of the guides and tutorials is run, is data, or declares its requirements."""
    found = {path: read_page(path) for path in docs_test.PAGES}
    assert len(found) >= 24
    blocks = [block for each in found.values() for block in each if block.runs]
    assert sum(not block.needs for block in blocks) >= 50
    for block in blocks:
        assert block.exit == 0 or not block.needs, f"{block.place}: an exit status that is unseen"


def test_a_need_is_never_met_by_chance() -> None:
    """Only a declaration meets a declared need; a full run meets `minutes` as well."""
    block = Block(Path("page.md"), 1, "sh", "true\n", needs=sorted(DECLARED))
    assert block.missing(False, ()) == sorted(DECLARED)
    assert block.missing(True, ()) == sorted(set(DECLARED) - {"minutes"})
    assert block.missing(False, DECLARED) == []


@pytest.mark.parametrize(
    ("declared", "language", "text", "why"),
    [
        ("--count 9 -> --count 1", "sh", "shioenv sample --count 99", "stands nowhere"),
        ("--count 9 -> --count 90", "sh", "shioenv sample --count 9", "larger"),
        ("sample -> run", "sh", "shioenv sample", "more than numbers"),
        ("--count 9 -> --seed 1", "sh", "shioenv sample --count 9", "more than numbers"),
        ("needs a wizard", "sh", "true", "needs 'a wizard'"),
        ("needs doker", "sh", "true", "needs 'doker'"),
        ("skip", "sh", "true", "unknown declaration"),
        ("exit one", "sh", "true", "unknown declaration"),
        ("shape", "fortran", "true", "language 'fortran'"),
        ("shape", "", "shioenv sample", "language ''"),
        ("shape", "text", "shioenv sample", "use sh"),
        ("shape", "console", "no command", "begins with a command"),
        ("shape", "sh", "shioenv serve openai\ntrue", "a server stands before"),
    ],
)
def test_a_wrong_declaration_is_an_error(
    tmp_path: Path, declared: str, language: str, text: str, why: str
) -> None:
    source = f"<!-- docs-test: {declared} -->\n'''{language}\n{text}\n'''\n"
    with pytest.raises(PageError, match=why):
        read(tmp_path, source)
    assert docs_test.main([str(page(tmp_path, source))]) == 2


def test_a_declaration_stands_directly_before_its_block(tmp_path: Path) -> None:
    text = "<!-- docs-test: needs ssh -->\n\nA sentence between.\n\n'''sh\ntrue\n'''\n"
    with pytest.raises(PageError, match="before no block"):
        read(tmp_path, text)


def test_an_unknown_name_of_what_is_there_is_an_error(tmp_path: Path) -> None:
    assert docs_test.main(["--have", "miror", str(page(tmp_path, ""))]) == 2


def test_numbers_are_reduced_as_wholes_and_in_a_full_run_less(tmp_path: Path) -> None:
    (block,) = read(
        tmp_path,
        "<!-- docs-test: quick --count 100 -> --count 2 -->\n"
        "<!-- docs-test: --count 1000 -> --count 30 -->\n"
        "'''sh\nf --count 100\ng --count 1000\nh --count 1000000\n'''\n",
    )
    assert block.reduced(False).split("\n") == [
        "f --count 2", "g --count 30", "h --count 1000000", "",
    ]  # fmt: skip
    assert block.reduced(True).startswith("f --count 100\ng --count 30\n")


@pytest.mark.usefixtures("system")
def test_a_page_runs_in_order_in_one_directory_with_the_default_system(tmp_path: Path) -> None:
    outcome = follow(
        tmp_path,
        """
<!-- docs-test: given
echo 1 > there
-->
'''sh
cat there
mkdir made && cd made
test "$HOME" != /root && touch ~/.mark
'''

<!-- docs-test: file made/data.txt -->
'''text
one
'''

'''console
$ cat made/data.txt
one
$ echo two
two
'''

'''python
import shioenv
from pathlib import Path
number = len(Path("made/data.txt").read_text())
print(shioenv.find_system().name)
'''
'''text
debian-12
'''

<!-- docs-test: types
answer
-->
'''python
print(input(), number)
'''

'''text
answer 4
'''

<!-- docs-test: exit 3 -->
'''sh
ls; exit 3
'''

<!-- docs-test: needs a GPU -->
'''sh
false
'''
""",
    )
    assert outcome.failures == []
    assert (outcome.ran, outcome.compared) == (6, 4)
    assert [missing for _, missing in outcome.lacking] == [["a GPU"]]


@pytest.mark.usefixtures("system")
def test_what_fails_is_named_with_line_command_and_output(tmp_path: Path) -> None:
    outcome = follow(
        tmp_path,
        "\n'''sh\necho before\nls nowhere\necho behind\n'''\n\n"
        "'''python\n1\nraise ValueError('wrong')\n'''\n"
        "<!-- docs-test: exit 2 -->\n'''sh\ntrue\n'''\n"
        "'''console\n$ echo one\none\ntwo\n$ true | false\n'''\n",
    )
    failed, raised, declared, differs, piped = outcome.failures
    assert failed.startswith(f"{tmp_path}/page.md:3: exit status 2")
    assert "| line 2 failed: ls nowhere" in failed
    assert "$ ls nowhere" in failed
    assert "| ls: cannot access 'nowhere'" in failed
    assert "| behind" not in failed
    assert raised.startswith(f"{tmp_path}/page.md:9: exit status 1")
    assert 'File "page", line 2' in raised
    assert "ValueError: wrong" in raised
    assert "exit status 0, not 2" in declared
    assert "the page shows what is not printed:\n    two" in differs
    assert "exit status 1" in piped


@pytest.mark.usefixtures("system")
def test_the_exit_status_is_that_of_the_pages(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    assert docs_test.main([str(page(tmp_path, "'''sh\ntrue\n'''\n"))]) == 0
    waiting = "<!-- docs-test: needs hours -->\n'''sh\nfalse\n'''\n"
    assert docs_test.main([str(page(tmp_path, waiting))]) == 0
    printed = capsys.readouterr().out
    assert f"not run: {tmp_path}/page.md:3 needs hours: false" in printed
    assert "1 not run for want of hours 1, 0 failed" in printed
    assert docs_test.main([str(page(tmp_path, "'''sh\nfalse\n'''\n"))]) == 1
    assert f"{tmp_path}/page.md:2: exit status 1" in capsys.readouterr().out


@pytest.mark.usefixtures("system")
def test_a_page_changes_the_clones_environment_only_with_a_network(tmp_path: Path) -> None:
    text = "'''sh\ntest \"$PIP_NO_INDEX\" = 1\n'''\n"
    assert follow(tmp_path, text).failures == []
    (tmp_path / "other").mkdir()
    assert len(follow(tmp_path / "other", text, have={"network"}).failures) == 1


SERVER = """\
#!/usr/bin/env python3
import os, pathlib, signal, sys
pathlib.Path("pid").write_text(str(os.getpid()))
print("running on nowhere", flush=True)
signal.signal(signal.SIGINT, lambda *_: sys.exit(int(sys.argv[3])))
while True:
    signal.pause()
"""


@pytest.mark.usefixtures("system")
@pytest.mark.parametrize("status", [0, 7])
def test_a_server_runs_until_the_page_ends(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, status: int
) -> None:
    """The server is a fake `shioenv`, first in the search path of the page."""
    (tmp_path / "bin").mkdir()
    stand_in = tmp_path / "bin" / "shioenv"
    stand_in.write_text(SERVER)
    stand_in.chmod(0o755)
    given = Reader._serve
    path = f"PATH={tmp_path}/bin:$PATH"
    monkeypatch.setattr(Reader, "_serve", lambda self, text: given(self, f"env {path} {text}"))
    outcome = follow(
        tmp_path,
        f"'''console\n$ shioenv serve it {status}\nrunning on nowhere\n'''\n"
        "'''sh\nkill -0 $(cat pid)\n'''\n",
    )
    assert outcome.compared == 1
    assert outcome.ran == 2
    if status:
        assert ["a server ended with status 7" in one for one in outcome.failures] == [True]
    else:
        assert outcome.failures == []
    pid = int((tmp_path / "place" / "page" / "pid").read_text())
    assert not Path(f"/proc/{pid}").exists()


def test_a_shown_output_may_leave_lines_out_but_not_invent_any() -> None:
    printed = ["records  2", "time  1 s", "shared 3", "end"]
    assert lacking(printed, ["records  2", "time  9 s", "end"]) == []
    assert lacking(printed, ["end", "records  2"]) == ["records  2"]
    assert lacking(printed, ["records  3"]) == ["records  3"]
    assert lacking(printed, ["records  3"], shape=True) == []
    assert lacking(printed, ["recorded 3"], shape=True) == ["recorded #"]
    shown = ['{"exit_code": 0, ...', ' "gone": null}']
    assert lacking(['{"exit_code": 3, "patch": []}'], shown) == ['"gone":']


def test_changed_pages_are_those_that_git_names_the_latest_first(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    pages = [tmp_path / f"{name}.md" for name in "abcd"]
    monkeypatch.setattr(docs_test, "ROOT", tmp_path)
    monkeypatch.setattr(docs_test, "PAGES", pages)
    who = ["-c", "user.name=a", "-c", "user.email=a@b"]

    def commit(page: Path) -> None:
        for words in (["add", page.name], [*who, "commit", "-qm", page.name]):
            subprocess.run(["git", *words], cwd=tmp_path, check=True)

    subprocess.run(["git", "init", "-q"], cwd=tmp_path, check=True)
    for file in pages:
        file.write_text("one\n")
        commit(file)
    pages[1].write_text("two\n")
    commit(pages[1])
    pages[0].write_text("two\n")
    assert changed_since("HEAD") == [pages[0]]
    assert changed_since("HEAD~2") == [pages[0], pages[1], pages[3]]
    assert changed_since("no-such-revision") == pages
    assert "every page is run" in capsys.readouterr().out


@pytest.mark.usefixtures("system")
def test_blocks_for_which_no_time_is_left_are_listed(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    text = "'''sh\nfalse\n'''\n"
    assert docs_test.main(["--within", "0", str(page(tmp_path, text))]) == 0
    assert f"page.md:2 needs {docs_test.TIME}: false" in capsys.readouterr().out


def test_the_targets_pass_on_what_is_asked() -> None:
    def planned(*words: str) -> str:
        command = ["make", "--dry-run", *words]
        done = subprocess.run(
            command, cwd=transcripts.ROOT, capture_output=True, text=True, check=True
        )
        return " ".join(done.stdout.replace("\\", "").split())

    asked = planned("docs-test", "SINCE=HEAD~3", "FULL=1", "WITHIN=9", "HAVE=a GPU, mirror")
    assert '--since HEAD~3 --full --within 9 --have "a GPU, mirror"' in asked
    assert '--full --have "mirror, an idle machine"' in planned("nightly")
    assert '--full --have "network"' in planned("nightly", "HAVE=network")
