"""The report's plots, drawn from the raw figures: SVG, legible on light and on dark ground.

Nothing has a background, and text is of a grey that stands out from both.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import Any

GREY = "#7d8590"
COLOURS = ("#8b949e", "#388bfd", "#d29922", "#3fb950", "#a371f7")
_STYLE = {
    "svg.fonttype": "path",
    "svg.hashsalt": "xorack",
    "font.size": 10,
    "text.color": GREY,
    "axes.labelcolor": GREY,
    "axes.edgecolor": GREY,
    "axes.titlecolor": GREY,
    "axes.spines.top": False,
    "axes.spines.right": False,
    "xtick.color": GREY,
    "ytick.color": GREY,
    "grid.color": GREY,
    "grid.alpha": 0.3,
    "legend.frameon": False,
    "savefig.transparent": True,
}
Raw = Mapping[str, Any]


def _bars(
    axes: Any, groups: Sequence[str], series: Mapping[str, Sequence[float | None]], *, log: bool
) -> None:
    """Groups of bars, each with its figure above it; a series has a colour."""
    width = 0.84 / len(series)
    for number, (name, values) in enumerate(series.items()):
        at = [
            group + (number - (len(series) - 1) / 2) * width
            for group, value in enumerate(values)
            if value is not None
        ]
        heights = [value for value in values if value is not None]
        drawn = axes.bar(at, heights, width * 0.92, label=name, color=COLOURS[number])
        labels = [f"{value:,.0f}" if value >= 10 else f"{value:.3g}" for value in heights]
        axes.bar_label(drawn, labels, fontsize=7, padding=1)
    axes.set_xticks(range(len(groups)), groups)
    if log:
        axes.set_yscale("log")
    axes.grid(axis="y")
    axes.set_axisbelow(True)
    axes.margins(y=0.12)


def _legend(axes: Any, columns: int) -> None:
    axes.legend(loc="lower center", bbox_to_anchor=(0.5, 1.0), ncols=columns, fontsize=9)


def _memory(axes: Any, raw: Raw) -> None:
    lengths = [name for name in raw if name.isdigit()]
    ways = {
        "npm ack": "ack",
        "Acker": "one",
        "the floor": "floor",
        "an empty call": "call",
        "stamp_many": "bulk",
    }
    series = {
        name: [raw[length]["nanoseconds"].get(way) for length in lengths]
        for name, way in ways.items()
    }
    _bars(axes, [f"{length} bytes" for length in lengths], series, log=True)
    axes.set_ylabel("ns a stamp (less is better)")
    _legend(axes, 5)


def _dynamodb(axes: Any, raw: Raw) -> None:
    speeds = raw["stamps_a_second"]
    names = list(next(iter(speeds.values())))
    series = {name: [speeds[group][name] for group in speeds] for name in names}
    groups = [name.replace(" on ", " writers,\n").replace("1 writers", "1 writer")
              for name in speeds]  # fmt: skip
    _bars(axes, groups, series, log=True)
    axes.set_ylabel("stamps a second (more is better)")
    _legend(axes, 5)


def _handler(axes: Any, raw: Raw) -> None:
    cases = [name for name in raw if " over " in name]
    shares = [100 * raw[name]["one"]["share_in_calls"] for name in cases]
    labels = [
        f"{int(size):,} over {int(chains):,}"
        for size, _, chains in (name.partition(" over ") for name in cases)
    ]
    drawn = axes.barh(labels, shares, color=COLOURS[1])
    axes.bar_label(drawn, [f"{share:.0f} %" for share in shares], fontsize=8, padding=2)
    axes.axvline(90, color=COLOURS[2], linestyle="--")
    axes.set_xlim(0, 108)
    axes.invert_yaxis()
    axes.set_xlabel("% of the time in AWS calls, one worker (goal: 90)")
    axes.set_ylabel("messages over chains")


def _cold_start(axes: Any, raw: Raw) -> None:
    goals = raw["goals"]
    labels = [goal["what"].partition(":")[0].replace("`", "") for goal in goals]
    ratios = [goal["measured"] for goal in goals]
    drawn = axes.barh(labels, ratios, color=COLOURS[1])
    axes.bar_label(drawn, [f"{ratio:.2f}" for ratio in ratios], fontsize=8, padding=2)
    axes.axvline(goals[0]["bound"], color=COLOURS[2], linestyle="--")
    axes.invert_yaxis()
    axes.set_xlabel(f"times import boto3 (goal: at most {goals[0]['bound']:g})")


def _latency(axes: Any, raw: Raw) -> None:
    ways = [name for name, of in raw.items() if isinstance(of, dict) and "milliseconds" in of]
    for number, name in enumerate(ways, 1):
        figures = sorted(raw[name]["milliseconds"]["all"])
        share = [100 * (n + 1) / len(figures) for n in range(len(figures))]
        label = f"{name}: {raw[name]['batch_window_seconds']} s window"
        axes.step(figures, share, where="post", label=label, color=COLOURS[number])
    axes.set_xlim(left=0)
    axes.set_ylim(0, 102)
    axes.grid()
    axes.set_xlabel("ms from the last stamp to the event (emulator)")
    axes.set_ylabel("% delivered")
    _legend(axes, 2)


def _spark(axes: Any, raw: Raw) -> None:
    results = raw["results"]
    groups = [f"{result['words']:,} words" for result in results]
    names = [name for name in results[-1]["variants"] if name != "untracked"]
    series = {
        f"{name}, {how}": [result["variants"][name][ratio] for result in results]
        for name in names
        for how, ratio in (("warm", "warm_cpu_ratio"), ("by itself", "cpu_ratio"))
    }
    _bars(axes, groups, series, log=False)
    axes.set_ylabel("CPU, times the untracked jobs'")
    _legend(axes, len(names))


PLOTS: dict[str, tuple[Callable[[Any, Raw], None], float, str]] = {
    "memory": (_memory, 3.6, "Nanoseconds a stamp in memory"),
    "dynamodb": (_dynamodb, 3.8, "Stamps a second over DynamoDB"),
    "handler": (_handler, 4.2, "Share of the handler's time in AWS calls"),
    "cold_start": (_cold_start, 2.0, "Imports against boto3's"),
    "latency": (_latency, 3.2, "From the last stamp to the event"),
    "spark": (_spark, 3.2, "CPU on Spark against untracked"),
}
"""Section -> what draws it, how high (inches), what it shows in words."""


def file_of(name: str) -> str:
    """Where a section's plot is, seen from the report."""
    return f"images/bench-{name.replace('_', '-')}.svg"


def draw(name: str, raw: Raw, folder: Path) -> Path | None:
    """Draw a section's plot.

    Args:
        name: The section.
        raw: Its figures, as in benchmarks.json.
        folder: Where the report is.

    Returns:
        The file; None for a section that has no plot.
    """
    if name not in PLOTS:
        return None
    import matplotlib

    matplotlib.use("svg")
    from matplotlib import pyplot

    plot, height, _ = PLOTS[name]
    target = folder / file_of(name)
    target.parent.mkdir(parents=True, exist_ok=True)
    with pyplot.rc_context(_STYLE):  # type: ignore[arg-type]
        figure, axes = pyplot.subplots(figsize=(8.4, height), layout="constrained")
        plot(axes, raw)
        figure.savefig(target, metadata={"Date": None})
        pyplot.close(figure)
    return target


def embedded(name: str, folder: Path) -> str:
    """The Markdown that shows a section's plot; nothing if there is none."""
    if name not in PLOTS or not (folder / file_of(name)).exists():
        return ""
    return f"\n\n![{PLOTS[name][2]}]({file_of(name)})"
