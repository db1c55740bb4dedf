"""Runs the command lines of pages as they stand there: each page in a folder of its own, as one script of bash.

A block without a language is commands. A command that ends with & goes on beside the others; if it is a reefd, the next
one waits until it answers.
"""

import os
import random
import re
import shutil
import signal
import socket
import subprocess
import sys
import tempfile

REEF, REEFD, SOURCES = (os.path.realpath(path) for path in sys.argv[1:4])
PAGES = sys.argv[4:] or ["README.md", "docs/GUIDE.md"]
DEADLINE_S = 600
# What builds, installs or takes minutes: tests/packages/fresh and tests/packages/live type these.
NOT_RUN = ("tools/", "cmake ", "sudo ", "export PATH=")

WORDS = {
    "english": "the sea is calm and the night is long on the shore of a small green island ".split(),
    "code": "int main ( void ) { return 0 ; } static if else for while struct const char * x = y + 1 ;".split(),
    "french": "la mer est calme et la nuit est longue sur le rivage de cette petite ile verte".split(),
    "log": "host app[1]: request took 12 ms from 10.0.0.1 with status 200 in 3 steps".split(),
}
FILES = {
    "english": ["notes.txt", "held-out.txt", "english.txt"],
    "code": ["code.c", "held-out.c"],
    "french": ["french.txt", "held-out.fr"],
    "log": ["new.log", "monday.log", "tuesday.log", "logs/web.log", "logs/shop.log"],
}
BEGIN = """
exec </dev/null
exit_code=0
say() { printf '== %s\\n' "$1"; }
check() { [ "$1" = 0 ] || { printf '!! %s: exit %s\\n' "$2" "$1"; exit_code=1; }; }
wait_for() {
    for ((i = 0; i < 300; i++)); do reef reload "$1" --dry-run >/dev/null 2>&1 && return; sleep 0.1; done
    printf '!! no daemon answers for %s\\n' "$1"; exit_code=1
}
"""


def write_world(folder):
    os.mkdir(f"{folder}/logs")
    for kind, names in FILES.items():
        for seed, name in enumerate(names):
            draw = random.Random(seed)
            with open(f"{folder}/{name}", "w", encoding="utf-8") as file:
                for _ in range(60 if "held" in name else 400):
                    file.write(" ".join(draw.choice(WORDS[kind]) for _ in range(8)) + "\n")
    with open(f"{folder}/.curlrc", "w", encoding="utf-8") as file:
        file.write("fail-with-body\n")  # by itself curl is content with any answer


def commands(text):
    """(line, command) of all blocks without a language; a command goes on as long as the shell would ask for more."""
    held, begun, block = [], 0, None
    for at, line in enumerate(text.split("\n"), 1):
        if line.startswith("```"):
            block = None if block is not None else line[3:]
            continue
        if block != "" or (not held and not line.strip()):
            continue
        begun = begun if held else at
        held.append(line)
        if not line.endswith("\\") and subprocess.run(["bash", "-nc", "\n".join(held)], capture_output=True).returncode == 0:
            yield begun, "\n".join(held)
            held = []


def free_port():
    with socket.socket() as s:
        s.bind(("127.0.0.1", 0))
        return str(s.getsockname()[1])


def script(page):
    with open(f"{SOURCES}/{page}", encoding="utf-8") as file:
        text = re.sub(r"\b8080\b", free_port(), file.read())
    parts, count = [BEGIN], 0
    for line, command in commands(text):
        if command.startswith(NOT_RUN):
            continue
        bare = re.sub(r"\s+#\s.*$", "", command).strip()
        parts.append(f"say {page}:{line}\n{command}")
        pool = re.search(r"reefd .*--pool (\S+)", bare) if bare.endswith("&") else None
        parts.append(f"wait_for {pool[1]}" if pool else f"check $? {page}:{line}")
        count += 1
    return "\n".join([*parts, "exit $exit_code", ""]), count


def run(page):
    folder = tempfile.mkdtemp(prefix="reef-documents-")
    write_world(folder)
    os.mkdir(f"{folder}/.bin")
    os.symlink(REEF, f"{folder}/.bin/reef")
    os.symlink(REEFD, f"{folder}/.bin/reefd")
    text, count = script(page)
    with open(f"{folder}/.script", "w", encoding="utf-8") as file:
        file.write(text)
    environment = dict(os.environ, HOME=folder, PATH=f"{folder}/.bin:{os.environ['PATH']}")
    with open(f"{folder}/.said", "w+b") as said:
        process = subprocess.Popen(["bash", ".script"], cwd=folder, env=environment, stdout=said, stderr=said,
                                   start_new_session=True)
        try:
            code = process.wait(DEADLINE_S)
        except subprocess.TimeoutExpired:
            code = f"not over in {DEADLINE_S} s"
        try:
            os.killpg(process.pid, signal.SIGKILL)  # daemons that a page leaves running
        except ProcessLookupError:
            pass
        said.seek(0)
        told = said.read().decode(errors="replace")
    shutil.rmtree(folder, ignore_errors=True)
    if code != 0 or count == 0:
        print(told)
        print(f"{page}: {code}; the lines with !! above")
        return False
    print(f"{page}: {count} commands were run")
    return True


sys.exit(not all([run(page) for page in PAGES]))
