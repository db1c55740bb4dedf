"""Pages of the manual, and command lines completed by the real bash, zsh and fish, against the table of commands."""

import json
import os
import pty
import re
import select
import shutil
import subprocess
import sys
import tempfile
import time

DEADLINE_S = 60
failures = []


def expect(what, found, wanted):
    if found != wanted:
        failures.append(f"{what}: {sorted(found)} instead of {sorted(wanted)}"
                        if isinstance(wanted, set) else f"{what}: {found!r} instead of {wanted!r}")


def table(reef):
    def ask(*words):
        return json.loads(subprocess.run([reef, *words, "--json"], capture_output=True, check=True).stdout)
    return [ask("help", *command["name"].split()) for command in ask("help")["commands"]]


# ---- pages ----

def check_pages(folder, documents):
    pages = {f"reef-{document['name'].replace(' ', '-')}.1" for document in documents}
    expect("pages", set(os.listdir(folder)), pages | {"reef.1", "reefd.8"})
    for document in documents:
        check_page(f"{folder}/reef-{document['name'].replace(' ', '-')}.1", document)
    for page in os.listdir(folder):
        if re.search(r"^ *\$  ", shown_as_text(f"{folder}/{page}"), re.MULTILINE):
            failures.append(f"{page}: a line that goes on with a command has a prompt of its own")


def shown_as_text(page):
    plain = ["groff", "-man", "-Tascii", "-P-c", "-P-b", "-P-u", "-P-o", "-rLL=4000n", page]
    return subprocess.run(plain, capture_output=True, text=True, check=True).stdout


def check_page(page, command):
    shown = shown_as_text(page)
    wanted = [command["summary"], f"reef {command['name']}", "EXIT STATUS", "SEE ALSO", "reefd(8)"]
    wanted += [(f"-{option['letter']}, " if option["letter"] else "") + f"--{option['name']}" + (f" {option['value']}" if option["value"] else "")
               for option in command["options"]]
    wanted += [f"$ {line}" for line in command["example"].split("\n")]
    wanted += re.findall(r"[^`.\n\\]{20,40}", command["about"])[:3]
    flat = " ".join(shown.split())
    for text in wanted:
        if " ".join(text.split()) not in flat:
            failures.append(f"{page} lacks: {text}")


# ---- bash, without a terminal: the function that readline would call ----

def bash_complete(script, lines):
    text = [f". '{script}'"]
    for line in lines:
        words = line.split(" ")
        quoted = " ".join("'" + word + "'" for word in words)
        text.append(f"COMP_WORDS=({quoted}); COMP_CWORD={len(words) - 1}; _{words[0]}; "
                    'echo "${COMPREPLY[*]}"')
    out = subprocess.run(["bash", "-c", "\n".join(text)], capture_output=True, text=True, check=True)
    if out.stderr:
        failures.append(f"bash said: {out.stderr}")
    return [set(line.split()) for line in out.stdout.split("\n")[:-1]]


def check_bash(script, commands, folder):
    firsts = {name.split()[0] for name in commands}
    lines = [f"reef {name} --" for name in commands]
    for line, found in zip(lines, bash_complete(script, lines)):
        expect(f"bash: {line}", found, commands[line[5:-3]])
    wanted = {"reef ": firsts | {"--help", "--version"}, "reef gener": {"generate", "generations"},
              "reef snapshot re": {"restore", "remove"}, "reef completion ": {"bash", "zsh", "fish"},
              "reef compress -": {"-o", "-h"} | commands["compress"],
              f"reef compress -o {folder}/te": {f"{folder}/text"},
              "reefd --no": set(), "reefd --commit-": {"--commit-steps", "--commit-seconds", "--commit-retries"},
              f"reef plot loss --svg {folder}/of": {f"{folder}/of mine"}, "reef usage --layer ": set(),
              f"reef status --pool {folder}/": {f"{folder}/a.pool"}, f"reef status {folder}/": {f"{folder}/a.pool"},
              f"reef eval {folder}/": {f"{folder}/a.pool", f"{folder}/of mine", f"{folder}/text"}}
    for (line, words), found in zip(wanted.items(), bash_complete(script, list(wanted))):
        expect(f"bash: {line}", found, {part for word in words for part in word.split()})


# ---- fish ----

def fish_complete(script, line):
    out = subprocess.run(["fish", "--no-config", "-c", f"source '{script}'; complete -C '{line}'"],
                         capture_output=True, text=True, check=True)
    if out.stderr:
        failures.append(f"fish said: {out.stderr[:300]}")
    return {one.split("\t")[0] for one in out.stdout.split("\n") if one}


def check_fish(script, commands, folder):
    firsts = {name.split()[0] for name in commands}
    expect("fish: reef ", fish_complete(script, "reef "), firsts)
    expect("fish: reef snapshot re", fish_complete(script, "reef snapshot re"), {"restore", "remove"})
    expect("fish: reef completion ", fish_complete(script, "reef completion "), {"bash", "zsh", "fish"})
    expect("fish: a letter's file", fish_complete(script, f"reef compress -o {folder}/te"), {f"{folder}/text"})
    for name in ("init", "snapshot restore", "verify"):
        expect(f"fish: reef {name} --", fish_complete(script, f"reef {name} --"), commands[name])
    expect("fish: reefd", fish_complete(script, "reefd --commit-s"), {"--commit-steps", "--commit-seconds"})
    expect("fish: a file", fish_complete(script, f"reef plot loss --svg {folder}/te"), {f"{folder}/text"})


# ---- any shell at a terminal, with the tabulator ----

def check_typed(shell, argv, setup, folder):
    # reef is a function here that says its arguments, so that what was completed is what ran.
    setup += "\nreef() { echo \"ran:$*:\"; }\n"
    wanted = {"reef snaps": b"ran:snapshot <=:", "reef snapshot di": b"ran:snapshot diff <=:",
              "reef eval --mat": b"ran:eval --matrix <=:",
              f"reef compress -o {folder}/te": f"ran:compress -o {folder}/text <=:".encode(),
              f"reef plot loss --svg {folder}/te": f"ran:plot loss --svg {folder}/text <=:".encode()}
    pid, fd = pty.fork()
    if pid == 0:
        os.environ.update({"TERM": "dumb", "HOME": folder, "HISTFILE": "/dev/null"})
        os.execvp(argv[0], argv)
    shown = b""

    def until(text):
        nonlocal shown
        end = time.monotonic() + DEADLINE_S
        while text not in shown and time.monotonic() < end:
            if select.select([fd], [], [], 0.2)[0]:
                shown += os.read(fd, 65536)
        return text in shown

    os.write(fd, setup.encode() + b"echo rea''dy\n")
    if not until(b"ready\r\n"):
        failures.append(f"{shell} did not begin: {shown[-300:]!r}")
    for line, ran in wanted.items():
        shown = b""
        os.write(fd, line.encode() + b"\t")
        time.sleep(0.3)  # readline reads the rest as it was typed, after the tabulator
        os.write(fd, b" '<='\n")
        if not until(b"\nran:"):
            failures.append(f"{shell}: {line}: nothing ran: {shown!r}")
        until(b":\r\n")
        said = b" ".join(shown[shown.rindex(b"ran:"):].split())
        expect(f"{shell}: {line}<TAB>", said.startswith(ran), True)
        if not said.startswith(ran):
            failures.append(repr(said))
    os.write(fd, b"exit\n")
    try:
        while os.read(fd, 65536):
            pass
    except OSError:
        pass
    os.waitpid(pid, 0)
    os.close(fd)


def main():
    reef, made = sys.argv[1:]
    documents = table(reef)
    check_pages(f"{made}/man", documents)
    commands = {document["name"]: {"--" + option["name"] for option in document["options"]} for document in documents}
    with tempfile.TemporaryDirectory() as folder:
        os.mkdir(f"{folder}/a.pool")
        for name in ("text", "of mine"):
            open(f"{folder}/{name}", "w").close()
        check_bash(f"{made}/bash/reef", commands, folder)
        check_typed("bash", ["bash", "--norc", "--noprofile", "-i"], f". '{made}/bash/reef'", folder)
        if shutil.which("zsh"):
            subprocess.run(["zsh", "-n", f"{made}/zsh/_reef"], check=True)
            check_typed("zsh", ["zsh", "-f", "-i"],
                        f"fpath=('{made}/zsh' $fpath)\nautoload -Uz compinit\ncompinit -u -D", folder)
        else:
            print("left out: zsh is not installed")
        if shutil.which("fish"):
            check_fish(f"{made}/fish/reef.fish", commands, folder)
        else:
            print("left out: fish is not installed")
    for failure in failures:
        print(f"FAILED: {failure}", file=sys.stderr)
    print(f"{len(commands)} commands have their pages and are completed")
    return 1 if failures else 0


sys.exit(main())
