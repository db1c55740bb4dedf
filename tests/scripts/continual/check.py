"""check.py data DIRECTORY: make texts of two kinds. check.py results OUT: what lifelong-bench wrote."""

import csv
import json
import pathlib
import random
import sys
import xml.etree.ElementTree

TEXT_BYTES, HELD_BYTES = 60000, 8000
NEAR = 1e-12
KEYS = (
    "matrix forgetting forgetting_max forgetting_learned asof_forgetting final_mean learned_share "
    "boundaries_found boundaries_true boundary_offsets accuracy seconds cost_ratio bytes stability_gap_worst "
    "optimiser_bytes peak_memory_bytes threads jobs return_opened"
).split()


def word(draw):
    syllables = ["ka", "lo", "mi", "ren", "tu", "sa", "vel", "o", "shi", "an"]
    end = " " if draw.random() < 0.9 else ".\n"
    return "".join(draw.choice(syllables) for _ in range(draw.randint(1, 3))) + end


def figure(draw):
    return f"{{{draw.randrange(1000):03}: {draw.randrange(10000):04}}};\n"


def make(path, piece, size, seed):
    draw = random.Random(seed)
    text = ""
    while len(text) < size:
        text += piece(draw)
    path.write_text(text)


def make_data(directory):
    directory.mkdir()
    for name, piece, seed in (("words", word, 1), ("figures", figure, 2)):
        make(directory / f"{name}.txt", piece, TEXT_BYTES, seed)
        make(directory / f"{name}.held", piece, HELD_BYTES, seed + 10)
    make(directory / "words.more", word, HELD_BYTES, 30)


def check_results(out):
    document = json.loads((out / "results.json").read_text())
    runs = {run["method"]: run for run in document["results"]}
    assert set(runs) == {"generations", "finetune"}, runs.keys()
    for run in runs.values():
        for key in KEYS:
            assert key in run, f"results.json has no {key}"
        matrix = run["matrix"]
        assert len(matrix) == 3 and all(len(row) == 2 for row in matrix)
        # The figures again, from the matrix alone.
        learned = [matrix[1][0], matrix[2][1]]
        assert run["learned"] == learned
        assert abs(run["forgetting_learned"] - (matrix[2][0] - learned[0])) < NEAR
        assert abs(run["forgetting_max"] - (matrix[2][0] - min(matrix[0][0], matrix[1][0]))) < NEAR
        assert abs(run["final_mean"] - sum(matrix[2]) / 2) < NEAR
        assert abs(run["learned_share"] - runs["finetune"]["learned"][1] / learned[1]) < NEAR
        assert 40000 < run["boundaries_true"][0] <= 40960  # 40 KB, up to the end of a line
        assert run["seconds"] > 0 and run["cost_ratio"] > 0 and run["bytes"] > 0
        for found, offset in zip(run["boundaries_found"], run["boundary_offsets"]):
            assert offset is None or found - offset == run["boundaries_true"][0]
    ours, baseline = runs["generations"], runs["finetune"]
    assert ours["asof_forgetting"] == 0, "as of a sealed generation something changed"
    assert baseline["asof_forgetting"] is None
    assert ours["boundaries_hit"] == 1 and ours["boundaries_false"] == 0, ours["boundary_offsets"]
    assert ours["return_opened"] == 0, "words that came back opened a generation"
    assert ours["forgetting_learned"] < baseline["forgetting_learned"], "fine-tuning forgot less"

    with open(out / "results.csv") as file:
        rows = list(csv.DictReader(file))
    assert [row["method"] for row in rows] == ["generations", "finetune"]
    assert float(rows[0]["final_mean"]) == ours["final_mean"]
    text = (out / "results.md").read_text()
    assert "## made-up" in text and f"| finetune | {baseline['matrix'][2][0]:.4f} |" in text, text
    root = xml.etree.ElementTree.parse(out / "results.svg").getroot()
    words = "".join(root.itertext())
    assert "bits per byte at the end" in words and "figures" in words


if __name__ == "__main__":
    action, directory = sys.argv[1], pathlib.Path(sys.argv[2])
    make_data(directory) if action == "data" else check_results(directory)
