"""One cell: a method on a stream, from its plan to the document of what was measured.

    Bench.cell      name and plan of a reported cell, or of one that only chooses a value from a grid
    Bench.finished  its document, where OUT/cells has one of the same plan, program and data
    Bench.run       train and measure it, and keep the document

Every cell is a `reef init` and a `reef train` on a pool of its own, `isolated` one for each text, and a compressor's
cell an archive of the stream.
"""

import datetime
import hashlib
import json
import os
import platform
import shutil
import time

import compressors
import sizes
import streams
import tuning
from methods import COMPRESSORS
from values import Problem

VERSION = 3  # of the files in OUT/cells
FLOOR = "0.01"  # share of each prediction that is even over all bytes, in the column that bounds what a byte can cost


class Skipped(Exception):
    """A cell that this machine cannot run; the message says why."""


def write_json(path, document):
    """Complete or not there at all, whenever we end."""
    part = path.with_name(path.name + ".part")
    part.write_text(json.dumps(document, indent=1) + "\n")
    os.replace(part, path)


def cell_name(stream, order, method, seed):
    return f"{stream.name}.order{order}.{method}.seed{seed}"


def made_here(reef, jobs):
    """What a cell's seconds depend on, and when it was measured."""
    kernels = reef("version")["kernels"]
    return {
        "jobs": jobs,
        "threads": reef.threads or os.cpu_count(),
        "machine": f"{platform.machine()} with {os.cpu_count()} cores, {kernels} kernels",
        "date": datetime.date.today().isoformat(),
    }


class Bench:
    def __init__(self, config, reef, out, jobs):
        self.config, self.reef, self.out, self.jobs = config, reef, out, jobs
        self.cells = out / "cells"
        self.work = out / "work"
        self.streams = streams.Files(out / "streams")
        self.models = {}

    # ---- plans -----------------------------------------------------------------------------------

    def model(self, options):
        """The whole configuration of a pool with these options."""
        key = json.dumps(options, sort_keys=True)
        if key not in self.models:
            words = [word for name, value in options.items() for word in (f"--{name.replace('_', '-')}", value)]
            self.models[key] = self.reef("init", self.out / "none", *words, "--dry-run")["config"]
        return self.models[key]

    def program(self):
        if "version" not in self.models:
            self.models["version"] = self.reef("version")["version"]
        return self.models["version"]

    def tuning_cells(self, stream, method):
        """(name, plan) for each choice of a method's grid."""
        seed = self.config.tune["seed"]
        of = self.config.methods[method]
        return [
            (f"{stream.name}.tune.{method}.{i}.seed{seed}", self.plan(stream, 0, method, seed, choice, tune=True))
            for i, choice in enumerate(tuning.choices(of))
        ]

    def choice(self, stream, method):
        """What was chosen for a method: {} where it has no grid, None where the grid has not been run."""
        chooser = self.config.chosen_for(method)
        if chooser is None:
            return {}
        documents = [self.finished(name, plan) for name, plan in self.tuning_cells(stream, chooser)]
        if None in documents:
            return None
        return tuning.best(self.config.methods[chooser], documents)[0]

    def cell(self, stream, order, method, seed):
        """(name, plan); the plan is None while what it depends on has not been chosen."""
        choice = self.choice(stream, method)
        plan = None if choice is None else self.plan(stream, order, method, seed, choice)
        return cell_name(stream, order, method, seed), plan

    def plan(self, stream, order, method, seed, choice, tune=False):
        """All that decides a cell's figures; a cell that was made with another plan is made again."""
        config, of = self.config, self.config.methods[method]
        ordered = stream.ordered(order)
        domains = [
            self.streams.tuning_domain(stream, d, config.tune) if tune else self.streams.domain(stream, d)
            for d in ordered
        ]
        plan = {
            "version": VERSION,
            "program": self.program() if of.base not in COMPRESSORS else of.base,
            "stream": stream.name,
            "kind": stream.kind,
            "order": order,
            "method": method,
            "base": of.base,
            "seed": seed,
            "choice": choice,
            "options": {},
            "domains": [d.name for d in domains],
            "train": [str(d.train) for d in domains],
            "held": [str(d.held) for d in domains],
            "returns": None,
            "transients": "" if tune else stream.transients,
            "tolerance": stream.tolerance,
            "tune": tune,
            "quick": config.quick,
        }
        if of.base not in COMPRESSORS:
            self.plan_model(plan, stream, domains, choice)
        plan["sizes"] = [
            os.path.getsize(path) if os.path.exists(path) else None
            for path in plan["train"] + plan["held"] + [plan["returns"] or ""]
        ]
        # Without paths: a copy of the same data elsewhere makes the same cell. What is in it is `content`.
        named = plan | {"train": None, "held": None, "returns": plan["returns"] is not None}
        plan["key"] = hashlib.sha256(json.dumps(named, sort_keys=True).encode()).hexdigest()[:16]
        plan["content"] = self.streams.content(stream)
        return plan

    def plan_model(self, plan, stream, domains, choice):
        config, base = self.config, plan["base"]
        settings = config.settings(plan["method"], choice)
        options = config.options(stream, plan["method"], plan["seed"], choice)
        if settings["size"] == "pool":
            options["side"] = str(sizes.side_of_pool(self.model(options), len(domains)))
        if base == "joint":
            by_window = settings["mix"] == "window" and stream.kind == "text"
            if by_window:
                options["cut_windows"] = "true"
            window = self.model(options)["context"] if by_window else None
            plan["train"] = [str(self.streams.joint(stream, domains, plan["seed"], window))]
        elif base != "isolated" and stream.returns and not plan["tune"]:
            plan["returns"] = str(self.streams.returned(stream))
        plan["options"] = options

    def finished(self, name, plan):
        try:
            document = json.loads((self.cells / f"{name}.json").read_text())
        except (OSError, ValueError):
            return None
        made = document.get("plan", {})
        same = plan is not None and made.get("content") == plan["content"] and made.get("key") == plan["key"]
        return document if same and "made" in document else None

    # ---- runs ------------------------------------------------------------------------------------

    def init(self, pool, plan):
        options = [
            word for key, value in plan["options"].items() for word in (f"--{key.replace('_', '-')}", value)
        ]
        return self.reef("init", pool, *options)

    def train(self, pool, files, domains, transients="", costs=True):
        """Domains: pairs of name and held-out set."""
        command = ["train", "--pool", pool, *files]
        command += [] if costs else ["--cost-repeats", "0"]
        for name, held in domains:
            command += ["--eval", f"{name}={held}"]
        if transients:
            command += ["--eval-at", transients]
        document = self.reef(*command)
        if not document["finished"]:  # somebody else stopped it: what it measured is of less text
            raise Problem(f"reef train was stopped after {document['stream_bytes']:,} bytes of the stream")
        return document

    def evaluate(self, pool, plan, held):
        """What the pool is at the end, beside its losses: generations, and what a floor leaves of the losses."""
        # The file has free pages as well, which commits leave.
        found = {"generations": self.reef("generations", pool)["generations"], "eval": None}
        found["used_bytes"] = self.reef("verify", pool, "--quick")["used_bytes"]
        if plan["kind"] == "text":
            found["eval"] = self.reef("eval", pool, "--floor", FLOOR, *held)["files"]
        return found

    def run_stream(self, document, plan, work, pairs):
        pool = work / "pool"
        document["init"] = self.init(pool, plan)
        transients = plan["transients"] if len(plan["train"]) > 1 else ""
        document["train"] = self.train(pool, plan["train"], pairs, transients, costs=not plan["tune"])
        document |= self.evaluate(pool, plan, plan["held"])
        if plan["returns"]:
            document["returned"] = self.train(pool, [plan["returns"]], pairs, costs=False)
        return document

    def run_isolated(self, document, plan, work, pairs):
        """A model for each text, and an oracle that knows which one to ask."""
        document["isolated"] = {}
        for (name, held), file in zip(pairs, plan["train"]):
            pool = work / f"pool{len(document['isolated'])}"
            own = {"init": self.init(pool, plan), "train": self.train(pool, [file], [(name, held)], costs=False)}
            document["isolated"][name] = own | self.evaluate(pool, plan, [held])
            shutil.rmtree(pool)
        return document

    def run_compressor(self, document, plan, work):
        if compressors.find(plan["base"]) is None:
            raise Skipped(compressors.lacks(plan["base"]))
        document["compressed"] = compressors.measure(plan["base"], plan, work, self.reef.execute)
        return document

    def run(self, name, plan):
        work = self.work / f"{name}.{os.getpid()}"
        shutil.rmtree(work, ignore_errors=True)
        work.mkdir(parents=True)
        began = time.monotonic()
        pairs = list(zip(plan["domains"], plan["held"]))
        document = {"plan": plan, "made": made_here(self.reef, self.jobs), "quick": self.config.quick}
        try:
            if plan["base"] in COMPRESSORS:
                document = self.run_compressor(document, plan, work)
            elif plan["base"] == "isolated":
                document = self.run_isolated(document, plan, work, pairs)
            else:
                document = self.run_stream(document, plan, work, pairs)
            document["wall_seconds"] = time.monotonic() - began
            write_json(self.cells / f"{name}.json", document)
            return document
        finally:
            shutil.rmtree(work, ignore_errors=True)
