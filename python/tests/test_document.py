"""The Python of docs/LIBRARY.md runs as it stands."""

import os
import re
from pathlib import Path

import pytest

import reef

DOCUMENT = Path(__file__).resolve().parents[1] / "LIBRARY.md"


def program(word):
    """The first program of the document that has a word."""
    return next(found for found in re.findall(r"^```python\n(.*?)^```$", DOCUMENT.read_text(encoding="utf-8"), re.M | re.S)
                if word in found)


def test_models(tmp_path, monkeypatch, capsys):
    monkeypatch.chdir(tmp_path)
    Path("english.txt").write_text("to be or not to be, that is the question. " * 200, encoding="utf-8")
    Path("source.c").write_text("int main(void) { return 0; }\n" * 200, encoding="utf-8")
    exec(compile(program("english.txt"), DOCUMENT, "exec"), {})
    assert float(capsys.readouterr().out) < 8
    assert os.path.isdir("pool")


def test_pytorch(tmp_path, monkeypatch):
    torch = pytest.importorskip("torch", reason="python3-torch is not installed")
    monkeypatch.chdir(tmp_path)
    batches = [(torch.rand(20, 784), torch.randint(0, 10, (20,))) for _ in range(3)]
    names = {"batches": batches}
    exec(compile(program("reef.torch"), DOCUMENT, "exec"), names)
    assert [g.sealed for g in names["peer"].pool.generations] == [True, False]
    names["peer"].pool.close()
