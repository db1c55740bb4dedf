"""Every command's answer with --json is one document that fits its schema, and the examples of the manual run."""

import json
import os
import shutil
import subprocess
import sys
import tempfile
import time

import cases
import jsonschema
from world import World

DEADLINE_S = 120
ROOM_BYTES = 1 << 30
failures = []


class Answers:
    """Runs commands with --json and compares what they say with docs/schemas."""

    def __init__(self, world, folder):
        self.world, self.seen, self.schemas = world, set(), {}
        for name in os.listdir(folder):
            with open(f"{folder}/{name}") as file:
                self.schemas[name[:-5]] = json.load(file)
        for name, schema in self.schemas.items():
            jsonschema.Draft202012Validator.check_schema(schema)
            if schema["$id"] != f"{name}.json":
                failures.append(f"{name}.json calls itself {schema['$id']}")
        self.store = {schema["$id"]: schema for schema in self.schemas.values()}

    def fit(self, name, document):
        self.seen.add(name)
        schema = self.schemas.get(name)
        if schema is None:
            return f"there is no docs/schemas/{name}.json"
        resolver = jsonschema.RefResolver(schema["$id"], schema, store=self.store)
        validator = jsonschema.Draft202012Validator(schema, resolver=resolver)
        error = jsonschema.exceptions.best_match(validator.iter_errors(document))
        return f"{'/'.join(map(str, error.absolute_path))}: {error.message[:300]}" if error else None

    def ask(self, name, words, cwd, code=0, **environment):
        end = words.index("--") if "--" in words else len(words)
        argv = [self.world.reef, *words[:end], "--json", *words[end:]]
        done = subprocess.run(argv, cwd=cwd, env=self.world.environment | environment, capture_output=True, text=True)
        what = f"reef {' '.join(words)} --json"
        if done.returncode != code:
            failures.append(f"{what}: exit {done.returncode}: {done.stderr[:300]}")
            return
        try:
            document = json.loads(done.stdout, object_pairs_hook=no_twins, parse_constant=no_constant)
        except ValueError as error:
            failures.append(f"{what}: not one document: {error}")
            return
        mismatch = self.fit(name, document)
        if mismatch:
            failures.append(f"{what}: {mismatch}")
        if code == 0 and "--verbose" not in words and done.stderr:
            failures.append(f"{what} says on standard error: {done.stderr[:200]}")

    def watch(self, cwd):
        """A document for each incident, and the summary."""
        done = subprocess.run([self.world.reef, "watch", "--replay", "app", "--json"], cwd=cwd, env=self.world.environment,
                              capture_output=True, text=True)
        lines = done.stdout.splitlines()
        for line in lines:
            mismatch = self.fit("watch", json.loads(line, object_pairs_hook=no_twins, parse_constant=no_constant))
            if mismatch:
                failures.append(f"watch: {mismatch} in {line}")
        if done.returncode != 0 or len(lines) != 2:
            failures.append(f"watch ended with {done.returncode}: {done.stdout}{done.stderr}")

    def ask_all(self, table, cwd, **environment):
        for name, words in table:
            self.ask(name, words, cwd, **environment)


def no_twins(pairs):
    if len({key for key, _ in pairs}) != len(pairs):
        raise ValueError("a member stands twice")
    return dict(pairs)


def no_constant(text):
    raise ValueError(f"{text} is no JSON")


# ---- beside a daemon ----

class Daemon:
    def __init__(self, world, folder):
        self.world, self.folder = world, folder
        self.log = open(f"{folder}/reefd.log", "w")
        self.process = subprocess.Popen([world.reefd, "--pool", "reef.pool", "--source", "file:corpus.txt", "--source",
                                         "push:web", "--source", f"syslog:unix:{os.path.abspath(folder)}/log",
                                         "--source", "kafka:127.0.0.1:9/none", "--http", "0", "--quiet"],
                                        cwd=folder, env=world.environment, stderr=self.log)
        end = time.monotonic() + DEADLINE_S
        while not self.trained():
            if self.process.poll() is not None or time.monotonic() > end:
                raise RuntimeError(f"reefd: {open(f'{folder}/reefd.log').read()}")
            time.sleep(0.1)

    def trained(self):
        done = subprocess.run([self.world.reef, "status", "reef.pool", "--json"], cwd=self.folder,
                              env=self.world.environment, capture_output=True, text=True)
        status = json.loads(done.stdout)
        return status["daemon"] and status["sources"][0]["ended"]

    def end(self):
        if self.process.poll() is None:
            self.process.terminate()
        code = self.process.wait(DEADLINE_S)
        self.log.close()
        if code != 0:
            failures.append(f"reefd ended with {code}: {open(f'{self.folder}/reefd.log').read()}")


# ---- examples ----

# What an example expects besides the folder as it is.
FRESH = {"init": "rm -rf reef.pool many new.pool", "train": "rm -rf reef.pool && cp -r fresh.pool reef.pool",
         "import": "rm -rf reef.pool french.pool && cp -r fresh.pool reef.pool && cp -r other.pool french.pool",
         "export model": "rm -f model.safetensors",
         "compress": "rm -rf reef.pool && cp -r memory.pool reef.pool && rm -f notes.txt.reef",
         "expand": "rm -rf reef.pool && cp -r memory.pool reef.pool",
         "kind list": "rm -rf reef.pool && cp -r memory.pool reef.pool",
         "snapshot create": "reef snapshot remove reef.pool before-upgrade"}
# The stream is shorter here.
SMALLER = {"--truth 800000": "--truth 4000"}
ASK_DAEMON = {"commit", "pause", "resume", "drain", "reload", "ingest", "stop"}
READS_ONLY = {"status", "top", "snapshot list", "eval", "score", "generate",
              "generations", "experts", "usage", "timeline", "verify", "version", "plot loss"}


def left_out(line):
    if line.startswith(tuple(cases.LEFT_OUT)) and not line.startswith(cases.RUN):
        return True
    return False


def run_example(world, name, lines, number):
    folder = world.base if name in READS_ONLY else world.copy(f"example-{number}")
    daemon = Daemon(world, folder) if name in ASK_DAEMON else None
    for i, line in enumerate(lines):
        # Each line of init makes its pool anew; in other examples one line follows on the other.
        before = FRESH.get(name, "") if i == 0 or name in ("init", "train") else ""
        for large, small in SMALLER.items():
            line = line.replace(large, small)
        script = f"set -e\n{before}\n{line}\n"
        done = subprocess.run(["bash", "-c", script], cwd=folder, env=world.environment, capture_output=True, text=True,
                              stdin=subprocess.DEVNULL)
        if done.returncode != 0:
            failures.append(f"the example of {name}: {line}: exit {done.returncode}: {done.stderr[:300]}")
    if daemon:
        daemon.end()
    if folder != world.base:
        shutil.rmtree(folder)


def run_examples(world):
    ran = left = 0
    commands = json.loads(world.run("help", "--json"))["commands"]
    for number, command in enumerate(commands):
        document = json.loads(world.run("help", *command["name"].split(), "--json"))
        lines = [line for line in document["example"].split("\n") if not left_out(line)]
        left += document["example"].count("\n") + 1 - len(lines)
        if lines:
            run_example(world, command["name"], lines, number)
        else:
            failures.append(f"no line of the example of {command['name']} runs")
        ran += len(lines)
    print(f"{ran} lines of examples ran, {left} are left out")


def check_coverage(answers):
    commands = json.loads(answers.world.run("help", "--json"))["commands"]
    for command in commands:
        name = command["name"].replace(" ", "-")
        if name not in answers.schemas:
            failures.append(f"reef {command['name']} has no docs/schemas/{name}.json")
    unused = set(answers.schemas) - answers.seen - {"common"}
    for name in sorted(unused):
        failures.append(f"docs/schemas/{name}.json is used by no case")


def quick_folder():
    """In memory where there is room: what is tested here are answers, not the disk."""
    room = os.environ.get("TMPDIR") is None and os.path.isdir("/dev/shm") and shutil.disk_usage("/dev/shm").free
    return "/dev/shm" if room and room > ROOM_BYTES else None


def main():
    reef, reefd, schemas, part = sys.argv[1:]
    with tempfile.TemporaryDirectory(prefix="reef-test-", dir=quick_folder()) as folder:
        world = World(folder, os.path.abspath(reef), os.path.abspath(reefd))
        if part == "examples":
            run_examples(world)
        else:
            answers = Answers(world, schemas)
            answers.ask_all(cases.READING, world.base)
            for name, words, code in cases.MISTAKES:
                answers.ask(name, words, world.base, code)
            answers.watch(world.base)
            answers.ask_all(cases.CHANGING, world.copy("changing"))
            beside = world.copy("daemon")
            daemon = Daemon(world, beside)
            answers.ask_all(cases.DAEMON, beside)
            daemon.end()
            check_coverage(answers)
            print(f"{len(answers.seen)} schemas are kept")
    for failure in failures:
        print(f"FAILED: {failure}", file=sys.stderr)
    return 1 if failures else 0


sys.exit(main())
