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


def days(lines):
    """Days from the first to the last line that has a time; None where most have none that is known."""
    for pattern, seconds, daily in FORMS:
        some = lines[:LOOKED_AT]
        if not some or sum(bool(pattern.search(line)) for line in some) < SHARE * len(some):
            continue
        times = [seconds(found.groups()) for found in map(pattern.search, lines) if found]
        if not daily:
            return max(0.0, times[-1] - times[0]) / DAY
        # A clock that goes back by half a day or more has passed midnight.
        nights = sum(a - b > DAY / 2 for a, b in zip(times, times[1:]))
        return (times[-1] - times[0]) / DAY + nights
    return None
