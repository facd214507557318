"""A browser for generated pages: Chromium with its driver, if installed."""

from __future__ import annotations

import shutil
from collections.abc import Iterator

import pytest
from selenium import webdriver
from selenium.webdriver.chrome.service import Service
from selenium.webdriver.common.by import By

from support.needs import needs

BROWSER = [needs("chromium", "chromedriver"), pytest.mark.xdist_group("browser")]
"""Marks of every module that needs it."""

FLAGS = (
    "--headless=new",
    "--no-sandbox",
    "--disable-gpu",
    "--disable-quic",
    "--no-first-run",
    "--disable-background-networking",
    "--disable-component-update",
    "--disable-sync",
    "--window-size=1280,900",
)


@pytest.fixture(scope="module")
def chromium(tmp_path_factory: pytest.TempPathFactory) -> Iterator[webdriver.Chrome]:
    options = webdriver.ChromeOptions()
    for flag in (*FLAGS, f"--user-data-dir={tmp_path_factory.mktemp('profile')}"):
        options.add_argument(flag)
    options.binary_location = str(shutil.which("chromium"))
    options.set_capability("goog:loggingPrefs", {"browser": "ALL", "performance": "ALL"})
    driver = webdriver.Chrome(options=options, service=Service(shutil.which("chromedriver")))
    driver.get("about:blank")
    yield driver
    driver.quit()


def prefer(browser: webdriver.Chrome, scheme: str) -> None:
    """Set the preferences of a user's system; without motion, so that nothing moves while
    clicked."""
    preferred = {"prefers-color-scheme": scheme, "prefers-reduced-motion": "reduce"}
    features = [{"name": name, "value": value} for name, value in preferred.items()]
    browser.execute_cdp_cmd("Emulation.setEmulatedMedia", {"features": features})


def cards(browser: webdriver.Chrome) -> list[str]:
    return [one.text for one in browser.find_elements(By.CSS_SELECTOR, "#list article")]


def shown(browser: webdriver.Chrome) -> str:
    return browser.find_element(By.ID, "shown").text
