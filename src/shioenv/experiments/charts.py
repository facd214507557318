"""The look of the experiments' pictures; each is drawn as SVG and as PNG.

Vega-Lite through `vl-convert`, with the colours of a dataset's page. Series are told apart by
lightness, dashes and form as well as by hue, so a picture survives a printer without colours.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any, TypeAlias

from shioenv.report.charts import ACCENT, GRID, INK, MAIN, MUTED, SOFT

Spec: TypeAlias = dict[str, Any]

SCALE = 2
"""Pixels of the PNG for one of the SVG."""

PAPER = ACCENT
"""What the paper says is always of this colour, and a diamond, like nothing else, where it is a
point."""

_CONFIG: Spec = {
    "background": "#ffffff",
    "padding": 14,
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
        "labelFontSize": 11,
        "titleFontSize": 12,
        "titleFontWeight": 600,
        "titlePadding": 7,
        "labelPadding": 4,
        "gridColor": GRID,
        "domainColor": MUTED,
        "ticks": False,
        "domain": False,
    },
    "axisX": {"domain": True, "labelFlush": False, "grid": False, "labelAngle": 0},
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
    "text": {"color": MUTED, "fontSize": 11},
    "bar": {"color": MAIN},
}


@dataclass(frozen=True, slots=True)
class Style:
    """How one series is drawn."""

    colour: str
    dash: tuple[int, ...]
    shape: str


STYLES = (
    Style(INK, (1, 0), "circle"),
    Style("#7b8794", (6, 3), "square"),
    Style("#e39a5f", (2, 2), "triangle-up"),
    Style(MAIN, (1, 0), "triangle-down"),
)
"""Four series at most: dark, grey dashes, light orange dots, blue."""

RAMP = (SOFT, "#7fb0d9", "#4f90c6", MAIN, "#174f80", INK)
"""An ordered series, from light to dark."""


def styled(field: str, names: Sequence[str], title: str, styles: Sequence[Style] = STYLES) -> Spec:
    """Encodings of colour, dashes and form that share one legend."""
    used = styles[: len(names)]
    common: Spec = {
        "field": field,
        "type": "nominal",
        "sort": list(names),
        "title": title,
        "legend": {"symbolStrokeWidth": 0},
    }
    ranges: Mapping[str, list[Any]] = {
        "color": [style.colour for style in used],
        "strokeDash": [list(style.dash) for style in used],
        "shape": [style.shape for style in used],
    }
    return {
        channel: {**common, "scale": {"domain": list(names), "range": values}}
        for channel, values in ranges.items()
    }


def titled(text: str, *lines: str) -> Spec:
    """A picture's title with lines below it."""
    return {"text": text, "subtitle": list(lines)}


def arguments_axis(lengths: Sequence[int]) -> Spec:
    """Numbers of arguments along x."""
    return {
        "field": "arguments",
        "type": "quantitative",
        "scale": {"domain": [min(lengths) - 0.4, max(lengths) + 0.4], "nice": False},
        "axis": {"title": "removable arguments", "values": list(lengths), "format": "d"},
    }


def drawn(spec: Spec) -> tuple[bytes, bytes]:
    """The picture as SVG and as PNG."""
    import vl_convert

    whole = {"config": _CONFIG, **spec}
    svg: str = vl_convert.vegalite_to_svg(whole)
    png: bytes = vl_convert.vegalite_to_png(whole, scale=SCALE)
    return svg.encode(), png
