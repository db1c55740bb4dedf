"""Scores of log lines without a model: how rare each line is beside those that were learned. No labels are read here."""

import collections
import math
import re

from drain import Drain

NEIGHBOURS_MAX = 2000  # different lines that a line is compared with, drawn evenly
RAREST = 4  # words of a line
VARIABLE = re.compile(r"0x[0-9a-fA-F]+|\b[0-9a-fA-F]{8,}\b|\d+")


def mask(line):
    """The line's template, as a first step of log parsers finds it: numbers and identifiers are `*`."""
    return VARIABLE.sub("*", line)


def template(learned, lines):
    """-log2 of the share of learned lines with the same template."""
    counts = collections.Counter(map(mask, learned))
    total = len(learned) + 1
    return [-math.log2((counts[mask(line)] + 1) / total) for line in lines]


def drain(learned, lines):
    """The same with Drain's templates, of lines whose numbers and identifiers are masked, as its users do."""
    parser = Drain()
    for line in learned:
        parser.learn(mask(line).split())
    groups = [parser.group(mask(line).split()) for line in lines]
    return [-math.log2(((group.lines if group else 0) + 1) / (len(learned) + 1)) for group in groups]


def plain_words(line):
    """Those with a letter and without digits."""
    return {word for word in line.split() if any(map(str.isalpha, word)) and not any(map(str.isdigit, word))}


def rare_words(learned, lines):
    """How rare a line's words are: the mean of -log2 of the share of learned lines that have one, of the 4 rarest."""
    counts = collections.Counter(word for line in learned for word in plain_words(line))
    scores = []
    for line in lines:
        rarities = [math.log2((len(learned) + 1) / (counts[word] + 1)) for word in plain_words(line)]
        scores.append(sum(sorted(rarities)[-RAREST:]) / RAREST)
    return scores


def trigrams(line):
    words = ["", "", *line.split()]
    return list(zip(words, words[1:], words[2:]))


def new_trigrams(learned, lines):
    """Share of the line's three words in a row that no learned line has (of system calls: Forrest et al. 1996)."""
    seen = {gram for line in learned for gram in trigrams(line)}
    scores = []
    for line in lines:
        grams = trigrams(line)
        scores.append(sum(gram not in seen for gram in grams) / max(1, len(grams)))
    return scores


def bag(words, weights):
    """A line's words as a vector of length 1, by tf-idf."""
    counts = collections.Counter(words)
    vector = {word: count * weights(word) for word, count in counts.items()}
    length = math.sqrt(sum(value * value for value in vector.values()))
    return {word: value / length for word, value in vector.items()} if length else {}


def neighbour(learned, lines):
    """1 less the cosine to the nearest learned line, on counts of words in templates weighted by tf-idf."""
    templates = list(dict.fromkeys(map(mask, learned)))
    found_in = collections.Counter(word for one in templates for word in set(one.split()))
    step = max(1, math.ceil(len(templates) / NEIGHBOURS_MAX))

    def weights(word):
        return math.log((len(templates) + 1) / (found_in[word] + 1)) + 1

    places = collections.defaultdict(list)
    for i, one in enumerate(templates[::step]):
        for word, value in bag(one.split(), weights).items():
            places[word].append((i, value))

    known = {}
    for one in dict.fromkeys(map(mask, lines)):
        cosines = collections.defaultdict(float)
        for word, value in bag(one.split(), weights).items():
            for i, other in places[word]:
                cosines[i] += value * other
        known[one] = 1 - max(cosines.values(), default=0.0)
    return [known[mask(line)] for line in lines]


BASELINES = {
    "template": template,
    "Drain": drain,
    "words": rare_words,
    "trigrams": new_trigrams,
    "neighbour": neighbour,
}
