"""What scores of lines are worth, once their labels are known."""


def by_threshold(scores, labels):
    """(threshold, lines at or above it, those of them with label 1), from the highest score on."""
    order = sorted(range(len(scores)), key=lambda i: -scores[i])
    alarms = hits = 0
    for place, i in enumerate(order):
        alarms += 1
        hits += labels[i]
        # Lines of the same score are alarms together.
        if place + 1 == len(order) or scores[order[place + 1]] != scores[i]:
            yield scores[i], alarms, hits


def average_precision(scores, labels):
    """Area under precision-recall, as a sum over steps of recall (no interpolation)."""
    positives, area, before = sum(labels), 0.0, 0
    for _, alarms, hits in by_threshold(scores, labels):
        area += (hits - before) * hits / alarms
        before = hits
    return area / positives if positives else None


def f1(alarms, hits, positives):
    return 2 * hits / (alarms + positives) if alarms + positives else 0.0


def best_f1(scores, labels):
    positives = sum(labels)
    return max((f1(alarms, hits, positives) for _, alarms, hits in by_threshold(scores, labels)), default=0.0)


def threshold_of(scores, share):
    """Above it lies at most this share of `scores`, those of learned lines."""
    order = sorted(scores, reverse=True)
    return order[min(len(order) - 1, int(share * len(order)))] if order else float("inf")


def at_threshold(scores, labels, threshold):
    alarms = [i for i, score in enumerate(scores) if score > threshold]
    hits = sum(labels[i] for i in alarms)
    return {"alarms": len(alarms), "hits": hits, "f1": f1(len(alarms), hits, sum(labels))}
