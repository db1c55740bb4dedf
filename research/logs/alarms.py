"""Alarms as a person gets them, by their times in seconds: incidents of those that are near to each other, beside episodes
of labelled lines."""

import bisect
import dataclasses
import statistics


@dataclasses.dataclass
class Incident:
    first: float
    last: float
    alarms: list  # times


@dataclasses.dataclass
class Episode:
    category: str
    first: float
    last: float
    lines: list  # numbers, from 0


def incidents_of(alarms, gap):
    """Each alarm no more than the gap behind the one before it is of the same incident."""
    found = []
    for time in sorted(alarms):
        if found and time - found[-1].last <= gap:
            found[-1].last = time
            found[-1].alarms.append(time)
        else:
            found.append(Incident(time, time, [time]))
    return found


def episodes_of(times, labels, gap, first=0):
    """Runs of labelled lines from the number `first` on: lines of a category no more than the gap behind each other.
    times: of each line; labels: (0 or 1, category) of each."""
    found, latest = [], {}
    for i in range(first, len(times)):
        label, category = labels[i]
        if not label:
            continue
        episode = latest.get(category)
        if episode and times[i] - episode.last <= gap:
            episode.last = times[i]
            episode.lines.append(i)
        else:
            latest[category] = Episode(category, times[i], times[i], [i])
            found.append(latest[category])
    return found


def is_between(sorted_times, first, last):
    at = bisect.bisect_left(sorted_times, first)
    return at < len(sorted_times) and sorted_times[at] <= last


def covered(episodes, gap, first, last):
    """Share of the time from first to last in which an incident that begins is a hit."""
    total, end = 0.0, first
    for begin, until in sorted((max(first, one.first - gap), min(last, one.last)) for one in episodes):
        total += max(0.0, until - max(begin, end))
        end = max(end, until)
    return total / (last - first) if last > first else None


def judge(incidents, episodes, labelled, gap, days):
    """labelled: times of labelled lines in their order; days: that are judged, or None."""
    begins = sorted(one.first for one in incidents)
    alarms = sorted(time for one in incidents for time in one.alarms)
    hits, seconds = [], []
    for one in episodes:
        at = bisect.bisect_left(begins, one.first - gap)
        hits.append(at < len(begins) and begins[at] <= one.last)
        if hits[-1]:
            seconds.append(begins[at] - one.first)
    with_label = sum(is_between(labelled, one.first, one.last) for one in incidents)
    return {
        "alarms": len(alarms),
        "incidents": len(incidents),
        "incidents_a_day": len(incidents) / days if days and days >= 1 else None,
        "with_label": with_label,
        "share_with_label": with_label / len(incidents) if incidents else None,
        "episodes": len(episodes),
        "hit": sum(hits),
        "with_alarm": sum(is_between(alarms, one.first - gap, one.last) for one in episodes),
        "seconds": statistics.median(seconds) if seconds else None,
        "missed": [one.lines[0] + 1 for one, hit in zip(episodes, hits) if not hit],
    }
