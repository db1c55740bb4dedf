"""Methods of a comparison, and what of their settings is chosen from a grid: [method NAME] and [tune]."""

from values import number, order_names, whole_numbers, words

COMPRESSORS = ["ppmd", "zpaq"]
METHODS = ["generations", "finetune", "replay", "ewc", "lwf", "sparse-memory", "grid", "joint", "isolated", *COMPRESSORS]
# size: pool, as many parameters as a pool with a generation for each kind (sizes.py); mix: of joint, window or record
# (streams.py); sizes: model, or init, what reef init makes without the options of [model]; solver: of joint on vectors,
# adam, or ridge, what generations have; tuned_as: the values that were chosen for another method
METHOD_KEYS = {"method", "seeds", "orders", "size", "sizes", "mix", "solver", "tuned_as"}
CHOICES = {
    "size": ["first", "pool"],
    "sizes": ["model", "init"],
    "mix": ["record", "window"],
    "solver": ["adam", "ridge"],
}
TUNE_KEYS = {"seed", "train_bytes", "eval_bytes"}


class Method:
    """A column of the comparison: one of METHODS with its settings."""

    def __init__(self, name, base):
        self.name, self.base = name, base
        self.options = {}  # of reef init
        self.settings = {"size": "first", "sizes": "model", "mix": "record", "solver": "adam"}
        self.grid = {}  # key: values, of which one is chosen
        self.seeds = self.orders = None  # of its own
        self.tuned_as = None


def base_of(config, name):
    section = f"method {name}"
    return config.parser[section].get("method", name) if section in config.parser else name


def check_method(config, name, section, key):
    base = base_of(config, name)
    if base not in METHODS:
        raise config.wrong(section, key, f"unknown method '{base}'; known: {', '.join(METHODS)}")


def read_method(config, name):
    check_method(config, name, "bench", "methods")
    section, method = f"method {name}", Method(name, base_of(config, name))
    for key, value in config.parser[section].items() if section in config.parser else []:
        if key == "seeds":
            method.seeds = config.checked(section, key, whole_numbers)
        elif key == "orders":
            method.orders = config.checked(section, key, order_names)
        elif key == "tuned_as":
            method.tuned_as = value
        elif key.startswith("grid."):
            method.grid[key[len("grid."):]] = words(value)
            for choice in words(value) or [""]:
                check_choice(config, section, key, key[len("grid."):], choice)
        elif key in CHOICES:
            check_choice(config, section, key, key, value)
            method.settings[key] = value
        elif key != "method":
            method.options[key] = value
    return method


def check_choice(config, section, key, setting, value):
    known = CHOICES.get(setting, [value])
    if value not in known or not value:
        raise config.wrong(section, key, f"{key} has '{value}', but must be {' or '.join(CHOICES.get(setting, []))}")


def check_tuned_as(config, name, method):
    if method.tuned_as is None:
        return
    other = config.methods.get(method.tuned_as)
    if other is None or not other.grid or method.grid:
        raise config.wrong(f"method {name}", "tuned_as", f"tuned_as is '{method.tuned_as}', but must be a method of "
                         "[bench] that has a grid, and this one none")


def read_tune(config):
    config.known_keys("tune", TUNE_KEYS)
    keys = config.parser["tune"]
    if "seed" in keys:
        config.tune["seed"] = config.checked("tune", "seed", whole_numbers)[0]
    for key in ("train_bytes", "eval_bytes"):
        if key in keys:
            config.tune[key] = config.checked("tune", key, number)


def check_tuning(config):
    """Nothing that is reported may have been chosen on: neither its held-out text nor its seed."""
    tuned = [method for method in config.methods.values() if method.grid]
    if not tuned or config.quick:
        return
    reported = {seed for method in config.methods.values() for seed in method.seeds or config.seeds}
    if config.tune["seed"] is None or config.tune["seed"] in reported:
        raise config.wrong("tune", "seed", "a grid is chosen from with a seed of [tune] that no reported run has")
    for stream in config.streams:
        for domain in stream.domains:
            if stream.kind != "text" or domain.tuning is None or domain.tuning == domain.held:
                raise config.wrong(f"{stream.kind} {stream.name}", domain.name, f"{domain.name} needs a third file, "
                                 "on which the values of a grid are chosen")
