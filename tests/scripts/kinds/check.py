"""check.py make DIRECTORY: texts of kinds.

check.py results OUT, same OUT FILE, model OUT FILE: what research/kinds/run wrote. tables OUT SOURCE: tables of that.
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
    assert list(found) == ["turns", "visits", "texts", "pieces", "many", "drift", "lines"], list(found)
    for name in ("turns", "visits", "texts"):
        one, changes = found[name], 1 if name == "texts" else 3
        assert one["kinds"] == 2 and one["changes"] == one["found"] == changes and one["elsewhere"] == 0, one
        for kind, bits in one["held"].items():
            assert 0.5 < bits < 3.0 and abs(bits - one["alone"][kind]) < 0.05, one
    assert found["visits"]["harm"] < 0.05, found["visits"]
    assert max(found["texts"]["forgotten"].values()) < 0.05, found["texts"]
    assert found["drift"]["kinds"] == 1 and found["drift"]["asof_change"] == 0.0, found["drift"]
    assert found["lines"]["kinds"] == 1 and found["lines"]["elsewhere"] == 0, found["lines"]
    for name in ("drift", "lines"):
        assert abs(found[name]["loss"] - found[name]["one_model"]["loss"]) < 0.05, found[name]
    assert list(found["pieces"]["pieces"]) == ["60"]
    for size, one in found["pieces"]["pieces"].items():
        assert one["pieces"]["piece_bytes"] == int(size) and one["changes"] == 1, one
    assert list(found["many"]["counts"]) == ["3"] and found["many"]["counts"]["3"]["changes"] == 2, found["many"]
    page = (out / "results.md").read_text()
    for name in found:
        assert f"## {name}\n" in page, page
    pieces = found["many"]["counts"]["3"]["pieces"]
    assert 0 < pieces["alone_own_bits_per_byte"] < 8 and 0 < pieces["alone_bits_per_byte"] < 8, pieces
    drawn = ("pieces", "many") if importlib.util.find_spec("matplotlib") else ()
    for name in drawn:
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


def cells(line):
    return [cell.strip() for cell in line.strip("|").split("|")]


def tables(out, source):
    sys.path.insert(0, str(source / "research" / "kinds"))
    import kinds_tables

    found = json.loads((out / "results.json").read_text())
    streams = {name: found[name] for name in ("turns", "visits", "drift", "lines")}
    (heading, _, *rows), said = kinds_tables.stream_lines({"all": streams})
    turns, visits, drift, lines = map(cells, rows)
    assert {len(cells(heading))} == {len(turns), len(visits), len(drift), len(lines)}
    assert turns[:5] == ["`all.ini`, turns", "0.1", "3 of 3", "0", "2"], turns
    more = [bits - found["turns"]["alone"][kind] for kind, bits in found["turns"]["held"].items()]
    assert turns[5:8] == [f"{sum(more) / 2:.4f}", f"{max(more):.4f}", ""], turns
    assert visits[7] == f"{found['visits']['harm']:.4f}" and drift[2] == "" and drift[4] == "1", (visits, drift)
    model = found["lines"]["one_model"]["held"]["lines"]
    assert lines[5] == lines[6] == f"{found['lines']['held']['lines'] - model:.4f}", lines
    assert "Its parts as of then changed by 0 at most." in said and said.count("in one model") == 2, said
    _, _, first = map(cells, kinds_tables.piece_lines(found["pieces"]["pieces"]))
    of = found["pieces"]["pieces"]["60"]["pieces"]
    assert first[0] == "60" and first[7] == "0.11", first
    assert first[3] == f"{of['bits_per_byte'] - of['own_bits_per_byte']:.3f}", first
    assert first[6] == f"{of['alone_bits_per_byte'] - of['alone_own_bits_per_byte']:.3f}", first
    heading, _, last = map(cells, kinds_tables.many_lines(found["many"]["counts"]))
    three, last = found["many"]["counts"]["3"], dict(zip(heading, last))
    assert last["kinds"] == "3" and last["changes found"] == f"{three['found']} of 2", last
    assert last["held out"] == f"{three['means']['bits_per_byte']:.4f}", last
    assert last["forgotten, most"] == f"{max(three['means']['forgetting_max'], 0.0):.3f}", last


{"make": make, "results": check, "same": same, "model": model, "tables": tables}[sys.argv[1]](*map(pathlib.Path, sys.argv[2:]))
