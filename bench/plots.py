"""The report's plots: SVG without a background, legible on light and on dark pages."""

from __future__ import annotations

from pathlib import Path
from typing import Any

from bench.harness import Plot

GREY = "#7d8590"
COLOURS = ("#8b949e", "#388bfd", "#d29922", "#3fb950", "#a371f7")
_GREY_PARTS = (
    *("text.color", "axes.labelcolor", "axes.edgecolor", "axes.titlecolor"),
    *("xtick.color", "ytick.color", "grid.color"),
)
_STYLE = {
    "svg.fonttype": "path",
    "svg.hashsalt": "xorack",
    "font.size": 10,
    "axes.axisbelow": True,
    "axes.spines.top": False,
    "axes.spines.right": False,
    "grid.alpha": 0.3,
    "legend.frameon": False,
    "savefig.transparent": True,
    **dict.fromkeys(_GREY_PARTS, GREY),
}


def _groups(axes: Any, plot: Plot) -> None:
    """Draw a group of bars for each label, one bar a series."""
    width = 0.84 / len(plot.series)
    for number, (name, bars) in enumerate(plot.series.items()):
        middle = (number - (len(plot.series) - 1) / 2) * width
        at = [group + middle for group in range(len(bars))]
        heights = list(bars.values())
        drawn = axes.bar(at, heights, width * 0.92, label=name, color=COLOURS[number])
        axes.bar_label(drawn, map(_label, heights), fontsize=7, padding=1)
        axes.set_xticks(range(len(bars)), bars)
    axes.grid(axis="y")
    axes.margins(y=0.12)


def _bars(axes: Any, plot: Plot) -> None:
    """Draw a horizontal bar for each label, and the goal as a line."""
    (bars,) = plot.series.values()
    drawn = axes.barh(list(bars), list(bars.values()), color=COLOURS[1])
    axes.bar_label(drawn, map(_label, bars.values()), fontsize=8, padding=2)
    axes.axvline(plot.goal, color=COLOURS[2], linestyle="--")
    axes.invert_yaxis()


def _steps(axes: Any, plot: Plot) -> None:
    """Draw each series as steps."""
    for colour, (name, points) in zip(COLOURS[1:], plot.series.items(), strict=False):
        axes.step(list(points), list(points.values()), where="post", label=name, color=colour)
    axes.set(xlim=(0, None), ylim=(0, 102))
    axes.grid()


def _label(value: float) -> str:
    return f"{value:,.0f}" if value >= 10 else f"{value:.3g}"


_KINDS = {"groups": _groups, "bars": _bars, "steps": _steps}


def draw(plot: Plot, target: Path) -> None:
    """Draw a plot into an SVG file."""
    import matplotlib

    matplotlib.use("svg")
    from matplotlib import pyplot

    target.parent.mkdir(parents=True, exist_ok=True)
    with pyplot.rc_context(_STYLE):  # type: ignore[arg-type]
        drawing, axes = pyplot.subplots(figsize=(8.4, plot.height), layout="constrained")
        axes.set(**plot.axes)
        _KINDS[plot.kind](axes, plot)
        if plot.kind != "bars":
            columns = len(plot.series)
            axes.legend(loc="lower center", bbox_to_anchor=(0.5, 1.0), ncols=columns, fontsize=9)
        drawing.savefig(target, metadata={"Date": None})
        pyplot.close(drawing)
