"""The built site in a browser: searches, tables and figures on a screen and on a phone."""

from __future__ import annotations

import subprocess
from collections.abc import Iterator
from pathlib import Path

import pytest
from selenium import webdriver
from selenium.webdriver.support.wait import WebDriverWait

from support.browser import BROWSER, chromium
from support.needs import SITE, needs
from support.paths import ROOT

pytestmark = [*BROWSER, needs("zensical")]
__all__ = ["chromium"]

SEARCHES = {
    "install": ["how-to/install"],
    "kernel": ["how-to/install"],
    "docker": ["how-to/install"],
    "wsl": ["how-to/install"],
    "upgrade": ["how-to/install"],
    "generate": ["how-to/generate", "reference/cli/generate"],
    "volatile": ["how-to/generate", "glossary"],
    "dataset": [
        "how-to/datasets",
        "reference/dataset",
        "tutorial/dataset",
        "reference/cli/dataset",
    ],
    "parquet": ["how-to/datasets"],
    "record": ["reference/record"],
    "context patch": ["reference/context-patch"],
    "irreducibility": ["glossary", "experiments", "design/method"],
    "reinforcement learning": ["tutorial/reinforcement-learning"],
    "gymnasium": ["reference/environment", "tutorial/reinforcement-learning"],
    "honeypot": ["tutorial/honeypot", "how-to/honeypot-ssh"],
    "cowrie": ["how-to/serve", "how-to/honeypot-ssh"],
    "grammar": ["how-to/write-a-grammar", "reference/grammar-format", "reference/cli/grammar"],
    "train model": ["how-to/train", "tutorial/your-machine", "reference/cli/train"],
    "threat model": ["threat-model"],
    "preview": ["how-to/preview", "reference/cli/preview"],
}
"""Common searches, and the pages that answer each."""

RIGHT = 19
"""Searches whose first hit has to be one of these pages."""

_RESULTS = """
const found = [];
(function walk(root) {
  for (const each of root.querySelectorAll("*")) if (each.shadowRoot) {
    for (const link of each.shadowRoot.querySelectorAll("ol a")) {
      found.push(link.getAttribute("href"));
    }
    walk(each.shadowRoot);
  }
})(document);
return found"""

_TYPE = """
const words = arguments[0];
let typed = false;
(function walk(root) {
  for (const each of root.querySelectorAll("*")) if (each.shadowRoot) {
    const field = each.shadowRoot.querySelector("input");
    if (field) {
      field.value = words;
      field.dispatchEvent(new Event("input", { bubbles: true }));
      typed = true;
    }
    walk(each.shadowRoot);
  }
})(document);
return typed"""

_WIDE = """
const frames = [...document.querySelectorAll(".md-content .md-typeset__scrollwrap, .figure")];
return frames.filter(each => each.scrollWidth - each.clientWidth > 2).map(each => {
  const sign = each.previousElementSibling;
  return sign?.className == "more-sign" && sign.offsetHeight > 0;
})"""


@pytest.fixture(scope="module")
def site(tmp_path_factory: pytest.TempPathFactory) -> Path:
    out = tmp_path_factory.mktemp("site")
    program = [str(SITE / "bin" / "python"), str(ROOT / "scripts/site/website.py"), str(out)]
    subprocess.run(program, check=True, capture_output=True)
    return out / "html"


@pytest.fixture(params=[1280, 390])
def sized(chromium: webdriver.Chrome, request: pytest.FixtureRequest) -> Iterator[webdriver.Chrome]:
    """The browser with the window of a screen, or of a phone."""
    size = {"width": request.param, "height": 900, "deviceScaleFactor": 1, "mobile": False}
    chromium.execute_cdp_cmd("Emulation.setDeviceMetricsOverride", size)
    yield chromium
    chromium.execute_cdp_cmd("Emulation.clearDeviceMetricsOverride", {})


def test_common_searches_lead_to_the_right_page(chromium: webdriver.Chrome, site: Path) -> None:
    wrong = {}
    for words, pages in SEARCHES.items():
        hits = searched(chromium, site, words)
        if not any(f"{page}.html" in hits[0] for page in pages):
            wrong[words] = hits[:3]
    assert len(wrong) <= len(SEARCHES) - RIGHT, wrong


def searched(browser: webdriver.Chrome, site: Path, words: str) -> list[str]:
    """Return the hits of a search on the home, loaded anew."""
    wait = WebDriverWait(browser, 30, poll_frequency=0.05)
    browser.get((site / "index.html").as_uri())
    browser.execute_script("document.querySelector('.md-search__button').click()")
    wait.until(lambda each: each.execute_script(_TYPE, words))
    hits: list[str] = wait.until(lambda each: each.execute_script(_RESULTS))
    return hits


def test_what_is_wider_than_its_column_has_a_sign(sized: webdriver.Chrome, site: Path) -> None:
    unsigned, wide = [], 0
    for page in sorted(site.rglob("*.html")):
        if "api" in page.parts:
            continue
        sized.get(page.as_uri())
        WebDriverWait(sized, 30, poll_frequency=0.05).until(
            lambda each: each.execute_script("return window.marked")
        )
        signs = sized.execute_script(_WIDE)
        wide += len(signs)
        if not all(signs):
            unsigned.append(page.name)
        assert sized.execute_script("return document.documentElement.scrollWidth <= innerWidth"), (
            f"{page.name} is wider than the window"
        )
    assert unsigned == []
    assert wide
