"""Pools from Python: what is computed is the library's; here is that it arrives, and that mistakes are reported."""

import datetime
import gc
import io
import os
import subprocess
import sys
import time

import numpy as np
import pytest

import reef

SMALL = dict(layers=1, d_model=16, attention_heads=2, context=16, batch=2, heads=2, topk=2, d_key=8,
             side=4, boundaries="given", memory=0,
             threads=1)
LAYER = dict(heads=2, topk=3, d_key=6, side=5, seed=3, learning_rate=0.01, threads=1)
TEXT = b"the reef grows over what it was. " * 100


def rows(seed, count=75):
    return np.random.default_rng(seed).uniform(-1, 1, (count, 7)).astype(np.float32)


def train(layer, tape, seed, steps=1):
    """Learn to negate rows; the loss before the last step."""
    for step in range(steps):
        x = rows(1000 * seed + step)
        y = layer.forward(x, train=True, tape=tape)
        layer.backward(tape, x, (y + x) / len(x))
        layer.step()
    return float(((y + x) ** 2).mean())


# ---- models of bytes -----------------------------------------------------------------------------


def test_a_model_learns_from_an_iterator_and_keeps_what_was_sealed(tmp_path):
    with reef.create(tmp_path / "pool", **SMALL) as pool:
        before = pool.evaluate(TEXT[:500])
        assert before.bytes == 499 and before.bits_per_byte == pytest.approx(before.bits / 499)
        chunks = (TEXT[at:at + 97] for at in range(0, len(TEXT), 97))
        training = pool.train(chunks, source="text")
        assert pool.cursor("text") == len(TEXT)
        assert training.position > 0 and training.position + training.waiting == len(TEXT)
        assert 0 < training.bits_per_byte < 9
        pool.seal()
        after = pool.evaluate(TEXT[:500], surprise=True)
        assert after.bits_per_byte < before.bits_per_byte - 1
        assert after.surprise.shape == (500,) and after.surprise[1:].sum() == pytest.approx(after.bits, rel=1e-4)
        pool.train(io.BytesIO(b"0123456789\n" * 200), source="digits")
        pool.commit()
        with reef.open(tmp_path / "pool", as_of=0) as then:
            assert np.array_equal(then.evaluate(TEXT[:500], surprise=True).surprise, after.surprise)
        assert [g.sealed for g in pool.generations] == [True, False]


def test_frozen_context_memories_do_not_adapt_and_find_what_a_text_said(tmp_path):
    text = b"Q%7 never seen before, " * 12
    with reef.create(tmp_path / "pool", **{**SMALL, "memory": "4M"}) as pool:
        pool.train(TEXT)
        pool.commit()
        adapts = pool.evaluate(text).bits
    with reef.open(tmp_path / "pool") as pool, reef.open(tmp_path / "pool", frozen=True) as frozen, \
            reef.open(tmp_path / "pool", frozen="alone") as alone:
        assert pool.evaluate(text).bits == adapts < frozen.evaluate(text).bits < alone.evaluate(text).bits
        assert pool.evaluate(text).bits == adapts
        assert len(frozen.generate(b"Q%7 ", 20)) == 20
    for wrong in "yes", 2, None:
        with pytest.raises(reef.InvalidError, match="frozen"):
            reef.open(tmp_path / "pool", frozen=wrong)


def test_how_the_stream_is_cut_changes_nothing(tmp_path):
    surprise = []
    for name, size in ("whole", len(TEXT)), ("cut", 13):
        with reef.create(tmp_path / name, **SMALL) as pool:
            pool.train(bytearray(TEXT[at:at + size]) for at in range(0, len(TEXT), size))
            surprise.append(pool.evaluate(TEXT[:300], surprise=True).surprise)
    assert np.array_equal(*surprise)


def test_usage_and_snapshots_are_read(tmp_path):
    with reef.create(tmp_path / "pool", **SMALL) as pool:
        pool.train(TEXT)
        pool.snapshot("b")
        pool.snapshot("a")
        counts, scores = pool.usage(0)
        assert counts.dtype == np.uint64 and counts.shape == (16,)
        assert counts.sum() == pool.info.position * 2 * 2
        assert scores.sum() == pytest.approx(pool.info.position * 2, rel=0.01)
        assert [(s.name, s.step) for s in pool.snapshots] == [("a", pool.info.step), ("b", pool.info.step)]
        assert pool.info.model == "lm" and pool.info.writing


CONTEXTS = {**SMALL, **dict(memory="4M", net_share=0, boundaries="contexts")}


def kinds_of_text():
    """Text of two kinds: letters, and digits."""
    rng = np.random.default_rng(1)

    def text(letters):
        choices = [bytes(rng.permutation(np.frombuffer(letters, np.uint8))[:4]) for _ in range(40)]
        return b" ".join(choices[i] for i in rng.integers(0, 40, 3000))

    return text(b"abcdefgh"), text(b"01234567")


def test_kinds_are_listed_and_named(tmp_path):
    first, second = kinds_of_text()
    with reef.create(tmp_path / "pool", **CONTEXTS) as pool:
        pool.train(first + second + first)
        pool.commit()
        kinds = pool.kinds
        assert [(k.kind, k.visits, k.open, k.learning) for k in kinds] == [(0, 2, False, True), (1, 1, True, False)]
        assert kinds[0].learned_bytes > 1.5 * kinds[1].learned_bytes and kinds[0].last_loss < kinds[0].first_loss
        assert 0 < kinds[0].began_ms <= kinds[1].began_ms and abs(kinds[1].began_ms / 1000 - time.time()) < 600
        pool.name_kind(1, "digits")
        assert [k.name for k in pool.kinds] == ["", "digits"]
        with pytest.raises(reef.InvalidError, match="called digits already"):
            pool.name_kind(0, "digits")
        with pytest.raises(reef.MissingError):
            pool.name_kind(2, "more")
        pool.name_kind(1, None)
        assert pool.kinds[1].name == ""


def test_visits_and_answers_are_those_of_the_state(tmp_path):
    first, second = kinds_of_text()
    with reef.create(tmp_path / "pool", **CONTEXTS) as pool:
        pool.train(first + second)
        pool.snapshot("then")
        pool.train(first)
        pool.commit()
        begin, again = pool.visits(0)
        (other,) = pool.visits(1)
        assert begin.begin == 0 and begin.end == other.begin and other.end == again.begin
        assert [v.visits for v in (begin, other, again)] == [1, 1, 1]
        assert begin.learned_bytes == begin.end and again.loss < begin.loss == pool.kinds[0].first_loss
        with pytest.raises(reef.MissingError, match="no kind 2"):
            pool.visits(2)
        with pytest.raises(reef.InvalidError):
            pool.visits(-1)

        text = second[6000:6600] + first[6000:6600]
        answers = pool.answers(text)
        assert answers.kinds.shape == answers.weights.shape == (1200, 8)
        assert (answers.kinds[:600, 0] == 1).mean() > 0.9 and (answers.kinds[600:, 0] == 0).mean() > 0.9
        assert np.allclose(answers.weights.sum(axis=1), 1, atol=1e-5) and (answers.kinds[:, 2:] == -1).all()
        assert abs(sum(answers.shares.values()) - 1) < 1e-4 and set(answers.shares) == {0, 1}
        one = pool.answers(text, candidates=1)
        assert (one.kinds == answers.kinds[:, :1]).all() and (one.weights == answers.weights[:, :1]).all()
        for wrong in (0, 9, -1):
            with pytest.raises(reef.InvalidError):
                pool.answers(first, candidates=wrong)
        with reef.open(tmp_path / "pool", as_of="then") as then:
            assert len(then.visits(0)) == 1 and len(then.kinds) == 2
        with reef.open(tmp_path / "pool", as_of=0) as then:
            assert len(then.kinds) == 1 and then.answers(text).shares == {0: 1.0}
            with pytest.raises(reef.MissingError):
                then.visits(1)
    with reef.create(tmp_path / "none", **SMALL) as pool:
        pool.train(first)
        pool.commit()
        assert pool.visits(0) == []
        with pytest.raises(reef.InvalidError, match="no context memories"):
            pool.answers(first)


def test_old_states_are_given_up(tmp_path):
    first, second = kinds_of_text()
    with reef.create(tmp_path / "pool", **CONTEXTS) as pool:
        pool.train(first + second + first.upper())
        pool.seal()
        would = pool.prune(1, dry_run=True)
        assert pool.prune(1) == would and pool.prune(1).states == 0
        with pytest.raises(reef.InvalidError):
            pool.prune(0)
    with reef.open(tmp_path / "pool") as reader, pytest.raises(reef.InvalidError, match="opened for reading"):
        reader.prune(1)


def test_a_text_goes_on(tmp_path):
    with reef.create(tmp_path / "pool", **SMALL) as pool:
        pool.train(b"abcd" * 3000)
        assert pool.generate(b"abcdab", 8) == b"cdabcdab"
        hot = [pool.generate(count=40, seed=seed, temperature=3.0) for seed in (5, 5, 6)]
        assert len(hot[0]) == 40 and hot[0] == hot[1] != hot[2]


def test_a_text_becomes_an_archive_and_comes_back(tmp_path):
    text, told = TEXT[7:2007] * 10, []
    with reef.create(tmp_path / "pool", **{**SMALL, "memory": "4M"}) as pool:
        pool.train(TEXT * 3)
        pool.snapshot("kept")
        archive = pool.compress(text, piece_bytes=4096, progress=lambda done, total: told.append((done, total)))
        facts = reef.archive_facts(archive)
        assert (facts.state, facts.snapshot, facts.text_bytes, facts.pieces) == ("kept", True, len(text), 5)
        assert facts.archive_bytes == len(archive) < len(text) / 4
        assert told[-1] == (len(text), len(text)) and told == sorted(told)
        pool.train(b"something else that is learned later" * 100)
        pool.seal()
        assert pool.expand(archive) == text
        assert pool.expand(archive, 4090, 4100) == text[4090:4100]
        assert pool.expand(archive, 19990) == text[19990:]
        assert pool.expand(archive, progress=lambda done, total: told.clear()) == text and not told
        assert pool.expand(pool.compress(b"")) == b""
        (tmp_path / "text").write_bytes(text)
        made = pool.compress_file(tmp_path / "text", tmp_path / "text.reef", as_of="kept", piece_bytes=4096)
        assert made == facts and (tmp_path / "text.reef").read_bytes() == archive
    with reef.open(tmp_path / "pool", as_of="kept") as pool:
        assert pool.compress(text, piece_bytes=4096) == archive
        with pytest.raises(reef.InvalidError, match="exists"):
            pool.expand_file(tmp_path / "text.reef", tmp_path / "text")
        (tmp_path / "text").write_bytes(b"mine")
        assert pool.expand_file(tmp_path / "text.reef", tmp_path / "text", replace=True) == facts
        assert (tmp_path / "text").read_bytes() == text


def test_mistakes_with_archives_are_told(tmp_path):
    def stop(done, total):
        raise KeyboardInterrupt

    with reef.create(tmp_path / "pool", **{**SMALL, "memory": "4M"}) as pool:
        pool.train(TEXT)
        with pytest.raises(reef.InvalidError, match="keeps no state for ever"):
            pool.compress(TEXT)
        pool.snapshot("kept")
        archive = pool.compress(TEXT)
        with pytest.raises(KeyboardInterrupt):
            pool.compress(TEXT, progress=stop)
        (tmp_path / "file").write_bytes(archive)
        with pytest.raises(KeyboardInterrupt):
            pool.expand_file(tmp_path / "file", tmp_path / "out", progress=stop)
        assert not (tmp_path / "out").exists()
        with pytest.raises(reef.MissingError, match="nowhere"):
            pool.compress(TEXT, as_of="nowhere")
        with pytest.raises(reef.MissingError, match="cannot open"):
            pool.compress_file(tmp_path / "none", tmp_path / "out")
        for begin, end in ((0, len(TEXT) + 1), (5, 4), (len(TEXT) + 9, None)):
            with pytest.raises(reef.InvalidError, match="no range of a text"):
                pool.expand(archive, begin, end)
        with pytest.raises(reef.InvalidError, match="begin is -1"):
            pool.expand(archive, -1)
        with pytest.raises(reef.CorruptError, match="cut off"):
            pool.expand(archive[:-1])
        with pytest.raises(reef.InvalidError, match="no archive"):
            reef.archive_facts(TEXT)
        newer = archive[:8] + b"\x02" + archive[9:]
        with pytest.raises(reef.VersionError, match="newer"):
            pool.expand(newer)
        pool.remove_snapshot("kept")
        pool.train(TEXT)
        pool.commit()
        with pytest.raises(reef.MissingError, match="snapshot 'kept'"):
            pool.expand(archive)
    with reef.create(tmp_path / "plain", **SMALL) as pool:
        pool.train(TEXT)
        with pytest.raises(reef.InvalidError, match="memory"):
            pool.compress(TEXT)


def test_usage_in_a_range_of_time(tmp_path):
    with reef.create(tmp_path / "pool", **SMALL) as pool:
        pool.train(TEXT)
        pool.commit()
        now = datetime.datetime.now()
        ever, recent = pool.usage(0), pool.usage(0, since=now - datetime.timedelta(hours=1))
        assert ever[0].sum() > 0 and all(np.array_equal(a, b) for a, b in zip(ever, recent))
        assert not pool.usage(0, until=now - datetime.timedelta(days=1))[0].any()
        assert not pool.usage(0, since=now.timestamp() + 3600)[0].any()
        with pytest.raises(reef.InvalidError, match="nothing in it"):
            pool.usage(0, since=5, until=5)


def test_snapshots_go(tmp_path):
    with reef.create(tmp_path / "pool", **SMALL) as pool:
        pool.train(TEXT)
        pool.snapshot("a")
        pool.snapshot("b")
        pool.remove_snapshot("a")
        assert [s.name for s in pool.snapshots] == ["b"]
        with pytest.raises(reef.MissingError):
            pool.remove_snapshot("a")


def test_mistakes_with_models_are_told(tmp_path):
    with pytest.raises(reef.MissingError, match="no pool"):
        reef.open(tmp_path / "none")
    with pytest.raises(ValueError, match="did you mean d_model"):
        reef.create(tmp_path / "pool", d_modle=16)
    with reef.create(tmp_path / "pool", **SMALL) as pool:
        with pytest.raises(TypeError, match="encode"):
            pool.train("text")
        with pytest.raises(TypeError, match="chunk that is int"):
            pool.train([1])
        with pytest.raises(TypeError, match="NoneType"):
            pool.train(None)
        with pytest.raises(reef.MissingError):
            pool.usage(0, layer=3)
        with reef.open(tmp_path / "pool") as reader, pytest.raises(reef.InvalidError, match="opened for reading"):
            reader.train(b"text")
        code = "import sys, reef; reef.open(sys.argv[1], write=True)"
        other = subprocess.run([sys.executable, "-c", code, str(tmp_path / "pool")], capture_output=True, text=True,
                               check=False)
        assert other.returncode == 1 and "BusyError" in other.stderr
    with pytest.raises(reef.InvalidError, match="closed"):
        pool.commit()
    assert issubclass(reef.PoolMemoryError, MemoryError) and issubclass(reef.PoolOSError, OSError)


def test_a_library_that_is_named_is_the_one_or_none(tmp_path):
    (tmp_path / "libreef.so.0").symlink_to(os.path.realpath(os.environ["REEF_LIBRARY"]))
    for name in ("", str(tmp_path / "other.so")):
        done = subprocess.run([sys.executable, "-c", "import reef"], capture_output=True, text=True, check=False,
                              env={**os.environ, "LD_LIBRARY_PATH": str(tmp_path), "REEF_LIBRARY": name})
        assert (done.returncode == 0) == (name == ""), done.stderr
    assert "libreef was not found" in done.stderr and "other.so" in done.stderr


FORKED = """
import os, sys, reef
pool = reef.open(sys.argv[1], write=True, threads=2)
if os.fork() == 0:
    try:
        pool.commit()
    except reef.InvalidError as error:
        assert "forked" in str(error), error
        with reef.open(sys.argv[1]) as own:
            print(own.info.commit)
    sys.exit(0)  # as any program ends: the copy of the pool is closed too
print(os.waitstatus_to_exitcode(os.wait()[1]))
"""


def test_a_forked_child_opens_the_pool_itself(tmp_path):
    reef.create(tmp_path / "pool", **SMALL).close()
    done = subprocess.run([sys.executable, "-c", FORKED, str(tmp_path / "pool")], capture_output=True, text=True,
                          timeout=60, check=True)
    assert done.stdout.split() == ["1", "0"], done.stderr


# A call that takes some seconds, however fast the machine is.
LONG_CALL = """
import time
def long_call(pool):
    text = b"the reef grows over what it was. " * 100
    began = time.monotonic()
    pool.train(text)
    return text * (1 + int(4 / (time.monotonic() - began)))
"""

ENDED = LONG_CALL + """
import atexit, sys, threading
def at_last():  # after what was registered later
    with reef.open(path, write=True) as again:  # the last call has closed it
        print(again.info.position)
atexit.register(at_last)
import reef
path, way = sys.argv[1:]
pool, told = reef.open(path, write=True, threads=1), []
text = long_call(pool)
def work():
    try:
        pool.train(text)
    except reef.InvalidError as error:
        told.append(str(error))
worker = threading.Thread(target=work, daemon=way == "exit")
worker.start()
time.sleep(0.3)
if way == "close":
    pool.close()
    pool.close()
elif way == "with":
    try:
        with pool:
            raise KeyboardInterrupt
    except KeyboardInterrupt:
        pass
assert worker.is_alive()
if way != "exit":
    try:
        sys.exit(f"not told: {pool.info}")
    except reef.InvalidError as error:
        assert "was closed" in str(error) and "closed" in repr(pool)
    worker.join()
    assert len(told) == 1 and "was closed" in told[0], told
"""


@pytest.mark.parametrize("way", ["close", "with", "exit"])
def test_a_pool_that_is_closed_while_a_call_runs_ends_after_it(tmp_path, way):
    reef.create(tmp_path / "pool", **SMALL).close()
    done = subprocess.run([sys.executable, "-c", ENDED, str(tmp_path / "pool"), way], capture_output=True, text=True,
                          timeout=120, check=False)
    assert (done.returncode, done.stdout) == (0, "0\n"), done.stderr


FORKED_MEANWHILE = LONG_CALL + """
import os, sys, threading, reef
pool = reef.open(sys.argv[1], write=True, threads=1)
worker = threading.Thread(target=pool.train, args=(long_call(pool),))
worker.start()
time.sleep(0.2)
if os.fork() == 0:
    pool.close()
    sys.exit(0)  # no call of the parent's ever ends here
print(os.waitstatus_to_exitcode(os.wait()[1]), worker.is_alive())
"""


def test_a_child_that_is_forked_while_a_call_runs_ends_by_itself(tmp_path):
    reef.create(tmp_path / "pool", **SMALL).close()
    done = subprocess.run([sys.executable, "-c", FORKED_MEANWHILE, str(tmp_path / "pool")], capture_output=True,
                          text=True, timeout=120, check=True)
    assert done.stdout.split() == ["0", "True"], done.stderr


def test_text_with_a_nul_is_refused_and_not_cut(tmp_path):
    with reef.create(tmp_path / "pool", **SMALL) as pool:
        pool.train(TEXT, source="a")
        pool.snapshot("a")
        for call in (lambda: pool.remove_snapshot("a\0b"), lambda: pool.snapshot("b\0a"), lambda: pool.cursor("a\0b"),
                     lambda: pool.train(TEXT, source="a\0b"), lambda: reef.open(f"{tmp_path}/pool\0b"),
                     lambda: reef.open(tmp_path / "pool", as_of="a\0b"),
                     lambda: reef.create(f"{tmp_path}/other\0b", **SMALL), lambda: reef.create_layer(b"other\0b", 7),
                     lambda: reef.create(tmp_path / "other", **{**SMALL, "boundaries": "given\0b"}),
                     lambda: reef.create_layer(tmp_path / "other", 7, expert="glu\0b")):
            with pytest.raises(reef.InvalidError, match="NUL"):
                call()
        assert pool.cursor("a") == len(TEXT) and [s.name for s in pool.snapshots] == ["a"]
    with reef.create_layer(tmp_path / "layer", 7, **LAYER) as layer:
        for call in (lambda: layer.read("bn_var\0b"), lambda: layer.gradient("bn_scale\0b"),
                     lambda: layer.write("bn_var\0b", layer.read("bn_var"))):
            with pytest.raises(reef.InvalidError, match="NUL"):
                call()
    assert sorted(entry.name for entry in tmp_path.iterdir()) == ["layer", "pool"]


def test_integers_that_do_not_fit_are_refused_and_not_wrapped(tmp_path):
    wide = 2 ** 32
    with reef.create(tmp_path / "pool", **SMALL) as pool:
        pool.train(TEXT)
        pool.commit()
        for call in (lambda: pool.seal(wide), lambda: pool.grow(wide + 5), lambda: pool.usage(wide),
                     lambda: pool.usage(-wide), lambda: pool.usage(0, layer=wide), lambda: pool.usage(0, until=1e20),
                     lambda: pool.freeze(layer=wide), lambda: pool.freeze(layer=-wide), lambda: pool.freeze(count=-1),
                     lambda: pool.freeze(first=2 ** 64), lambda: pool.generate(seed=-1),
                     lambda: reef.open(tmp_path / "pool", memory_bytes=-1),
                     lambda: reef.open(tmp_path / "pool", threads=wide),
                     lambda: reef.create_layer(tmp_path / "layer", wide + 7),
                     lambda: reef.create_layer(tmp_path / "layer", 7, experts_max=-1),
                     lambda: reef.create_layer(tmp_path / "layer", 7, threads=-1),
                     lambda: reef.create(tmp_path / "layer", **{**SMALL, "threads": wide})):
            with pytest.raises(reef.InvalidError, match=r" is -?\d+; it must be from "):
                call()
        assert pool.thaw() == 0 and len(pool.generations) == 1
    with reef.create_layer(tmp_path / "layer", 7, **LAYER) as layer:
        for call in (lambda: layer.forward(rows(1), generations=wide), lambda: layer.forward(rows(1), generations=-1),
                     lambda: layer.read("w_up", wide)):
            with pytest.raises(reef.InvalidError, match="generation"):
                call()
        with pytest.raises(TypeError):
            layer.grow(6.5)
        layer.grow(np.int64(6))
        assert layer.generations[0].side == 6


# ---- one layer -----------------------------------------------------------------------------------


def test_a_layer_learns_seals_and_keeps(tmp_path):
    x = rows(9)
    with reef.create_layer(tmp_path / "pool", 7, **LAYER) as layer:
        tape = reef.Tape()
        first = train(layer, tape, 1)
        assert train(layer, tape, 1, 100) < first / 2
        sealed = layer.forward(x)
        layer.seal()
        assert np.array_equal(layer.forward(x), sealed)
        train(layer, tape, 2, 20)
        layer.snapshot("later")
        later = layer.forward(x)
        assert not np.array_equal(later, sealed)
        assert np.array_equal(layer.forward(x, generations=1), sealed)
        mask = np.ones((2, len(x)), bool)
        mask[1, ::2] = False
        mixed = layer.forward(x, mask=mask)
        assert np.array_equal(mixed[::2], sealed[::2]) and np.array_equal(mixed[1::2], later[1::2])
        assert [g.experts for g in layer.generations] == [25, 25]
        assert layer.usage(1)[0].sum() == 20 * 75 * 2 * 3
    for state, expected in (0, sealed), ("later", later), (None, later):
        with reef.open(tmp_path / "pool", as_of=state) as layer:
            assert np.array_equal(layer.forward(x), expected)


def test_frozen_experts_stay_as_they_are(tmp_path):
    with reef.create_layer(tmp_path / "pool", 7, **LAYER) as layer:
        tape = reef.Tape()
        train(layer, tape, 1)
        assert layer.freeze(first=5, count=10) == 10
        before = layer.read("w_up"), layer.read("w_down")
        train(layer, tape, 2, 20)
        after = layer.read("w_up"), layer.read("w_down")
        for old, new in zip(before, after):
            same = (old == new).all(axis=1)
            assert same[5:15].all() and not same[:5].all() and not same[15:].all()
        assert layer.thaw() == 10 and layer.thaw() == 0
        train(layer, tape, 3, 20)
        assert not (layer.read("w_up") == after[0]).all(axis=1)[5:15].all()
        assert layer.freeze(layer=0, usage_above=0.8) in range(1, 6)


def test_parameters_and_gradients_are_arrays(tmp_path):
    with reef.create_layer(tmp_path / "pool", 7, batch_norm=False, **LAYER) as layer:
        tape, x = reef.Tape(), rows(1)
        w_up = layer.read("w_up")
        assert w_up.shape == (25, 7) and layer.read("w_query").shape == (7, 12)
        layer.write("w_up", np.zeros_like(w_up))
        assert not layer.forward(x).any()
        layer.write("w_up", w_up)
        layer.forward(x, train=True, tape=tape)
        d_y = rows(2)
        layer.backward(tape, x, d_y)
        # y is linear in w_up: its gradient is what a step along it gains.
        gradient, before = layer.gradient("w_up"), float((layer.forward(x) * d_y).sum())
        layer.discard()
        layer.write("w_up", w_up + 0.125 * gradient)
        gain = float((layer.forward(x) * d_y).sum()) - before
        assert gain == pytest.approx(0.125 * float((gradient ** 2).sum()), rel=1e-3)
        assert not layer.gradient("w_up").any()
        with pytest.raises(reef.InvalidError, match="shape"):
            layer.write("w_up", w_up[1:])


def test_ids_go_in_shells():
    ids = reef.expert_ids(9)
    assert sorted(ids.ravel()) == list(range(81))
    assert np.array_equal(reef.expert_ids(4), ids[:4, :4])
    from reef._library import lib
    assert all(ids[i, j] == lib.reef_expert_id_of(i, j) for i in range(9) for j in range(9))


def test_mistakes_with_arrays_are_told(tmp_path):
    with reef.create_layer(tmp_path / "pool", 7, **LAYER) as layer:
        x = rows(1)
        for wrong, words in ((x.astype(np.float64), "float64"), (x.tolist(), "a list"), (None, "NoneType")):
            with pytest.raises(TypeError, match=words):
                layer.forward(wrong)
        for wrong, words in ((x[:, :6].copy(), "75, 6"), (x[0], "7,"), (x[::2], "contiguous")):
            with pytest.raises(reef.InvalidError, match=words):
                layer.forward(wrong)
        with pytest.raises(reef.InvalidError, match="mask"):
            layer.forward(x, mask=np.ones(75, bool))
        with pytest.raises(reef.InvalidError, match="75, 7"):
            layer.forward(x, out=rows(1, 3))
        with pytest.raises(reef.InvalidError, match="out shares memory with x"):
            layer.forward(x, out=x)
        double = np.concatenate([x, x])
        with pytest.raises(reef.InvalidError, match="out shares memory with x"):
            layer.forward(double[:75], out=double[74:-1])
        assert np.array_equal(layer.forward(double[:75], out=double[75:]), layer.forward(x))
        with pytest.raises(reef.InvalidError, match="no forward"):
            layer.backward(reef.Tape(), x, x)
        with pytest.raises(reef.InvalidError, match="tape"):
            layer.forward(x, train=True)
        tape, d_y = reef.Tape(), rows(3)
        layer.forward(x, tape=tape)
        for other in rows(2, 10), rows(2, 200):  # libreef goes by the rows of the forward: 10 would be written beyond
            with pytest.raises(reef.InvalidError, match=f"x has {len(other)} rows, but the tape's forward had 75"):
                layer.backward(tape, other, other)
        for wrong, name in ((x, "x"), (d_y, "d_y")):
            with pytest.raises(reef.InvalidError, match=f"out shares memory with {name}"):
                layer.backward(tape, x, d_y, out=wrong)
        assert np.array_equal(x, rows(1)) and np.array_equal(d_y, rows(3))
        assert layer.backward(tape, x, x).shape == x.shape


def test_handles_go_with_their_objects(tmp_path):
    layer = reef.create_layer(tmp_path / "pool", 7, **LAYER)
    del layer
    gc.collect()
    with reef.open(tmp_path / "pool", write=True) as layer:  # the lock is free again
        assert layer.info.writing
