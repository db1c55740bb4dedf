#!/usr/bin/env python3
"""What several machines would gain, from measurements of `reef bench ranks --json` in ranks.json.

usage: docs/img/ranks.py [FOLDER] [--dark]   (default: where this file is; --dark: as a dark page shows it)

Draws ranks.svg, and prints the table of docs/OPERATING.md. The model of a step of W windows on R ranks:

  computing   a + b W + c W / R + d / R   CPU time: what each rank does once, for all windows, for its own, and for its
                                          part of the rows (d: only where rows are divided)
  bytes       (R - 1) / R (r + W (g + h sqrt(2 / R) + k / R))   that a rank sends: gradients, columns of activations,
                                          and rows that others chose (k: only where rows are divided)
  network     bytes / bandwidth + exchanges * LATENCY_S   nothing is computed meanwhile
  memory      m + n W / R + o / R         of a rank: what all have, its windows, and its part of the rows

All factors fit the measurements best (least squares of relative errors, none below 0).
"""

import itertools
import json
import os
import sys

from concepts import Picture

WINDOWS = 64  # of the step that is planned; 64 ranks have one each
MACHINES = [1, 4, 16, 64]
LATENCY_S = 50e-6  # of an exchange over TCP: assumed, not measured
NETWORKS = [("10 Gbit/s", 10e9 / 8), ("100 Gbit/s", 100e9 / 8)]


def solve(rows, values):
    """The x of least squares of rows * x = values, by Gauss."""
    n = len(rows[0])
    a = [[sum(r[i] * r[j] for r in rows) for j in range(n)] + [sum(r[i] * v for r, v in zip(rows, values))] for i in range(n)]
    for i in range(n):
        best = max(range(i, n), key=lambda k: abs(a[k][i]))
        a[i], a[best] = a[best], a[i]
        for k in range(n):
            if k != i:
                factor = a[k][i] / a[i][i]
                a[k] = [x - factor * y for x, y in zip(a[k], a[i])]
    return [a[i][n] / a[i][i] for i in range(n)]


def fit(points, terms):
    """Factors of the terms, none below 0, that fit points (windows, ranks, value) best."""
    best = None
    for kept in itertools.product([False, True], repeat=len(terms)):
        chosen = [term for term, keep in zip(terms, kept) if keep]
        if not chosen or len(chosen) > len(points):
            continue
        rows = [[term(w, r) / value for term in chosen] for w, r, value in points]
        factors = iter(solve(rows, [1.0] * len(points)))
        all_factors = [next(factors) if keep else 0.0 for keep in kept]
        error = sum((sum(f * t(w, r) for f, t in zip(all_factors, terms)) / value - 1) ** 2 for w, r, value in points)
        if min(all_factors) >= 0 and (best is None or error < best[0]):
            best = (error, all_factors)
    return best[1]


def memory_of(one):
    return max(one["memory_peak_bytes"])


COMPUTING = [lambda w, r: 1.0, lambda w, r: float(w), lambda w, r: w / r]
BYTES = [lambda w, r: (r - 1) / r, lambda w, r: w * (r - 1) / r, lambda w, r: w * (r - 1) / r * (2 / r) ** 0.5]


OF_ROWS = [lambda w, r: 1 / r]
OF_ROWS_SENT = [lambda w, r: w * (r - 1) / r / r]
MEMORY = [lambda w, r: 1.0, lambda w, r: w / r, lambda w, r: 1 / r]


class Model:
    def __init__(self, series):
        divided = "--divided" in series["command"]
        self.computing_terms = COMPUTING + (OF_ROWS if divided else [])
        self.bytes_terms = BYTES + (OF_ROWS_SENT if divided else [])
        runs = [(run["tokens_per_step"] // 128, one) for run in series["documents"] for one in run["runs"]]
        self.name = series["name"]
        self.computing = fit([(w, one["ranks"], one["cpu_step_seconds"]) for w, one in runs], self.computing_terms)
        sent = [(w, one["ranks"], one["sent_bytes_per_step"]) for w, one in runs if one["ranks"] > 1]
        self.bytes = fit(sent, self.bytes_terms)
        self.memory = fit([(w, one["ranks"], memory_of(one)) for w, one in runs], MEMORY)
        self.exchanges = max(one["exchanges_per_step"] for _, one in runs)

    def compute_s(self, ranks):
        return sum(f * t(WINDOWS, ranks) for f, t in zip(self.computing, self.computing_terms))

    def every_rank_s(self):
        return self.computing[0] + self.computing[1] * WINDOWS

    def sent_bytes(self, ranks):
        return sum(f * t(WINDOWS, ranks) for f, t in zip(self.bytes, self.bytes_terms))

    def memory_bytes(self, ranks):
        return sum(f * t(WINDOWS, ranks) for f, t in zip(self.memory, MEMORY))

    def network_s(self, ranks, bandwidth):
        return 0.0 if ranks == 1 else self.sent_bytes(ranks) / bandwidth + self.exchanges * LATENCY_S

    def gain(self, ranks, bandwidth):
        network = self.network_s(ranks, bandwidth) if bandwidth else 0.0
        return self.compute_s(1) / (self.compute_s(ranks) + network)


def draw(models):
    p = Picture(900, 760, "Gain of 4, 16 and 64 machines over one, by network")
    for at, model in enumerate(models):
        left, top, width, height = 60 + 445 * (at % 2), 60 + 380 * (at // 2), 290, 260
        p.text(left, top - 26, model.name, 15, bold=True)

        def place(ranks, gain):
            return left + MACHINES.index(ranks) * width / 3, top + height - (gain - 1) * height / 7

        for gain in (1, 2, 4, 6, 8):
            y = place(1, gain)[1]
            p.line((left, y), (left + width, y), kind="line dashed" if gain > 1 else "line")
            p.text(left - 10, y + 5, f"{gain}x", 13, "end", "muted")
        for ranks in MACHINES:
            p.text(place(ranks, 1)[0], top + height + 22, str(ranks), 13, "middle", "muted")
        p.text(left + width / 2, top + height + 44, "machines, one window of 64 or more each", 13, "middle", "muted")
        curves = [("no network", None, "limit")] + [(name, bandwidth, "frame" if i else "line")
                                                         for i, (name, bandwidth) in enumerate(NETWORKS)]
        ends = []
        for name, bandwidth, kind in curves:
            points = [place(ranks, model.gain(ranks, bandwidth)) for ranks in MACHINES]
            p.line(*points, kind=kind)
            ends.append((points[-1][1], name))
        lowest = 0.0
        for y, name in sorted(ends):  # one below the other, however close the curves are
            lowest = max(y, lowest + 16)
            p.text(left + width + 8, lowest + 5, name, 13)
    return p


def table(models):
    lines = ["| model | machines | computing ms | of it on every rank | MB sent | 10 Gbit/s: ms, gain | 100 Gbit/s: ms, gain | "
             "GB of a rank |", "| --- | --- | --- | --- | --- | --- | --- | --- |"]
    for model in models:
        for ranks in MACHINES:
            nets = [f"{1e3 * model.network_s(ranks, b):.0f}, {model.gain(ranks, b):.1f}" for _, b in NETWORKS]
            lines.append(f"| {model.name} | {ranks} | {1e3 * model.compute_s(ranks):.0f} | {1e3 * model.every_rank_s():.0f} | "
                         f"{model.sent_bytes(ranks) / 1e6:.0f} | {nets[0]} | {nets[1]} | {model.memory_bytes(ranks) / 1e9:.2f} |")
    return "\n".join(lines)


def main():
    here = os.path.dirname(os.path.abspath(__file__))
    arguments = [word for word in sys.argv[1:] if word != "--dark"]
    with open(f"{here}/ranks.json", encoding="utf-8") as file:
        models = [Model(series) for series in json.load(file)["series"]]
    draw(models).write(f"{arguments[0] if arguments else here}/ranks.svg", "--dark" in sys.argv)
    print(table(models))


if __name__ == "__main__":
    main()
