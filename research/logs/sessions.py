"""Sessions of a log: lines that share an id, scored by their worst lines, as `reef score --session` does."""

import re

WORST = 5  # as SESSION_WORST of tools/cmd/score/score_parts.h


def sessions(lines, pattern):
    """Numbers of the lines of each session, by its id; lines without one are left out."""
    found, pattern = {}, re.compile(pattern)
    for i, line in enumerate(lines):
        match = pattern.search(line)
        id_ = match and match[1 if pattern.groups else 0]
        if id_:
            found.setdefault(id_, []).append(i)
    return list(found.values())


def session_scores(groups, scores):
    """Of each session the mean of its highest scores."""
    worst = [sorted((scores[i] for i in group), reverse=True)[:WORST] for group in groups]
    return [sum(some) / len(some) for some in worst]


def session_labels(groups, labels):
    """1 where one of its lines is labelled."""
    return [max(labels[i] for i in group) for group in groups]
