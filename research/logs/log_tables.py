"""What research/logs/run found, as tables in Markdown: areas under precision-recall, and alarms by the preset."""

# Methods of the JSON and what they are called in the tables; a method that a machine lacks has no column.
COLUMNS = {
    "reef, frozen": "score, frozen", "reef": "score", "bits, frozen": "bits, frozen", "bits": "bits",
    "template": "template", "Drain": "Drain", "words": "words", "trigrams": "trigrams", "neighbour": "neighbour",
    "PPMd": "PPMd",
}
OWN = ("reef, frozen", "reef", "bits, frozen", "bits")
ALARMS = "reef, frozen"  # what alarms go by


def row(cells):
    return "| " + " | ".join(str(cell) for cell in cells) + " |"


def table(heading, rows):
    return [row(heading), "| --- |" + " ---: |" * (len(heading) - 1), *map(row, rows)]


def with_best(values, digits):
    """The largest as it is shown is bold, also where several are."""
    shown = ["" if value is None else f"{value:.{digits}f}" for value in values]
    return [f"**{text}**" if text and text == max(shown) else text for text in shown]


def area_rows(logs):
    names = [name for name in COLUMNS if all(name in log["methods"] for log in logs)]
    heading = ["log", "lines", "any order", *(COLUMNS[name] for name in names)]
    rows = [[log["log"], f"{log['lines']:,}", f"{log['labelled'] / log['lines']:.3f}",
             *with_best([log["methods"][name]["area"] for name in names], 3)] for log in logs]
    return table(heading, rows)


def best_baseline(log, figure):
    """(name, its figure)"""
    found = [(one[figure], name) for name, one in log["methods"].items() if name not in OWN]
    value, name = max(found, key=lambda pair: pair[0])
    return name, value


def alarm_rows(logs):
    rows = []
    for log in logs:
        one = log["methods"][ALARMS]
        a_day = "" if one["alarms_a_day"] is None else f"{one['alarms_a_day']:,.0f}"
        beside = []
        for figure in ("best_f1", "f1"):
            name, best = best_baseline(log, figure)
            own, other = with_best([one[figure], best], 3)
            beside += [own, f"{other} ({name})"]
        rows.append([log["log"], *beside, f"{one['alarms']:,}", one["hits"], a_day])
    return table(["log", "best F1", "of a baseline", "F1 at the preset", "best of a baseline at the preset", "alarms",
                  "of them labelled", "alarms a day"], rows)


def verdict(logs):
    missed = []
    for log in logs:
        name, best = best_baseline(log, "area")
        own = log["methods"][ALARMS]["area"]
        if own < best:
            missed.append(f"{log['log']} (to {name}, by {best - own:.3f})")
    return f"The frozen score loses to a baseline on {', '.join(missed) or 'no log'}."


def rate_rows(logs):
    rows = [[log["log"], *(f"{log['methods'][name]['lines_per_s']:,.0f}" for name in ("reef, frozen", "reef")),
             f"{log['learning_lines_per_s']:,.0f}"] for log in logs]
    return table(["lines a second of CPU time", "score, frozen", "score", "learning"], rows)
