"""Runs the documentation: see run. What stands for what is in table.py, which must not name what is not there."""

import contextlib
import json
import os
import random
import re
import shutil
import signal
import socket
import subprocess
import sys
import tempfile
import time

import table
import world
from blocks import Page
from reader import LIVE, WATCH, Failure, Reader

SOURCES = os.path.realpath(sys.argv[3])
REEF, REEFD = (os.path.realpath(path) for path in sys.argv[1:3])
BUILD = os.path.dirname(os.path.dirname(REEF))
# As on a machine that has none of the programs in table.NEEDS: what would be skipped there is, and nothing is run.
BARE = os.environ.get("REEF_DOCUMENTS_BARE") == "1"
failures = []


class Rules:
    """The lists of table.py, and which of their entries were of use."""

    def __init__(self, places):
        self.used, self.places = set(), places

    def find(self, entries, page, text):
        for entry in entries:
            if entry[0] in (None, page) and text.startswith(entry[1]):
                self.used.add(entry)
                return entry
        return None

    def replace(self, page, text):
        for entry in table.REPLACED:
            where, pattern, new, _ = entry
            if where not in (None, page):
                continue
            for name, place in self.places.items():
                new = new.replace(name, place)
            text, count = re.subn(pattern, new, text)
            if count:
                self.used.add(entry)
        return text

    def unused(self):
        for name in ("ELSEWHERE", "LEFT_OUT", "REPLACED"):
            for entry in getattr(table, name):
                if entry not in self.used:
                    yield f"table.py, {name}: no command of {entry[0] or 'any page'} is {entry[1]!r}"


# ---- pages ----

def page_names():
    documents = sorted(f"docs/{name}" for name in os.listdir(f"{SOURCES}/docs") if name.endswith(".md"))
    return ["README.md", "CONTRIBUTING.md", "tests/README.md"] + documents


def run_page(page, rules, environment, counts):
    # A copy of the checkout, which may be written to, and beside it what the page calls its own files.
    folder = tempfile.mkdtemp(prefix="page-", dir=rules.places["@WORLD@"])
    if not BARE:
        shutil.copytree(SOURCES, folder, symlinks=True, dirs_exist_ok=True,
                        ignore=shutil.ignore_patterns("build", ".git", "shared", "node_modules", "*.work"))
        for place in ("tools", "daemon"):
            os.makedirs(f"{folder}/build/release/{place}")
        os.symlink(REEF, f"{folder}/build/release/tools/reef")
        os.symlink(REEFD, f"{folder}/build/release/daemon/reefd")
        world.write_files(folder)
    reader = Reader(folder, dict(environment, HOME=folder))
    for text in [] if BARE else table.BEFORE.get(page.name, []):
        (reader.start if LIVE.search(text) else reader.run)(text)
    for language, part in page.parts:
        try:
            if language == "command":
                run_command(reader, page, part, rules, counts)
            elif language == "ini":
                check_configuration(folder, page, part, counts)
            elif language in ("c", "python"):
                use_elsewhere(page, language, part, rules, counts)
        except Failure as failure:
            failures.append(f"{part if language == 'command' else page.name}\n    {failure}")
    failures.extend(f"{page.name}: {failure}" for failure in reader.end())
    shutil.rmtree(folder)


def run_command(reader, page, command, rules, counts):
    entry = rules.find(table.LEFT_OUT, page.name, command.text)
    if entry:
        counts["left out"] += 1
        return
    entry = rules.find(table.ELSEWHERE, page.name, command.text)
    if entry:
        counts["run by other tests"] += 1
        return
    # Before anything is skipped: an entry of table.py is of use on a machine that lacks the program, too.
    text = rules.replace(page.name, command.text)
    missing = [name for name in table.NEEDS if re.search(rf"(^|[|&;(] *){name} ", command.text)
               and (BARE or not shutil.which(name))]
    if missing:
        if os.environ.get("CI") == "true" and not BARE:
            raise Failure(f"there is no {missing[0]} here (Debian package {table.NEEDS[missing[0]]})")
        print(f"skipped, there is no {missing[0]} here (Debian package {table.NEEDS[missing[0]]}): {command}")
        counts["skipped"] += 1
        return
    if BARE:
        counts["not run"] += 1
        return
    started = time.monotonic()
    try:
        if LIVE.search(text):
            reader.start(text)
        elif WATCH.search(text):
            reader.watch(text)
        else:
            reader.run(text)
    except Failure as failure:
        raise Failure(f"{failure}\n    as it was run: {text}") from None
    counts["run"] += 1
    if os.environ.get("REEF_DOCUMENTS_TIMES"):
        print(f"{time.monotonic() - started:6.2f} s  {command}")


def use_elsewhere(page, language, part, rules, counts):
    if rules.find(table.ELSEWHERE, page.name, f"```{language}"):
        counts["run by other tests"] += 1
    else:
        failures.append(f"{page.name}:{part[0]}: nothing runs this program in {language}")


def check_configuration(folder, page, part, counts):
    with open(f"{folder}/page.ini", "w") as file:
        file.write(part[1])
    done = subprocess.run([REEF, "config", "check", "page.ini"], cwd=folder, capture_output=True, text=True)
    if done.returncode != 0:
        failures.append(f"{page.name}:{part[0]}: {done.stdout}{done.stderr}")
    counts["run"] += 1


# ---- what is only mentioned ----

def known_options():
    def ask(*words):
        return json.loads(subprocess.run([REEF, *words, "--json"], capture_output=True, check=True).stdout)
    known = {}
    for command in ask("help")["commands"]:
        known[command["name"]] = {option["name"] for option in ask("help", *command["name"].split())["options"]}
    daemon = subprocess.run([REEFD, "--help"], capture_output=True, check=True, text=True).stdout
    return known, set(re.findall(r"--([a-z][a-z-]*)", daemon))


def check_mentioned(page, known, daemon):
    """`reef NAME --option` in the text: there is such a command, and it has such an option."""
    for text in page.mentioned():
        words = text.split(" -- ")[0].split()
        options = {re.sub(r"[^a-z-].*", "", word[2:]) for word in words if re.match(r"--[a-z]", word)} - {"help", "version"}
        if words[0] == "reefd":
            wrong = options - daemon
        else:
            name = next((name for name in (" ".join(words[1:3]), *words[1:2]) if name in known), None)
            if name is None:
                groups = {group.split()[0] for group in known}
                if len(words) > 1 and re.match(r"[a-z]", words[1]) and words[1].rstrip("|") not in groups:
                    failures.append(f"{page.name}: there is no such command: {text}")
                continue
            wrong = options - known[name]
        failures.extend(f"{page.name}: there is no --{option}: {text}" for option in sorted(wrong))


def check_references(pages):
    anchors = {page.name: set(page.anchors()) for page in pages}
    for page in pages:
        failures.extend(f"{page.name}: there is no {name}" for name in page.files() if not os.path.exists(f"{SOURCES}/{name}"))
        for link in page.links():
            path, _, anchor = link.partition("#")
            if re.match(r"[a-z]+:", link):
                continue
            name = os.path.normpath(os.path.join(os.path.dirname(page.name), path)) if path else page.name
            if not os.path.exists(f"{SOURCES}/{name}"):
                failures.append(f"{page.name}: the link {link} leads nowhere")
            elif anchor and name in anchors and anchor not in anchors[name]:
                failures.append(f"{page.name}: {name} has no heading #{anchor}")


def check_functions(pages):
    """`file.c`: `function` in the text: the file has a word that is spelt so."""
    known = {}
    for folder, _, names in os.walk(SOURCES):
        if not re.search(r"/(build|node_modules|\.git)(/|$)", folder):
            known.update({name: f"{folder}/{name}" for name in names if re.search(r"\.[ch]$", name)})
    for page in pages:
        with open(f"{SOURCES}/{page.name}", encoding="utf-8") as file:
            text = file.read()
        for name, function in re.findall(r"`(?:[\w/]*/)?(\w+\.[ch])`?:\s`?([a-z_]{4,})`", text):
            if name not in known:
                failures.append(f"{page.name}: there is no {name}")
                continue
            with open(known[name], encoding="utf-8") as file:
                if not re.search(rf"\b{function}\b", file.read()):
                    failures.append(f"{page.name}: {name} has no {function}")


def check_pictures(folder):
    for program in ("concepts.py", "ranks.py"):
        subprocess.run([sys.executable, "-B", f"{SOURCES}/docs/img/{program}", folder], check=True, stdout=subprocess.DEVNULL)
    for name in sorted(os.listdir(folder)):
        with open(f"{folder}/{name}") as drawn, open(f"{SOURCES}/docs/img/{name}") as kept:
            if drawn.read() != kept.read():
                failures.append(f"docs/img/{name} is not what the program beside it draws")


def check_named_tests():
    """A command that another test is said to run: there is such a test."""
    listed = subprocess.run(["ctest", "--test-dir", BUILD, "-N"], capture_output=True, text=True).stdout
    names = set(re.findall(r": (test_\w+)$", listed, re.M))
    for _, text, test in table.ELSEWHERE:
        for name in test.split(", "):
            if name not in names and not os.access(f"{SOURCES}/{name}", os.X_OK):
                failures.append(f"table.py: there is no {name}, which should run {text!r}")


def free_port():
    """One that no program is given by chance: below those that the kernel hands out."""
    while True:
        port = random.randrange(20000, 32000)
        with socket.socket() as one:
            try:
                one.bind(("127.0.0.1", port))
                return str(port)
            except OSError:
                continue


def main():
    signal.signal(signal.SIGTERM, lambda *_: sys.exit(1))  # so that daemons end, too
    started = time.monotonic()
    wanted = sys.argv[4:]
    pages = []
    for name in page_names():
        with open(f"{SOURCES}/{name}", encoding="utf-8") as file:
            pages.append(Page(name, file.read()))
    counts = {"run": 0, "run by other tests": 0, "left out": 0, "skipped": 0, "not run": 0}
    with tempfile.TemporaryDirectory(prefix="reef-test-") as folder:
        os.mkdir(f"{folder}/bin")
        os.symlink(REEF, f"{folder}/bin/reef")
        os.symlink(REEFD, f"{folder}/bin/reefd")
        environment = {key: value for key, value in os.environ.items() if not key.startswith("REEF_")}
        environment.update(PATH=f"{folder}/bin:{os.environ['PATH']}", OPENBLAS_NUM_THREADS="1", LC_ALL="C.UTF-8",
                           TERM="dumb", TMPDIR=folder)
        rules = Rules({"@WORLD@": folder, "@PORT@": free_port(), "@REDIS@": free_port(), "@REEF@": REEF})
        with contextlib.nullcontext() if BARE else world.redis_server(folder, rules.places["@REDIS@"]):
            for page in pages:
                failures.extend(page.problems)
                if not wanted or page.name in wanted:
                    run_page(page, rules, environment, counts)
    known, daemon = known_options()
    for page in pages:
        check_mentioned(page, known, daemon)
    check_references(pages)
    check_functions(pages)
    with tempfile.TemporaryDirectory(prefix="reef-test-") as folder:
        check_pictures(folder)
    check_named_tests()
    if not wanted:
        failures.extend(rules.unused())
    print(", ".join(f"{count} {what}" for what, count in counts.items() if count), f"in {time.monotonic() - started:.0f} s")
    for failure in failures:
        print(f"FAILED: {failure}", file=sys.stderr)
    return 1 if failures else 0


sys.exit(main())
