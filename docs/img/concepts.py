#!/usr/bin/env python3
"""Draws the pictures of docs/CONCEPTS.md, for light and dark pages.

usage: docs/img/concepts.py [FOLDER] [--dark]   (default: where this file is; --dark: as a dark page shows them)
"""

import os
import sys
from html import escape

LIGHT = dict(ground="#ffffff", ink="#1f2328", muted="#59636e", line="#8c959f", plain="#f6f8fa", blue="#cfe8ff",
             green="#ccf0d4", amber="#ffe9a8", red="#cf222e", strong="#0a5cc2")
DARK = dict(ground="#0d1117", ink="#e6edf3", muted="#9aa4af", line="#6e7681", plain="#1c2128", blue="#0f3a66",
            green="#12492a", amber="#5c4300", red="#ff7b72", strong="#6cb6ff")


def style(colours):
    shapes = "".join(f".{name}{{fill:{colours[name]};stroke:{colours['line']}}}" for name in
                     ("plain", "blue", "green", "amber"))
    return (f".ground{{fill:{colours['ground']}}}text{{fill:{colours['ink']}}}.muted{{fill:{colours['muted']}}}"
            f".alert{{fill:{colours['red']}}}.best{{fill:{colours['strong']};stroke:{colours['strong']}}}"
            f".line{{fill:none;stroke:{colours['line']};stroke-width:1.5}}.dashed{{stroke-dasharray:5 4}}"
            f".limit{{fill:none;stroke:{colours['red']};stroke-width:1.5;stroke-dasharray:6 4}}"
            f".head{{fill:{colours['line']}}}.frame{{fill:none;stroke:{colours['strong']};stroke-width:2.5}}{shapes}")


class Picture:
    def __init__(self, width, height, title):
        self.width, self.height, self.title, self.parts = width, height, title, []

    def box(self, x, y, width, height, kind="plain", *lines, size=14):
        self.parts.append(f'<rect class="{kind}" x="{x}" y="{y}" width="{width}" height="{height}" rx="5"/>')
        top = y + height / 2 - (len(lines) - 1) * size * 0.62
        for i, line in enumerate(lines):
            self.text(x + width / 2, top + i * size * 1.24 + size * 0.35, line, size=size, anchor="middle")

    def text(self, x, y, words, size=14, anchor="start", kind="", bold=False):
        weight = ' font-weight="bold"' if bold else ""
        self.parts.append(f'<text class="{kind}" x="{x:g}" y="{y:g}" font-size="{size}" text-anchor="{anchor}"{weight}>'
                          f'{escape(words)}</text>')

    def line(self, *points, kind="line"):
        self.parts.append(f'<polyline class="{kind}" points="{" ".join(f"{x:g},{y:g}" for x, y in points)}"/>')

    def arrow(self, *points, kind="line"):
        self.line(*points, kind=kind)
        (x0, y0), (x, y) = points[-2:]
        length = ((x - x0) ** 2 + (y - y0) ** 2) ** 0.5
        dx, dy = (x - x0) / length, (y - y0) / length
        tip = [(x, y), (x - 9 * dx - 4.5 * dy, y - 9 * dy + 4.5 * dx), (x - 9 * dx + 4.5 * dy, y - 9 * dy - 4.5 * dx)]
        self.parts.append(f'<polygon class="head" points="{" ".join(f"{a:.1f},{b:.1f}" for a, b in tip)}"/>')

    def write(self, path, dark):
        css = style(DARK) if dark else style(LIGHT) + f"@media(prefers-color-scheme:dark){{{style(DARK)}}}"
        with open(path, "w", encoding="utf-8") as file:
            file.write(f'<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 {self.width} {self.height}" '
                       f'width="{self.width}" height="{self.height}" font-family="Helvetica, Arial, \'DejaVu Sans\', '
                       f'sans-serif" role="img">\n<title>{escape(self.title)}</title>\n<style>{css}</style>\n'
                       f'<rect class="ground" width="100%" height="100%"/>\n' + "\n".join(self.parts) + "\n</svg>\n")


def token():
    p = Picture(900, 500, "A byte through the model")
    p.text(20, 28, "One byte, layer by layer", 16, bold=True)
    p.box(10, 46, 160, 50, "blue", "embedding of the byte", "and of 3 before it", size=12)
    for i, (x, name, kind) in enumerate([(220, "attention", "plain"), (390, "PEER layer", "amber")]):
        p.arrow((x - (50 if i == 0 else 30), 71), (x, 71))
        p.box(x, 46, 140, 50, kind, name)
    p.line((205, 112), (205, 122), (545, 122), (545, 112))
    p.text(375, 140, "as many blocks as there are layers", 13, "middle", "muted")
    p.arrow((530, 71), (580, 71))
    p.box(580, 46, 80, 50, "plain", "head")
    p.arrow((660, 71), (710, 71))
    p.box(710, 46, 170, 50, "green", "how likely each of", "256 next bytes is", size=13)

    p.text(20, 184, "Inside a PEER layer: product keys find a few experts among very many", 16, bold=True)
    p.text(20, 220, "query of a head", 13, kind="muted")
    p.box(20, 226, 70, 200)
    p.line((20, 326), (90, 326), kind="line dashed")
    p.text(55, 281, "half a", 13, "middle")
    p.text(55, 381, "half b", 13, "middle")
    a, b = [0.4, 0.95, 0.2, 0.55, 0.85, 0.3], [0.3, 0.5, 0.9, 0.25, 0.6, 0.8]
    for name, y, scores in (("sub-keys a: best k rows", 226, a), ("sub-keys b: best k columns", 346, b)):
        p.arrow((90, y + 42), (138, y + 42))
        p.text(140, y - 6, name, 13, kind="muted")
        best = sorted(scores, reverse=True)[1]
        for i, score in enumerate(scores):
            p.box(140, y + i * 14, round(120 * score), 10, "best" if score >= best else "plain")
    p.arrow((285, 268), (350, 300))
    p.arrow((285, 388), (350, 356))
    rows = [i for i, score in enumerate(a) if score >= sorted(a)[-2]]
    columns = [i for i, score in enumerate(b) if score >= sorted(b)[-2]]
    totals = sorted(((a[i] + b[j], i, j) for i in rows for j in columns), reverse=True)
    chosen = {(i, j) for _, i, j in totals[:2]}
    for i in range(6):
        for j in range(6):
            kind = "best" if (i, j) in chosen else "blue" if i in rows and j in columns else "plain"
            p.box(360 + j * 27, 246 + i * 27, 24, 24, kind)
    p.text(440, 226, "each pair is an expert", 13, "middle", "muted")
    p.text(440, 430, "k x k pairs are compared,", 13, "middle", "muted")
    p.text(440, 447, "the best k are used", 13, "middle", "muted")
    p.arrow((530, 326), (586, 326))
    p.box(586, 252, 150, 148, "amber", "an expert:", "one neuron", "", "v · gelu(u · x)", "times its weight")
    p.arrow((736, 326), (780, 326))
    p.box(780, 281, 100, 90, "green", "sum over", "experts", "and heads")
    p.text(20, 484, "S sub-keys a side are S x S experts: a million experts cost two tables of a thousand scores.", 14, kind="muted")
    return p


def generations():
    p = Picture(900, 420, "Who answers a byte")
    p.text(20, 28, "Who answers a byte: the kind that predicted the last bytes best", 16, bold=True)
    columns = [(250, "generation 0", "sealed: English"), (460, "generation 1", "sealed: C"), (670, "generation 2", "open: Russian")]
    for i, (x, name, what) in enumerate(columns):
        p.box(x, 48, 190, 52, "green" if i == 2 else "blue", name, what)
    p.text(20, 70, "a byte of", 14, kind="muted")
    p.text(20, 90, "text like this", 14, kind="muted")
    rows = [("to be or not to be", [1, 0, 0]), ("int main(void) {", [1, 1, 0]), ("Быть или не быть", [1, 0, 1])]
    for r, (words, answers) in enumerate(rows):
        y = 118 + r * 62
        p.box(20, y, 190, 46, "plain", words)
        p.arrow((210, y + 23), (248, y + 23))
        for (x, _, _), answers_it in zip(columns, answers):
            newest = answers_it and x != 250
            if answers_it:
                p.box(x, y, 190, 46, "amber", "its kind is likeliest: adds" if newest else "the base, always there")
            else:
                p.parts.append(f'<rect class="line dashed" x="{x}" y="{y}" width="190" height="46" rx="5"/>')
                p.text(x + 95, y + 28, "silent: exactly 0", 14, "middle", "muted")
    for x, end, y, name in ((250, 440, 322, "as of 0"), (250, 650, 352, "as of 1"), (250, 860, 382, "now")):
        p.line((x, y - 6), (x, y), (end, y), (end, y - 6))
        p.text(x - 12, y + 5, name, 14, "end", bold=True)
        p.text(end + 8, y + 5, "the same bits for ever" if name != "now" else "", 13, kind="muted")
    p.text(250, 408, "What answered English and C then answers them now, so nothing is forgotten.", 13, kind="muted")
    return p


def boundary():
    p = Picture(900, 520, "What happens at a boundary")
    p.text(20, 28, "How many contexts of each piece its kind's memory has met, before it learns the piece", 16, bold=True)
    heights = [88, 92, 84, 90, 87, 91, 42, 86, 90, 93, 30, 24, 33, 21, 28, 26]
    left, width, ground = 150, 44, 160
    for i, height in enumerate(heights):
        kind = "amber" if i >= 10 else "blue"
        p.box(left + i * width, ground - height, width - 6, height, kind)
    p.line((left - 6, ground - 89), (left + 16 * width, ground - 89), kind="line dashed")
    p.text(left - 12, ground - 84, "usual", 13, "end", "muted")
    p.line((left - 6, ground - 60), (left + 16 * width, ground - 60), kind="limit")
    p.text(left - 12, ground - 55, "strange below", 13, "end", "alert")
    p.text(left + 6.5 * width - 3, 56, "an odd passage", 13, "middle", "muted")
    p.text(left + 13 * width, 56, "the stream has changed", 13, "middle", "muted")

    steps = [("Deferred", "strange pieces wait, not learned;", "the model stays where it was"),
             ("Decided", "no kind knows them for some kilobytes:", "a new kind begins"),
             ("Sealed", "generation 0 never changes again;", "it never saw a deferred piece"),
             ("Opened", "generation 1 learns the first deferred piece,", "then the others are tested again")]
    for r, (name, first, second) in enumerate(steps):
        y = 196 + r * 64
        p.text(20, y + 20, f"{r + 1}. {name}", 15, bold=True)
        for i in range(16):
            x = left + i * width
            if r == 0:
                kind = "blue" if i < 10 else "plain"
            elif r == 1:
                kind = "blue" if i < 10 else "amber"
            else:
                kind = "blue" if i < 10 else "amber" if r == 3 else "plain"
            p.box(x, y, width - 6, 24, kind)
        if r == 1:
            p.arrow((left + 16 * width - 4, y + 34), (left + 10 * width, y + 34))
        if r == 2:
            p.parts.append(f'<rect class="frame" x="{left - 4}" y="{y - 4}" width="{10 * width + 2}" height="32" rx="6"/>')
        p.text(left, y + 42, f"{first} {second}", 13, kind="muted")
    p.text(20, 478, "Otherwise:", 14, bold=True)
    p.text(left, 478, "too few in a row: all are learned as if nothing had happened (the odd passage above);", 14)
    p.text(left, 500, "an older kind knows them: it came back, and its memory learns them.", 14)
    return p


def pool():
    p = Picture(900, 500, "The pool on disk")
    p.text(20, 28, "A commit is one transaction: all of it, or nothing", 16, bold=True)
    p.box(20, 46, 200, 40, "blue", "changed rows of experts", size=13)
    p.box(20, 92, 200, 40, "blue", "moments, usage", size=13)
    p.box(20, 138, 200, 40, "blue", "position in every source", size=13)
    p.arrow((220, 112), (270, 112))
    p.box(270, 72, 150, 80, "amber", "checksums,", "root hash", "over all of it", size=13)
    p.arrow((420, 112), (470, 112))
    p.box(470, 72, 150, 80, "plain", "LMDB: new pages,", "synced, then the", "meta page turns", size=13)
    p.arrow((620, 112), (670, 112))
    p.box(670, 72, 210, 80, "green", "killed before: as it was", "killed after: as it is now", size=13)

    p.text(20, 226, "What is in the file", 16, bold=True)
    p.box(20, 244, 230, 52, "blue", "generation 0, sealed", "written once", size=13)
    p.box(270, 244, 230, 52, "blue", "generation 1, sealed", "written once", size=13)
    p.box(520, 244, 360, 52, "green", "generation 2, open", "only what changed is written again", size=13)
    p.box(520, 314, 360, 44, "amber", "snapshot monday: a copy of the open part", size=13)
    p.arrow((520, 336), (385, 336), (385, 298), kind="line dashed")
    p.line((385, 336), (135, 336), kind="line dashed")
    p.arrow((135, 336), (135, 298), kind="line dashed")
    p.text(260, 354, "shares what is sealed", 13, "middle", "muted")
    brackets = [(20, 250, 392, "reef eval --as-of 0"), (20, 500, 418, "reef eval --as-of 1"), (20, 880, 470, "reef eval")]
    for x, end, y, name in brackets:
        p.line((x, y - 6), (x, y), (end, y), (end, y - 6))
        p.text(end + 8 if end < 880 else 880, y + 5 if end < 880 else y + 20, name, 13, "start" if end < 880 else "end")
    p.line((20, 438), (20, 444), (500, 444), (500, 438))
    p.line((700, 360), (700, 444), (500, 444), kind="line dashed")
    p.text(708, 449, "reef eval --as-of monday", 13)
    return p


def main():
    arguments = [word for word in sys.argv[1:] if word != "--dark"]
    folder = arguments[0] if arguments else os.path.dirname(os.path.abspath(__file__))
    for name, draw in (("token", token), ("generations", generations), ("boundary", boundary), ("pool", pool)):
        draw().write(f"{folder}/concept-{name}.svg", "--dark" in sys.argv)


if __name__ == "__main__":
    main()
