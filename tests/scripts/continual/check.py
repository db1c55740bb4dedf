"""What tests/scripts/continual/run asks of files.

check.py data DIRECTORY        make texts of two kinds
check.py results OUT           what the quick form wrote
check.py images                what images.ini and digits.ini ask of their methods, and the ends of grids
check.py digits FOLDER         the four files of tools/bench/continual/digits
check.py grid OUT REEF POOL    what grids, models for each text and compressors came to
"""

import csv
import gzip
import json
import math
import pathlib
import random
import shutil
import struct
import subprocess
import sys
import xml.etree.ElementTree

BENCH = pathlib.Path(__file__).resolve().parents[3] / "tools" / "bench" / "continual"
sys.path.insert(0, str(BENCH))
import sizes  # noqa: E402
import tuning  # noqa: E402
from config import Config  # noqa: E402

TEXT_BYTES, HELD_BYTES = 60000, 8000
NEAR = 1e-12
KEYS = (
    "matrix forgetting forgetting_max forgetting_learned asof_forgetting final_mean learned_share "
    "boundaries_found boundaries_true boundary_offsets accuracy cpu_seconds cost_ratio bytes stability_gap_worst "
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
    make(directory / "figures.more", figure, HELD_BYTES, 40)


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
        assert run["cpu_seconds"] > 0 and run["cost_ratio"] > 0 and run["bytes"] > 0
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
    lost = baseline["matrix"][2][0]
    line = f"| finetune | {lost:.4f}" + (" (above 8) |" if lost > 8 else " |")
    assert "## made-up" in text and line in text, text
    root = xml.etree.ElementTree.parse(out / "results.svg").getroot()
    words = "".join(root.itertext())
    assert "bits per byte at the end" in words and "figures" in words


def ask(reef, *words):
    return json.loads(subprocess.run([reef, *words, "--json"], capture_output=True, check=True).stdout)


def check_sizes(runs, documents, reef, pool):
    """Of one generation what reef counts, and of a pool of several what its parts are."""
    plan = documents["isolated"]["plan"]
    options = [word for key, value in plan["options"].items() for word in (f"--{key.replace('_', '-')}", value)]
    ask(reef, "init", pool, *options)
    counted = ask(reef, "train", pool, plan["train"][0], "--flops", "1", "--dry-run")["flops"]
    isolated = runs["isolated"]
    assert isolated["parameters"] == 2 * counted["parameters"]
    assert isolated["parameters_active"] == counted["parameters_active"]
    forward = sum(part["forward"] for part in counted["parts_per_token"].values())
    assert abs(isolated["flops"] - forward) < 1, (isolated["flops"], forward)
    assert isolated["cpu_seconds"] == sum(d["train"]["cpu_seconds"] for d in documents["isolated"]["isolated"].values())
    assert runs["joint"]["parameters"] == counted["parameters"]
    # One generation with the parameters of two, and few more.
    config = documents["isolated"]["isolated"]["words"]["init"]["config"] | {"boundaries": "drift"}
    assert 1 <= runs["joint-pool"]["parameters"] / sizes.pool_parameters(config, 2) < 1.1
    # A grid that grew in place has what a model of its side has.
    grown = config["side"] + 2
    assert sizes.measure(config, [grown], []) == sizes.measure(config | {"side": grown}, [grown], [])
    for ffw in ("p", "d", "pd"):
        check_later(reef, options, ffw, f"{pool}.{ffw}", plan["train"][0])


def check_later(reef, options, ffw, pool, text):
    """A generation after the first has what `reef export model` writes of it, but for what training does not move."""
    own = ["--ffw", ffw, "--boundaries", "budget", "--boundary-bytes", "8192"]
    config = ask(reef, "init", pool, *options, *own)["config"]
    ask(reef, "train", pool, text, "--cost-repeats", "0")
    ask(reef, "export", "model", pool, f"{pool}.safetensors")
    with open(f"{pool}.safetensors", "rb") as file:
        header = json.loads(file.read(struct.unpack("<Q", file.read(8))[0]))
    last = max(int(name[len("generation"):].split(".")[0]) for name in header if name.startswith("generation"))
    values = sum(
        math.prod(of["shape"])
        for name, of in header.items()
        if name.startswith(f"generation{last}.") and of["dtype"] == "F32"
        and name.split(".")[-1] not in ("bn_mean", "bn_var", "gate")
    )
    assert values == sizes.later_generation(config, config["side_new"])[0], (ffw, values)


def check_grid(out, reef, pool):
    document = json.loads((out / "results.json").read_text())
    runs = {run["method"]: run for run in document["results"] if run["order"] == 0}
    cells = {path.name[: -len(".json")]: json.loads(path.read_text()) for path in (out / "cells").iterdir()}
    documents = {d["plan"]["method"]: d for name, d in cells.items() if ".order0." in name}
    # What was chosen is the least loss on the third files, which no reported cell has met.
    tuned = [cells[f"made-up.tune.joint.{i}.seed9"] for i in range(4)]
    losses = [d["train"]["figures"]["final_mean"] for d in tuned]
    assert runs["joint"]["choice"] == tuned[losses.index(min(losses))]["plan"]["choice"]
    assert runs["joint-pool"]["choice"] == runs["joint"]["choice"]
    for tune in tuned:
        assert all(".more" in held for held in tune["plan"]["held"]) and tune["plan"]["seed"] == 9
        assert sum(tune["plan"]["sizes"][:1]) < 17000, "the first 8,000 bytes of each text"
    assert all(".held" in held for held in documents["joint"]["plan"]["held"])
    check_sizes(runs, documents, reef, pool)
    floored = documents["joint"]["eval"]
    assert runs["joint"]["floored_mean"] == sum(file["floored_bits_per_byte"] for file in floored) / 2
    for method in ("joint", "replay", "dense"):
        run = runs[method]
        assert run["measure"] == "bits_per_byte" and 0 < run["final_mean"] < 9, method
    orders = {run["order"] for run in document["results"] if run["method"] in ("ppmd", "zpaq")}
    for method, program in (("ppmd", ("7z", "7zz", "7za")), ("zpaq", ("zpaq",))):
        if any(shutil.which(name) for name in program):
            assert 0.5 < runs[method]["final_mean"] < 4 and orders == {0, "figures"}, runs[method]
        else:
            assert method not in runs
    assert "| joint | " in (out / "results.md").read_text()


def check_images():
    """Joint with the solver of generations has their experts and one generation; Adam's see all of a vector."""
    for file, inputs in (("images.ini", "784"), ("digits.ini", "64")):
        config = Config(BENCH / file, None, look=False)
        for stream in config.streams:
            adam, ridge, own = (config.options(stream, name, 1, {}) for name in ("joint", "joint-ridge", "generations"))
            assert ridge == own | {"boundaries": "given"}, ridge
            assert adam["strategy"] == "joint" and adam["inputs"] == inputs and adam.get("draw_from") == "0", adam


def check_ends():
    """A number at an end of three values or more is marked; words and pairs have no ends."""
    grid = {"rate": ["0.004", "0.001", "0.002"], "decay": ["400", "1600"], "mix": ["window", "record", "line"]}
    marks = [tuning.at_an_end(grid, "rate", rate) for rate in grid["rate"]]
    assert marks == [" (the most of its grid)", " (the least of its grid)", ""], marks
    for key, value in (("decay", "400"), ("mix", "window"), ("side", "8")):
        assert tuning.at_an_end(grid, key, value) == "", key


def check_digits(directory):
    """IDX as the format says it is: 2-byte magic, type, dimensions, sizes; and pixels beside their labels."""
    for name, count in (("train", 60), ("t10k", 20)):
        images = gzip.open(directory / f"{name}-images-idx3-ubyte.gz").read()
        labels = gzip.open(directory / f"{name}-labels-idx1-ubyte.gz").read()
        assert images[:16] == b"\0\0\x08\x03" + b"".join(n.to_bytes(4, "big") for n in (count, 8, 8)), images[:16]
        assert labels[:8] == b"\0\0\x08\x01" + count.to_bytes(4, "big"), labels[:8]
        for place, label in enumerate(labels[8:]):
            image = images[16 + 64 * place : 80 + 64 * place]
            assert image[6 * label] == 255 and max(image[:6 * label], default=0) < 64, (place, label, image)
        assert sorted(labels[8:]) == sorted(list(range(10)) * (count // 10))


if __name__ == "__main__":
    action, directory = sys.argv[1], pathlib.Path(sys.argv[2] if len(sys.argv) > 2 else ".")
    if action == "data":
        make_data(directory)
    elif action == "images":
        check_images()
        check_ends()
    elif action == "digits":
        check_digits(directory)
    elif action == "results":
        check_results(directory)
    else:
        check_grid(directory, *sys.argv[3:])
