"""results.svg: what every domain costs after every part of the stream, and at the end.

Readable without colour: numbers stand in the cells, methods have shapes of their own, and the colour map
is even in brightness.
"""

import math

import plot_style  # noqa: F401
import matplotlib.pyplot as plt
from matplotlib.patches import Rectangle

# Okabe & Ito's colours, told apart with any colour vision, each with a shape.
LOOKS = [
    ("#0072b2", "o"),
    ("#d55e00", "s"),
    ("#009e73", "^"),
    ("#cc79a7", "D"),
    ("#56b4e9", "v"),
    ("#e69f00", "P"),
    ("#000000", "X"),
    ("#6b6b6b", "*"),
]
INK, PALE, GRID = "#222222", "#6b6b6b", "#e4e4e4"
HEATMAPS_PER_ROW = 4
BITS_SHOWN_MAX = 8.0  # a guess among all bytes; what is worse has the same colour


def short(name, length=11):
    return name if len(name) <= length else name[: length - 1] + "…"


def heat_map(axes, group, low, high, rising):
    names, matrix = group["domains"], group["matrix"][1:]  # row 0 is the untrained model
    if group["method"] == "joint":
        rows = ["all mixed"]
    else:
        rows = [f"{i + 1} {short(name)}" for i, name in enumerate(names)][: len(matrix)]
    values = [[math.nan if v is None else v for v in row] for row in matrix]
    colours = plt.get_cmap("cividis" if rising else "cividis_r")
    axes.imshow(values, cmap=colours, vmin=low, vmax=high, aspect="auto")
    small = 8 if len(names) <= 6 else 6.5
    for i, row in enumerate(values):
        for j, value in enumerate(row):
            if math.isnan(value):
                continue
            share = min(max((value - low) / (high - low), 0), 1)
            bright = share if rising else 1 - share
            axes.text(
                j,
                i,
                f"{value:.2f}" if value < 10 else f"{value:.0f}",
                ha="center",
                va="center",
                fontsize=small,
                color="#000000" if bright > 0.55 else "#ffffff",
            )
        if group["method"] != "joint" and i < len(names):  # where it was learned
            axes.add_patch(
                Rectangle((i - 0.46, i - 0.46), 0.92, 0.92, fill=False, edgecolor="#d55e00", linewidth=1.8)
            )
    axes.set_xticks(range(len(names)), [short(name) for name in names], rotation=40, ha="right", fontsize=8)
    axes.set_yticks(range(len(rows)), rows, fontsize=8)
    axes.set_title(group["method"], fontsize=11, loc="left", color=INK)
    axes.tick_params(length=0)
    for spine in axes.spines.values():
        spine.set_visible(False)


def dots(axes, groups, rising):
    """The end of every method, domain by domain, and their mean."""
    names = groups[0]["domains"]
    rows = names + ["mean"]
    for index, group in enumerate(groups):
        colour, shape = LOOKS[index % len(LOOKS)]
        final = dict(zip(group["domains"], group["final"]))
        wide = dict(zip(group["domains"], group["final_spread"]))
        values = [final[name] for name in names] + [group["figures"]["final_mean"]["mean"]]
        spreads = [wide[name] or 0 for name in names]
        spreads += [group["figures"]["final_mean"]["spread"] or 0]
        # Methods stand side by side within a row, so that equal values do not hide each other.
        shift = (index - (len(groups) - 1) / 2) * 0.72 / max(len(groups), 2)
        points = [(v, s, y + shift) for y, (v, s) in enumerate(zip(values, spreads)) if v is not None]
        axes.errorbar(
            [p[0] for p in points],
            [p[2] for p in points],
            xerr=[p[1] for p in points],
            fmt=shape,
            color=colour,
            markersize=7,
            markeredgecolor="#ffffff",
            markeredgewidth=0.6,
            elinewidth=1.4,
            label=group["method"],
        )
    for y in range(len(rows)):
        if y % 2 == 0:
            axes.axhspan(y - 0.5, y + 0.5, color="#f5f5f5", zorder=0, linewidth=0)
    axes.axhline(len(names) - 0.5, color=PALE, linewidth=0.8)
    axes.set_yticks(range(len(rows)), rows)
    axes.set_ylim(len(rows) - 0.5, -0.5)
    if not rising:  # what forgets much must not push the others together
        axes.set_xscale("log")
        low, high = axes.get_xlim()
        ticks = [t for t in (0.5, 0.7, 1, 1.5, 2, 2.5, 3, 4, 5, 6, 8, 10, 15, 20) if low <= t <= high]
        axes.set_xticks(ticks, [f"{t:g}" for t in ticks])
        axes.minorticks_off()
    axes.set_xlabel("accuracy at the end" if rising else "bits per byte at the end")
    axes.grid(axis="x", color=GRID)
    axes.tick_params(axis="y", length=0)
    for side in ("top", "right", "left"):
        axes.spines[side].set_visible(False)
    below = -0.5 / (0.42 * len(rows))  # half an inch, under the label of the axis
    axes.legend(
        loc="upper center", bbox_to_anchor=(0.45, below), ncol=min(len(groups), 8), frameon=False, fontsize=9
    )


def with_matrix(groups):
    """Compressors and models of single domains have none: nothing is measured on the way."""
    return [group for group in groups if group["matrix"]]


def block_heights(groups):
    """Rows of heat maps, and inches of one of them."""
    count = math.ceil(len(with_matrix(groups)) / HEATMAPS_PER_ROW)
    return count, 1.2 + 0.3 * len(groups[0]["domains"])


def draw_stream(figure, stream, groups):
    rising = groups[0]["measure"] == "accuracy"
    mapped = with_matrix(groups)
    values = [v for g in mapped for row in g["matrix"][1:] for v in row if v is not None]
    low, high = (0.0, 1.0) if rising or not values else (min(values), min(max(values), BITS_SHOWN_MAX))
    high = max(high, low + 0.1)
    rows, inches = block_heights(groups)
    columns = max(1, min(len(mapped), HEATMAPS_PER_ROW))
    dots_inches = 1.3 + 0.42 * (len(groups[0]["domains"]) + 1)
    grid = figure.add_gridspec(rows + 1, columns, height_ratios=[inches] * rows + [dots_inches])
    for index, group in enumerate(mapped):
        heat_map(figure.add_subplot(grid[divmod(index, columns)]), group, low, high, rising)
    dots(figure.add_subplot(grid[rows, :]), groups, rising)
    unit = "accuracy" if rising else "bits per byte"
    figure.suptitle(
        f"{stream}: {unit} of each domain (columns) after each part of the stream (rows);"
        " framed: just learned",
        fontsize=11,
        x=0.01,
        ha="left",
        color=INK,
    )


def write_svg(path, document):
    streams = {}
    for group in document["summary"]:
        of_stream = streams.setdefault(group["stream"], [])
        if not of_stream or group["order"] == of_stream[0]["order"]:
            of_stream.append(group)
    heights = []
    for groups in streams.values():
        rows, inches = block_heights(groups)
        heights.append(0.5 + rows * inches + 1.3 + 0.42 * (len(groups[0]["domains"]) + 1))
    figure = plt.figure(figsize=(11, sum(heights)), layout="constrained")
    parts = figure.subfigures(len(streams), 1, height_ratios=heights, squeeze=False)
    for part, (stream, groups) in zip(parts[:, 0], streams.items()):
        draw_stream(part, stream, groups)
    part_path = path.with_name(path.name + ".part")
    figure.savefig(part_path, format="svg", metadata={"Date": None})
    plt.close(figure)
    part_path.replace(path)
