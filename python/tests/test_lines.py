"""Lines of logs from Python: their figures, what rings among them, and what a person says of it."""

import datetime
import json
import math
import os
import subprocess

import pytest

import reef

WATCHING = dict(layers=1, d_model=16, attention_heads=2, context=16, batch=4, heads=2, topk=2, d_key=8, side=4,
                net_share=0, memory="4M", threads=1)
MIDNIGHT = datetime.datetime(2026, 11, 1, tzinfo=datetime.timezone.utc)


def tool(*words):
    """What a command of the tool says in JSON."""
    done = subprocess.run([os.environ["REEF_PROGRAM"], *map(str, words), "--json"], capture_output=True, text=True,
                          check=True)
    return done.stdout


def messages():
    """Five hours of a log: requests, and two faults. Pairs of seconds and messages."""
    for i in range(1800):
        if i == 700:
            yield 10 * i, "disk sda1 is full, error 28"
        if i == 1500:
            yield 10 * i, "replica is in doubt"
        yield 10 * i, f"request {i} of user{i * 7 % 13} took {i * 31 % 97} ms"
        if i % 4 == 3:
            yield 10 * i + 2, "replica is in sync"


def log():
    """The same as lines, with their times."""
    return [f"{(MIDNIGHT + datetime.timedelta(seconds=at)).isoformat()} web app[{at % 7}]: {said}\n".encode()
            for at, said in messages()]


def learned(path, **settings):
    """A pool that has learned the log."""
    with reef.create(path, **{**WATCHING, **settings}) as pool:
        pool.train(b"".join(log()), source="web")
        pool.commit()


# ---- figures of lines ----------------------------------------------------------------------------


def test_figures_of_lines_are_those_of_the_tool(tmp_path):
    learned(tmp_path / "pool")
    text = b"".join(log()[600:640]) + b"\nan odd line\0 of \xff\xfe bytes\nthe last one, without an end"
    (tmp_path / "text").write_bytes(text)
    for frozen, words in (False, ()), ("alone", ("--frozen",)):
        said = json.loads(tool("score", tmp_path / "pool", tmp_path / "text", "--top", 0, *words))
        with reef.open(tmp_path / "pool", frozen=frozen) as pool:
            lines = pool.score_lines(text)
        assert len(lines) == said["line_count"] == len(said["lines"]) == 43
        for line, other in zip(lines, said["lines"]):
            assert (line.line, line.offset, line.bytes) == (other["line"], other["offset"], other["bytes"])
            assert (line.bits, line.bits_per_byte, line.score) == (
                other["bits"], other["bits_per_byte"], other["score"])
        assert {line.line for line in sorted(lines, key=lambda line: line.score)[-3:]} == {41, 42, 43}
        assert {line.kind for line in lines} == {0}


def test_lines_may_come_one_by_one(tmp_path):
    learned(tmp_path / "pool")
    lines = log()[600:620]
    with reef.open(tmp_path / "pool") as pool:
        whole = pool.score_lines(b"".join(lines))
        (tmp_path / "text").write_bytes(b"".join(lines))
        with open(tmp_path / "text", "rb") as file:
            assert pool.score_lines(file) == whole
        assert pool.score_lines(line.rstrip(b"\n") for line in lines) == whole
        assert pool.score_lines([memoryview(line) for line in lines]) == whole
        assert pool.score_lines(bytearray().join(lines)) == whole
        assert [line.bytes for line in pool.score_lines([b"", b"a", b"\n"])] == [0, 1, 0]


def test_no_kind_answers_where_none_has_learned(tmp_path):
    with reef.create(tmp_path / "pool", **WATCHING) as pool:
        assert [line.kind for line in pool.score_lines(b"ab\ncd")] == [None, None]


def test_what_has_no_lines_is_refused(tmp_path):
    learned(tmp_path / "pool")
    with reef.open(tmp_path / "pool") as pool:
        for text in b"", b"a", [], iter(()), [b""]:
            with pytest.raises(reef.InvalidError, match="nothing to predict"):
                pool.score_lines(text)
        with pytest.raises(TypeError, match="encode the text"):
            pool.score_lines("text")
        with pytest.raises(TypeError, match="a line that is str"):
            pool.score_lines([b"a", "b"])
        with pytest.raises(TypeError, match="NoneType"):
            pool.score_lines(None)
        with pytest.raises(reef.InvalidError, match="line 2 has a newline within it"):
            pool.score_lines([b"a\n", b"b\nc"])
    with pytest.raises(reef.InvalidError, match="was closed"):
        pool.score_lines(b"some text")
    with pytest.raises(reef.MissingError, match="no pool"):
        reef.open(tmp_path / "none")
    with reef.create_layer(tmp_path / "layer", 7) as layer:
        assert not hasattr(layer, "score_lines")


# ---- incidents of a pool -------------------------------------------------------------------------


def test_incidents_are_those_of_the_tool(tmp_path):
    with reef.create(tmp_path / "pool", **WATCHING, watch=True) as pool:
        assert pool.incidents() == []
        pool.train(b"".join(log()), source="web")
        pool.commit()
        disk, replica = pool.incidents()
        assert (disk["incident"], disk["state"], disk["events"][0]["source"]) == (1, "ended", "web")
        assert "disk sda1 is full" in disk["title"] and "replica is in doubt" in replica["title"]
        assert pool.incidents(last=1) == [replica] and len(pool.incidents(9)) == 2
        assert pool.decide(1, "mute") == pool.decide(1, "mute", for_s=60) == 1
        assert pool.decide(2, "normal") == 1
        assert [found["decision"] for found in pool.incidents()] == ["mute", "normal"]
        told = [event for event in json.loads(tool("timeline", tmp_path / "pool"))["events"]
                if event["event"] == "incident_decided"]
        assert [event["for_s"] for event in told] == [7 * 86400, 60, 0]
    with reef.open(tmp_path / "pool") as pool:
        assert pool.incidents() == json.loads(tool("incident", tmp_path / "pool", "list"))["incidents"]
        with pytest.raises(reef.InvalidError, match="opened for reading"):
            pool.decide(1, "fault")


def test_mistakes_with_incidents_are_told(tmp_path):
    with reef.create(tmp_path / "pool", **WATCHING, watch=True) as pool:
        pool.train(b"".join(log()), source="web")
        for last in 0, -1, 2 ** 64:
            with pytest.raises(reef.InvalidError, match=f"last is {last}"):
                pool.incidents(last)
        for decision, for_s, words in (("usual", None, "usual"), ("mute", 0, "for_s 0"),
                                       ("mute", 10 ** 9, "for_s 10000"),
                                       ("mute", 2 ** 63, "for_s is"), ("fault", 5, "for_s 5"),
                                       ("normal\0", None, "NUL")):
            with pytest.raises(reef.InvalidError, match=words):
                pool.decide(1, decision, for_s)
        with pytest.raises(reef.MissingError, match="incident 7"):
            pool.decide(7, "normal")
        with pytest.raises(reef.InvalidError, match="incident is -1"):
            pool.decide(-1, "normal")
    for call in (lambda: pool.incidents(), lambda: pool.decide(1, "normal")):
        with pytest.raises(reef.InvalidError, match="was closed"):
            call()
    with reef.create(tmp_path / "plain", **WATCHING) as plain, reef.create_layer(tmp_path / "layer", 7) as layer:
        for other in plain, layer:
            with pytest.raises(reef.InvalidError, match="watches no lines"):
                other.incidents()
            with pytest.raises(reef.InvalidError, match="watches no lines"):
                other.decide(1, "normal")


# ---- without a pool ------------------------------------------------------------------------------


def judged(watch, lines, **words):
    """All incidents that a watch tells of."""
    return [found for line in lines for found in watch.line(line, **words)] + watch.finish()


def test_a_watch_tells_what_the_tool_does(tmp_path):
    (tmp_path / "web.log").write_bytes(b"".join(log()))
    *said, summary = map(json.loads, tool("watch", "--replay", tmp_path / "web.log").splitlines())
    with reef.Watch() as watch:
        told = judged(watch, log(), source=tmp_path / "web.log")
        counts = watch.counts
    assert [found["state"] for found in told] == ["open", "ended"] * 2
    for other in said:
        del other["event"]
        for event in other["events"]:
            assert event.pop("file") == event["source"]  # one that a watch without files cannot know
    assert [found for found in told if found["state"] == "ended"] == said
    assert (counts.lines, counts.usual, counts.rung, counts.types) == (
        summary["lines"], summary["usual"], summary["rung"], summary["types"])
    assert counts.lines == counts.usual + counts.in_events + counts.suppressed == len(log())


def test_times_may_be_given(tmp_path):
    told = []
    for give in (lambda at: MIDNIGHT + datetime.timedelta(seconds=at), lambda at: MIDNIGHT.timestamp() + at):
        watch = reef.Watch(near=MIDNIGHT)
        told.append([found for at, said in messages() for found in watch.line(said.encode(), "web", give(at))])
    assert told[0] == told[1]
    assert [found["first_time"] - MIDNIGHT.timestamp() for found in told[0]] == [7000, 7000, 15000, 15000]


def test_options_of_a_watch_are_the_tools(tmp_path):
    found = []
    (tmp_path / "web.log").write_bytes(b"".join(log()))
    for options, words in ((dict(gap_s=14400), ("--gap", "4h")), (dict(quiet_s=14400), ("--learn-until-quiet", "4h")),
                           (dict(budget=0.5), ("--budget", "0.5/day")), (dict(forget_days=1), ("--forget-after", "1d")),
                           (dict(since=MIDNIGHT + datetime.timedelta(hours=3)), ("--since", "2026-11-01T03:00:00Z"))):
        *said, _ = map(json.loads, tool("watch", "--replay", *words, tmp_path / "web.log").splitlines())
        told = judged(reef.Watch(**options), log(), source="web")
        assert [one["events"][0]["first_line"] for one in told if one["state"] == "ended"] == [
            one["events"][0]["first_line"] for one in said]
        found.append(len(said))
    assert found == [1, 0, 1, 2, 1]  # with the defaults 2


def test_lines_of_a_watch_are_any_bytes():
    watch = reef.Watch()
    for line in b"a\0b\0", b"\xff\xfe\n", bytearray(b"\xc3"), memoryview(b"some\r\n"), b"", b"\n":
        assert watch.line(line) == []
    assert watch.counts.lines == 4 and watch.finish() == []


def test_mistakes_with_a_watch_are_told():
    for wrong, words in ((dict(budget=-1), "budget"), (dict(budget=math.nan), "budget"),
                         (dict(gap_s=-1), "gap_s is -1"),
                         (dict(quiet_s=2 ** 32), "quiet_s is"), (dict(forget_days=-1), "forget_days"),
                         (dict(near=-5), "near is -5"), (dict(since=math.inf), "since is inf"),
                         (dict(since=1e14), "since_ms")):
        with pytest.raises(reef.InvalidError, match=words):
            reef.Watch(**wrong)
    with reef.Watch() as watch:
        with pytest.raises(TypeError, match="str"):
            watch.line("text")
        for wrong, words in ((dict(line=b"a\nb"), "newline behind byte 1"), (dict(line=b"a", source=""), "empty"),
                             (dict(line=b"a", source="a\0b"), "NUL"), (dict(line=b"a", time=-1), "time is -1"),
                             (dict(line=b"a", time=math.nan), "time is nan"), (dict(line=b"a", time=1e14), "9999")):
            with pytest.raises(reef.InvalidError, match=words):
                watch.line(**wrong)
        assert watch.counts.lines == 0
    for call in (lambda: watch.line(b"a"), watch.finish, lambda: watch.counts):
        with pytest.raises(reef.InvalidError, match="closed"):
            call()
    watch.close()
