"""What an INI file of research/paper asks for: a grid of models, each trained for a budget of FLOPs.

A plan follows from the file and the results there are: which learning rate is best, and which size, is only known later.
So planning is repeated until no model is wanted any more.
"""

import configparser
import hashlib
import json
import math
import pathlib

UNITS = {"": 1, "K": 1 << 10, "M": 1 << 20}
KINDS = ("isoflop", "datasets", "experts", "active", "batchnorm")
LISTS = ("budgets", "learning_rates", "seeds", "vary_side", "vary_heads", "vary_active")
# What a plain language model does without; the first ones of fields that there are.
BASE = {"boundaries": "given", "memory": "0", "net_share": "1"}


class Problem(Exception):
    pass


def size(text):
    unit = text[-1] if text[-1] in UNITS else ""
    return int(text[: len(text) - len(unit)]) * UNITS[unit]


def digest(value):
    return hashlib.sha256(json.dumps(value, sort_keys=True).encode()).hexdigest()[:16]


def retrieves(config):
    return any(letter in config["ffw"] for letter in "pk")


class Cell:
    """One model to be trained and measured."""

    def __init__(self, plan, system, size, config, budget, rate, seed):
        self.system, self.size, self.budget, self.tuning, self.sets = system, size, budget, False, False
        self.config = config | {"learning_rate": f"{rate:g}", "seed": f"{seed:g}"}
        self.rate, self.seed = rate, seed
        self.pool = digest([self.config, budget, plan.train_hash])
        self.id = digest([self.pool, plan.valid_hash])

    def with_sets(self, plan):
        self.sets = True
        self.id = digest([self.pool, plan.valid_hash, plan.set_hashes])
        return self


class Plan:
    def __init__(self, path, kind, data, quick, fields):
        """fields: names of the configuration that `reef init` has."""
        self.path, self.kind, self.fields = pathlib.Path(path), kind, fields
        parser = configparser.ConfigParser(interpolation=None, inline_comment_prefixes=(";",), default_section="\0")
        try:
            parser.read_string(self.path.read_text(), str(path))
        except (OSError, configparser.Error, UnicodeDecodeError) as error:
            raise Problem(f"{path}: {' '.join(str(error).split())}") from None
        self.quick = dict(parser["quick"]) if quick and "quick" in parser else {}
        of = dict(parser["experiment"]) if "experiment" in parser else {}
        of |= {key: value for key, value in self.quick.items() if key in LISTS + ("valid_bytes", "tune_size")}
        self.lists = {key: [float(word) for word in of.get(key, "").split()] for key in LISTS}
        self.model = dict(parser["model"]) if "model" in parser else {}
        self.sizes = {name[5:]: dict(parser[name]) for name in parser.sections() if name.startswith("size ")}
        self.systems = {name[7:]: dict(parser[name]) for name in parser.sections() if name.startswith("system ")}
        for key in ("budgets", "learning_rates", "seeds", *self.needed()):
            if not self.lists[key]:
                raise Problem(f"{path}: [experiment] needs {key}")
        if not self.sizes or not self.systems:
            raise Problem(f"{path} needs a [size NAME] and a [system NAME]")
        self.tune_size = of.get("tune_size", next(iter(self.sizes)))
        self.read_texts(of, dict(parser["datasets"]) if "datasets" in parser else {}, pathlib.Path(data))

    def needed(self):
        return {"experts": ["vary_side"], "batchnorm": ["vary_side"], "active": ["vary_heads", "vary_active"]}.get(self.kind, [])

    def read_texts(self, of, sets, data):
        limit = size(of["valid_bytes"]) if "valid_bytes" in of else None
        read = lambda name: (data / name).read_bytes()  # noqa: E731
        try:
            self.train, self.valid = read(of["train"]), read(of["valid"])[:limit]
            self.sets = {name: read(file)[:limit] for name, file in sets.items()} if self.kind == "datasets" else {}
        except KeyError as missing:
            raise Problem(f"{self.path}: [experiment] needs {missing}") from None
        except OSError as error:
            raise Problem(f"{self.path}: {error.filename}: {error.strerror}") from None
        if self.kind == "datasets" and not self.sets:
            raise Problem(f"{self.path} needs a section [datasets] with NAME = FILE")
        self.train_hash, self.valid_hash = (hashlib.sha256(text).hexdigest() for text in (self.train, self.valid))
        self.set_hashes = {name: hashlib.sha256(text).hexdigest() for name, text in self.sets.items()}

    def config(self, system, size):
        """From general to special: model, size, system; [quick] is the strongest."""
        found = {key: value for key, value in BASE.items() if key in self.fields}
        found |= self.model | self.sizes[size] | self.systems[system]
        found |= {key: value for key, value in self.quick.items() if key in self.fields}
        middle = found.pop("middle", None)
        if middle:  # the middle of 12 blocks is the sixth, as in the paper
            blocks = ["d"] * int(found["layers"])
            blocks[(len(blocks) - 1) // 2] = middle
            found["ffw"] = "".join(blocks)
        for key in found:
            if key not in self.fields:
                raise Problem(f"{self.path}: system {system} in size {size}: reef init has no --{key.replace('_', '-')}")
        return found

    def cell(self, system, size, budget, rate, seed=None, **changes):
        config = self.config(system, size) | {key: str(value) for key, value in changes.items()}
        return Cell(self, system, size, config, budget, rate, self.lists["seeds"][0] if seed is None else seed)

    def cells(self, results):
        """Every model that is known to be wanted, finished or not. results: rows by id."""
        found = {}
        for system in self.systems:
            rate = self.tune(system, results, found)
            if rate is None:
                continue
            for budget in self.lists["budgets"]:
                for cell in (self.curve if self.kind in KINDS[:2] else self.ablation)(system, budget, rate, results):
                    found.setdefault(cell.id, cell).tuning &= cell.tuning
        return list(found.values())

    def tune(self, system, results, found):
        """The rate with the least loss at tune_size, with the first budget and seed; None while that is unknown."""
        rates = self.lists["learning_rates"]
        if len(rates) == 1:
            return rates[0]
        cells = [self.cell(system, self.tune_size, self.lists["budgets"][0], rate) for rate in rates]
        for cell in cells:
            cell.tuning = True
            found.setdefault(cell.id, cell)
        if any(cell.id not in results for cell in cells):
            return None
        return min(cells, key=lambda cell: loss(results, cell)).rate

    def curve(self, system, budget, rate, results):
        """All sizes with the first seed and, once those are known, the best one with every seed, or on all data sets."""
        cells = [self.cell(system, size, budget, rate) for size in self.sizes]
        yield from cells
        if any(cell.id not in results for cell in cells):
            return
        best = min(cells, key=lambda cell: loss(results, cell))
        for seed in self.lists["seeds"][1:]:
            yield self.cell(system, best.size, budget, rate, seed)
        if self.kind == "datasets":
            yield self.cell(system, best.size, budget, rate).with_sets(self)

    def ablation(self, system, budget, rate, results):
        for seed in self.lists["seeds"]:
            plain = self.cell(system, self.tune_size, budget, rate, seed)
            if not retrieves(plain.config):  # the line that others are compared with
                if self.kind != "batchnorm":
                    yield plain
                continue
            for changes in self.varied():
                yield self.cell(system, self.tune_size, budget, rate, seed, **changes)

    def varied(self):
        if self.kind == "active":
            for active in map(int, self.lists["vary_active"]):
                for heads in map(int, self.lists["vary_heads"]):
                    if active % heads == 0:
                        yield {"heads": heads, "topk": active // heads}
            return
        for norm in ("true", "false") if self.kind == "batchnorm" else (None,):
            for side in map(int, self.lists["vary_side"]):
                yield {"side": side, **({"batch_norm": norm} if norm else {})}


def loss(results, cell):
    value = results[cell.id].get("bits_per_byte")
    return math.inf if value is None else value
