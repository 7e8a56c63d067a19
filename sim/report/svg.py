"""Figures of matplotlib as SVG inside a page: with its colours and fonts, and text that is read.

A plot is drawn in colours that stand for names. In the SVG these become variables of the page's
style, so that one drawing is right in light and in dark.
"""

import io
import re
from collections.abc import Callable
from html import escape
from typing import TYPE_CHECKING, Any

import matplotlib as mpl
from matplotlib.axes import Axes
from matplotlib.axis import Axis
from matplotlib.figure import Figure
from matplotlib.ticker import LogLocator, NullFormatter, StrMethodFormatter

if TYPE_CHECKING:
    from matplotlib.typing import RcKeyType

INK, FAINT, PAPER = "#010203", "#040506", "#070809"
"""Of text and marks; of grid and frames; of the page."""

_VARIABLES = {INK: "var(--ink)", FAINT: "var(--faint)", PAPER: "var(--paper)"}

SERIES = ("#3b7dd8", "#d9622b", "#2a9d5c", "#c23b80", "#8a63d2", "#a88300", "#1a96a3", "#8c6d5a")
"""Colours of what is compared, told from each other on light and on dark."""

_LONG = re.compile(r"-?\d+\.\d{3,}")

_DASHES: tuple[str | tuple[int, tuple[int, ...]], ...] = ("-", (0, (5, 2)), (0, (1, 1)))

_STYLE: "dict[RcKeyType, Any]" = {
    "text.parse_math": False,
    "svg.fonttype": "none",
    "font.family": "sans-serif",
    "font.size": 10,
    "text.color": INK,
    "axes.edgecolor": FAINT,
    "axes.labelcolor": INK,
    "axes.facecolor": "none",
    "axes.grid": True,
    "axes.axisbelow": True,
    "axes.spines.top": False,
    "axes.spines.right": False,
    "figure.facecolor": "none",
    "grid.color": FAINT,
    "grid.linewidth": 0.6,
    "xtick.color": INK,
    "ytick.color": INK,
    "legend.frameon": False,
    "axes.titlesize": 10,
    "axes.titlelocation": "left",
}


def line_style(place: int) -> dict[str, Any]:
    """Colour and dashes of the series at this place, unlike those of the 23 others next to it."""
    return {
        "color": SERIES[place % len(SERIES)],
        "linestyle": _DASHES[place // len(SERIES) % len(_DASHES)],
    }


def plain_numbers(axis: Axis) -> None:
    """Label a logarithmic axis without TeX, which would stay text here."""
    axis.set_major_locator(LogLocator(subs=(1, 2, 5)))
    axis.set_major_formatter(StrMethodFormatter("{x:g}"))
    axis.set_minor_formatter(NullFormatter())


def drawn(
    name: str,
    title: str,
    description: str,
    draw: Callable[[list[Axes]], None],
    *,
    panels: int = 1,
    panel_size: tuple[float, float] = (9.6, 3.6),
) -> str:
    """An `<svg>` element.

    Args:
        name: of the figure in its page, unlike that of every other one; a word.
        title: what it is called.
        description: what it shows, for who cannot see it.
        draw: upon axes, one for each panel.
        panels: below each other, with one time axis.
        panel_size: width and height of each, in inches.
    """
    width, height = panel_size
    with mpl.rc_context(_STYLE | {"svg.hashsalt": name}):
        figure = Figure(figsize=(width, panels * height), layout="constrained")
        axes = figure.subplots(panels, 1, sharex=True, squeeze=False)
        draw(list(axes[:, 0]))
        file = io.StringIO()
        figure.savefig(file, format="svg", metadata={"Date": None})
    return _inline(file.getvalue(), name, title, description)


def _shorter(number: re.Match[str]) -> str:
    """A coordinate in points, to a hundredth."""
    return f"{float(number[0]):.2f}"


def _inline(document: str, name: str, title: str, description: str) -> str:
    """The `<svg>` of a document, told apart from the others of its page."""
    svg = document[document.index("<svg") :]
    svg = re.sub(r"<metadata>.*?</metadata>|<!--.*?-->", "", svg, flags=re.DOTALL)
    # NOTE: matplotlib numbers groups alike in every figure, and nothing refers to them.
    svg = re.sub(r'<g id="[^"]*"', "<g", svg)
    svg = re.sub(r'(<svg[^>]*?) width="[^"]*"', r"\1", svg, count=1)
    svg = re.sub(r'(<svg[^>]*?) height="[^"]*"', r"\1", svg, count=1)
    svg = re.sub(r' d="[^"]*"', lambda path: _LONG.sub(_shorter, path[0]), svg)
    for colour, variable in _VARIABLES.items():
        svg = svg.replace(colour, variable)
    label = f'role="img" aria-labelledby="{name}-title {name}-desc"'
    about = (
        f'<title id="{name}-title">{escape(title)}</title>'
        f'<desc id="{name}-desc">{escape(description)}</desc>'
    )
    return re.sub(r"<svg([^>]*)>", lambda tag: f"<svg {label}{tag[1]}>{about}", svg, count=1)
