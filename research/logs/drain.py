"""Templates of log lines by Drain (He, Zhu, Zheng, Lyu: "Drain: an online log parsing approach with fixed depth tree",
ICWS 2017), with the defaults of its usual program, Drain3: depth 4, similarity 0.4, at most 100 children of a node.

A line's group is looked for in a tree: first by its number of words, then by its first DEPTH - 2 words. Among the groups
of that leaf the one that shares most words in the same places takes the line, if it shares enough of them; places in
which the two differ become wild cards. Else the line begins a group.
"""

WILD = "<*>"
DEPTH = 4
SIMILAR = 0.4  # share of equal words from which a line belongs to a group
CHILDREN = 100


class Group:
    def __init__(self, words):
        self.words = list(words)
        self.lines = 0

    def likeness(self, words):
        """(share of words that are equal, number of wild cards): wild cards decide between equal shares."""
        equal = sum(a == b for a, b in zip(self.words, words))
        return equal / max(1, len(words)), sum(word == WILD for word in self.words)

    def take(self, words):
        self.lines += 1
        self.words = [a if a == b else WILD for a, b in zip(self.words, words)]


class Drain:
    def __init__(self):
        self.root = {}

    def leaf(self, words, grow):
        """The groups in a line's leaf. Where there is none, `grow` makes it; otherwise []."""
        node = self.root.setdefault(len(words), {}) if grow else self.root.get(len(words), {})
        for word in words[: DEPTH - 2]:
            step = self.step(node, word, grow)
            if step is None:
                return []
            node = node[step]
        return node.setdefault("", []) if grow else node.get("", [])

    def step(self, node, word, grow):
        """Which child a word leads to; words with digits, and those for which there is no room, are wild."""
        step = WILD if any(letter.isdigit() for letter in word) else word
        if step not in node and (not grow or len(node) >= CHILDREN):
            step = WILD
        if step not in node and not grow:
            return None
        node.setdefault(step, {})
        return step

    def group(self, words, grow=False):
        found = max(self.leaf(words, False), key=lambda group: group.likeness(words), default=None)
        if found and found.likeness(words)[0] >= SIMILAR:
            return found
        if not grow:
            return None
        self.leaf(words, True).append(Group(words))
        return self.leaf(words, True)[-1]

    def learn(self, words):
        self.group(words, grow=True).take(words)
