"""check.py make DIRECTORY: texts of kinds.

check.py results OUT, same OUT FILE, model OUT FILE: what tools/bench/kinds/run wrote.
"""

import importlib.util
import json
import pathlib
import random
import sys
import xml.etree.ElementTree

TRAIN, HELD = 60000, 8000
ALPHABETS = {"letters": "abcdefghijklmnop", "figures": "0123456789+-*/=.", "capitals": "QRSTUVWXYZABCDEF"}


def words(alphabet, seed):
    draw = random.Random(seed)
    return ["".join(draw.choice(alphabet) for _ in range(draw.randint(3, 7))) for _ in range(60)]


def text(alphabet, seed, size):
    draw, own, parts, length = random.Random(seed), words(alphabet, 1), [], 0
    while length < size:
        parts.append(draw.choice(own) + ("\n" if draw.random() < 0.1 else " "))
        length += len(parts[-1])
    return "".join(parts)[:size]


def make(directory):
    (directory / "folder").mkdir()
    for name, alphabet in ALPHABETS.items():
        for place in (directory, directory / "folder"):
            (place / f"{name}.txt").write_text(text(alphabet, 2, TRAIN))
            (place / f"{name}.held.txt").write_text(text(alphabet, 3, HELD))
    (directory / "more.txt").write_text(text(ALPHABETS["letters"], 4, TRAIN))
    (directory / "more.held.txt").write_text(text(ALPHABETS["letters"], 5, HELD))


def check(out):
    found = json.loads((out / "results.json").read_text())
    assert list(found) == ["turns", "visits", "pieces", "many", "drift", "lines"], list(found)
    for name in ("turns", "visits"):
        one = found[name]
        assert one["kinds"] == 2 and one["changes"] == 3 and one["found"] == 3 and one["elsewhere"] == 0, one
        for kind, bits in one["held"].items():
            assert 0.5 < bits < 3.0 and abs(bits - one["alone"][kind]) < 0.05, one
    assert found["visits"]["harm"] < 0.05, found["visits"]
    assert found["drift"]["kinds"] == 1 and found["drift"]["asof_change"] == 0.0, found["drift"]
    assert found["lines"]["kinds"] == 1 and found["lines"]["elsewhere"] == 0, found["lines"]
    for name in ("drift", "lines"):
        assert abs(found[name]["loss"] - found[name]["one_model"]["loss"]) < 0.05, found[name]
    assert list(found["pieces"]["pieces"]) == ["60", "500"]
    for size, one in found["pieces"]["pieces"].items():
        assert one["pieces"]["piece_bytes"] == int(size) and one["changes"] == 1, one
    assert list(found["many"]["counts"]) == ["2", "3"] and found["many"]["counts"]["3"]["changes"] == 2, found["many"]
    page = (out / "results.md").read_text()
    for name in found:
        assert f"## {name}\n" in page, page
    pieces = found["many"]["counts"]["3"]["pieces"]
    assert 0 < pieces["alone_own_bits_per_byte"] < 8 and 0 < pieces["alone_bits_per_byte"] < 8, pieces
    drawn = ("pieces", "many") if importlib.util.find_spec("matplotlib") else ()
    for name in ("turns", "visits", "drift", "lines", *drawn):
        xml.etree.ElementTree.parse(out / f"{name}.svg")
    left = [path.name for path in out.iterdir() if path.name.startswith("work")]
    assert not left, left


def same(out, again):
    result = json.loads(again.read_text())
    assert list(result) == ["turns"], list(result)
    (cell,) = [path for path in (out / "cells").iterdir() if path.name.startswith("turns.")]
    assert result["turns"] == json.loads(cell.read_text())


def model(out, again):
    """The same settings by --model: the same bits."""
    before, after = (json.loads(path.read_text())["turns"] for path in (out / "results.json", again))
    for key in ("held", "alone", "loss", "bytes", "kinds"):
        assert before[key] == after[key], key


{"make": make, "results": check, "same": same, "model": model}[sys.argv[1]](*map(pathlib.Path, sys.argv[2:]))
