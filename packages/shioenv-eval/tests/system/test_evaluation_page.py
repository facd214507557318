"""The page of an evaluation in a browser."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest
from selenium import webdriver
from selenium.webdriver.common.by import By
from selenium.webdriver.support.ui import Select

from shioenv_eval.evaluate import Evaluation
from shioenv_eval.evaluation_page import evaluation_html as page_of
from shioenv_eval.metrics import PredictorAnswer, Status
from shioenv_eval.results import judge_predictor
from support.browser import BROWSER, cards, chromium, prefer, shown
from support.evaluation_fakes import added, case, did, suite_of

__all__ = ["chromium"]  # a fixture
pytestmark = BROWSER
HOSTILE = "<img src=x onerror='window.broken = 1'></script>"


@pytest.fixture(scope="module")
def page(tmp_path_factory: pytest.TempPathFactory) -> Path:
    cases = [case(did(f"{n}\n"), text=f"echo {n}") for n in range(20)]
    cases += [
        case(did("one\ntwo\n", added("a")), text="ls"),
        case(did(f"{HOSTILE}\n"), did("x\n"), text=f"echo {HOSTILE!r} | cat"),
    ]
    suite = suite_of(*cases)
    right = [PredictorAnswer(behavior=one.runs[0]) for one in cases]
    wrong = [
        *right[:20],
        PredictorAnswer(behavior=did("one\ntoo\n")),
        PredictorAnswer(Status.CRASHED, why=HOSTILE),
    ]
    both = (
        judge_predictor(suite, right, "sandbox", "1"),
        judge_predictor(suite, wrong, f"mine:{HOSTILE}", "1"),
    )
    path = tmp_path_factory.mktemp("page") / "report.html"
    path.write_text(page_of(Evaluation(suite, both)))
    return path


@pytest.fixture
def browser(chromium: webdriver.Chrome, page: Path) -> Iterator[webdriver.Chrome]:
    prefer(chromium, "light")
    chromium.get(page.as_uri())
    yield chromium
    chromium.execute_cdp_cmd("Emulation.clearDeviceMetricsOverride", {})


def test_answers_are_searched_and_the_difference_is_marked(browser: webdriver.Chrome) -> None:
    assert shown(browser) == "1 to 2 of 2", "the wrong answers of the first that is no ceiling"
    browser.find_element(By.ID, "query").send_keys("TOO")
    assert shown(browser) == "1 to 1 of 1"
    marks = browser.find_elements(By.CSS_SELECTOR, "#list mark")
    assert [one.text for one in marks] == ["w", "o"]
    browser.find_element(By.ID, "query").send_keys(" and nothing else")
    assert "No answer matches." in browser.find_element(By.ID, "list").text
    browser.find_element(By.CSS_SELECTOR, "button[type=reset]").click()
    Select(browser.find_element(By.ID, "verdict")).select_by_value("all")
    assert shown(browser) == "1 to 15 of 22"
    browser.find_element(By.CSS_SELECTOR, "button.next").click()
    assert shown(browser) == "16 to 22 of 22"
    Select(browser.find_element(By.ID, "steps")).select_by_visible_text("multi")
    assert shown(browser) == "1 to 1 of 1"
    assert HOSTILE in cards(browser)[0]
    assert browser.execute_script("return window.broken") is None


@pytest.mark.parametrize("width", [360, 1280])
def test_nothing_sticks_out(browser: webdriver.Chrome, width: int) -> None:
    browser.execute_cdp_cmd(
        "Emulation.setDeviceMetricsOverride",
        {"width": width, "height": 800, "deviceScaleFactor": 1, "mobile": width < 600},
    )
    assert browser.execute_script(
        "return document.documentElement.scrollWidth <= document.documentElement.clientWidth"
    )
