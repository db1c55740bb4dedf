"""From what `reef train` measured in each cell to results.json, results.csv and results.md.

Figures of one run (forgetting, transfer, stability gap) are those of tools/metrics.h, as reef computed
them. Here is what needs more than one run: shares against a baseline, means, spreads and tables.
"""

import csv
import datetime
import io
import os
import platform
import statistics

FIGURES = [
    # key in results, heading, digits, whether less is better (None: says nothing by itself)
    ("final_mean", "mean at the end", 4),
    ("accuracy", "accuracy", 4),
    ("forgetting_max", "forgetting, since best", 4),
    ("forgetting_learned", "forgetting, since learned", 4),
    ("asof_forgetting", "as-of change", 4),
    ("learned_share", "learned share", 3),
    ("learned_share_fresh", "share of fresh", 3),
    ("forward_transfer", "forward transfer", 3),
    ("stability_gap_worst", "stability gap", 4),
    ("prequential", "prequential", 4),
    ("boundaries_hit", "boundaries hit", 1),
    ("boundaries_false", "false", 1),
    ("return_opened", "opened by return", 1),
    ("generations", "generations", 1),
    ("seconds", "seconds", 0),
    ("cost_ratio", "cost of a byte", 2),
    ("pool_megabytes", "pool, MB", 1),
    ("optimiser_megabytes", "optimiser, MB", 1),
    ("peak_megabytes", "memory, MB", 0),
]


def known(values):
    return [value for value in values if value is not None]


def mean(values):
    values = known(values)
    return statistics.fmean(values) if values else None


def spread(values):
    """Sample standard deviation; None of fewer than two."""
    values = known(values)
    return statistics.stdev(values) if len(values) > 1 else None


# ---- one run -----------------------------------------------------------------------------------------


def match_boundaries(truth, found, tolerance):
    """Each true position with the found one that is nearest, within the tolerance; each found one once."""
    left, offsets = list(found), []
    for position in truth:
        nearest = min(left, key=lambda at: abs(at - position), default=None)
        if nearest is not None and abs(nearest - position) <= tolerance:
            offsets.append(nearest - position)
            left.remove(nearest)
        else:
            offsets.append(None)
    return offsets, left


def boundary_figures(plan, document):
    files = document["train"]["plan"]["files"]
    truth = [file["starts_at"] for file in files[1:]]
    found = [boundary["position"] for boundary in document["train"]["boundaries"]]
    # Without a tolerance of the stream's own: a fifth of its shortest part.
    tolerance = plan["tolerance"] or min(file["bytes"] for file in files) // 5
    offsets, false = match_boundaries(truth, found, tolerance)
    returned = document.get("returned")
    return {
        "boundaries_true": truth,
        "boundaries_found": found,
        "boundary_offsets": offsets,
        "boundaries_hit": sum(offset is not None for offset in offsets),
        "boundaries_false": len(false),
        "boundary_tolerance": tolerance,
        "return_opened": len(returned["boundaries"]) if returned else None,
        "return_skipped_bytes": returned["skipped_bytes"] - document["train"]["skipped_bytes"]
        if returned
        else None,
    }


def weighted_accuracy(train):
    """Of all examples alike, where domains have different numbers of them."""
    if train["measure"] != "accuracy" or None in train["matrix"][-1]:
        return None
    sizes = [domain["bytes"] for domain in train["plan"]["domains"]]
    return sum(a * b for a, b in zip(train["matrix"][-1], sizes)) / sum(sizes)


def run_figures(document):
    plan, train = document["plan"], document["train"]
    figures = train["figures"]
    joint = plan["method"] == "joint"
    run = {
        "stream": plan["stream"],
        "method": plan["method"],
        "order": plan["order"],
        "seed": plan["seed"],
        "measure": train["measure"],
        "domains": plan["domains"],
        "matrix": train["matrix"],
        "final": train["matrix"][-1],
        "learned": figures["learned_by_domain"],
        # The stricter definition, Chaudhry et al. 2018, has the short name; both are there.
        "forgetting": figures["forgetting_max"],
        "forgetting_max": figures["forgetting_max"],
        "forgetting_learned": figures["forgetting_learned"],
        "forgetting_max_by_domain": figures["forgetting_max_by_domain"],
        "forgetting_learned_by_domain": figures["forgetting_learned_by_domain"],
        "backward_transfer": figures["backward_transfer"],
        "forward_transfer": figures["forward_transfer"],
        "stability_gap_mean": figures["stability_gap_mean"],
        "stability_gap_worst": figures["stability_gap_worst"],
        "asof_forgetting": train["asof_forgetting"],
        "final_mean": figures["final_mean"],
        "accuracy": weighted_accuracy(train),
        "prequential": mean(train["prequential"]),
        "prequential_by_file": train["prequential"],
        "generations": train["generations"],
        "seconds": train["seconds"],
        "seconds_measuring": train["seconds_measuring"],
        "threads": train["threads"],
        "jobs": document["jobs"],
        "cost_ratio": train["cost_ratio"],
        "us_per_byte": train["us_per_byte_now"],
        "pool_bytes": train["pool_bytes"],
        "bytes": train["pool_bytes"],
        "optimiser_bytes": train["optimiser_bytes"],
        "peak_memory_bytes": train["peak_memory_bytes"],
        "pool_megabytes": train["pool_bytes"] / 1e6,
        "optimiser_megabytes": train["optimiser_bytes"] / 1e6,
        "peak_megabytes": train["peak_memory_bytes"] / 1e6,
        "after_return": document["returned"]["matrix"][-1] if document.get("returned") else None,
        "fire_share": train["measured"]["points"][-1]["fire_share"],
        "root": train["root"],
    }
    if joint:  # there are no domains one after the other, so nothing is old
        for key in ("forgetting", "forgetting_max", "forgetting_learned", "backward_transfer"):
            run[key] = None
        for key in ("forward_transfer", "stability_gap_mean", "stability_gap_worst"):
            run[key] = None
    run |= {"boundaries_found": [], "boundaries_hit": None} if joint else boundary_figures(plan, document)
    return run


# ---- against baselines ----------------------------------------------------------------------------------


def ratio(measure, own, baseline):
    """Above 1: better than the baseline."""
    if not own or not baseline:
        return None
    return baseline / own if measure == "bits_per_byte" else own / baseline


def find_baseline(runs, run, method):
    """What the baseline had right after each domain: of the same order and seed, or the mean over seeds."""
    same = [r for r in runs if r["method"] == method and r["stream"] == run["stream"]]
    same = [r for r in same if r["order"] == run["order"]]
    exact = [r for r in same if r["seed"] == run["seed"]]
    learned = [dict(zip(r["domains"], r["learned"])) for r in exact or same]
    return {name: mean(each.get(name) for each in learned) for name in run["domains"]} if learned else {}


def fresh_values(documents, run):
    """Of a new model for each domain alone: of the same seed, or the mean over seeds."""
    of_stream = [d for d in documents if d["plan"]["stream"] == run["stream"] and "fresh" in d]
    exact = [d for d in of_stream if d["plan"]["seed"] == run["seed"]]
    return {
        name: mean(d["fresh"].get(name) for d in exact or of_stream) for name in run["domains"]
    }


def add_shares(runs, documents):
    for run in runs:
        for key, baseline in (
            ("learned_share", find_baseline(runs, run, "finetune")),
            ("learned_share_fresh", fresh_values(documents, run)),
        ):
            shares = [
                ratio(run["measure"], own, baseline.get(name))
                for name, own in zip(run["domains"], run["learned"])
            ]
            if run["method"] == "joint":
                shares = [None] * len(shares)
            run[f"{key}_by_domain"] = shares
            run[key] = mean(shares[1:])  # new domains: all but the first


# ---- results -----------------------------------------------------------------------------------------


def summarise(runs):
    """Mean, spread and number of runs of each figure, per stream, order and method."""
    groups = {}
    for run in runs:
        groups.setdefault((run["stream"], run["order"], run["method"]), []).append(run)
    summary = []
    for (stream, order, method), group in groups.items():
        figures = {
            key: {
                "mean": mean(run.get(key) for run in group),
                "spread": spread(run.get(key) for run in group),
            }
            for key, _, _ in FIGURES
        }
        summary.append(
            {
                "stream": stream,
                "order": order,
                "method": method,
                "runs": len(group),
                "measure": group[0]["measure"],
                "domains": group[0]["domains"],
                "figures": figures,
                "matrix": mean_matrix([run["matrix"] for run in group]),
                "final": mean_matrix([[run["final"]] for run in group])[0],
                "final_spread": [spread(values) for values in zip(*(run["final"] for run in group))],
                "true_boundaries": len(group[0].get("boundaries_true", [])),
            }
        )
    return summary


def mean_matrix(matrices):
    return [[mean(cell) for cell in zip(*rows)] for rows in zip(*matrices)]


def results(config, documents, command, version):
    runs = [run_figures(d) for d in documents.values() if "train" in d]
    add_shares(runs, list(documents.values()))
    return {
        "command": command,
        "config": str(config.path),
        "quick": config.quick,
        "reef": version.get("version"),
        "kernels": version.get("kernels"),
        "machine": f"{platform.machine()}, {os.cpu_count()} cores",
        "made": datetime.datetime.now(datetime.timezone.utc).isoformat(timespec="seconds"),
        "forgetting_definition": "forgetting and forgetting_max: Chaudhry et al. 2018 (best earlier value less "
        "the last); forgetting_learned: Lopez-Paz & Ranzato 2017 (value right after learning less the last); "
        "means over all domains but the one learned last",
        "learned_share_definition": "right after each new domain was learned, finetune's bits per byte by ours "
        "(accuracy: ours by finetune's), mean over all domains but the first; above 1 is better than finetune",
        "fresh": {name: d["fresh"] for name, d in documents.items() if "fresh" in d},
        "results": runs,
        "summary": summarise(runs),
    }


def line(document):
    """One finished cell in a few words."""
    if "fresh" in document:
        return "  ".join(f"{name} {value:.4f}" for name, value in document["fresh"].items())
    run = run_figures(document)
    text = f"{run['measure'].replace('_', ' ')} {run['final_mean']:.4f}"
    if run["forgetting_learned"] is not None:
        text += f", forgotten {run['forgetting_learned']:.4f}"
    if run["boundaries_hit"] is not None:
        text += f", boundaries {run['boundaries_hit']}/{len(run['boundaries_true'])}"
        text += f" and {run['boundaries_false']} false"
    return text + f", {run['seconds']:.0f} s"


def write_csv(path, document):
    keys = ["stream", "order", "method", "seed", "measure"] + [key for key, _, _ in FIGURES]
    out = io.StringIO()
    writer = csv.writer(out, lineterminator="\n")
    writer.writerow(keys + ["domain_values"])
    for run in document["results"]:
        values = " ".join(f"{name}={value}" for name, value in zip(run["domains"], run["final"]))
        writer.writerow([run.get(key) for key in keys] + [values])
    path.write_text(out.getvalue())


# ---- Markdown ----------------------------------------------------------------------------------------


def cell(figure, digits):
    if figure["mean"] is None:
        return "-"
    text = f"{figure['mean']:.{digits}f}"
    if figure["mean"] and abs(figure["mean"]) < 10**-digits / 2:
        text = f"{figure['mean']:.1e}"  # small, but not zero
    return text if figure["spread"] is None else f"{text} ± {figure['spread']:.{digits}f}"


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


def domain_table(groups):
    names = groups[0]["domains"]
    rows = []
    for g in groups:
        own = {
            name: {"mean": value, "spread": wide}
            for name, value, wide in zip(g["domains"], g["final"], g["final_spread"])
        }
        rows.append([g["method"]] + [cell(own[name], 4) for name in names])
    return table(["method"] + names, rows)


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
        lines += ["", f"At the end, {unit}:", ""] + domain_table(first)
        shuffled = [g["method"] for g in groups if g["order"] != groups[0]["order"]]
        for method in dict.fromkeys(shuffled):
            orders = [g for g in groups if g["method"] == method]
            lines += ["", f"{method}, in other orders of the domains:", ""]
            lines += figure_table(orders, "order", lambda g: " → ".join(g["domains"]))
    lines += ["", document["forgetting_definition"] + ".", "", document["learned_share_definition"] + "."]
    path.write_text("\n".join(lines) + "\n")
