"""A labelled log: a folder with `log.txt`, a line each in the order of time, and `labels.csv` with columns `line` (from
1), `label` (0 or 1) and, in some, what sort of thing is labelled."""

import csv
import sys

CATEGORIES = ("category", "fault", "attack")  # columns, of which a log has one or none


def fail(text):
    sys.exit(f"logs: {text}")


def read_lines(path):
    try:
        lines = path.read_bytes().split(b"\n")
    except OSError as problem:
        fail(f"{path}: {problem.strerror}")
    return lines[:-1] if lines[-1] == b"" else lines


def read_categories(path, count):
    """(label, category) of each line; the category is "" where the log tells none."""
    found = [(0, "")] * count
    try:
        with path.open(newline="", encoding="utf-8") as file:
            for row in csv.DictReader(file):
                category = next((row[name] for name in CATEGORIES if name in row), "")
                found[int(row["line"]) - 1] = int(row["label"]), category
    except (OSError, KeyError, ValueError, IndexError) as problem:
        fail(f"{path}: no labels of {count} lines in columns line and label: {problem}")
    return found


def read_labels(path, count):
    return [label for label, _ in read_categories(path, count)]
