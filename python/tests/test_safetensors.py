"""Layers in files, and layers that PyTorch trained."""

import json
import os
import resource
import subprocess

import numpy as np
import pytest

import reef
import reef.safetensors as safetensors

SIZES = dict(heads=2, topk=3, d_key=6, side=5, side_new=5, seed=3, threads=1)


def trained(path, **options):
    layer = reef.create_layer(path, 7, **{**SIZES, **options})
    tape, draw = reef.Tape(), np.random.default_rng(1)
    for _ in range(10):
        x = draw.uniform(-1, 1, (75, 7)).astype(np.float32)
        layer.backward(tape, x, layer.forward(x, train=True, tape=tape) + x)
        layer.step()
    return layer


@pytest.mark.parametrize("name", ["layer.safetensors", "arrays"])
@pytest.mark.parametrize("sealed", [False, True])
def test_a_layer_goes_out_and_comes_back(tmp_path, name, sealed):
    x = np.random.default_rng(2).uniform(-1, 1, (75, 7)).astype(np.float32)
    with trained(tmp_path / "pool", expert="glu") as layer:
        if sealed:
            layer.seal()
        layer.commit()
        safetensors.save(layer, tmp_path / name, generation=0)
        y, w_up, counts = layer.forward(x, generations=1), layer.read("w_up", 0), layer.usage(0)[0]
    arrays, metadata = safetensors.read_arrays(tmp_path / name)
    assert metadata == {"reef": "layer", "expert": "glu", "score": "softmax", "heads": "2", "topk": "3",
                        "generation": "0"}
    assert np.array_equal(arrays["w_up"], w_up) and np.array_equal(arrays["usage_count"], counts)
    assert counts.sum() == 10 * 75 * 6
    assert ("query_bias" in arrays) == sealed and ("bn_mean" in arrays) == (not sealed)
    with reef.create_layer(tmp_path / "other", 7, **{**SIZES, "expert": "glu", "seed": 9}) as other:
        assert not np.allclose(other.forward(x), y)
        safetensors.restore(other, arrays)
        # A norm that was folded is a product more.
        assert np.abs(other.forward(x) - y).max() <= (1e-5 if sealed else 0)


@pytest.mark.parametrize("name", ["layer.safetensors", "arrays"])
def test_what_cannot_be_written_as_a_whole_is_not_there_and_harms_nothing(tmp_path, name):
    path, large = tmp_path / name, {"a": np.zeros(9), "b": np.zeros(40000)}
    before = b""
    if path.suffix:
        safetensors.write_arrays(path, {"a": np.ones(9)})
        before = path.read_bytes()
    limit = resource.getrlimit(resource.RLIMIT_FSIZE)
    resource.setrlimit(resource.RLIMIT_FSIZE, (100000, limit[1]))  # as on a disk that is full
    try:
        with pytest.raises(OSError):
            safetensors.write_arrays(path, large)
    finally:
        resource.setrlimit(resource.RLIMIT_FSIZE, limit)
    assert sorted(entry.name for entry in tmp_path.iterdir()) == ([name] if before else [])
    if before:
        assert path.read_bytes() == before
    else:  # nor does what a writer left that was killed
        (tmp_path / "arrays.part").mkdir()
        (tmp_path / "arrays.part" / "c.npy").write_bytes(b"c")
    safetensors.write_arrays(path, large)
    assert sorted(safetensors.read_arrays(path)[0]) == ["a", "b"]
    assert [entry.name for entry in tmp_path.iterdir()] == [name]


def test_a_directory_of_somebody_is_not_taken_for_what_a_writer_left(tmp_path):
    mine = tmp_path / "arrays.part"
    mine.mkdir()
    (mine / "notes.txt").write_text("mine")
    with pytest.raises(FileExistsError):
        safetensors.write_arrays(tmp_path / "arrays", {"a": np.ones(9)})
    assert (mine / "notes.txt").read_text() == "mine" and not (tmp_path / "arrays").exists()


def test_safetensors_are_what_the_format_says(tmp_path):
    path = tmp_path / "file.safetensors"
    safetensors.write_arrays(path, {"a": np.arange(6, dtype=np.float32).reshape(2, 3), "none": np.zeros((0, 4))},
                             {"kind": "test"})
    data = path.read_bytes()
    size = int.from_bytes(data[:8], "little")
    assert size % 8 == 0 and data[8:9] == b"{" and len(data) == 8 + size + 24
    assert np.array_equal(np.frombuffer(data[-24:], "<f4"), np.arange(6))
    arrays, metadata = safetensors.read_arrays(path)
    assert metadata == {"kind": "test"} and arrays["a"].shape == (2, 3) and arrays["none"].shape == (0, 4)
    for wrong in (b"", data[:-1], data[:20], b"\xff" * 40, (2).to_bytes(8, "little") + b"[]"):
        path.write_bytes(wrong)
        with pytest.raises(reef.CorruptError, match="safetensors"):
            safetensors.read_arrays(path)


def test_safetensors_cover_their_data_exactly(tmp_path):
    path = tmp_path / "file.safetensors"

    def read(body, **entries):
        header = json.dumps({name: {"dtype": "U8", "shape": shape, "data_offsets": [begin, end]}
                             for name, (shape, begin, end) in entries.items()}).encode()
        path.write_bytes(len(header).to_bytes(8, "little") + header + body)
        return safetensors.read_arrays(path)[0]

    arrays = read(b"abcdefg", b=([2], 4, 6), none=([0], 4, 4), a=([2, 2], 0, 4), one=([], 6, 7))
    assert arrays["a"].tobytes() == b"abcd" and arrays["b"].tobytes() == b"ef" and arrays["one"] == ord("g")
    for body, entries in ((b"abcd!", dict(a=([4], 0, 4))), (b"abcd", {}), (b"abcde", dict(a=([4], 1, 5))),
                          (b"abcd", dict(a=([1], 0, 1), b=([2], 2, 4))), (b"abcd", dict(a=([3], 0, 3), b=([2], 2, 4))),
                          (b"abcd", dict(a=([-1], 0, 4))), (b"abcd", dict(a=([2, -1], 0, 4))),
                          (b"abcd", dict(a=(4, 0, 4))), (b"abcd", dict(a=([True, 4], 0, 4))),
                          (b"abcd", dict(a=([4], False, 4)))):
        with pytest.raises(reef.CorruptError, match="safetensors"):
            read(body, **entries)


def test_bytes_and_halves_of_floats_go_through_both(tmp_path):
    values = np.array([[1.0, -2.5], [0.15625, 3e8]], np.float32)  # the last is no bf16
    halves = (values.view(np.uint32) >> 16).astype(np.uint16)
    path = tmp_path / "file.safetensors"
    safetensors.write_arrays(path, {"flags": np.array([0, 1, 1], np.uint8),
                                    "kept": np.array([-127, 0, 5], np.int8), "rows": halves.view(np.float16)})
    data = path.read_bytes()
    size = int.from_bytes(data[:8], "little") + 1  # a letter more
    path.write_bytes(size.to_bytes(8, "little") + data[8:].replace(b'"F16"', b'"BF16"'))
    arrays, metadata = safetensors.read_arrays(path)
    assert arrays["flags"].dtype == np.uint8 and arrays["flags"].tolist() == [0, 1, 1]
    assert arrays["kept"].dtype == np.int8 and arrays["kept"].tolist() == [-127, 0, 5]
    assert arrays["rows"].dtype == np.float32 and arrays["rows"].shape == (2, 2)
    assert arrays["rows"][0].tolist() == [1.0, -2.5] and arrays["rows"][1, 0] == 0.15625
    assert 0 < abs(arrays["rows"][1, 1] / 3e8 - 1) < 2 ** -7
    assert metadata == {"bf16": '["rows"]'}
    safetensors.write_arrays(tmp_path / "arrays", arrays, metadata)
    safetensors.write_arrays(tmp_path / "again.safetensors", *safetensors.read_arrays(tmp_path / "arrays"))
    again = (tmp_path / "again.safetensors").read_bytes()
    assert b'"BF16"' in again and b'"I8"' in again and b"__metadata__" not in again and again[-8:] == halves.tobytes()
    with pytest.raises(reef.InvalidError, match="rows has values that BF16 cannot hold"):
        safetensors.write_arrays(path, {**arrays, "rows": values}, metadata)
    with pytest.raises(reef.InvalidError, match="JSON list"):
        safetensors.write_arrays(path, arrays, {"bf16": "rows"})


def test_arrays_that_no_file_holds_are_refused(tmp_path):
    for path in (tmp_path / "file.safetensors", tmp_path / "arrays"):
        with pytest.raises(reef.InvalidError, match="int16"):
            safetensors.write_arrays(path, {"a": np.zeros(3, np.int16)})
    for name in ("", ".hidden", "to/there"):
        with pytest.raises(reef.InvalidError, match="name of a file"):
            safetensors.write_arrays(tmp_path / "arrays", {name: np.zeros(3, np.float32)})
    assert not list(tmp_path.iterdir())


def test_a_directory_of_other_things_is_refused(tmp_path):
    path = tmp_path / "arrays"
    with pytest.raises(FileNotFoundError, match="arrays"):
        safetensors.read_arrays(path)
    path.mkdir()
    with pytest.raises(reef.InvalidError, match="without .npy files"):
        safetensors.read_arrays(path)
    with pytest.raises(FileExistsError, match="arrays"):
        safetensors.write_arrays(path, {"a": np.zeros(3, np.float32)})
    np.save(path / "a.npy", np.arange(3))
    whole = (path / "a.npy").read_bytes()
    assert safetensors.read_arrays(path)[0]["a"].tolist() == [0, 1, 2]
    for wrong in (b"", whole[:-1], whole + b"\0", b"PK" + whole[2:]):
        (path / "a.npy").write_bytes(wrong)
        with pytest.raises(reef.CorruptError, match="a.npy is not a .npy file"):
            safetensors.read_arrays(path)
    (path / "a.npy").write_bytes(whole)
    for wrong in ("", "[]", '{"step": 3}'):
        (path / "metadata.json").write_text(wrong, encoding="utf-8")
        with pytest.raises(reef.CorruptError, match="metadata.json"):
            safetensors.read_arrays(path)
    (path / "metadata.json").unlink()
    (path / "notes.txt").touch()
    with pytest.raises(reef.InvalidError, match="notes.txt, which is not a .npy file"):
        safetensors.read_arrays(path)


@pytest.fixture
def reef_program(tmp_path):
    program = os.environ.get("REEF_PROGRAM") or pytest.skip("REEF_PROGRAM names no reef program")

    def run(*words, code=0):
        done = subprocess.run([program, *words], cwd=tmp_path, capture_output=True, text=True)
        assert done.returncode == code, done.stderr
        return done.stdout if code == 0 else done.stderr

    return run


@pytest.fixture
def exported(tmp_path, reef_program):
    """A model of a sealed generation with half floats and an open one, whose file is one.safetensors."""
    for name, step in (("text", 1), ("more", 7)):
        (tmp_path / name).write_text("".join(f"{i * step}\n" for i in range(400)), encoding="utf-8")
    reef_program("init", "one.pool", "--layers", "1", "--d-model", "16", "--attention-heads", "2", "--context", "16",
                 "--heads", "1", "--topk", "2", "--d-key", "8", "--side", "4", "--side-new", "4", "--gate", "off",
                 "--seal-dtype", "bf16", "--context-memory", "0")
    reef_program("train", "one.pool", "text")
    reef_program("seal", "one.pool")
    reef_program("train", "one.pool", "more")
    reef_program("export", "model", "one.pool", "one.safetensors")
    return safetensors.read_arrays(tmp_path / "one.safetensors")


def evaluate(run, pool):
    """The figures, and those of the first generation, with all their digits."""
    return [json.loads(run("eval", pool, "text", "--json", *of))["files"] for of in ([], ["--as-of", "0"])]


def test_a_language_model_goes_through_npy_and_back(tmp_path, reef_program, exported):
    arrays, metadata = exported
    assert arrays["block0.w_up"].shape == (16, 16) and arrays["block0.usage_count"].dtype == np.int64
    assert metadata["bf16"] == '["block0.w_down", "block0.w_up"]'
    safetensors.write_arrays(tmp_path / "arrays", arrays, metadata)
    assert np.array_equal(np.load(tmp_path / "arrays" / "block0.w_up.npy"), arrays["block0.w_up"])
    there, about = safetensors.read_arrays(tmp_path / "arrays")
    assert about == metadata and there.keys() == arrays.keys()
    safetensors.write_arrays(tmp_path / "same.safetensors", there, about)
    open_head = {"generation1.delta_head": 2 * there["generation1.delta_head"]}
    safetensors.write_arrays(tmp_path / "other.safetensors", {**there, **open_head}, about)
    for name in ("same", "other"):
        reef_program("init", f"{name}.pool", "--from", f"{name}.safetensors")
    assert evaluate(reef_program, "one.pool") == evaluate(reef_program, "same.pool")
    now, first = evaluate(reef_program, "other.pool")
    assert now != evaluate(reef_program, "one.pool")[0] and first == evaluate(reef_program, "one.pool")[1]
    reef_program("export", "model", "same.pool", "again.safetensors")
    again, _ = safetensors.read_arrays(tmp_path / "again.safetensors")
    assert again.keys() == arrays.keys() and all(np.array_equal(again[name], arrays[name]) for name in arrays)


def test_arrays_that_are_no_model_are_named(tmp_path, reef_program, exported):
    arrays, metadata = exported
    head = arrays.pop("head")
    wrong = [({}, metadata, 65, "lacks the tensor head"), ({"head": head[1:]}, metadata, 65, "head is F32 ("),
             ({"head": head, "colour": head}, metadata, 65, "a tensor colour"), ({"head": head}, {}, 64, "reef.model")]
    for change, about, code, words in wrong:
        safetensors.write_arrays(tmp_path / "wrong.safetensors", {**arrays, **change}, about)
        assert words in reef_program("init", "wrong.pool", "--from", "wrong.safetensors", code=code)
        assert not (tmp_path / "wrong.pool").exists()


def test_what_does_not_fit_is_refused(tmp_path):
    with trained(tmp_path / "pool") as layer:
        layer.commit()
        safetensors.save(layer, tmp_path / "arrays")
    arrays = safetensors.load(tmp_path / "arrays")
    with reef.create_layer(tmp_path / "plain", 7, batch_norm=False, **SIZES) as plain:
        with pytest.raises(reef.InvalidError, match="batch norm"):
            safetensors.restore(plain, arrays)
    with reef.create_layer(tmp_path / "larger", 7, **{**SIZES, "side": 6}) as larger:
        with pytest.raises(reef.InvalidError, match="shape"):
            safetensors.restore(larger, arrays)
        with pytest.raises(reef.InvalidError, match="no colour"):
            safetensors.restore(larger, {"colour": arrays["w_up"]})
    with reef.create_layer(tmp_path / "other", 7, **{**SIZES, "seed": 9}) as other:
        before = {name: other.read(name) for name in ("w_down", "w_up", "bn_mean", "bn_var")}
        for name, wrong, words in (("w_up", arrays["w_up"][1:], "shape"), ("w_up", arrays["w_up"] * np.nan, "finite"),
                                   ("bn_var", -arrays["bn_var"], "bn_var")):
            with pytest.raises(reef.InvalidError, match=words):
                safetensors.restore(other, {"w_down": arrays["w_down"], "bn_mean": arrays["bn_mean"], name: wrong})
            assert all(np.array_equal(other.read(key), value) for key, value in before.items()), name


# ---- of PyTorch ----------------------------------------------------------------------------------


def test_an_unknown_order_of_queries_and_other_shapes_are_refused(tmp_path):
    width, side, d_model = 4, 3, 6
    draw = np.random.default_rng(1)
    state = {"w_down": draw.standard_normal((side * side, d_model)), "w_up": draw.standard_normal((side * side, d_model)),
             "keys": draw.standard_normal((side, 2, width)), "to_queries.weight": draw.standard_normal((2 * 2 * width, d_model))}
    for wrong in "half,heads", "heads", "":
        with pytest.raises(reef.InvalidError, match=f'query_order is "{wrong}"'):
            safetensors.import_peer(tmp_path / "pool", state, topk=2, heads=2, query_order=wrong)
    with pytest.raises(reef.InvalidError, match="sub_keys_b has shape"):  # and what does not fit leaves no pool behind
        keys = {"sub_keys_a": np.zeros((side, width)), "sub_keys_b": np.zeros((side, width + 1))}
        other = {**{name: value for name, value in state.items() if name != "keys"}, **keys}
        safetensors.import_peer(tmp_path / "pool", other, topk=2, heads=2)
    (tmp_path / "there").mkdir()
    (tmp_path / "link").symlink_to("there")
    with pytest.raises(reef.InvalidError, match="sub_keys_b has shape"):
        safetensors.import_peer(tmp_path / "link", other, topk=2, heads=2)
    assert not (tmp_path / "there").exists()
    assert not (tmp_path / "pool").exists()
    w_query = []
    for number, order in enumerate(("half, head", "head,half", None)):
        with safetensors.import_peer(tmp_path / f"pool{number}", state, topk=2, heads=2, query_order=order) as layer:
            w_query.append(layer.read("w_query"))
    assert not np.array_equal(w_query[0], w_query[1]) and np.array_equal(w_query[0], w_query[2])


def torch_peer(torch, per_head):
    """A layer as common implementations have it: embeddings of experts, keys, a projection to queries by halves."""

    class Peer(torch.nn.Module):
        def __init__(self, dim=10, heads=3, side=6, topk=4, width=5):
            super().__init__()
            self.heads, self.topk, self.side = heads, topk, side
            self.to_queries = torch.nn.Sequential(torch.nn.Linear(dim, 2 * heads * width, bias=False))
            shape = (heads, side, 2, width) if per_head else (side, 2, width)
            self.keys = torch.nn.Parameter(torch.randn(shape[-3:]).expand(shape).clone())
            self.weight_down_embed = torch.nn.Embedding(side * side, dim)
            self.weight_up_embed = torch.nn.Embedding(side * side, dim)

        def forward(self, x):
            queries = self.to_queries(x).view(len(x), 2, self.heads, -1)
            keys = self.keys[0] if self.keys.dim() == 4 else self.keys
            a, b = queries[:, 0] @ keys[:, 0].T, queries[:, 1] @ keys[:, 1].T
            best_a, rows = a.topk(self.topk)
            best_b, columns = b.topk(self.topk)
            scores = (best_a[..., :, None] + best_b[..., None, :]).flatten(-2)
            ids = (rows[..., :, None] * self.side + columns[..., None, :]).flatten(-2)
            best, chosen = scores.topk(self.topk)
            ids = ids.gather(-1, chosen)
            hidden = torch.einsum("nd,nhkd->nhk", x, self.weight_down_embed(ids))
            hidden = torch.nn.functional.gelu(hidden, approximate="tanh") * best.softmax(-1)
            return torch.einsum("nhk,nhkd->nd", hidden, self.weight_up_embed(ids))

    torch.manual_seed(4)
    return Peer()


@pytest.mark.parametrize("per_head", [False, True])
def test_a_file_that_pytorch_wrote_becomes_a_layer(tmp_path, per_head):
    torch = pytest.importorskip("torch", reason="python3-torch is not installed")
    import reef.torch
    theirs = torch_peer(torch, per_head)
    x = torch.randn(50, 10)
    torch.save({"model." + name: value for name, value in theirs.state_dict().items()}, tmp_path / "file.pt")
    state = torch.load(tmp_path / "file.pt")
    pool = safetensors.import_peer(tmp_path / "pool", state, topk=4, heads=3, prefix="model.", side_new=8)
    layer = reef.torch.PeerLayer(pool)
    with torch.no_grad():
        right, y = theirs(x), layer.eval()(x)
    assert float((y - right).abs().max()) < 1e-4 * float(right.abs().max())
    # And it goes on as any layer: what came from elsewhere is sealed, and stays.
    sealed = y.clone()
    layer.seal()
    layer.train()
    for _ in range(5):
        layer(x).pow(2).sum().backward()
        layer.step()
    with torch.no_grad(), layer.eval().as_of(0):
        assert torch.equal(layer(x), sealed)


def test_tensors_that_are_no_layer_are_named(tmp_path):
    torch = pytest.importorskip("torch", reason="python3-torch is not installed")
    state = torch_peer(torch, True).state_dict()
    make = dict(topk=4, heads=3)
    for change, words in (({"norm.gamma": torch.ones(10)}, "norm.gamma"), ({"keys": torch.randn(3, 6, 2, 5)}, "share"),
                          ({"keys": torch.randn(7, 2, 5)}, "7, 2, 5"), ({"to_queries.0.weight": torch.ones(7, 10)},
                                                                        "to_queries.0.weight")):
        with pytest.raises(reef.InvalidError, match=words):
            safetensors.import_peer(tmp_path / "pool", {**state, **change}, **make)
    with pytest.raises(reef.InvalidError, match="w_down"):
        safetensors.import_peer(tmp_path / "pool", {"keys": state["keys"]}, **make)
    extra = {**state, "norm.gamma": torch.ones(10)}
    safetensors.import_peer(tmp_path / "pool", extra, strict=False, **make).close()
