"""The report page in a browser, of inputs that ran on the built system and of hostile records."""

from __future__ import annotations

import json
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from msgspec.structs import replace
from selenium import webdriver
from selenium.webdriver.common.by import By
from selenium.webdriver.common.keys import Keys
from selenium.webdriver.support.ui import Select

from shioenv.dataset.manifest import MANIFEST, read_manifest
from shioenv.files.durable import sha256_of
from shioenv.system.store import System
from support.browser import BROWSER, cards, chromium, prefer, shown

__all__ = ["chromium"]  # a fixture

SHIOENV = Path(sys.executable).with_name("shioenv")
pytestmark = BROWSER
COUNT = 60
HOSTILE = (
    "</script><script>window.broken = 1</script>",
    "<img src=http://192.0.2.1/x onerror='window.broken = 1'>",
    "\x1b[31mred\x1b[0m\r\u202e",
)


def shioenv(*words: str | Path) -> None:
    done = subprocess.run(
        [str(SHIOENV), *map(str, words)], capture_output=True, text=True, check=False
    )
    assert done.returncode == 0, done.stdout + done.stderr


def make_hostile(directory: Path) -> None:
    """Write hostile texts into the first records, and set the argument effects of another one."""
    manifest = read_manifest(directory)
    (entry,) = manifest.shards
    shard = directory / entry.file
    records = [json.loads(line) for line in shard.read_text().splitlines()]
    for text, one in zip(HOSTILE, records, strict=False):
        one["input_args"] = ["hostile", text]
        one["input"] = f"cd /home/ubuntu; hostile {text}"
        one["output"] = f"{text}\n{text}"
        one["context_patch"] = json.dumps([["=", "/env/E", text], ["a", f"/fs/{text[:2]}", text]])
    told = records[len(HOSTILE)]
    told.update(
        input="cd /home/ubuntu; told -a -b -c",
        input_args=["told", "-a", "-b", "-c"],
        n_arguments=3,
        segments=[
            {
                "command": "told",
                "n_arguments": 3,
                "irreducibility": 0.5,
                "arguments": [
                    {"leave_one_out": True, "channel": None, "contribution": 0.5},
                    {"leave_one_out": False, "channel": None, "contribution": 0.2},
                    {"leave_one_out": False, "channel": None, "contribution": 0.0},
                ],
            }
        ],
    )
    shard.write_text("".join(f"{json.dumps(one)}\n" for one in records))
    manifest = manifest.with_shard(replace(entry, sha256=sha256_of(shard)))
    (directory / MANIFEST).write_bytes(manifest.encode())


@pytest.fixture(scope="module")
def page(system: System, tmp_path_factory: pytest.TempPathFactory) -> Path:
    directory = tmp_path_factory.mktemp("dataset") / "d"
    shioenv(
        "generate", directory, "--sampler", "gcs", "--count", str(COUNT), "--seed", "7",
        "--budget", "2", "--noise-runs", "1", "--workers", "1",
    )  # fmt: skip
    make_hostile(directory)
    shioenv("dataset", "report", directory)
    return directory / "report.html"


@pytest.fixture
def browser(chromium: webdriver.Chrome, page: Path) -> Iterator[webdriver.Chrome]:
    """The page newly opened on a wide screen, and the logs empty before it."""
    for kind in ("browser", "performance"):
        chromium.get_log(kind)
    prefer(chromium, "light")
    chromium.get(page.as_uri())
    yield chromium
    chromium.execute_cdp_cmd("Emulation.clearDeviceMetricsOverride", {})


def test_the_page_asks_the_network_for_nothing_and_has_no_errors(
    browser: webdriver.Chrome, page: Path
) -> None:
    messages = [json.loads(entry["message"])["message"] for entry in browser.get_log("performance")]
    asked = {
        message["params"]["request"]["url"]
        for message in messages
        if message["method"] == "Network.requestWillBeSent"
    }
    assert asked == {page.as_uri()}
    assert browser.get_log("browser") == []


def test_hostile_records_are_text(browser: webdriver.Chrome) -> None:
    Select(browser.find_element(By.ID, "command")).select_by_visible_text("hostile (3)")
    assert shown(browser) == "1 to 3 of 3"
    texts = "\n".join(cards(browser))
    for text in HOSTILE[:2]:
        assert texts.count(text) >= 3
    assert texts.count(r"\x1b[31mred\x1b[0m\r\u202e") >= 3
    assert browser.execute_script("return window.broken") is None
    assert browser.find_elements(By.CSS_SELECTOR, "#list img, #list script, #list svg") == []


def test_a_script_that_got_in_would_not_run(browser: webdriver.Chrome) -> None:
    browser.execute_script(
        "const one = document.createElement('script');"
        "one.textContent = 'window.broken = 1'; document.body.append(one);"
    )
    assert browser.execute_script("return window.broken") is None
    assert "Content Security Policy" in str(browser.get_log("browser"))


def test_typing_filters_and_clearing_shows_all_again(browser: webdriver.Chrome) -> None:
    assert shown(browser) == f"1 to 10 of {COUNT}"
    assert len(cards(browser)) == 10
    browser.find_element(By.ID, "query").send_keys("TOLD -a")
    assert shown(browser) == "1 to 1 of 1"
    browser.find_element(By.ID, "query").send_keys(" and nothing else")
    assert shown(browser) == "0 samples"
    assert "No sample matches." in browser.find_element(By.ID, "list").text
    browser.find_element(By.CSS_SELECTOR, "button[type=reset]").click()
    assert shown(browser) == f"1 to 10 of {COUNT}"


def test_score_and_exit_code_filter(browser: webdriver.Chrome) -> None:
    data: list[dict[str, Any]] = json.loads(
        browser.execute_script("return document.getElementById('data').textContent")
    )
    low = browser.find_element(By.ID, "low")
    low.clear()
    low.send_keys("0.9")
    expected = [one for one in data if one["s"] is not None and one["s"] >= 0.9]
    assert 0 < len(expected) < COUNT
    assert shown(browser).endswith(f"of {len(expected)}")
    Select(browser.find_element(By.ID, "exit")).select_by_value("0")
    expected = [one for one in expected if one["x"] == 0]
    assert shown(browser).endswith(f"of {len(expected)}")
    assert all("exit code 0" in card for card in cards(browser))


def test_order_is_by_score_where_asked(browser: webdriver.Chrome) -> None:
    Select(browser.find_element(By.ID, "order")).select_by_value("low")
    scores = [float(card.split("irreducibility ")[1].split()[0]) for card in cards(browser)]
    assert scores == sorted(scores)


def test_the_pager_works_by_keyboard(browser: webdriver.Chrome) -> None:
    button = browser.find_element(By.CSS_SELECTOR, "button.next")
    browser.execute_script("arguments[0].focus()", button)
    first = cards(browser)
    button.send_keys(Keys.ENTER)
    assert shown(browser) == f"11 to 20 of {COUNT}"
    assert not set(first) & set(cards(browser))
    assert browser.switch_to.active_element == button


def test_arguments_are_dimmed_by_their_effects(browser: webdriver.Chrome) -> None:
    browser.find_element(By.ID, "query").send_keys("told")
    found = {
        one.get_attribute("class"): float(one.value_of_css_property("opacity"))
        for one in browser.find_elements(By.CSS_SELECTOR, "#list .line span:not(.unseen)")
    }
    assert found["i"] < found["s"] == found["m"] == 1
    dimmed = browser.find_element(By.CSS_SELECTOR, "#list .line .i")
    assert dimmed.text.startswith("-c")
    assert "no effect" in str(dimmed.get_attribute("textContent"))


@pytest.mark.parametrize("scheme", ["light", "dark"])
@pytest.mark.parametrize("width", [360, 1280])
def test_nothing_sticks_out_and_charts_follow_the_scheme(
    browser: webdriver.Chrome, width: int, scheme: str
) -> None:
    browser.execute_cdp_cmd(
        "Emulation.setDeviceMetricsOverride",
        {"width": width, "height": 800, "deviceScaleFactor": 1, "mobile": width < 600},
    )
    prefer(browser, scheme)
    assert browser.execute_script(
        "return document.documentElement.scrollWidth <= document.documentElement.clientWidth"
    )
    background, ink = browser.execute_script(
        "return [getComputedStyle(document.body).backgroundColor,"
        " getComputedStyle(document.querySelector('figure svg text')).fill]"
    )
    brightness = [sum(map(int, one[4:-1].split(","))) for one in (background, ink)]
    assert (brightness[0] > brightness[1]) == (scheme == "light")
