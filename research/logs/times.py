"""How much time passes in the lines of a log, where they say when they were written."""

import calendar
import re

DAY = 86400.0
MONTHS = {name: i for i, name in enumerate("Jan Feb Mar Apr May Jun Jul Aug Sep Oct Nov Dec".split())}


def clock(found):
    hours, minutes, seconds = found
    return 3600.0 * int(hours) + 60.0 * int(minutes) + float(seconds)


def date(year, month, day):
    return float(calendar.timegm((int(year), int(month), int(day), 0, 0, 0)))


# In this order: how a time looks, its seconds, and whether it begins again each day.
FORMS = [
    (re.compile(r"\b(1\d{9})\b"), lambda f: float(f[0]), False),  # seconds since 1970
    (re.compile(r"\b(\d{4})-(\d\d)-(\d\d)[T ](\d\d):(\d\d):(\d\d)"), lambda f: date(*f[:3]) + clock(f[3:]), False),
    (re.compile(r"^(\d\d)(\d\d)(\d\d) (\d\d)(\d\d)(\d\d)\b"),
     lambda f: date(2000 + int(f[0]), *f[1:3]) + clock(f[3:]), False),
    (re.compile(rf"\b({'|'.join(MONTHS)}) +(\d\d?) (\d\d):(\d\d):(\d\d)"),
     lambda f: date(2000, MONTHS[f[0]] + 1, f[1]) + clock(f[2:]), False),
    (re.compile(r"\b(\d\d):(\d\d):(\d\d(?:\.\d+)?)"), clock, True),
]
LOOKED_AT = 100  # lines that choose the form
SHARE = 0.9  # of them that must have it


def known_times(lines):
    """Seconds of each line, None of one that has no time; None where most lines have none that is known."""
    for pattern, seconds, daily in FORMS:
        some = lines[:LOOKED_AT]
        if not some or sum(bool(pattern.search(line)) for line in some) < SHARE * len(some):
            continue
        times = [found and seconds(found.groups()) for found in map(pattern.search, lines)]
        return with_nights(times) if daily else times
    return None


def with_nights(times):
    """A clock that goes back by half a day or more has passed midnight."""
    before, nights, found = None, 0, []
    for time in times:
        if time is not None:
            nights += before is not None and before - time > DAY / 2
            before = time
        found.append(None if time is None else time + nights * DAY)
    return found


def days(lines):
    """Days from the first to the last line that has a time; None where most have none that is known."""
    times = [time for time in known_times(lines) or [] if time is not None]
    return max(0.0, times[-1] - times[0]) / DAY if times else None


def line_times(lines):
    """Seconds of each line, which never go back: a line that is late, or has no time, is of the present one's. None
    where most lines have no time that is known."""
    times = known_times(lines)
    if times is None:
        return None
    now = next(time for time in times if time is not None)
    found = []
    for time in times:
        now = now if time is None else max(now, time)
        found.append(now)
    return found
