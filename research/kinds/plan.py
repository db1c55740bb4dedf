"""What an INI file asks for: streams made of kinds of text, piece by piece."""

import configparser
import pathlib
import random
import re

UNITS = {"": 1, "K": 1 << 10, "M": 1 << 20, "G": 1 << 30}
# Of each type of stream: what its section says, and what it is then if it says nothing.
TYPES = {
    "turns": {"kinds": None, "turn": None, "bytes": None, "held": "64K"},
    "visits": {"kinds": None, "visit": None, "visits": "3", "seed": "1", "held": "64K"},
    "texts": {"kinds": None, "bytes": "1700000", "held": "64K"},
    "pieces": {"kinds": None, "piece": None, "bytes": "1700000", "seed": "1"},
    "many": {"folder": None, "counts": "", "piece": "500", "bytes": "1700000", "seed": "1"},
    "drift": {"parts": None, "held": "64K"},
    "lines": {"files": None, "bytes": None, "held": "64K"},
}
QUICK = {"bytes": 120000, "turn": 15000, "visit": 12000, "held": 4096}


class Problem(Exception):
    pass


def size(text, what):
    match = re.fullmatch(r"(\d+)([KMG]?)", text.strip())
    if not match or int(match[1]) < 1:
        raise Problem(f"{what} is '{text}', but must be a number of bytes such as 64K")
    return int(match[1]) * UNITS[match[2]]


def words(text):
    return [word.strip() for word in text.split(",") if word.strip()]


class Plan:
    def __init__(self, path, data, quick):
        self.path, self.data, self.quick = pathlib.Path(path), data and pathlib.Path(data), quick
        parser = configparser.ConfigParser(interpolation=None, inline_comment_prefixes=(";",), default_section="\0")
        parser.optionxform = str
        try:
            parser.read_string(self.path.read_text(), str(path))
        except OSError as error:
            raise Problem(f"cannot read {path}: {error.strerror}") from None
        except (configparser.Error, UnicodeDecodeError) as error:
            raise Problem(f"{path} is no INI file: {' '.join(str(error).split())}") from None
        self.model = dict(parser["model"]) if "model" in parser else {}
        self.kinds = {name: self.pair(name, text) for name, text in parser["kinds"].items()} if "kinds" in parser else {}
        self.streams = [self.stream(name, parser[name]) for name in parser.sections() if name not in ("model", "kinds")]
        if not self.streams:
            raise Problem(f"{path} describes no stream: it needs a section such as [turns NAME]")

    def file(self, name, of):
        path = pathlib.Path(name)
        if not path.is_absolute():
            if not self.data:
                raise Problem(f"{of}: '{name}' is relative: say where the data is, --data DIR or REEF_DATA_DIR")
            path = self.data / path
        if not path.exists():
            raise Problem(f"{of}: there is no {path}; check the path and --data")
        return path

    def pair(self, name, text):
        files = words(text)
        if len(files) != 2:
            raise Problem(f"kind {name} is '{text}', but must be a file to train on and one held out")
        return [self.file(file, f"kind {name}") for file in files]

    def stream(self, section, given):
        kind, _, name = section.partition(" ")
        if kind not in TYPES or not name:
            raise Problem(f"unknown section [{section}]; known: kinds, model, {', '.join(f'{t} NAME' for t in TYPES)}")
        values = {}
        for key in given:
            if key not in TYPES[kind]:
                raise Problem(f"unknown key '{key}' in [{section}]; known: {', '.join(TYPES[kind])}")
        for key, standard in TYPES[kind].items():
            text = given.get(key, standard)
            if text is None:
                raise Problem(f"[{section}] needs {key}")
            values[key] = self.value(section, key, text)
        return {"type": kind, "name": name, **values}

    def value(self, section, key, text):
        what = f"{key} of [{section}]"
        if key in ("turn", "visit", "bytes", "held"):
            return min(size(text, what), QUICK[key]) if self.quick else size(text, what)
        if key in ("visits", "seed"):
            return size(text, what)
        if key == "piece":
            return [size(word, what) for word in words(text)]
        if key == "counts":
            return [size(word, what) for word in words(text)]
        if key == "kinds":
            unknown = [word for word in words(text) if word not in self.kinds]
            if unknown:
                raise Problem(f"{what}: there is no kind '{unknown[0]}' in [kinds]")
            return words(text)
        if key in ("files", "parts"):
            return [self.file(word, f"[{section}]") for word in words(text)]
        return self.file(text, f"[{section}]") if key == "folder" else text


# ---- streams as lists of pieces ------------------------------------------------------------------

def turns(plan, stream):
    """(kind, bytes) in turns, up to so many bytes, or until one of them has no more."""
    texts = {name: plan.kinds[name][0].read_bytes() for name in stream["kinds"]}
    at, pieces, total = dict.fromkeys(texts, 0), [], 0
    while total < stream["bytes"]:
        name = stream["kinds"][len(pieces) % len(texts)]
        piece = texts[name][at[name] : at[name] + stream["turn"]]
        if len(piece) < stream["turn"]:
            break
        pieces.append((name, piece))
        at[name] += len(piece)
        total += len(piece)
    return pieces


def visits(plan, stream):
    """Each kind so many times, in a shuffled order in which none follows on itself."""
    draw, names = random.Random(stream["seed"]), stream["kinds"] * stream["visits"]
    while any(a == b for a, b in zip(names, names[1:])):
        draw.shuffle(names)
        if len(stream["kinds"]) == 1:
            break
    at, pieces = dict.fromkeys(stream["kinds"], 0), []
    for name in names:
        with open(plan.kinds[name][0], "rb") as file:
            file.seek(at[name])
            pieces.append((name, file.read(stream["visit"])))
        at[name] += stream["visit"]
    return pieces


def texts(plan, stream):
    """The beginning of each, one after the other."""
    return [(name, plan.kinds[name][0].read_bytes()[: stream["bytes"]]) for name in stream["kinds"]]


def drift(plan, stream):
    limit = QUICK["bytes"] if plan.quick else None
    return [(part.stem, part.read_bytes()[:limit]) for part in stream["parts"]]


def lines(plan, stream):
    """Lines of all files in turns: one kind."""
    texts = [path.read_bytes().splitlines(keepends=True) for path in stream["files"]]
    longest = max(len(text) for text in texts)
    merged, total = [], 0
    for i in range(longest):
        for text in texts:
            # A shorter one is spread over the whole.
            first, last = i * len(text) // longest, (i + 1) * len(text) // longest
            merged += text[first:last]
            total += sum(map(len, text[first:last]))
        if total >= stream["bytes"]:
            break
    return [("lines", b"".join(merged))]


PIECES = {"turns": turns, "visits": visits, "texts": texts, "drift": drift, "lines": lines}
