"""The cells that docs/RESULTS.md shows: kept in docs/results, rendered from there, compared with what is wanted.

A record is one cell's figures, with what made it: the settings of the INI file, the version of reef, a hash of the
data, the machine. A table shows records alone. It says which cells have none, and which were made with other settings
or by another version.
"""

import hashlib
import json

import figures
import summary
import tables
from cells import FLOOR, VERSION, cell_name, write_json
from methods import COMPRESSORS

# Of a run's figures; losses have the digits of the tables and two more.
KEPT = (
    "stream method base order seed choice program content domains measure final floored final_mean floored_mean "
    "forgetting_max forgetting_worst asof_forgetting boundaries_true boundaries_hit boundaries_false parameters "
    "parameters_active flops memory_bytes pool_bytes cpu_seconds machine threads jobs date"
).split()
DIGITS = 6
ORACLE_GOAL = 0.02  # bits a byte that a pool may have above a model for each kind


def rounded(value):
    if isinstance(value, float):
        return round(value, DIGITS)
    return [rounded(each) for each in value] if isinstance(value, list) else value


def settings_key(config, stream, order, method, seed):
    """What the INI file says of a cell, whatever the data hold."""
    of = config.methods[method]
    chooser = config.chosen_for(method)
    said = {
        "version": VERSION,
        "order": [domain.name for domain in stream.ordered(order)],
        "options": config.options(stream, method, seed, {}) if of.base not in COMPRESSORS else {},
        "settings": of.settings,
        "base": of.base,
        "grid": config.methods[chooser].grid if chooser else None,
        "tune": config.tune if chooser else None,
        "limits": stream.limits,
        "files": [[str(d.train), str(d.held), str(d.tuning)] for d in stream.domains],
        "transients": stream.transients,
    }
    return hashlib.sha256(json.dumps(said, sort_keys=True).encode()).hexdigest()[:16]


def record(document, key):
    run = figures.run_figures(document)
    return {"settings": key} | {name: rounded(run.get(name)) for name in KEPT}


def read(path):
    """Records by the name of their cell."""
    try:
        return json.loads(path.read_text())["cells"]
    except FileNotFoundError:
        return {}


def write(path, command, records):
    path.parent.mkdir(exist_ok=True)
    write_json(path, {"command": command, "cells": dict(sorted(records.items()))})


def states(config, records, version):
    """(name, record or None, what is wrong with it or "") of every cell that the INI file wants."""
    found = []
    for stream, order, method, seed in config.cells():
        name = cell_name(stream, order, method, seed)
        have, program = records.get(name), version
        if config.methods[method].base in COMPRESSORS:
            program = config.methods[method].base
        if have is None:
            found.append((name, None, "not run"))
        elif have["settings"] != settings_key(config, stream, order, method, seed):
            found.append((name, have, "other settings"))
        else:
            found.append((name, have, "" if have["program"] == program else f"reef {have['program']}"))
    return found


# ---- Markdown ----------------------------------------------------------------------------------------------


def in_sentence(words):
    return ", ".join(words[:-1]) + (" and " if len(words) > 1 else "") + words[-1]


def lines_of(names, width=116):
    """Text broken into lines."""
    lines, line = [], ""
    for word in names:
        if len(line) + 1 + len(word) > width:
            lines.append(line)
            line = word
        else:
            line = f"{line} {word}" if line else word
    return lines + [line]


def paragraph(text):
    return ["", *lines_of(text.split())]


def made_on(one):
    cells = "one cell" if one["jobs"] == 1 else f"{one['jobs']} cells"
    threads = "one thread" if one["threads"] == 1 else f"{one['threads']} threads"
    return f"{one['machine']}, {cells} at a time on {threads}, {one['date']}"


def row_names(some, records):
    """Which rows these records are: methods, with the first text of another order, and seeds where not all are these."""

    def seeds(records, order, method):
        return [one["seed"] for one in records if (one["order"], one["method"]) == (order, method)]

    alike = {}  # methods: the orders in which they are those
    for order in dict.fromkeys(one["order"] for one in some):
        names = []
        for method in dict.fromkeys(one["method"] for one in some if one["order"] == order):
            own = seeds(some, order, method)
            part = "" if own == seeds(records, order, method) else f" (seed {in_sentence([*map(str, own)])})"
            names.append(method + part)
        alike.setdefault(", ".join(names), []).append(order)
    first = {one["order"]: one["domains"][0] for one in records}
    found = [names if orders == [0] else f"{names}, all from {in_sentence([first[order] for order in orders])}"
             for names, orders in sorted(alike.items(), key=lambda pair: pair[1] != [0])]
    return "; ".join(found)


def made_lines(records):
    """Where and when; of several machines and days, which rows."""
    machines = {}
    for one in records:
        machines.setdefault(made_on(one), []).append(one)
    if len(machines) == 1:
        return [f"Measured on {machine}." for machine in machines]
    return [f"Measured on {machine}: {row_names(some, records)}." for machine, some in machines.items()]


def gaps(wanted, of_stream):
    """What a stream does not have as it should."""
    said = []
    for wrong in dict.fromkeys(wrong for _, _, wrong in wanted if wrong):
        names = [name.split(".", 1)[1] for name, _, each in wanted if each == wrong]
        text = "Not run with this program" if wrong == "not run" else f"Measured with {wrong}"
        said += paragraph(f"{text}{of_stream}: {', '.join(names)}.")
    return said


def better(baseline, ours):
    """Texts on which a baseline's mean is lower, with the difference."""
    own = dict(zip(ours["domains"], ours["final"]))
    pairs = zip(baseline["domains"], baseline["final"])
    return [(name, own[name] - value) for name, value in pairs if value < own[name]]


def oracle_of(ours, groups):
    """The models of single kinds that a method is compared with: isolated for generations, isolated-NAME for NAME."""
    suffix = "" if ours["method"] == "generations" else f"-{ours['method']}"
    return next((g for g in groups if g["method"] == f"isolated{suffix}"), None)


def verdict(groups):
    """Is a pool at most the best baseline, and where not; and how far above models of single kinds?"""
    pools = [g for g in groups if g["base"] == "generations" and oracle_of(g, groups)]
    baselines = [g for g in groups if g not in pools and g["base"] != "isolated"]
    said = []
    for ours in pools:
        mean = ours["figures"]["final_mean"]["mean"]
        said.append(f"`{ours['method']}` has {mean:.4f} in the mean.")
        # A pool without context memories adapts to nothing that it reads, and is compared with nets.
        nets = ours["figures"]["memory_megabytes"]["mean"] is None
        own = [g for g in baselines if not nets or g["base"] not in COMPRESSORS]
        if own:
            kind = "net" if nets else "baseline"
            best = min(own, key=lambda g: g["figures"]["final_mean"]["mean"])
            said.append(f"The best other {kind}, `{best['method']}`, has {best['figures']['final_mean']['mean']:.4f}.")
            where = {}
            for baseline in own:
                for name, difference in better(baseline, ours):
                    where.setdefault(name, []).append((difference, baseline["method"]))
            worst = sorted(((*max(found), name) for name, found in where.items()), reverse=True)
            lost = [f"{name} (`{method}`, by {difference:.4f})" for difference, method, name in worst]
            said.append(f"A {kind} is better on {in_sentence(lost)}." if lost else f"No {kind} is better on any text.")
        oracle = oracle_of(ours, groups)
        above = mean - oracle["figures"]["final_mean"]["mean"]
        said.append(f"Beside `{oracle['method']}`, where an oracle knows the kind, that is {above:+.4f} (goal: at most "
                    f"{ORACLE_GOAL}).")
    return paragraph(" ".join(said)) if said else []


def order_rows(groups):
    """Means in every order of the texts, for methods that ran in more than one; and the most that a text lost in a run."""
    shown = [m for m in dict.fromkeys(g["method"] for g in groups) if sum(g["method"] == m for g in groups) > 1]
    rows = []
    for g in groups:
        if g["method"] in shown:
            figures_of = g["figures"]
            rows.append([g["method"], " → ".join(g["domains"]), tables.loss_cell(figures_of["final_mean"], g["measure"]),
                         tables.cell(figures_of["forgetting_max"], 4),
                         tables.cell({"mean": g["forgetting_worst"], "spread": None}, 4), g["runs"]])
    rows.sort(key=lambda row: shown.index(row[0]))
    return tables.table(["method", "order", "mean", "forgotten since best, mean of texts", "most of one text", "runs"], rows) if rows else []


def boundary_rows(groups):
    """What pools found of the boundaries that they were not told, and where they found one that is none."""
    rows = []
    for g in groups:
        hit, false = (g["figures"][key] for key in ("boundaries_hit", "boundaries_false"))
        if g["base"] == "generations" and hit["mean"] is not None:
            rows.append([g["method"], g["domains"][0], g["true_boundaries"], f"{hit['mean']:.3g}", f"{false['mean']:.3g}",
                         g["runs"]])
    first = "first task" if groups[0]["measure"] == "accuracy" else "first text"
    return tables.table(["method", first, "boundaries", "found", "invented", "runs"], rows) if rows else []


def stream_lines(config, groups, named):
    """Of one stream, whose name is said where a table has several."""
    first = [g for g in groups if g["order"] == 0]
    unit = "accuracy" if groups[0]["measure"] == "accuracy" else "bits per byte"
    name = f"`{groups[0]['stream']}`: " if named else ""
    lines = ["", f"{name}{' → '.join(groups[0]['domains'])}; {unit} at the end:", ""]
    lines += tables.comparison_table(first or groups)
    lines += verdict(first)
    if choices := tables.choice_lines(first, config.grid_of):
        lines += ["", "Chosen from grids, on other held-out texts and with another seed:", "", *choices]
    if rows := order_rows(groups):
        lines += ["", "Other orders:", "", *rows]
    if rows := boundary_rows(groups):
        lines += ["", "Boundaries that no pool was told, means over seeds:", "", *rows]
    return lines


def shown(wanted):
    return [one | figures.in_tables(one) for _, one, _ in wanted if one]


def block(table, config, records, version):
    """What stands between the comments of a table in docs/RESULTS.md."""
    wanted = states(config, records, version)
    have = shown(wanted)
    command = f"`tools/results --only {table} --data DIR`"
    if not have:
        return [f"No cell of this table has been run with this program: {command}."]
    groups = figures.summarise(have)
    text = (f"{command} runs `{table_config(config)}` and writes this table. Means over seeds ± the sample standard "
            "deviation. ")
    if any(group["measure"] == "bits_per_byte" for group in groups):
        text += f"\"With a floor\" is the mean where {float(FLOOR):.0%} of every prediction is even over all bytes. "
    streams = dict.fromkeys(name.split(".", 1)[0] for name, _, _ in wanted)
    several = len(streams) > 1
    lines = paragraph(text + ("" if several else " ".join(made_lines(have))))[1:]
    for stream in streams:
        own = [one for one in wanted if one[0].split(".", 1)[0] == stream]
        if found := [g for g in groups if g["stream"] == stream]:
            lines += stream_lines(config, found, several)
            lines += paragraph(" ".join(made_lines(shown(own)))) if several else []
        lines += gaps(own, f" of `{stream}`" if several else "")
    return lines


def readme_block(config, records, version):
    """What stands at the head of README.md."""
    return summary.table(figures.summarise(shown(states(config, records, version))))


def table_config(config):
    return "/".join(config.path.parts[-4:])
