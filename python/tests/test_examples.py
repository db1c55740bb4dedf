"""The example that learns classes one after the other: on shapes of our own, and on a part of the real images."""

import gzip
import sys
from pathlib import Path

import numpy as np

sys.path.insert(0, str(Path(__file__).resolve().parents[1] / "examples"))
import class_incremental  # noqa: E402


def write_shapes(directory, part, count, seed):
    """Ten classes of images: a square in noise, about a place of its class."""
    draw = np.random.default_rng(seed)
    directory.mkdir(parents=True, exist_ok=True)
    labels = np.arange(count, dtype=np.uint8) % 10
    images = draw.integers(0, 60, (count, 28, 28), np.uint8)
    for image, label in zip(images, labels):
        y, x = np.array([2 + 8 * (label // 4), 1 + 7 * (label % 4)]) + draw.integers(-1, 2, 2)
        image[y:y + 5, x:x + 5] = draw.integers(150, 255)
    for name, head, values in (("images-idx3", [2051, count, 28, 28], images), ("labels-idx1", [2049, count], labels)):
        with gzip.open(directory / f"{part}-{name}-ubyte.gz", "wb", 1) as file:
            file.write(np.array(head, ">u4").tobytes() + values.tobytes())


def learn(monkeypatch, capsys, *options):
    """The accuracies that the example's table ends its rows with, and its exit status."""
    monkeypatch.setattr(sys, "argv", ["class_incremental.py", *map(str, options)])
    status = class_incremental.main()
    rows = [line.split("|") for line in capsys.readouterr().out.splitlines() if line.startswith("| ") and "%" in line]
    assert [row[7].strip() for row in rows] == ["identical to the bit"] * 2
    return {row[1].strip(): float(row[6].split()[0]) for row in rows}, status


def test_classes_one_after_the_other(tmp_path, monkeypatch, capsys):
    for name, part in class_incremental.SETS.items():
        write_shapes(tmp_path / name, part, 600, 1)
        write_shapes(tmp_path / name, "t10k", 200, 2)
    right, status = learn(monkeypatch, capsys, "--data", tmp_path, "--side", 2)
    assert status == 0 and min(right.values()) > 80


def test_classes_of_real_images(data, monkeypatch, capsys):
    right, status = learn(monkeypatch, capsys, "--data", data, "--side", 3, "--images", 1500, "--tests", 500)
    assert status == 0 and right["mnist"] > 85 and right["fashion-mnist"] > 70
