"""What the documents name exists: links, commands and their options, settings, files, functions, identifiers."""

import json
import os
import re
import subprocess
import sys

REEF, REEFD, SOURCES = (os.path.realpath(path) for path in sys.argv[1:4])
# Of these only the links are checked: they are of their time.
RECORDS = ("CHANGELOG.md", "research/NOTEBOOK.md", "research/PAPER.md")
CODE = re.compile(r"\.(c|h|py|js|map|ini|in|sh|cmake|service|html|css)$|/run$|CMakeLists\.txt$")
# Of other programs, and of formulas.
FOREIGN = {"softmax_s", "bind-to", "no-build-isolation", "no-deps", "system-site-packages",
           "directory", "plain", "pool-bytes", "data", "work", "compare"}
failures = []


def fail(page, text):
    failures.append(f"{page}: {text}")


def source_files():
    """Not by git: a machine that has the sources need not have it."""
    found = []
    for folder, folders, names in os.walk(SOURCES):
        folders[:] = [name for name in folders if name not in ("build", ".git", "node_modules", "__pycache__")]
        found += [os.path.relpath(f"{folder}/{name}", SOURCES) for name in names]
    return found


def read(name):
    with open(f"{SOURCES}/{name}", encoding="utf-8", errors="replace") as file:
        return file.read()


FILES = source_files()
PAGES = {name: read(name) for name in FILES if name.endswith(".md") and "node_modules" not in name}
SOURCE = {name: read(name) for name in FILES if CODE.search(name) and not name.startswith("docs/schemas/")}
# base/gone.c has the names that are gone.
IDENTIFIERS = {word for name, text in SOURCE.items() if name != "base/gone.c" for word in re.findall(r"\w+", text)
               if word.startswith("test_") or not name.startswith("tests/")}


def prose_and_code(text):
    """The page without its blocks, and its blocks: (language, lines)."""
    prose, blocks, inside = [], [], None
    for line in text.split("\n"):
        opened = re.match(r"```(.*)$", line)
        if opened and inside is None:
            inside = (opened[1], [])
        elif opened:
            blocks.append(inside)
            inside = None
        elif inside is not None:
            inside[1].append(line)
        else:
            prose.append(line)
    return "\n".join(prose), blocks


def anchors(prose):
    for title in re.findall(r"^#+ (.*)$", prose, re.M):
        yield re.sub(r"[^\w\- ]", "", title.lower()).replace(" ", "-")


def check_links(page, prose):
    for link in re.findall(r"\]\(([^)\s]+)\)", prose):
        path, _, anchor = link.partition("#")
        if re.match(r"[a-z]+:", link):
            continue
        name = os.path.normpath(os.path.join(os.path.dirname(page), path)) if path else page
        if not os.path.exists(f"{SOURCES}/{name}"):
            fail(page, f"the link {link} leads nowhere")
        elif anchor and name in PAGES and anchor not in set(anchors(prose_and_code(PAGES[name])[0])):
            fail(page, f"{name} has no heading #{anchor}")


def known_commands():
    def ask(*words):
        return json.loads(subprocess.run([REEF, *words, "--json"], capture_output=True, check=True).stdout)
    known = {}
    for command in ask("help")["commands"]:
        known[command["name"]] = {o["name"] for o in ask("help", *command["name"].split())["options"]} | {"help", "help-all"}
    helped = subprocess.run([REEFD, "--help"], capture_output=True, check=True, text=True).stdout
    return known, set(re.findall(r"--([a-z][a-z-]*)", helped)) | {"help", "version", "check"}


def options_of(text):
    return {found for found in re.findall(r"(?<![\w-])--([a-z][a-z-]*)", text)}


def check_command(page, text, known, daemon):
    words = text.split()
    if words[0] == "reefd":
        wrong = {o for o in options_of(text) - daemon if o.removeprefix("no-") not in daemon}
    else:
        name = next((n for n in (" ".join(words[1:3]), *words[1:2]) if n in known), None)
        if name is None:
            groups = {group.split()[0] for group in known}
            if len(words) > 1 and re.fullmatch(r"[a-z-]+", words[1]) and words[1] not in groups:
                fail(page, f"there is no such command: {text}")
            elif len(words) > 2 and words[1] in groups and re.fullmatch(r"[a-z]+", words[2]):
                fail(page, f"there is no such command: {text}")
            return
        wrong = options_of(text) - known[name]
    for option in sorted(wrong):
        fail(page, f"there is no --{option}: {text}")


def check_commands(page, prose, blocks, known, daemon):
    quoted = re.findall(r"`([^`]+)`", prose)
    lines = [line.removeprefix("$ ") for language, block in blocks if language in ("", "console") for line in block]
    joined = re.sub(r"\\\n\s*", " ", "\n".join(re.sub(r"\s+#\s.*$", "", line) for line in lines)).split("\n")
    for text in [*quoted, *(part for line in joined for part in re.split(r"[|;&()]+ ?", line))]:
        text = re.sub(r"\s+", " ", text).strip()
        text = re.sub(r"^(.* -- |mpirun .*?(?=reefd )|runuser .* -- )", "", text)
        if re.match(r"reefd? \S", text):
            check_command(page, text, known, daemon)
        elif text.startswith("--"):
            every = set.union(daemon, *known.values())
            for option in sorted(o for o in options_of(text) if o not in every | FOREIGN and o.removeprefix("no-") not in every):
                fail(page, f"no command has --{option}: {text}")


def check_settings(daemon):
    """OPERATING has every setting of reefd, and no other."""
    table = PAGES["docs/OPERATING.md"].partition("| setting | default |")[2].partition("\n\n")[0]
    told = set(re.findall(r"^\| `([a-z-]+)`", table, re.M))
    printed = subprocess.run([REEFD, "--pool", "POOL", "--source", "-", "--check", "--json-log"], capture_output=True).stdout
    has = {setting["name"] for setting in json.loads(printed)["settings"]}
    for name in sorted(has ^ told):
        fail("docs/OPERATING.md", f"the setting {name} is " + ("not in the table" if name in has else "none of reefd's"))


def check_files(page, prose):
    short = {}
    for name in FILES:
        short.setdefault(os.path.basename(name), []).append(name)
    for text in re.findall(r"`([^`]+)`", prose):
        for word in text.split():
            word = word.rstrip(",:;.")
            if re.search(r"[A-Z]{4}", word.rpartition(".")[0] or word) and not word.endswith(".md"):
                continue  # FILE, NAME: of the reader
            if re.fullmatch(r"(\w[\w-]*/)+[\w.-]*", word) and word.split("/")[0] in {n.split("/")[0] for n in FILES if "/" in n}:
                if not os.path.exists(f"{SOURCES}/{word}"):
                    fail(page, f"there is no {word}")
            elif re.fullmatch(r"\w+\.[ch]", word) and word not in short and word != "loss.c":
                fail(page, f"there is no file {word}")
    for name, function in re.findall(r"`(?:[\w/]*/)?(\w+\.[ch])`?:\s+`?([a-z_]{4,})`", prose):
        for place in short.get(name, []):
            if not re.search(rf"\b{function}\b", read(place)):
                fail(page, f"{place} has no {function}")


def check_identifiers(page, prose):
    for text in re.findall(r"`([^`]+)`", prose):
        for word in re.findall(r"(?<![\w<{/-])[a-z][a-z0-9]*(?:_[a-z0-9]+)+(?![\w.<{/-])", text):
            if word not in IDENTIFIERS and word not in FOREIGN:
                fail(page, f"no source has the name {word}")


def check_comments():
    """Sources name documents and their sections."""
    for name, text in SOURCE.items():
        for page, section in re.findall(r'((?:docs|research)/[A-Z]+\.md)(?:,? (?:under )?"([^"\n]+)")?', text):
            if page not in PAGES:
                fail(name, f"there is no {page}")
            elif section and section.lower() not in (title.lower() for title in re.findall(r"^#+ (.*)$", PAGES[page], re.M)):
                fail(name, f"{page} has no section {section}")


def main():
    known, daemon = known_commands()
    check_comments()
    for page, text in PAGES.items():
        prose, blocks = prose_and_code(text)
        check_links(page, prose)
        if page in RECORDS:
            continue
        check_commands(page, prose, blocks, known, daemon)
        check_files(page, prose)
        if page.startswith("docs/") or page == "README.md":
            check_identifiers(page, prose)
    check_settings(daemon)
    for failure in sorted(set(failures)):
        print(failure)
    print(f"{len(PAGES)} pages, {len(set(failures))} names that are not there")
    return bool(failures)


sys.exit(main())
