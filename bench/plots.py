"""The report's plots: SVG without a background, legible on light and on dark pages."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from statistics import median
from typing import Any

from bench import spark
from bench.harness import Figures

GREY = "#7d8590"
COLOURS = ("#8b949e", "#388bfd", "#d29922", "#3fb950", "#a371f7")
_STYLE = {
    "svg.fonttype": "path",
    "svg.hashsalt": "xorack",
    "font.size": 10,
    "axes.spines.top": False,
    "axes.spines.right": False,
    "grid.alpha": 0.3,
    "legend.frameon": False,
    "savefig.transparent": True,
    **dict.fromkeys(
        ("text.color", "axes.labelcolor", "axes.edgecolor", "axes.titlecolor", "xtick.color",
         "ytick.color", "grid.color"),
        GREY,
    ),
}  # fmt: skip


def _grouped(
    axes: Any, groups: Sequence[str], series: Mapping[str, Sequence[float]], label: str
) -> None:
    """Draw a group of bars for each name in ``groups``, one bar a series, labelled."""
    width = 0.84 / len(series)
    for number, (name, heights) in enumerate(series.items()):
        middle = (number - (len(series) - 1) / 2) * width
        at = [group + middle for group in range(len(heights))]
        bars = axes.bar(at, heights, width * 0.92, label=name, color=COLOURS[number])
        labels = [f"{value:,.0f}" if value >= 10 else f"{value:.3g}" for value in heights]
        axes.bar_label(bars, labels, fontsize=7, padding=1)
    axes.set_xticks(range(len(groups)), groups)
    axes.grid(axis="y")
    axes.set_axisbelow(True)
    axes.margins(y=0.12)
    axes.set_ylabel(label)
    axes.legend(loc="lower center", bbox_to_anchor=(0.5, 1.0), ncols=len(series), fontsize=9)


def _horizontal(axes: Any, bars: Mapping[str, float], goal: float, form: str, label: str) -> None:
    """Draw a horizontal bar for each name, and the goal as a line."""
    drawn = axes.barh(list(bars), list(bars.values()), color=COLOURS[1])
    axes.bar_label(drawn, [form.format(value) for value in bars.values()], fontsize=8, padding=2)
    axes.axvline(goal, color=COLOURS[2], linestyle="--")
    axes.invert_yaxis()
    axes.set_xlabel(label)


def _memory(axes: Any, figures: Figures) -> None:
    lengths = [name for name in figures if name.isdigit()]
    names = {"npm ack": "ack", "Acker": "Acker", "the floor": "floor"}
    series = {
        name: [figures[length]["nanoseconds"][key] for length in lengths]
        for name, key in names.items()
    }
    axes.set_yscale("log")
    groups = [f"{length} bytes" for length in lengths]
    _grouped(axes, groups, series, "ns a stamp (less is better)")


def _dynamodb(axes: Any, figures: Figures) -> None:
    speeds = figures["stamps_a_second"]
    series = {name: [of[name] for of in speeds.values()] for name in next(iter(speeds.values()))}
    axes.set_yscale("log")
    groups = [f"{writers} writer{'s' * (writers != '1')}" for writers in speeds]
    _grouped(axes, groups, series, "stamps a second (more is better)")


def _handler(axes: Any, figures: Figures) -> None:
    bars = {name: 100 * of["share_in_calls"] for name, of in figures.items()}
    axes.set_xlim(0, 108)
    label = "% of the time in AWS calls (goal: 90)"
    _horizontal(axes, bars, 90, "{:.0f} %", label)
    axes.set_ylabel("messages over chains")


def _cold_start(axes: Any, figures: Figures) -> None:
    times = figures["milliseconds"]
    bars = {
        name: ms / times["boto3, compiled"]
        for name, ms in times.items()
        if name.startswith("lambda_src")
    }
    _horizontal(axes, bars, 1.3, "{:.2f}", "times import boto3 (goal: at most 1.3)")


def _latency(axes: Any, figures: Figures) -> None:
    for colour, (name, of) in zip(COLOURS[1:], figures.items(), strict=False):
        times = sorted(of["milliseconds"]["all"])
        shares = [100 * (at + 1) / len(times) for at in range(len(times))]
        label = f"{name}: {of['batch_window_seconds']} s window"
        axes.step(times, shares, where="post", label=label, color=colour)
    axes.set_xlim(left=0)
    axes.set_ylim(0, 102)
    axes.grid()
    axes.set_xlabel("ms from the last stamp to the event (emulator)")
    axes.set_ylabel("% delivered")
    axes.legend(loc="lower center", bbox_to_anchor=(0.5, 1.0), ncols=2, fontsize=9)


def _spark(axes: Any, figures: Figures) -> None:
    results = figures["results"]
    series = {
        f"{name}, {when}": [
            median(spark.ratios(result["variants"], name, how, "cpu")) for result in results
        ]
        for name in spark.GOALS
        for how, when in (("warm", "warm"), ("alone", "by itself"))
    }
    groups = [f"{result['words']:,} words" for result in results]
    _grouped(axes, groups, series, "CPU, times the untracked jobs'")


PLOTS: dict[str, tuple[Callable[[Any, Figures], None], float, str]] = {
    "memory": (_memory, 3.6, "Nanoseconds a stamp in memory"),
    "dynamodb": (_dynamodb, 3.8, "Stamps a second over DynamoDB"),
    "handler": (_handler, 4.2, "Share of AWS calls in the handler's time"),
    "cold_start": (_cold_start, 2.0, "Imports compared with boto3's"),
    "latency": (_latency, 3.2, "Latency from the last stamp to the event"),
    "spark": (_spark, 3.2, "CPU on Spark compared with untracked"),
}
"""Section -> its drawing function, height in inches, alternative text."""


def draw(name: str, figures: Figures, folder: Path) -> str:
    """Draw a section's plot.

    Args:
        name: The section.
        figures: Its figures.
        folder: The report's folder.

    Returns:
        The Markdown that embeds the plot; empty for a section without one.
    """
    if name not in PLOTS:
        return ""
    import matplotlib

    matplotlib.use("svg")
    from matplotlib import pyplot

    plot, height, text = PLOTS[name]
    target = f"images/bench-{name.replace('_', '-')}.svg"
    (folder / "images").mkdir(parents=True, exist_ok=True)
    with pyplot.rc_context(_STYLE):  # type: ignore[arg-type]
        drawing, axes = pyplot.subplots(figsize=(8.4, height), layout="constrained")
        plot(axes, figures)
        drawing.savefig(folder / target, metadata={"Date": None})
        pyplot.close(drawing)
    return f"\n\n![{text}]({target})"
