"""Tables of docs/RESULTS.md that one program measures as a whole, not in cells: what is run, kept and shown.

Each has what is asked, files whose content belongs to that, and pictures: what the program leaves in its folder, and
what that is called in docs/img. A program that is run with several files gives a document of each.

docs/results/NAME.json has the program's JSON document with what made it: a hash of what was asked, the version of reef,
the machine and the date. The table is made of that file alone.
"""

import datetime
import hashlib
import json
import os
import pathlib
import platform
import subprocess
import sys
import textwrap

ROOT = pathlib.Path(__file__).resolve().parents[2]
BENCH = ROOT / "tools" / "bench"
sys.path += [str(BENCH / "front"), str(BENCH / "kinds"), str(BENCH / "logs")]
import front_table  # noqa: E402
import kinds_tables  # noqa: E402
import log_tables  # noqa: E402

LOGS = {
    "adfa-ld": "ADFA-LD",
    "hdfs-2k": "HDFS",
    "nezha-trainticket": "TrainTicket",
    "thunderbird-1h": "Thunderbird",
}


class Sizes:
    """Bits a byte over speed."""

    asked = "tools/bench/front/run --data DIR/text"
    settings = (BENCH / "front" / "points.ini",)
    pictures = {"front.svg": "front.svg"}

    def commands(self, data, reef, out):
        yield "sizes", [BENCH / "front" / "run", "--data", data / "text", "--reef", reef, "--out", out, "--json"]

    def lines(self, document):
        return front_table.table(document).splitlines()


class Logs:
    """Abnormal lines of labelled logs."""

    asked = "tools/bench/logs/run DIR/logs-labelled/*"
    settings = ()
    pictures = {}

    def commands(self, data, reef, out):
        folders = [data / "logs-labelled" / name for name in LOGS]
        yield "logs", [BENCH / "logs" / "run", *folders, "--reef", reef, "--json"]

    def lines(self, document):
        logs = [log | {"log": LOGS[log["log"]]} for log in document["logs"]]
        of_all = log_tables.area_rows(logs), [log_tables.verdict(logs)], log_tables.alarm_rows(logs), log_tables.rate_rows(logs)
        return [line for lines in of_all for line in (*lines, "")][:-1]


def wrapped(text):
    return textwrap.wrap(text, 116, break_on_hyphens=False)


class Kinds:
    """Streams of kinds of text: files of tools/bench/kinds by their names."""

    pictures = {}

    def __init__(self, *names):
        self.names = names
        file = names[0] if len(names) == 1 else "FILE"
        self.asked = f"tools/bench/kinds/run tools/bench/kinds/{file}.ini --data DIR"
        self.settings = [BENCH / "kinds" / f"{name}.ini" for name in names]

    def commands(self, data, reef, out):
        for name, file in zip(self.names, self.settings):
            yield name, [BENCH / "kinds" / "run", file, "--data", data, "--out", out / name, "--reef", reef, "--json"]

    def lines(self, document):
        rows, said = kinds_tables.stream_lines(document)
        return [*rows, "", *wrapped(said)]


class Pieces(Kinds):
    """Held-out pieces of what six kinds learned."""

    def lines(self, document):
        return kinds_tables.piece_lines(document["six"]["pieces"])


class Many(Kinds):
    """Many kinds in one stream."""

    pictures = {"many/folder.svg": "many-kinds.svg"}

    def lines(self, document):
        return kinds_tables.many_lines(document["folder"]["counts"])


PROGRAMS = {
    "sizes": Sizes(),
    "logs": Logs(),
    "kinds": Kinds("turns", "visits", "drift", "lines"),
    "pieces": Pieces("pieces"),
    "many": Many("many"),
}


def settings_key(name):
    """Of what is asked of the program."""
    of = PROGRAMS[name]
    said = of.asked.encode() + b"".join(path.read_bytes() for path in of.settings)
    return hashlib.sha256(said).hexdigest()[:16]


def measure(name, data, reef, out):
    """The record of a run. The program's progress goes to standard error."""
    environment = {k: v for k, v in os.environ.items() if k not in ("OPENBLAS_CORETYPE", "OPENBLAS_L2_SIZE")}
    documents = {}
    for part, command in PROGRAMS[name].commands(pathlib.Path(data).resolve(), reef, out):
        argv = [str(word) for word in command]
        done = subprocess.run(argv, stdout=subprocess.PIPE, text=True, env=environment, check=True)
        documents[part] = json.loads(done.stdout)
    version = json.loads(subprocess.run([reef, "version", "--json"], stdout=subprocess.PIPE, text=True, check=True).stdout)
    return {
        "command": f"tools/results --only {name} --data DIR",
        "settings": settings_key(name),
        "program": version["version"],
        "machine": f"{platform.machine()} with {os.cpu_count()} cores, {version['kernels']} kernels",
        "date": datetime.date.today().isoformat(),
        "document": documents if len(documents) > 1 else documents.popitem()[1],
    }


def state(name, record, version):
    """What is wrong with a record, or ""."""
    if record is None:
        return "not run"
    if record["settings"] != settings_key(name):
        return "other settings"
    return "" if record["program"] == version else f"reef {record['program']}"


def block(name, record, version):
    """What stands between the comments of its table."""
    command = f"`tools/results --only {name} --data DIR`"
    if record is None:
        return [f"Not run yet: {command}."]
    wrong = state(name, record, version)
    text = f"{command} runs `{PROGRAMS[name].asked}`. Measured on {record['machine']}, {record['date']}."
    if wrong:
        text += f" Measured with {wrong}."
    return [*wrapped(text), "", *PROGRAMS[name].lines(record["document"])]
