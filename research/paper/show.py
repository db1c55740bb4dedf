"""Tables and pictures of what was trained: points of a curve are means over seeds, bars their range."""

import csv

FIGURES = ("parameters", "parameters_active", "flops_per_token", "steps", "epochs", "bits_per_byte", "perplexity_per_byte",
           "perplexity_per_word", "used_percent", "unevenness", "seconds")
FIELDS = ("side", "heads", "topk", "batch_norm")
AXES = {"experts": "experts, N (log)", "batchnorm": "experts, N (log)", "active": "heads, h (log)"}


def curve_of(plan, cell):
    if plan.kind == "batchnorm":
        return f"{cell.system}, batch norm {'on' if cell.config['batch_norm'] == 'true' else 'off'}"
    if plan.kind == "active" and "topk" in cell.config and any(letter in cell.config["ffw"] for letter in "pk"):
        return f"{cell.system}, hk = {int(cell.config['heads']) * int(cell.config['topk'])}"
    return cell.system


def x_of(plan, cell, row):
    if plan.kind in ("experts", "batchnorm"):
        return int(cell.config["side"]) ** 2
    return int(cell.config["heads"]) if plan.kind == "active" else row["parameters"]


def curves(plan, cells, results, budget):
    """{curve: {x: rows of all seeds}}, what was tuned left out."""
    found = {}
    for cell in cells:
        row = results.get(cell.id)
        if row and cell.budget == budget and not cell.tuning and not cell.sets and row["bits_per_byte"] is not None:
            found.setdefault(curve_of(plan, cell), {}).setdefault(x_of(plan, cell, row), []).append(row)
    return found


def mean(rows, figure):
    values = [row[figure] for row in rows if row.get(figure) is not None]
    return sum(values) / len(values) if values else None


def table(heading, rows):
    return ["| " + " | ".join(map(str, cells)) + " |" for cells in (heading, ["---"] * len(heading), *rows)]


def cell_text(rows):
    value = mean(rows, "perplexity_per_byte")
    return f"{value:.4f}" if len(rows) == 1 else f"{value:.4f} ({len(rows)} seeds)"


def page(plan, cells, results):
    lines = []
    for budget in plan.lists["budgets"]:
        lines += [f"{budget:.3g} FLOPs, perplexity per byte, held out", ""]
        rows = [[name, f"{x:,}", cell_text(of), *(f"{mean(of, key):.2f}" if mean(of, key) is not None else "" for key in
                                                  ("used_percent", "unevenness"))]
                for name, points in curves(plan, cells, results, budget).items() for x, of in sorted(points.items())]
        lines += [*table(["system", AXES.get(plan.kind, "parameters"), "perplexity", "experts used, %", "unevenness"], rows), ""]
        if plan.kind == "datasets":
            rows = [[cell.system, cell.size, *(f"{results[cell.id]['datasets'][name]:.4f}" for name in plan.sets)]
                    for cell in cells if cell.sets and cell.budget == budget and cell.id in results]
            lines += [*table(["best of", "size", *plan.sets], rows), ""]
    return "\n".join(lines)


def write_csv(path, plan, cells, results):
    with open(path, "w", newline="") as file:
        out = csv.writer(file)
        out.writerow(["system", "size", "tuning", "budget", "learning_rate", "seed", *FIELDS, *FIGURES, *plan.sets])
        for cell in cells:
            row = results.get(cell.id, {})
            sets = row.get("datasets", {})
            out.writerow([cell.system, cell.size, int(cell.tuning), f"{cell.budget:g}", cell.rate, f"{cell.seed:g}",
                          *(cell.config.get(field, "") for field in FIELDS), *(row.get(figure) for figure in FIGURES),
                          *(sets.get(name) for name in plan.sets)])


def write_svg(path, plan, cells, results):
    """A panel for each budget, where Matplotlib is."""
    try:
        import matplotlib
    except ImportError:
        return False
    matplotlib.use("svg")
    matplotlib.rcParams |= {"svg.hashsalt": "reef", "svg.fonttype": "none", "axes.grid": True, "grid.color": "#e4e4e4"}
    import matplotlib.pyplot as plt

    budgets = plan.lists["budgets"]
    figure, panels = plt.subplots(1, len(budgets), figsize=(6.2 * len(budgets), 4.7), constrained_layout=True, squeeze=False)
    for axes, budget in zip(panels[0], budgets):
        for name, points in sorted(curves(plan, cells, results, budget).items(), key=lambda one: (len(one[0]), one[0])):
            xs = sorted(points)
            ys = [mean(points[x], "perplexity_per_byte") for x in xs]
            ranges = [[row["perplexity_per_byte"] for row in points[x]] for x in xs]
            bars = [[y - min(of) for y, of in zip(ys, ranges)], [max(of) - y for y, of in zip(ys, ranges)]]
            if plan.kind in AXES and not any(row.get("used_percent") is not None for row in points[xs[0]]):
                axes.axhline(ys[0], linestyle="--", label=name)  # it has no experts to vary
            else:
                axes.errorbar(xs, ys, yerr=bars, marker="o", capsize=3, label=name)
        axes.set(title=f"{budget:.3g} FLOPs", xscale="log", xlabel=AXES.get(plan.kind, "parameters in total (log)"),
                 ylabel="perplexity per byte, held out")
        axes.legend(frameon=False)
    figure.savefig(path, metadata={"Date": None})
    plt.close(figure)
    return True
