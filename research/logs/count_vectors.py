"""Sessions by how often they have each type of line: the distance to the nearest learned session, as in Landauer,
Skopik, Wurzenberger: "A critical review of common log data sets used for evaluation of sequence-based anomaly detection
techniques", FSE 2024 (event count vectors, weighted by inverse document frequency).

Two sessions are as far apart as their weighted counts differ, by L1, in parts of the most that they could: 0 is equal,
1 is nothing in common.
"""

import bisect
import collections
import math


def weights_of(sessions):
    """A function of a type: how rare it is. One that no session has is as one that one has."""
    found_in = collections.Counter(type_ for types in sessions for type_ in set(types))
    return lambda type_: math.log((len(sessions) + 1) / max(1, found_in[type_]))


def most_shared(a, b):
    """What vectors of these sums have in common at most, of what they have in all."""
    return min(a, b) / max(a, b) if max(a, b) > 0 else 1.0


class Nearest:
    """Weighted vectors, by their sums: how like two can be is known from those."""

    def __init__(self, vectors):
        self.vectors = sorted(vectors, key=lambda one: sum(one.values()))
        self.sums = [sum(one.values()) for one in self.vectors]

    def outward(self, total):
        """(how like it can be, its sum, a vector), those that can be most like first."""
        up = bisect.bisect_left(self.sums, total)
        down = up - 1
        while down >= 0 or up < len(self.sums):
            below = most_shared(total, self.sums[down]) if down >= 0 else -1.0
            above = most_shared(total, self.sums[up]) if up < len(self.sums) else -1.0
            at = down if below > above else up
            yield max(below, above), self.sums[at], self.vectors[at]
            if at == down:
                down -= 1
            else:
                up += 1

    def distance(self, vector, but=None):
        """To the nearest one, of those that are not the object `but`."""
        total, best = sum(vector.values()), 1.0
        for like, other_total, other in self.outward(total):
            if 1 - like >= best:
                break
            if other is but:
                continue
            shared = sum(min(value, other[type_]) for type_, value in vector.items() if type_ in other)
            union = total + other_total - shared
            best = min(best, 1 - shared / union if union > 0 else 0.0)
        return best


def count_vectors(learned, sessions):
    """Of sessions, each a list of types: (the largest distance of a learned one to the others, distances of the rest)."""
    weigh = weights_of(learned)

    def vector(types):
        return {type_: count * weigh(type_) for type_, count in collections.Counter(types).items()}

    # Equal ones are no distance apart, and are compared with others once.
    counts = collections.Counter(tuple(sorted(collections.Counter(types).items())) for types in learned)
    singles, vectors = [], []
    for counted, times in counts.items():
        one = {type_: count * weigh(type_) for type_, count in counted}
        vectors.append(one)
        singles += [one] if times == 1 else []
    nearest = Nearest(vectors)
    largest = max((nearest.distance(one, but=one) for one in singles), default=0.0)
    return largest, [nearest.distance(vector(types)) for types in sessions]
