"""From what was measured in each cell to results.json, results.csv and results.md.

Figures of one run (forgetting, transfer, stability gap) are those of tools/metrics.h, as reef computed
them. Here is what needs more than one run: shares against a baseline, means, spreads and tables.
"""

import csv
import datetime
import io
import os
import platform
import statistics

import sizes

FIGURES = [
    # key in results, heading, digits
    ("final_mean", "mean at the end", 4),
    ("floored_mean", "mean with a floor", 4),
    ("accuracy", "accuracy", 4),
    ("forgetting_max", "forgetting, since best", 4),
    ("forgetting_learned", "forgetting, since learned", 4),
    ("asof_forgetting", "as-of change", 4),
    ("learned_share", "learned share", 3),
    ("learned_share_isolated", "share of isolated", 3),
    ("forward_transfer", "forward transfer", 3),
    ("stability_gap_worst", "stability gap", 4),
    ("prequential", "prequential", 4),
    ("boundaries_hit", "boundaries hit", 1),
    ("boundaries_false", "false", 1),
    ("return_opened", "opened by return", 1),
    ("generations", "generations", 1),
    ("cpu_seconds", "CPU seconds", 0),
    ("cost_ratio", "cost of a byte", 2),
    ("parameters_millions", "parameters, M", 2),
    ("active_thousands", "of them a byte, k", 0),
    ("megaflops", "MFLOP a byte", 3),
    ("memory_megabytes", "context memories, MB", 1),
    ("pool_megabytes", "on disk, MB", 1),
    ("optimiser_megabytes", "optimiser, MB", 1),
    ("peak_megabytes", "memory, MB", 0),
]


# Methods that learn one domain after the other.
LEARNERS = ("generations", "finetune", "replay", "ewc", "lwf", "sparse-memory", "grid")
ALONE_BITS = 8  # bits a byte of a model that knows nothing: more is worse than no model


def known(values):
    return [value for value in values if value is not None]


def mean(values):
    values = known(values)
    return statistics.fmean(values) if values else None


def spread(values):
    """Sample standard deviation; None of fewer than two."""
    values = known(values)
    return statistics.stdev(values) if len(values) > 1 else None


def most(values):
    return max(known(values), default=None)


def sum_known(values):
    values = known(values)
    return sum(values) if values else None


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

    def not_learned(train):
        return train.get("not_learned_bytes", 0)  # a pool that learns its whole stream has no such figure

    return {
        "boundaries_true": truth,
        "boundaries_found": found,
        "boundary_offsets": offsets,
        "boundaries_hit": sum(offset is not None for offset in offsets),
        "boundaries_false": len(false),
        "boundary_tolerance": tolerance,
        "return_opened": len(returned["boundaries"]) if returned else None,
        "return_not_learned_bytes": not_learned(returned) - not_learned(document["train"]) if returned else None,
    }


def weighted_accuracy(train):
    """Of all examples alike, where domains have different numbers of them."""
    if train["measure"] != "accuracy" or None in train["matrix"][-1]:
        return None
    sizes = [domain["bytes"] for domain in train["plan"]["domains"]]
    return sum(a * b for a, b in zip(train["matrix"][-1], sizes)) / sum(sizes)


def size_figures(document):
    """How large the pool of a document is at the end; sizes.py has the formulas."""
    generations = document["generations"]
    shares = [file["fire_share"] for file in document["eval"] or []]
    found = sizes.measure(document["init"]["config"], [g["side"] for g in generations], shares)
    memories = [g["context_memory"]["bytes"] for g in generations if g["context_memory"]]
    return found | {
        "floored": [file["floored_bits_per_byte"] for file in document["eval"]] if document["eval"] else None,
        "memory_bytes": sum(memories) if memories else None,
        "pool_bytes": document["used_bytes"],
    }


def in_tables(run):
    """The same in the units of tables."""
    return {
        "floored_mean": mean(run["floored"]) if run["floored"] else None,
        "parameters_millions": run["parameters"] and run["parameters"] / 1e6,
        "active_thousands": run["parameters_active"] and run["parameters_active"] / 1e3,
        "megaflops": run["flops"] and run["flops"] / 1e6,
        "memory_megabytes": run["memory_bytes"] and run["memory_bytes"] / 1e6,
        "pool_megabytes": run["pool_bytes"] / 1e6,
    }


def run_of(plan, document):
    """What every run has, whatever made it."""
    return {
        "stream": plan["stream"],
        "method": plan["method"],
        "base": plan["base"],
        "order": plan["order"],
        "seed": plan["seed"],
        "choice": plan["choice"],
        "program": plan["program"],
        "key": plan["key"],
        "content": plan["content"],
        "domains": plan["domains"],
    } | document["made"]


def compressor_figures(document):
    plan, found = document["plan"], document["compressed"]
    final = [found["bits_per_byte"][name] for name in plan["domains"]]
    run = run_of(plan, document) | {
        "measure": "bits_per_byte",
        "matrix": None,
        "final": final,
        "learned": final,
        "final_mean": mean(final),
        "cpu_seconds": found["cpu_seconds"],
        "floored": None,
        "parameters": None,
        "parameters_active": None,
        "flops": None,
        "memory_bytes": None,
        "pool_bytes": found["archive_bytes"],
    }
    return run | in_tables(run)


def isolated_figures(document):
    """A model for each domain: what all have together, and what one byte costs the one that is asked."""
    plan = document["plan"]
    models = [document["isolated"][name] for name in plan["domains"]]
    parts = [size_figures(model) for model in models]
    final = [model["train"]["matrix"][-1][0] for model in models]
    run = run_of(plan, document) | {
        "measure": models[0]["train"]["measure"],
        "matrix": None,
        "final": final,
        "learned": final,
        "final_mean": mean(final),
        "cpu_seconds": sum(model["train"]["cpu_seconds"] for model in models),
        "floored": [part["floored"][0] for part in parts] if parts[0]["floored"] else None,
        "parameters": sum_known(part["parameters"] for part in parts),
        "parameters_active": mean(part["parameters_active"] for part in parts),
        "flops": mean(part["flops"] for part in parts),
        "memory_bytes": sum_known(part["memory_bytes"] for part in parts),
        "pool_bytes": sum(part["pool_bytes"] for part in parts),
    }
    return run | in_tables(run)


def run_figures(document):
    if "compressed" in document:
        return compressor_figures(document)
    return isolated_figures(document) if "isolated" in document else stream_figures(document)


def stream_figures(document):
    plan, train = document["plan"], document["train"]
    figures = train["figures"]
    joint = plan["base"] == "joint"
    run = run_of(plan, document) | size_figures(document)
    run |= {
        "measure": train["measure"],
        "matrix": train["matrix"],
        "final": train["matrix"][-1],
        "learned": figures["learned_by_domain"],
        # The stricter definition, Chaudhry et al. 2018, has the short name; both are there.
        "forgetting": figures["forgetting_max"],
        "forgetting_max": figures["forgetting_max"],
        "forgetting_learned": figures["forgetting_learned"],
        "forgetting_max_by_domain": figures["forgetting_max_by_domain"],
        "forgetting_worst": most(figures["forgetting_max_by_domain"]),
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
        "cpu_seconds": train["cpu_seconds"],
        "seconds_measuring": train["seconds_measuring"],
        "cost_ratio": train["cost_ratio"],
        "us_per_byte": train["us_per_byte_now"],
        "bytes": train["pool_bytes"],
        "optimiser_bytes": train["optimiser_bytes"],
        "peak_memory_bytes": train["peak_memory_bytes"],
        "optimiser_megabytes": train["optimiser_bytes"] / 1e6,
        "peak_megabytes": train["peak_memory_bytes"] / 1e6,
        "after_return": document["returned"]["matrix"][-1] if document.get("returned") else None,
        "fire_share": train["measured"]["points"][-1]["fire_share"],
        "root": train["root"],
    }
    run |= in_tables(run)
    if joint:  # there are no domains one after the other, so nothing is old
        for key in ("forgetting", "forgetting_max", "forgetting_worst", "forgetting_learned", "backward_transfer"):
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
    # Models of single domains know no order.
    same = [r for r in same if r["order"] == run["order"] or r["base"] == "isolated"]
    exact = [r for r in same if r["seed"] == run["seed"]]
    learned = [dict(zip(r["domains"], r["learned"])) for r in exact or same]
    return {name: mean(each.get(name) for each in learned) for name in run["domains"]} if learned else {}


def add_shares(runs):
    for run in runs:
        baselines = (("learned_share", "finetune"), ("learned_share_isolated", "isolated"))
        for key, method in baselines:
            baseline = find_baseline(runs, run, method)
            shares = [
                ratio(run["measure"], own, baseline.get(name))
                for name, own in zip(run["domains"], run["learned"])
            ]
            if run["base"] not in LEARNERS:
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
                "base": group[0]["base"],
                "choice": group[0]["choice"],
                "runs": len(group),
                "measure": group[0]["measure"],
                "domains": group[0]["domains"],
                "figures": figures,
                "forgetting_worst": most(run.get("forgetting_worst") for run in group),
                "matrix": mean_matrix([run.get("matrix") for run in group]),
                "final": mean_matrix([[run["final"]] for run in group])[0],
                "final_spread": [spread(values) for values in zip(*(run["final"] for run in group))],
                "true_boundaries": len(group[0].get("boundaries_true") or []),
            }
        )
    return summary


def mean_matrix(matrices):
    if None in matrices:
        return None
    return [[mean(cell) for cell in zip(*rows)] for rows in zip(*matrices)]


def results(config, documents, command, version):
    runs = [run_figures(document) for document in documents.values()]
    add_shares(runs)
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
        "results": runs,
        "summary": summarise(runs),
    }


def line(document):
    """One finished cell in a few words."""
    run = run_figures(document)
    text = f"{run['measure'].replace('_', ' ')} {run['final_mean']:.4f}"
    if run.get("forgetting_learned") is not None:
        text += f", forgotten {run['forgetting_learned']:.4f}"
    if run.get("boundaries_hit") is not None:
        text += f", boundaries {run['boundaries_hit']}/{len(run['boundaries_true'])}"
        text += f" and {run['boundaries_false']} false"
    return text + f", {run['cpu_seconds']:.0f} s"


def write_csv(path, document):
    keys = ["stream", "order", "method", "seed", "measure"] + [key for key, _, _ in FIGURES]
    out = io.StringIO()
    writer = csv.writer(out, lineterminator="\n")
    writer.writerow(keys + ["domain_values"])
    for run in document["results"]:
        values = " ".join(f"{name}={value}" for name, value in zip(run["domains"], run["final"]))
        writer.writerow([run.get(key) for key in keys] + [values])
    path.write_text(out.getvalue())
