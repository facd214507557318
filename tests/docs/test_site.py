"""The site has every page and every public name, and its check finds faults."""

from __future__ import annotations

import inspect
import re
import subprocess
from pathlib import Path

import api
import pytest
import website
from check import faults
from pages import DOCS, ROOT, linked, placed, sections, stage
from results import MOST, arranged

import shioenv
from support.needs import SITE, needs
from support.sources import FILES, module_name


@pytest.fixture(scope="module")
def staged(tmp_path_factory: pytest.TempPathFactory) -> Path:
    out = tmp_path_factory.mktemp("pages")
    stage(out)
    api.stage(out)
    return out


def test_the_index_lists_every_page_once_with_a_line_about_it() -> None:
    assert website.unlisted() == []
    entries = [entry for section in sections() for entry in section.entries]
    assert len(entries) > 60
    for entry in entries:
        assert entry.path.is_file(), entry
        assert entry.about.strip(), entry


def test_the_navigation_and_llms_txt_hold_every_page() -> None:
    listed = sections()
    nav = str(website.navigation(listed))
    told = website.llms(listed)
    for page in DOCS.rglob("*.md"):
        place = page.relative_to(DOCS)
        assert f"'{place}'" in nav
        lists = (Path("index.md"), Path("pages.md"))
        assert place in lists or f"({place.with_suffix('.html')})" in told
    for package in api.packages():
        assert f"reference/api/{package}.md" in nav


def test_the_page_of_python_is_up_to_date() -> None:
    assert (DOCS / api.PAGE).read_text(encoding="utf-8") == api.names_page(), "run `make docs`"


def test_every_public_name_has_its_docstring_on_the_page() -> None:
    page = api.names_page()
    anchors = re.findall(r"^\| \[`\w+`\]\(#([\w-]+)\)", page, re.M)
    titles = re.findall(r"^## (.*)$", page, re.M)
    assert anchors == [title.lower().replace(" ", "-").replace("()", "") for title in titles]
    for name in set(shioenv.__all__) - {"__version__"}:
        value = getattr(shioenv, name)
        assert f"## class {name}\n" in page or f"## {name}()\n" in page
        assert str(inspect.getdoc(value)) in page


def test_the_page_of_public_names_shows_no_internals() -> None:
    page = api.names_page()
    assert not re.search(r"0x[0-9a-f]{6}|\b_\w+\(|<factory>|^\| `_(?!_)", page, re.M)


def test_every_package_has_a_page_with_all_its_public_modules(staged: Path) -> None:
    names = {module_name(path) for path in FILES}
    folder = staged / "reference" / "api"
    told = set(re.findall(r"^::: (.*)$", "".join(p.read_text() for p in folder.glob("*.md")), re.M))
    left_out = {name for name in names - told if name.split(".")[1:2] not in (["cli"], ["native"])}
    assert left_out == {"shioenv", "shioenv.__main__"}


def test_links_out_of_docs_lead_to_copies(staged: Path) -> None:
    text = (staged / "how-to" / "first-change.md").read_text(encoding="utf-8")
    assert "](../project/contributing.md)" in text
    assert (staged / "project" / "contributing.md").is_file()
    copied = placed(ROOT / "packages/shioenv-eval/src/shioenv_eval/adapting/placeholders.toml")
    assert (staged / copied).read_bytes() == (ROOT / copied.relative_to("files")).read_bytes()


def test_a_link_out_of_the_clone_is_refused() -> None:
    with pytest.raises(ValueError, match="no file of the clone"):
        list(linked(DOCS / "index.md", "[all](../packages)"))


def test_lists_and_bars_are_written_as_the_generator_reads_them(staged: Path) -> None:
    readme = (staged / "project" / "readme.md").read_text(encoding="utf-8")
    assert re.search(r":\n\n- \*Irreducibility\*", readme)
    assert "#only-dark" in readme
    assert "<picture>" not in readme
    truth = (staged / "design" / "truth.md").read_text(encoding="utf-8")
    assert "`echo 1 >&2 | echo 2 >&2`" in truth


def test_what_pages_declare_to_their_test_is_not_on_the_site(staged: Path) -> None:
    """Not even as comments, which the search of the site would index."""
    declared = [page for page in DOCS.rglob("*.md") if "<!-- docs-test: " in page.read_text()]
    assert len(declared) > 15
    for page in staged.rglob("*.md"):
        assert not re.search(r"^<!-- docs-test", page.read_text(encoding="utf-8"), re.MULTILINE), (
            page
        )


def test_searches_end_at_no_page_of_internals_or_lists(staged: Path) -> None:
    hidden = {
        page.relative_to(staged).as_posix()
        for page in staged.rglob("*.md")
        if "search:\n  exclude: true\n" in page.read_text(encoding="utf-8").partition("\n# ")[0]
    }
    assert {f"reference/api/{name}.md" for name in api.packages()} <= hidden
    assert {"pages.md", "reference/interfaces.md", "project/readme.md"} <= hidden
    assert not any(name.startswith(("how-to", "tutorial", "reference/cli")) for name in hidden)


def test_pages_of_results_begin_with_a_chart_and_narrow_tables(staged: Path) -> None:
    for page in (staged / "experiments").glob("*.md"):
        text = page.read_text(encoding="utf-8")
        title, _, rest = text.partition("# ")[2].partition("\n")
        assert rest.lstrip().startswith(("![", '<figure class="bars"')), title
        unfolded = re.sub(r"<details.*?</details>", "", text, flags=re.DOTALL)
        rules = re.findall(r"^\|(?::?-+:?\|)+$", unfolded, re.MULTILINE)
        assert all(rule.count("|") - 1 <= MOST for rule in rules), title


def test_a_wide_table_unfolds(tmp_path: Path) -> None:
    row = "| " + " | ".join("abcdefgh") + " |"
    text = arranged(tmp_path / "x.md", f"# X\n\n{row}\n|{'---|' * 8}\n{row}\n")
    assert "| a | b | c | d | e | f |\n|---|---|---|---|---|---|\n" in text
    assert "<summary>All 8 columns</summary>" in text
    assert text.count(row) == 2


def test_the_check_sees_broken_links_and_what_is_loaded_from_outside(tmp_path: Path) -> None:
    (tmp_path / "a.html").write_text('<h1 id="here"></h1><a href="b.html#there">b</a>')
    (tmp_path / "b.html").write_text('<p id="there"></p><a href="a.html#here">a</a>')
    (tmp_path / "s.css").write_text("p { background: url(data:x) }")
    assert faults(tmp_path) == []
    (tmp_path / "b.html").write_text(
        '<a href="#no"></a><a href="c.html"></a><a href="https://example.org/"></a>'
        '<a href="/a.html"></a>'
        '<script src="https://example.org/s.js"></script>'
        '<link rel="preconnect" href="//example.org">'
    )
    (tmp_path / "s.css").write_text("@import 'https://example.org/s.css';")
    assert faults(tmp_path) == [
        "a.html: leads to b.html#there, where nothing has that name",
        "b.html: leads to #no, where nothing has that name",
        "b.html: leads to /a.html, which is from the root of a server",
        "b.html: leads to c.html, which is missing",
        "b.html: loads //example.org",
        "b.html: loads https://example.org/s.js",
        "s.css: loads https://example.org/s.css",
    ]


@needs("zensical")
def test_the_site_builds_and_is_sound(tmp_path: Path) -> None:
    program = [str(SITE / "bin" / "python"), str(ROOT / "scripts/site/website.py"), str(tmp_path)]
    ended = subprocess.run(program, capture_output=True, text=True, check=False)
    assert ended.returncode == 0, ended.stderr
    assert '"ShIOEnv"' in (tmp_path / "html" / "search.json").read_text(encoding="utf-8")
    names = (tmp_path / "html" / "reference" / "python.html").read_text(encoding="utf-8")
    assert 'id="open_sandbox"' in names
