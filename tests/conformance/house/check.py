"""Fails on a wall that is broken: see the rules, one function each.

The rooms, in their order. A room may include and call those before it, never one after it, and of another room it sees
include/ alone. Tests are free: they look inside.
"""

import collections
import os
import re
import subprocess
import sys

SOURCES, ARCHIVES = os.path.realpath(sys.argv[1]), sys.argv[2:]
ROOMS = ["base", "store", "router", "context", "watch", "trainer/ranks", "trainer/model", "trainer", "libreef", "daemon", "tools"]
# The trainer works on the inside of the model, which is part of it.
OPEN_TO = {"trainer/model": {"trainer"}}
failures = []


def room_of(path):
    """The longest room that the path lies in, or None: tests, packages."""
    found = [room for room in ROOMS if path.startswith(room + "/")]
    return max(found, key=len) if found else None


def read_sources():
    """{path: paths of the project's files that it includes}. Names of files are unique, so a name says which."""
    paths = [os.path.relpath(f"{folder}/{name}", SOURCES)
             for room in ROOMS if "/" not in room
             for folder, _, names in os.walk(f"{SOURCES}/{room}") for name in names if name.endswith((".c", ".h"))]
    by_name = collections.defaultdict(list)
    for path in paths:
        by_name[os.path.basename(path)].append(path)
    for name, places in sorted(by_name.items()):
        if len(places) > 1:
            failures.append(f"the name {name} stands for several files: {', '.join(sorted(places))}")
    included = {}
    for path in sorted(paths):
        with open(f"{SOURCES}/{path}", encoding="utf-8") as file:
            names = re.findall(r'^#include "([^"]+)"', file.read(), re.M)
        included[path] = [by_name[os.path.basename(name)][0] for name in names if by_name.get(os.path.basename(name))]
    return included


def read_texts(included):
    texts = {}
    for path in included:
        with open(f"{SOURCES}/{path}", encoding="utf-8") as file:
            texts[path] = file.read()
    return texts


def check_guards(texts):
    """A header's include guard is its name, with REEF_ before it."""
    seen = {}
    for path, text in texts.items():
        guard = re.search(r"^#ifndef (\w+_H)$", text, re.M)
        if not path.endswith(".h") or not guard:
            continue  # those without are included for each instruction set
        name = os.path.basename(path).removesuffix(".h").upper()
        wanted = f"{name}_H" if name.startswith("REEF") else f"REEF_{name}_H"
        if guard[1] != wanted:
            failures.append(f"{path} is guarded by {guard[1]}, not by {wanted}")
        if seen.setdefault(guard[1], path) != path:
            failures.append(f"{path} and {seen[guard[1]]} are both guarded by {guard[1]}")


def check_types(texts):
    """No name stands for two types, one in each of two headers. libreef's header repeats those that it gives away."""
    seen = {}
    for path, text in texts.items():
        inside = path.endswith(".h") and not path.startswith("libreef/")
        for name in re.findall(r"^} (reef_\w+);", text, re.M) if inside else []:
            if seen.setdefault(name, path) != path:
                failures.append(f"{path} and {seen[name]} both define {name}")


def check_names_in_comments(texts):
    """Names and files that comments mention are there."""
    code, comments = set(), {}
    for path, text in texts.items():
        found = re.findall(r"/\*.*?\*/|//[^\n]*", text, re.S)
        comments[path] = " ".join(found)
        code.update(re.findall(r"\breef_\w+", re.sub(r"/\*.*?\*/|//[^\n]*", "", text, flags=re.S)))
    files = {os.path.basename(path) for path in texts}
    folders = [f"{SOURCES}/{folder}" for folder in ("tests", "tools", "package")]
    files.update(name for folder in folders for _, _, names in os.walk(folder) for name in names)
    for path, comment in comments.items():
        for name in sorted(set(re.findall(r"\breef_\w*\w\b(?!\*|[.]\w)", comment))):
            if name not in code and not any(known.startswith(name) for known in code if name.endswith("_")):
                failures.append(f"{path}: a comment mentions {name}, which does not exist")
        for name in sorted(set(re.findall(r"\b[\w-]+\.[ch]\b", comment))):
            if name not in files:
                failures.append(f"{path}: a comment mentions {name}, which does not exist")


def check_public_folders(included):
    """include/ holds reef_*.h and nothing else; a reef_*.h lies nowhere but there (libreef's is reef/reef.h)."""
    for room in ROOMS:
        folder = f"{SOURCES}/{room}/include"
        for name in sorted(os.listdir(folder)) if os.path.isdir(folder) else []:
            if not re.fullmatch(r"reef_\w+\.h", name):
                failures.append(f"{room}/include/{name} is no reef_*.h")
    for path in included:
        if re.fullmatch(r"reef_\w+\.h", os.path.basename(path)) and "/include/" not in path:
            failures.append(f"{path} is named as a public header, but lies outside its room's include/")


def check_walls(included):
    for path, headers in included.items():
        own = room_of(path)
        for header in headers:
            other = room_of(header)
            if other == own:
                continue
            if ROOMS.index(other) > ROOMS.index(own):
                failures.append(f"{path} includes {header}: {other} comes after {own}")
            elif "/include/" not in header and own not in OPEN_TO.get(other, ()):
                failures.append(f"{path} includes {header}, which is private to {other}")


def circles(graph):
    """Strongly connected sets of two or more (Tarjan 1972)."""
    index, low, stack, found = {}, {}, [], []

    def visit(node):
        index[node] = low[node] = len(index)
        stack.append(node)
        for other in sorted(graph.get(node, ())):
            if other not in index:
                visit(other)
                low[node] = min(low[node], low[other])
            elif other in stack:
                low[node] = min(low[node], index[other])
        if low[node] == index[node]:
            at = stack.index(node)
            if len(stack) - at > 1:
                found.append(sorted(stack[at:]))
            del stack[at:]

    sys.setrecursionlimit(10000)
    for node in sorted(graph):
        if node not in index:
            visit(node)
    return found


def check_include_circles(included):
    for circle in circles(included):
        failures.append(f"files include each other in a circle: {', '.join(circle)}")
    folders = collections.defaultdict(set)
    for path, headers in included.items():
        for header in headers:
            a, b = os.path.dirname(path), os.path.dirname(header)
            # Parent and child may know each other, and include/ is everybody's.
            if a != b and not f"{a}/".startswith(f"{b}/") and not f"{b}/".startswith(f"{a}/") and not b.endswith("/include"):
                folders[a].add(b)
    for circle in circles(folders):
        failures.append(f"folders include each other in a circle: {', '.join(circle)}")


def check_call_circles(included):
    """No file calls, by name and through others, a file of another folder that calls it."""
    folders = {os.path.basename(path).removesuffix(".c"): os.path.dirname(path) for path in included if path.endswith(".c")}
    defined, wanted = {}, collections.defaultdict(set)
    for archive in ARCHIVES:
        listed = subprocess.run(["nm", "-A", archive], capture_output=True, text=True, check=True).stdout
        for line in listed.splitlines():
            place, _, rest = line.rpartition(":")
            kind, symbol = rest.split()[-2:]
            name = place.rpartition(":")[2].removesuffix(".o")
            if kind == "U":
                wanted[name].add(symbol)
            elif kind in "TDBRVW":
                defined[symbol] = name
    calls = {name: {defined[symbol] for symbol in symbols if defined.get(symbol, name) != name}
             for name, symbols in wanted.items()}
    if len(calls) < 100:
        failures.append(f"only {len(calls)} files were read from the archives")
    for circle in circles(calls):
        if len({folders.get(name.removesuffix(".c"), name) for name in circle}) > 1:
            failures.append(f"files call each other in a circle: {', '.join(circle)}")


def main():
    included = read_sources()
    texts = read_texts(included)
    check_guards(texts)
    check_types(texts)
    check_names_in_comments(texts)
    check_public_folders(included)
    check_walls(included)
    check_include_circles(included)
    check_call_circles(included)
    for failure in failures:
        print(f"FAILED: {failure}", file=sys.stderr)
    print(f"{len(included)} files of {len(ROOMS)} rooms: {len(failures)} broken walls")
    return 1 if failures else 0


sys.exit(main())
