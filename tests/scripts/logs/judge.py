#!/usr/bin/env python3
"""Of the lines that reef score --follow --outliers marked: how many are unusual, when one line in 100 may be an alarm.

usage: judge.py OUT

OUT/NAME.marks is what the command printed for OUT/later/NAME.log. Alarms are the marked lines that lie furthest above
the usual, no more than 1 % of all lines. Prints precision (alarms that are unusual) and recall (unusual lines that are
alarms), and what was missed; exit 1 where they are not far above chance.
"""
import json
import os
import re
import sys

ALARMS = 0.01
LEAST = 0.4  # of both; by chance each is 0.01
MARKED = re.compile(r"^! *([0-9.]+) +([-+][0-9.]+)  (.*)$")


def read_lines(path):
    with open(path, encoding="utf-8") as file:
        return file.read().splitlines()


def main():
    out = sys.argv[1]
    with open(os.path.join(out, "truth.json"), encoding="utf-8") as file:
        truth = json.load(file)
    lines, marks = 0, []
    for name in sorted(truth):
        later = set(read_lines(os.path.join(out, "later", name + ".log")))
        lines += len(later)
        for shown in read_lines(os.path.join(out, name + ".marks")):
            parts = MARKED.match(shown)
            if not parts:
                sys.exit(f"{name}: this is no marked line: {shown}")
            text = parts[3]
            if text in later:  # not one of those that were there before, and not the last
                marks.append((float(parts[2]), name, text))
    marks.sort(reverse=True)
    alarms = marks[:round(lines * ALARMS)]
    unusual = sum(len(of_one) for of_one in truth.values())
    hits = sum(text in truth[name] for _, name, text in alarms)
    precision, recall = hits / max(1, len(alarms)), hits / unusual
    alarmed = {(name, text) for _, name, text in alarms}
    for name, of_one in sorted(truth.items()):
        for text, kind in of_one.items():
            if (name, text) not in alarmed:
                print(f"missed: {name}, {kind}: {text[:100]}")
    for distance, name, text in alarms:
        if text not in truth[name]:
            print(f"false alarm: {name}, {distance:+.1f}: {text[:100]}")
    marked_right = sum(text in truth[name] for _, name, text in marks)
    print(f"{lines} lines, {unusual} of them unusual; marked {len(marks)}, {marked_right} of them unusual")
    print(f"at {100 * ALARMS:g} % alarms: precision {precision:.2f}, recall {recall:.2f} ({len(alarms)} alarms)")
    if precision < LEAST or recall < LEAST:
        sys.exit(f"a log watcher that is of use has at least {LEAST} of both")


main()
