#!/usr/bin/env python3
"""Of the lines that reef score ranks highest, one in 100: how many are unusual.

usage: judge.py OUT

OUT/NAME.json is what `reef score --json` said of OUT/later/NAME.log. Prints precision (of these lines those that are
unusual) and recall (unusual lines that are among them), and what was missed; exit 1 where they are not far above
chance.
"""
import json
import os
import sys

ALARMS = 0.01
LEAST = 0.4  # of both; by chance each is 0.01


def main():
    out = sys.argv[1]
    with open(os.path.join(out, "truth.json"), encoding="utf-8") as file:
        truth = json.load(file)
    scores = []
    for name in sorted(truth):
        with open(os.path.join(out, name + ".json"), encoding="utf-8") as file:
            scores += [(line["score"], name, line["text"]) for line in json.load(file)["lines"]]
    scores.sort(reverse=True)
    alarms = scores[:round(len(scores) * ALARMS)]
    unusual = sum(len(of_one) for of_one in truth.values())
    hits = sum(text in truth[name] for _, name, text in alarms)
    precision, recall = hits / max(1, len(alarms)), hits / unusual
    alarmed = {(name, text) for _, name, text in alarms}
    for name, of_one in sorted(truth.items()):
        for text, kind in of_one.items():
            if (name, text) not in alarmed:
                print(f"missed: {name}, {kind}: {text[:100]}")
    for score, name, text in alarms:
        if text not in truth[name]:
            print(f"false alarm: {name}, {score:.2f}: {text[:100]}")
    print(f"{len(scores)} lines, {unusual} of them unusual")
    print(f"at {100 * ALARMS:g} % alarms: precision {precision:.2f}, recall {recall:.2f} ({len(alarms)} alarms)")
    if precision < LEAST or recall < LEAST:
        sys.exit(f"a score that is of use has at least {LEAST} of both")


main()
