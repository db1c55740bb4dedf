"""What a page of the documentation consists of: blocks of commands, other blocks, links, commands that it mentions.

A block without a language is commands, one after the other; one of `console` has commands after `$ ` and what they
answer; every other block must say what it is. So nothing that looks like a command can be left out by chance.
"""

import re
import subprocess

OTHER = {"c", "python", "ini", "text", "json"}
LOOKS_LIKE_ONE = re.compile(r"^\s*(\$ |(sudo |[A-Z_]+=\S+ )*(reefd? |tools/\w|tests/\w|curl |cmake -|systemctl |cc |python3 ))")


class Command:
    """A command line: page, line it begins in, and its words as they stand there, without remarks."""

    def __init__(self, page, line, text):
        self.page, self.line, self.text = page, line, text

    def __str__(self):
        return f"{self.page}:{self.line}: {self.text}"


class Page:
    def __init__(self, name, text):
        self.name, self.problems = name, []
        self.parts = []  # what is to be done, in order: ("command", Command) or (language, (line, text))
        self.prose = self.take_blocks(text.split("\n"))

    def take_blocks(self, lines):
        prose, i = [], 0
        while i < len(lines):
            opened = re.match(r"^( *)```(.*)$", lines[i])
            if not opened:
                if re.match(r"^    ", lines[i]) and LOOKS_LIKE_ONE.match(lines[i]):
                    self.problems.append(f"{self.name}:{i + 1}: a command outside of a block: {lines[i].strip()}")
                prose.append(lines[i])
                i += 1
                continue
            end = next((j for j in range(i + 1, len(lines)) if re.match(r"^ *```$", lines[j])), None)
            if end is None:
                self.problems.append(f"{self.name}:{i + 1}: a block without an end")
                return prose
            self.take_block(opened[2], i + 2, [line[len(opened[1]):] for line in lines[i + 1:end]])
            i = end + 1
        return prose

    def take_block(self, language, first, lines):
        if language == "":
            self.take_commands(first, lines)
        elif language == "console":
            for at, line in enumerate(lines, first):
                if line.startswith("$ "):
                    self.parts.append(("command", Command(self.name, at, line[2:])))
        elif language in OTHER:
            for at, line in enumerate(lines, first):
                if language in ("text", "ini") and LOOKS_LIKE_ONE.match(line):
                    self.problems.append(f"{self.name}:{at}: a command in a block of {language}: {line}")
            self.parts.append((language, (first, "\n".join(lines) + "\n")))
        else:
            self.problems.append(f"{self.name}:{first - 1}: what is a block of {language!r}?")

    def take_commands(self, first, lines):
        """A command goes on in the next line as long as the shell would ask for more."""
        held, begun = [], first
        for at, line in enumerate(lines, first):
            if not held:
                begun = at
            held.append(re.sub(r"(^|\s+)#(\s.*)?$", "", line))
            text = "\n".join(held)
            if not text.strip():
                held = []
            elif not text.endswith("\\") and is_whole(text):
                self.parts.append(("command", Command(self.name, begun, text)))
                held = []
        if held:
            self.problems.append(f"{self.name}:{begun}: the shell does not understand: {' / '.join(held)}")

    def mentioned(self):
        """Commands in the text itself: (line it begins in, words)."""
        text = "\n".join(self.prose)
        for found in re.finditer(r"`(reefd? [^`]+)`", text):
            yield re.sub(r"\s+", " ", found[1])

    def files(self):
        """Files of the checkout that the text names, as words of commands too."""
        for found in re.finditer(r"`([^`]+)`", "\n".join(self.prose)):
            for word in found[1].split():
                if re.fullmatch(r"(store|router|trainer|daemon|tools|tests|libreef|python|service|docs|cmake)(/[a-z_0-9.-]+)+", word):
                    yield word

    def links(self):
        for found in re.finditer(r"\]\(([^)\s]+)\)", "\n".join(self.prose)):
            yield found[1]

    def anchors(self):
        """Names of headings, as GitHub makes them."""
        for line in self.prose:
            if re.match(r"^#+ ", line):
                yield re.sub(r"[^\w\- ]", "", line.lstrip("# ").lower()).replace(" ", "-")


def is_whole(text):
    return subprocess.run(["bash", "-n", "-c", text], capture_output=True).returncode == 0
