"""The style of pictures and their rendering: Altair charts as SVG and PNG.

`vl-convert` renders Altair's specifications. Text stays text, so it can be read aloud, searched and
restyled. Marks and axes have labels for screen readers. Rendering needs no browser, display or
network.
"""

from __future__ import annotations

import re
from dataclasses import dataclass
from html import escape
from importlib.util import find_spec
from pathlib import Path
from typing import TYPE_CHECKING, Any

from shioenv.errors import MissingExtraError
from shioenv.files.durable import atomic_write, storage_errors

if TYPE_CHECKING:
    import altair as alt

INK, MUTED, GRID = "#1b2430", "#566270", "#dfe4ea"
MAIN, SOFT, ACCENT = "#1f6fb2", "#a9cce8", "#b4500b"
DARK = {
    INK: "#e8edf2",
    MUTED: "#a3afbc",
    GRID: "#2f3944",
    MAIN: "#5aa9e6",
    SOFT: "#2c5777",
    ACCENT: "#f2995a",
}
"""The replacement of each colour of a chart on a dark page.

Blue and orange are distinguishable with every common colour blindness. Where both occur together,
shapes distinguish them in grey as well.
"""

RAMP = (SOFT, "#7fb0d9", "#4f90c6", MAIN, "#174f80", INK)
"""The colours of an ordered series, from light to dark."""

SCALE = 2
"""Pixels of a PNG for one pixel of the SVG."""

PADDING = 5
"""Pixels around a chart of a page."""

_THEME: dict[str, Any] = {
    "font": "Helvetica, Arial, Liberation Sans, sans-serif",
    "view": {"stroke": None},
    "title": {
        "anchor": "start",
        "color": INK,
        "fontSize": 15,
        "subtitleColor": MUTED,
        "subtitleFontSize": 12,
        "subtitlePadding": 5,
        "subtitleLineHeight": 16,
        "offset": 14,
    },
    "axis": {
        "labelColor": MUTED,
        "titleColor": INK,
        "labelFontSize": 12,
        "titleFontSize": 12,
        "titleFontWeight": 600,
        "titlePadding": 8,
        "labelPadding": 5,
        "gridColor": GRID,
        "domainColor": MUTED,
        "ticks": False,
        "domain": False,
    },
    "axisX": {"domain": True, "labelFlush": False, "labelAngle": 0, "grid": False},
    "legend": {
        "labelColor": INK,
        "titleColor": INK,
        "labelFontSize": 12,
        "titleFontSize": 12,
        "symbolSize": 70,
        "symbolStrokeWidth": 2,
        "symbolOpacity": 1,
        "labelLimit": 300,
    },
    "text": {"color": MUTED, "fontSize": 12},
    "bar": {"color": MAIN},
}

PAGE = {
    **_THEME,
    "autosize": {"type": "fit", "contains": "padding"},
    "padding": PADDING,
    "background": None,
}
"""The configuration of a page's charts: without a background, since the page has its own."""

PICTURE = {**_THEME, "padding": 14, "background": "#ffffff"}
"""The configuration of pictures: with a background, since pictures are shown anywhere."""


@dataclass(frozen=True, slots=True)
class Style:
    """The style of one series."""

    colour: str
    dash: tuple[int, ...]
    shape: str


STYLES = (
    Style(INK, (1, 0), "circle"),
    Style("#7b8794", (6, 3), "square"),
    Style("#e39a5f", (2, 2), "triangle-up"),
    Style(MAIN, (1, 0), "triangle-down"),
)
"""The styles of up to four series: dark, grey dashes, light orange dots, blue.

Lightness, dashes and shapes distinguish series as well as hue does, so a picture can be printed
without colours.
"""


def require_libraries(feature: str, extra: str, *modules: str) -> None:
    """Raise MissingExtraError if one of the modules that `extra` installs is missing."""
    if not all(map(find_spec, modules)):
        raise MissingExtraError(feature, extra, *(name.replace("_", "-") for name in modules))


def write_pictures(file: Path, light: str) -> list[Path]:
    """Write an SVG for light pages and one for dark pages, whose name ends in `-dark`.

    Returns both paths. Errors: DatasetStorageError.
    """
    dark = light.replace(PICTURE["background"], "none")
    for ours, theirs in DARK.items():
        dark = dark.replace(ours, theirs)
    paths = [file, file.with_name(f"{file.stem}-dark{file.suffix}")]
    for path, text in zip(paths, (light, dark), strict=True):
        with storage_errors(path):
            atomic_write(path, text.encode("utf-8", "replace"))
    return paths


def picture(chart: alt.TopLevelMixin) -> tuple[bytes, bytes]:
    """Render the chart as SVG and as PNG."""
    import vl_convert

    spec = {**chart.to_dict(), "config": PICTURE}
    svg: str = vl_convert.vegalite_to_svg(spec)
    return svg.encode(), vl_convert.svg_to_png(svg, scale=SCALE)


def svg_element(chart: alt.TopLevelMixin, label: str, width: float) -> str:
    """Render the chart as an `<svg>` element with a label for screen readers.

    The element adapts to the width of the page. Its view box is at least `width` pixels wide, so
    that text has the same size in all charts.
    """
    import vl_convert

    svg: str = vl_convert.vegalite_to_svg({**chart.to_dict(), "config": PAGE})
    match = re.match(r'<svg [^>]*?width="([\d.]+)" height="([\d.]+)"[^>]*>', svg)
    if match is None:
        raise ValueError(f"an SVG begins with {svg[:80]!r}")
    wide, high = map(float, match.groups())
    box = f"0 0 {max(wide, width):g} {high:g}"
    return f'<svg viewBox="{box}" role="img" aria-label="{escape(label)}">{svg[match.end() :]}'
