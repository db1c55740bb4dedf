"""Tables of a comparison in Markdown: results.md, and what docs/RESULTS.md shows of it."""

import tuning
from figures import ALONE_BITS, FIGURES

# Beside the losses at the end: key of a run's figures, heading, digits.
COLUMNS = [
    ("floored_mean", "with a floor", 4),
    ("parameters_millions", "parameters, M", 2),
    ("active_thousands", "of them a byte, k", 0),
    ("megaflops", "MFLOP a byte", 3),
    ("memory_megabytes", "context memories, MB", 1),
    ("pool_megabytes", "on disk, MB", 1),
    ("cpu_seconds", "CPU seconds", 0),
]


def cell(figure, digits):
    if figure["mean"] is None:
        return "-"
    text = f"{figure['mean']:.{digits}f}"
    if figure["mean"] and abs(figure["mean"]) < 10**-digits / 2:
        text = f"{figure['mean']:.1e}"  # small, but not zero
    return text if figure["spread"] is None else f"{text} ± {figure['spread']:.{digits}f}"


def loss_cell(figure, measure):
    """A loss above that of a model that knows nothing is shown as such."""
    above = measure == "bits_per_byte" and figure["mean"] is not None and figure["mean"] > ALONE_BITS
    return cell(figure, 4) + (f" (above {ALONE_BITS})" if above else "")


def table(heading, rows):
    lines = ["| " + " | ".join(heading) + " |", "| --- |" + " ---: |" * (len(heading) - 1)]
    return lines + ["| " + " | ".join(str(word) for word in row) + " |" for row in rows]


def figure_table(groups, first, name_of):
    shown = [f for f in FIGURES if any(g["figures"][f[0]]["mean"] is not None for g in groups)]
    rows = [
        [name_of(g), g["runs"]] + [cell(g["figures"][key], digits) for key, _, digits in shown]
        for g in groups
    ]
    return table([first, "runs"] + [heading for _, heading, _ in shown], rows)


def comparison_table(groups):
    """A line for each method: every text at the end, their mean, and what the method needs."""
    names, measure = groups[0]["domains"], groups[0]["measure"]
    shown = [c for c in COLUMNS if any(g["figures"][c[0]]["mean"] is not None for g in groups)]
    rows = []
    for g in groups:
        own = {
            name: {"mean": value, "spread": wide}
            for name, value, wide in zip(g["domains"], g["final"], g["final_spread"])
        }
        figures = g["figures"]
        rows.append(
            [g["method"]]
            + [loss_cell(own[name], measure) for name in names]
            + [loss_cell(figures["final_mean"], measure)]
            + [cell(figures[key], digits) for key, _, digits in shown]
            + [g["runs"]]
        )
    return table(["method", *names, "mean"] + [heading for _, heading, _ in shown] + ["runs"], rows)


def choice_lines(groups, grid_of=lambda method: {}):
    """What was chosen from grids, a line for each method."""
    return [
        f"- {g['method']}: "
        + ", ".join(
            f"{key} {value}{tuning.at_an_end(grid_of(g['method']), key, value)}" for key, value in g["choice"].items()
        )
        for g in groups
        if g["choice"]
    ]


def write_markdown(path, document):
    lines = [
        "# Learning for life, compared",
        "",
        f"`{document['command']}`",
        "",
        f"reef {document['reef']}, {document['machine']}, {document['made'][:10]}. Means over runs, "
        "± the sample standard deviation.",
    ]
    if document["quick"]:
        lines += ["", "**Quick form: a tiny model on slices. It checks the program and says nothing about methods.**"]
    for stream in dict.fromkeys(group["stream"] for group in document["summary"]):
        groups = [g for g in document["summary"] if g["stream"] == stream]
        first = [g for g in groups if g["order"] == groups[0]["order"]]
        unit = "accuracy" if first[0]["measure"] == "accuracy" else "bits per byte"
        lines += ["", f"## {stream}", "", f"{' → '.join(first[0]['domains'])}; {unit}.", ""]
        lines += figure_table(first, "method", lambda g: g["method"])
        lines += ["", f"At the end, {unit}:", ""] + comparison_table(first)
        if choices := choice_lines(first):
            lines += ["", "Chosen from grids, on other held-out texts and with another seed:", "", *choices]
        shuffled = [g["method"] for g in groups if g["order"] != groups[0]["order"]]
        for method in dict.fromkeys(shuffled):
            orders = [g for g in groups if g["method"] == method]
            lines += ["", f"{method}, in other orders of the domains:", ""]
            lines += figure_table(orders, "order", lambda g: " → ".join(g["domains"]))
    lines += ["", document["forgetting_definition"] + ".", "", document["learned_share_definition"] + "."]
    path.write_text("\n".join(lines) + "\n")
