"""Bar charts as SVG: bars that lie, in panels one above the other, each with a scale of its own."""

from collections.abc import Iterator, Sequence
from typing import NamedTuple
from xml.sax.saxutils import escape

WIDTH = 720
_MARGIN, _VALUE, _GAP, _LETTER = 24, 150, 8, 9
_TITLE, _PANEL, _ROW, _BAR = 48, 44, 26, 16
_COLORS = ("#0969da", "#1a7f37", "#bf8700", "#8250df")


class Bar(NamedTuple):
    """One value of a panel; `text` says it with its unit."""

    label: str
    value: float
    text: str


class Panel(NamedTuple):
    """Bars that compare."""

    title: str
    bars: Sequence[Bar]


def bar_chart(title: str, panels: Sequence[Panel]) -> str:
    """An SVG document, 720 wide and as high as it must be. Values are not negative."""
    height = _TITLE + sum(_PANEL + _ROW * len(panel.bars) for panel in panels) + _MARGIN
    return "\n".join((*_document(title, panels, height), "</svg>", ""))


def _document(title: str, panels: Sequence[Panel], height: int) -> Iterator[str]:
    yield (
        f'<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 {WIDTH} {height}" '
        'font-family="Helvetica, Arial, sans-serif" font-size="14" fill="#1f2328">'
    )
    yield f"  <title>{escape(title)}</title>"
    yield (
        f'  <rect x="1" y="1" width="{WIDTH - 2}" height="{height - 2}" rx="12" '
        'fill="#ffffff" stroke="#d0d7de"/>'
    )
    yield _text(_MARGIN, 36, title, 'font-weight="bold"')
    left = (
        _MARGIN
        + _GAP
        + _LETTER * max((len(bar.label) for panel in panels for bar in panel.bars), default=0)
    )
    top = _TITLE
    for index, panel in enumerate(panels):
        yield _text(_MARGIN, top + 28, panel.title, 'fill="#57606a"')
        top += _PANEL
        yield from _rows(panel.bars, left, top, _COLORS[index % len(_COLORS)])
        top += _ROW * len(panel.bars)


def _rows(bars: Sequence[Bar], left: int, top: int, color: str) -> Iterator[str]:
    longest = WIDTH - _MARGIN - _VALUE - left
    largest = max((bar.value for bar in bars), default=0) or 1
    for row, bar in enumerate(bars):
        baseline = top + _ROW * row + _BAR - 3
        length = round(longest * bar.value / largest, 1)
        yield _text(left - _GAP, baseline, bar.label, 'text-anchor="end"')
        yield (
            f'  <rect x="{left}" y="{top + _ROW * row}" width="{length}" height="{_BAR}" '
            f'rx="2" fill="{color}"/>'
        )
        yield _text(left + length + _GAP, baseline, bar.text)


def _text(x: float, y: int, text: str, attributes: str = "") -> str:
    return f'  <text x="{x:g}" y="{y}" {attributes}>{escape(text)}</text>'.replace(" >", ">")
