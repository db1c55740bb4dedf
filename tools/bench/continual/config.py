"""What `tools/bench/continual/run` is asked to do: streams, methods, seeds and orders from an INI file.

[bench]             methods, seeds, orders, order_seeds, transients, tolerance
[model]             options of `reef init` for every run
[model STREAM]      more of them for one stream
[method METHOD]     more of them for one method; also METHOD_KEYS, and grid.KEY = VALUE, VALUE, ...
[tune]              seed, train_bytes, eval_bytes: how the values of grids are chosen, see tuning.py
[text STREAM]       name = training file, held-out file[, tuning file]      in order; further keys: TEXT_KEYS
[images STREAM]     train, test, split; further keys: IMAGE_KEYS

A method of a name of its own says `method = ` which of METHODS it is. An order is 0, the one of the file; another
number, a shuffle of it; or a text's name, the same order turned so that it begins with that text.

A run has a context memory only where its options ask for one. Paths are relative to the data directory. A mistake
names the file and the line.
"""

import configparser
import pathlib
import random
import re

import methods
from methods import CHOICES, COMPRESSORS, METHOD_KEYS, METHODS, Method
from values import Problem, number, order_names, whole_numbers, words

BENCH_KEYS = {"methods", "seeds", "orders", "order_seeds", "transients", "tolerance"}
TEXT_KEYS = {"returns", "train_bytes", "eval_bytes", "return_bytes", "tolerance"}
IMAGE_KEYS = {"train", "test", "split", "train_examples", "test_examples", "tolerance", "options"}

# The quick form: sizes at which two domains are told apart within seconds.
QUICK_MODEL = {
    "layers": 2,
    "d_model": 32,
    "attention_heads": 2,
    "context": 32,
    "batch": 8,
    "heads": 2,
    "topk": 4,
    "d_key": 16,
    "side": 12,
    "side_new": 12,
    "drift_confirm": 6,
    "drift_warmup": 40,
    "drift_window": 32,
    "reservoir_bytes": 65536,
}
QUICK_VECTORS = {"side": 16}
QUICK_TRAIN_BYTES, QUICK_EVAL_BYTES, QUICK_RETURN_BYTES = 40960, 6144, 8192
QUICK_TRAIN_EXAMPLES, QUICK_TEST_EXAMPLES = 1500, 300
QUICK_DOMAINS = 2
QUICK_TRANSIENTS = {"text": "4K,16K", "images": "512K,2M"}


class Domain:
    """One training source, its held-out set and what choices are made on: paths of files, or vector specs."""

    def __init__(self, name, train, held, tuning=None):
        self.name, self.train, self.held, self.tuning = name, train, held, tuning


class Stream:
    def __init__(self, name, kind):
        self.name, self.kind = name, kind
        self.domains = []
        self.files = []  # all that it is read from
        self.returns = None  # path of a held-out part of an old domain
        self.limits = {}  # bytes of train, held and returned texts
        self.model = {}
        self.transients = ""  # bytes after the beginning of a file at which is measured too
        self.tolerance = None  # bytes within which a boundary counts as found
        self.joint = None  # the vector spec of all domains mixed, {seed} to be filled in

    def ordered(self, order):
        """Order 0 is the one of the file; other numbers are shuffles of it, and a name begins with that domain."""
        domains = list(self.domains)
        if isinstance(order, str):
            names = [domain.name for domain in domains]
            if order not in names:
                raise Problem(f"order '{order}' names no text of {self.name}; there are {', '.join(names)}")
            first = names.index(order)
            return domains[first:] + domains[:first]
        if order:
            random.Random(order).shuffle(domains)
        return domains


class Config:
    def __init__(self, path, data, quick=False, look=True):
        """With `look` False the data are not looked for: for what is asked of the file alone."""
        self.path, self.data, self.quick = pathlib.Path(path), data and pathlib.Path(data), quick
        self.look = look
        self.streams, self.model, self.methods, self.lines = [], {}, {}, {}
        self.tune = {"seed": None, "train_bytes": None, "eval_bytes": None}
        self.parser = self.parse()
        self.read_bench()
        for section in self.parser.sections():
            self.read_section(section)
        if not self.streams:
            raise Problem(f"{path} describes no stream: it needs a section [text NAME] or [images NAME]")
        methods.check_tuning(self)
        if quick:
            self.make_quick()

    # ---- the file --------------------------------------------------------------------------------

    def parse(self):
        parser = configparser.ConfigParser(
            interpolation=None, inline_comment_prefixes=(";",), default_section="\0", strict=True
        )
        parser.optionxform = str
        try:
            text = self.path.read_text()
            parser.read_string(text, str(self.path))
        except OSError as error:
            raise Problem(f"cannot read {self.path}: {error.strerror}") from None
        except (configparser.Error, UnicodeDecodeError) as error:
            raise Problem(f"{self.path} is no INI file: {' '.join(str(error).split())}") from None
        section = None
        for line, words_of_line in enumerate(text.splitlines(), 1):
            if match := re.match(r"\[([^]]+)\]", words_of_line):
                section = match[1]
                self.lines[section, None] = line
            elif match := re.match(r"([^\s#;=:][^=:]*?)\s*[=:]", words_of_line):
                self.lines[section, match[1]] = line
        return parser

    def where(self, section, key=None):
        return f"{self.path}:{self.lines.get((section, key), self.lines.get((section, None), 0))}"

    def wrong(self, section, key, text):
        return Problem(f"{self.where(section, key)}: {text}")

    def checked(self, section, key, read, *more):
        try:
            return read(self.parser[section][key], key, *more)
        except Problem as problem:
            raise self.wrong(section, key, str(problem)) from None

    def file(self, section, key, name):
        path = pathlib.Path(name)
        if not self.look:
            return path
        if not path.is_absolute():
            if not self.data:
                raise self.wrong(
                    section, key, f"'{name}' is relative: say where the data is, --data DIR or REEF_DATA_DIR"
                )
            path = self.data / path
        if not path.is_file():
            raise self.wrong(section, key, f"there is no file {path}; check the path and --data")
        return path

    # ---- its sections ----------------------------------------------------------------------------

    def known_keys(self, section, known):
        for key in self.parser[section]:
            if key not in known:
                raise self.wrong(section, key, f"unknown key '{key}' in [{section}]; known: {', '.join(sorted(known))}")

    def read_bench(self):
        if "bench" not in self.parser:
            raise Problem(f"{self.path} has no section [bench] with methods and seeds")
        self.known_keys("bench", BENCH_KEYS)
        bench = self.parser["bench"]
        self.seeds = self.checked("bench", "seeds", whole_numbers) if "seeds" in bench else [1]
        self.orders = self.checked("bench", "orders", order_names) if "orders" in bench else [0]
        self.order_seeds = (
            self.checked("bench", "order_seeds", whole_numbers) if "order_seeds" in bench else None
        )
        self.transients = bench.get("transients", "").replace(" ", "")
        for offset in words(self.transients):
            try:
                number(offset, "transients")
            except Problem as problem:
                raise self.wrong("bench", "transients", str(problem)) from None
        self.tolerance = self.checked("bench", "tolerance", number) if "tolerance" in bench else 65536
        self.methods = {}
        for name in words(bench.get("methods", "generations, finetune")):
            self.methods[name] = methods.read_method(self, name)
        for name, method in self.methods.items():
            methods.check_tuned_as(self, name, method)

    def read_section(self, section):
        kind, _, name = section.partition(" ")
        name = name.strip()
        if section == "bench":
            return
        if section == "model":
            self.model = dict(self.parser[section])
        elif kind == "model" and name:
            pass  # read with its stream, which may come later
        elif kind == "method" and name:
            methods.check_method(self, name, section, None)
        elif section == "tune":
            methods.read_tune(self)
        elif kind in ("text", "images") and re.fullmatch(r"[A-Za-z0-9_-]+", name):
            stream = Stream(name, kind)
            (self.read_text if kind == "text" else self.read_images)(stream, section)
            stream.model = dict(self.parser[f"model {name}"]) if f"model {name}" in self.parser else {}
            stream.transients = self.transients
            if any(other.name == name for other in self.streams):
                raise self.wrong(section, None, f"there are two streams called {name}")
            self.streams.append(stream)
        else:
            raise self.wrong(
                section,
                None,
                f"unknown section [{section}]; known: bench, tune, model, model STREAM, method METHOD, text STREAM, "
                "images STREAM (names of letters, digits, - and _)",
            )

    def read_text(self, stream, section):
        keys = self.parser[section]
        for key in ("train_bytes", "eval_bytes", "return_bytes"):
            if key in keys:
                stream.limits[key] = self.checked(section, key, number)
        stream.tolerance = self.checked(section, "tolerance", number) if "tolerance" in keys else self.tolerance
        for name in keys:
            if name in TEXT_KEYS:
                continue
            files = words(keys[name])
            if len(files) not in (2, 3):
                raise self.wrong(section, name, f"{name} is '{keys[name]}', but must be TRAINING FILE, HELD-OUT FILE, "
                                 "and for grids a TUNING FILE")
            stream.domains.append(Domain(name, *(self.file(section, name, file) for file in files)))
        if "returns" in keys:
            stream.returns = self.file(section, "returns", keys["returns"])
        stream.files = [path for domain in stream.domains for path in (domain.train, domain.held)]
        stream.files += [domain.tuning for domain in stream.domains if domain.tuning]
        stream.files += [stream.returns] if stream.returns else []
        if not stream.domains:
            raise self.wrong(section, None, f"[{section}] names no domain: name = training file, held-out file")

    def read_images(self, stream, section):
        self.known_keys(section, IMAGE_KEYS)
        keys = self.parser[section]
        pairs = {}
        for key in ("train", "test"):
            files = words(keys.get(key, ""))
            if len(files) != 2:
                raise self.wrong(section, key, f"{key} must be IMAGES, LABELS, two IDX files")
            pairs[key] = [self.file(section, key, file) for file in files]
            stream.files += pairs[key]
        limits = {
            key: self.checked(section, f"{key}_examples", number) if f"{key}_examples" in keys else None
            for key in ("train", "test")
        }
        split = keys.get("split", "").split()
        if len(split) < 2 or split[0] not in ("classes", "permutations"):
            raise self.wrong(
                section, "split", "split must be 'classes 2' (of each task) or 'permutations 10' (tasks)"
            )
        if self.quick:
            limits = {"train": QUICK_TRAIN_EXAMPLES, "test": QUICK_TEST_EXAMPLES}
        stream.tolerance = self.checked(section, "tolerance", number) if "tolerance" in keys else None

        def spec(key, domains=1, **options):
            options |= {"first": limits[key] * domains} if limits[key] else {}
            text = keys.get("options", "") + "".join(f"&{k}={v}" for k, v in options.items())
            return f"idx:{pairs[key][0]},{pairs[key][1]}" + ("?" + text.strip("&") if text else "")

        count = self.count(section, split[1])
        if split[0] == "classes":
            groups = [range(first, min(first + count, 10)) for first in range(0, 10, count)]
            if len(split) > 2:
                groups = [[int(label) for label in words(group)] for group in " ".join(split[2:]).split("/")]
            for group in groups:
                classes = ",".join(str(label) for label in group)
                name = "+".join(str(label) for label in group)
                stream.domains.append(
                    Domain(name, spec("train", classes=classes), spec("test", classes=classes))
                )
            stream.joint = spec("train", len(groups), shuffle="{seed}")
        else:
            for seed in range(1, count + 1):
                stream.domains.append(
                    Domain(f"permuted{seed}", spec("train", permute=seed), spec("test", permute=seed))
                )
            seeds = ",".join(str(seed) for seed in range(1, count + 1))
            stream.joint = spec("train", count, permute=seeds, shuffle="{seed}")

    def count(self, section, text):
        if not re.fullmatch(r"[1-9]\d*", text):
            raise self.wrong(section, "split", f"split ends in '{text}', but must end in a whole number above 0")
        return int(text)

    # ---- the quick form --------------------------------------------------------------------------

    def make_quick(self):
        self.seeds, self.orders, self.order_seeds = self.seeds[:1], [0], None
        self.methods = dict(list(self.methods.items())[:2])
        for method in self.methods.values():
            method.seeds = method.orders = None
        kind_of_model = {key: value for key, value in self.model.items() if key in ("model", "inputs")}
        self.model = {}
        for stream in self.streams:
            stream.domains = stream.domains[:QUICK_DOMAINS]
            stream.limits = {
                "train_bytes": QUICK_TRAIN_BYTES,
                "eval_bytes": QUICK_EVAL_BYTES,
                "return_bytes": QUICK_RETURN_BYTES,
            }
            sizes = QUICK_MODEL if stream.kind == "text" else QUICK_VECTORS
            own = {key: value for key, value in stream.model.items() if key in ("model", "inputs")}
            stream.model = kind_of_model | own | {key: str(value) for key, value in sizes.items()}
            stream.transients = QUICK_TRANSIENTS[stream.kind]

    # ---- what follows from it --------------------------------------------------------------------

    def chosen_for(self, method):
        """The method whose grid a method's values are chosen from, or None."""
        name = self.methods[method].tuned_as or method
        return name if self.methods[name].grid and not self.quick else None

    def grid_of(self, method):
        """The grid that a method's values are chosen from: {} where there is none."""
        chooser = self.chosen_for(method)
        return self.methods[chooser].grid if chooser else {}

    def settings(self, method, choice):
        """size and mix, as the file or a choice from the grid has them."""
        own = {key: value for key, value in choice.items() if key in CHOICES}
        return self.methods[method].settings | own

    def options(self, stream, method, seed, choice):
        """Options of `reef init`, the more special one last."""
        of = self.methods[method]
        chosen = {key: value for key, value in choice.items() if key not in CHOICES}
        sizes = {"context_memory": "0", **self.model, **stream.model}
        if of.settings["sizes"] == "init":
            sizes = stream.model if self.quick else {}
        options = {**sizes, **of.options, **chosen, "seed": str(seed)}
        if of.base == "isolated":
            options["boundaries"] = "given"  # one kind, which is known
        elif of.settings["solver"] == "ridge":
            options["boundaries"] = "given"  # one generation, and no other strategy
        elif of.base != "generations":
            options["strategy"] = of.base
        return options

    def check_options(self, known):
        """Every option must be one of `reef init`."""
        for section in self.parser.sections():
            kind, _, name = section.partition(" ")
            if kind not in ("model", "method"):
                continue
            for key in self.parser[section]:
                option = key.removeprefix("grid.") if kind == "method" else key
                if kind == "method" and (option in CHOICES or key in METHOD_KEYS):
                    continue
                if option not in known or option in ("seed", "strategy"):
                    raise self.wrong(section, key, f"'{key}' is no option of reef init; see reef init --help")
            if kind == "model" and name and not any(s.name == name.strip() for s in self.streams):
                raise self.wrong(section, None, f"[{section}] is of no stream in this file")

    def cells(self, methods=None, seeds=None, streams=None):
        """(stream, order, method, seed) in the order in which they are best run."""
        for name in streams or []:
            if not any(stream.name == name for stream in self.streams):
                raise Problem(f"--streams: {self.path} has no stream '{name}'")
        for name in methods or []:
            if name not in self.methods and name not in METHODS:
                raise Problem(f"--methods: unknown method '{name}'; known: {', '.join([*self.methods, *METHODS])}")
            self.methods.setdefault(name, Method(name, name))
        found = []
        for stream in self.streams:
            if streams and stream.name not in streams:
                continue
            for method in methods or self.methods:
                of = self.methods[method]
                if of.base in COMPRESSORS and stream.kind != "text":
                    continue
                method_seeds = seeds or of.seeds or self.seeds
                orders = of.orders or self.orders
                if of.base in ("joint", "isolated"):
                    orders = orders[:1]  # the order of domains means nothing to them
                for order in orders:
                    use = method_seeds if order == orders[0] or not self.order_seeds else self.order_seeds
                    # A compressor draws nothing.
                    use = use[:1] if of.base in COMPRESSORS else use
                    found += [(stream, order, method, seed) for seed in use]
        return found
