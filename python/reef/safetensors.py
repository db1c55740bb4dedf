"""Models and layers in and out: safetensors and .npy files, and PEER layers that PyTorch trained.

Of a layer, a file or directory holds one generation: w_down, w_up, with glu w_gate, sub_keys_a, sub_keys_b, w_query,
what there is of batch norm or its folded query_bias, and usage_count and usage_score, all as in reef/reef.h. Arrays of
whole models, which `reef export model` writes and `reef init --from` takes, are those of docs/FORMAT.md.
"""

import errno
import json
import os
import shutil

import numpy as np

from .errors import CorruptError, InvalidError, MissingError
from .pool import create_layer, expert_ids

_TYPES = {"F32": np.float32, "F64": np.float64, "U64": np.uint64, "F16": np.float16, "I64": np.int64, "U8": np.uint8,
          "I8": np.int8}
_BF16 = "BF16"  # the upper half of a float: NumPy has no such type
_HALVES = "bf16"  # the metadata that names arrays which were
_METADATA = "metadata.json"  # beside the .npy files of a directory
_NORM = ("bn_scale", "bn_shift", "bn_mean", "bn_var")
_EPSILON = np.float32(1e-5)  # that batch norm adds to the variance


# ---- files ---------------------------------------------------------------------------------------


def write_arrays(path, arrays, metadata=None):
    """Arrays by name, and metadata, which is text by name, to ``path``: a file in the safetensors format where it ends
    in .safetensors, else a new directory with one .npy file for each array, and metadata.json.

    Arrays that ``metadata["bf16"]`` names, as ``read_arrays`` left it, become BF16 again in a file of safetensors. What
    is written is there as a whole or not at all, and a file that it replaces stays until then; until then it is called
    ``path`` with .part behind it.
    """
    path, texts = os.fspath(path), {name: str(value) for name, value in (metadata or {}).items()}
    arrays = {name: np.asarray(array, order="C") for name, array in arrays.items()}
    for name, array in arrays.items():
        if _code(array) is None:
            raise InvalidError(f"{name} is of {array.dtype}, which is not written; give one of {', '.join(_TYPES)}")
    if path.endswith(".safetensors"):
        _write_safetensors(path, arrays, texts)
    else:
        _write_directory(path, arrays, texts)


def read_arrays(path):
    """(arrays by name, metadata) of a safetensors file, or of a directory of .npy files.

    NumPy has no BF16: such tensors become float32, and ``metadata["bf16"]`` is the JSON list of their names.
    """
    path = os.fspath(path)
    return _read_directory(path) if os.path.isdir(path) else _read_safetensors(path)


def _code(array):
    return next((code for code, kind in _TYPES.items() if array.dtype == kind), None)


def _is_texts(value):
    return isinstance(value, dict) and all(isinstance(text, str) for text in value.values())


# ---- a file of safetensors ----


def _write_safetensors(path, arrays, metadata):
    metadata = dict(metadata)
    halved = _names_of_halves(metadata.pop(_HALVES, "[]"))
    header, at, parts = {"__metadata__": metadata} if metadata else {}, 0, []
    for name, array in arrays.items():
        code = _code(array)
        if name in halved and array.dtype == np.float32:
            code, array = _BF16, _halve(name, array)
        header[name] = {"dtype": code, "shape": list(array.shape), "data_offsets": [at, at + array.nbytes]}
        parts.append(array)
        at += array.nbytes
    text = json.dumps(header).encode()
    text += b" " * (-len(text) % 8)
    path = os.path.realpath(path)  # a link stays one
    beside = path + ".part"
    try:
        with open(beside, "wb") as file:
            file.write(len(text).to_bytes(8, "little") + text)
            for array in parts:
                file.write(array.tobytes())
        os.replace(beside, path)
    except BaseException:
        if os.path.exists(beside):
            os.unlink(beside)
        raise


def _names_of_halves(text):
    try:
        names = json.loads(text)
        return set(names)
    except (ValueError, TypeError) as reason:
        raise InvalidError(f"metadata {_HALVES} is '{text}', but must be a JSON list of names of arrays") from reason


def _halve(name, array):
    bits = array.view(np.uint32)
    if (bits & 0xFFFF).any():
        raise InvalidError(f"{name} has values that BF16 cannot hold, and metadata {_HALVES} names it: round it, or "
                           "take its name out")
    return (bits >> 16).astype(np.uint16)


def _read_safetensors(path):
    with open(path, "rb") as file:
        data = file.read()
    size = int.from_bytes(data[:8], "little")
    try:
        header = json.loads(data[8:8 + size])
        metadata = header.pop("__metadata__", {})
        body, arrays, halved, spans = data[8 + size:], {}, [], []
        for name, entry in header.items():
            begin, end = entry["data_offsets"]
            if not all(type(number) is int and number >= 0 for number in (begin, end, *entry["shape"])):
                raise ValueError(f"{name} has a size or offset that is not a number from 0 on")
            if entry["dtype"] not in (*_TYPES, _BF16):
                raise InvalidError(f"{name} in {path} is of type {entry['dtype']}; only {', '.join(_TYPES)} and {_BF16} "
                                   "are read")
            spans.append((begin, end, name))
            flat = np.frombuffer(body[begin:end], _TYPES.get(entry["dtype"], np.uint16))
            if entry["dtype"] == _BF16:
                flat = (flat.astype(np.uint32) << 16).view(np.float32)
                halved.append(name)
            arrays[name] = flat.reshape(entry["shape"]).copy()
        _check_cover(spans, len(body))
        if not _is_texts(metadata):
            raise ValueError("its metadata is not text by name")
    except InvalidError:
        raise
    except (ValueError, KeyError, TypeError, AttributeError) as reason:
        raise CorruptError(f"{path} is not a file in the safetensors format: {reason}") from reason
    return arrays, {**metadata, _HALVES: json.dumps(halved)} if halved else metadata


def _check_cover(spans, size):
    """One array after the other from the first byte to the last."""
    at = 0
    for begin, end, name in sorted(spans):
        if begin != at or end < begin:
            raise ValueError(f"{name} is at {begin} to {end} of the data, where {at} is next")
        at = end
    if at != size:
        raise ValueError(f"its arrays end at {at} of {size} bytes of data")


# ---- a directory of .npy files ----


def _write_directory(path, arrays, metadata):
    for name in arrays:
        if not name or name.startswith(".") or "/" in name or "\0" in name:
            raise InvalidError(f"'{name}' cannot be the name of a file in {path}; a .safetensors file takes any name")
    if os.path.lexists(path):
        raise FileExistsError(errno.EEXIST, os.strerror(errno.EEXIST), path)
    beside = path.rstrip("/") + ".part"
    if os.path.isdir(beside) and all(name == _METADATA or name.endswith(".npy") for name in os.listdir(beside)):
        shutil.rmtree(beside)  # of one that was killed; anything else is somebody's
    os.mkdir(beside)
    try:
        for name, array in arrays.items():
            np.save(os.path.join(beside, name + ".npy"), array)
        with open(os.path.join(beside, _METADATA), "w", encoding="utf-8") as file:
            json.dump(metadata, file, indent=1)
        os.rename(beside, path)
    except BaseException:
        shutil.rmtree(beside)
        raise


def _read_directory(path):
    arrays, metadata = {}, {}
    for entry in sorted(os.listdir(path)):
        if entry == _METADATA:
            metadata = _read_metadata(os.path.join(path, entry))
        elif entry.endswith(".npy"):
            arrays[entry[:-4]] = _read_npy(os.path.join(path, entry))
        else:
            raise InvalidError(f"{path} has {entry}, which is not a .npy file: give a directory of .npy files and "
                               f"{_METADATA} alone")
    if not arrays:
        raise InvalidError(f"{path} is a directory without .npy files; give one that has them, or a .safetensors file")
    return arrays, metadata


def _read_metadata(path):
    try:
        with open(path, encoding="utf-8") as file:
            metadata = json.load(file)
        if not _is_texts(metadata):
            raise ValueError("it is not text by name")
    except ValueError as reason:
        raise CorruptError(f"{path} is not metadata of arrays: {reason}") from reason
    return metadata


def _read_npy(path):
    with open(path, "rb") as file:
        try:
            array = np.lib.format.read_array(file, allow_pickle=False)
            if file.read(1):
                raise ValueError("there are bytes after the array")
        except (ValueError, EOFError) as reason:
            raise CorruptError(f"{path} is not a .npy file: {reason}") from reason
    return array


# ---- layers --------------------------------------------------------------------------------------


def save(layer, path, generation=None):
    """Write one generation (None: the last) to ``path``, as ``write_arrays`` does."""
    number = layer.info.generations - 1 if generation is None else generation
    arrays = {}
    for name in ("w_down", "w_up", "w_gate", "sub_keys_a", "sub_keys_b", "w_query", "query_bias") + _NORM:
        try:
            arrays[name] = layer.read(name, number)
        except MissingError:
            continue  # not of this kind of layer
    arrays["usage_count"], arrays["usage_score"] = layer.usage(number)
    info = layer.info
    write_arrays(path, arrays, {"reef": "layer", "expert": info.expert, "score": info.score, "heads": info.heads,
                                "topk": info.topk, "generation": number})


def load(path):
    """Arrays by name that ``save`` wrote, or that others left in a safetensors file or a directory of .npy files."""
    return read_arrays(path)[0]


def restore(layer, arrays):
    """Give the open generation of a layer of the same sizes the parameters that ``load`` read; usage is left out.

    Those of a sealed generation, whose batch norm is folded, become a batch norm that does the same in evaluation.
    """
    arrays = {name: array for name, array in arrays.items() if not name.startswith("usage_")}
    bias = arrays.pop("query_bias", None)
    has_norm = _has(layer, "bn_scale")
    if bias is not None and has_norm:
        ones = np.ones_like(bias)
        arrays.update(bn_scale=ones, bn_shift=bias, bn_mean=0 * bias, bn_var=ones - _EPSILON)
    elif bias is not None and bias.any():
        raise InvalidError("the queries have a bias, and the layer has no batch norm that could hold it; make it "
                           "with batch_norm")
    if not has_norm and any(name in arrays for name in _NORM):
        raise InvalidError("the queries have a batch norm, but the layer has none; make it with batch_norm")
    unknown = sorted(name for name in arrays if not _has(layer, name))
    if unknown:
        raise InvalidError(f"the layer has no {', '.join(unknown)}")
    checked = {name: layer.fitting(name, array) for name, array in arrays.items()}  # all of them first
    for name, array in checked.items():
        if not np.isfinite(array).all() or (name == "bn_var" and (array < 0).any()):
            raise InvalidError(f"{name} has values that are not finite, or a variance below 0")
    for name, array in checked.items():
        layer.write(name, array)


def _has(layer, name):
    try:
        layer.read(name)
    except MissingError:
        return False
    return True


# ---- layers that PyTorch trained -----------------------------------------------------------------

# What the experts' vectors are called, and how their rows go: expert i * side + j has the key (i, j).
_DOWN = ("weight_down_embed.weight", "w_down_embed.weight", "w_down.weight", "w_down", "down_embed.weight")
_UP = ("weight_up_embed.weight", "w_up_embed.weight", "w_up.weight", "w_up", "up_embed.weight")
_GATE = ("weight_gate_embed.weight", "w_gate_embed.weight", "w_gate.weight", "w_gate")
# (features, d_model). Those of Sequential modules number halves before heads: features (2, heads, width).
_QUERY_BY_HALF = ("to_queries.0.weight", "to_queries.weight")
_QUERY_BY_HEAD = ("query_proj.weight", "query.weight", "to_query.weight", "query_network.weight", "w_query.weight")
_KEYS = ("keys", "sub_keys", "product_keys", "keys.weight")
_KEY_PAIRS = (("sub_keys_a", "sub_keys_b"), ("sub_keys.0", "sub_keys.1"), ("keys.0", "keys.1"),
              ("keys1", "keys2"), ("sub_keys1", "sub_keys2"))


def import_peer(path, state, *, topk, heads, score="softmax", activation=None, query_order=None, prefix="",
                strict=True, **options):
    """Make a pool of a layer from the tensors of a PEER layer of PyTorch, open for writing.

    state        its ``state_dict()``, or any mapping of names to tensors or arrays; a path of a safetensors file
    topk, heads  which its tensors do not say
    score        what it makes of scores: "softmax" (competing), "sigmoid" or "relu"
    activation   of its experts: "gelu" (Reef's is the tanh form), "relu"; "glu" is seen by itself
    query_order  of its query features: "half, head" or "head, half"; None: as implementations of its names have it
    prefix       of the layer's names in a larger model, such as "layers.3.peer."
    strict       False: tensors of the layer that are not understood, such as a norm of the input, are left out
    options      as of ``create_layer``

    Names: weight_down_embed / w_down_embed / w_down, the same with up and gate, keys / sub_keys (also in two), and
    to_queries / query_proj / query. Keys that heads share are (side, 2, width), (2, side, width) or two of (side,
    width); those of each head, (heads, side, 2, width), only where all heads have the same ones: Reef's share them.
    """
    order = None if query_order is None else query_order.replace(" ", "")
    if order not in (None, "half,head", "head,half"):
        raise InvalidError(f'query_order is "{query_order}"; give "half, head" or "head, half"')
    if isinstance(state, (str, os.PathLike)):
        state = load(state)
    given = {name[len(prefix):]: _array(value) for name, value in state.items() if name.startswith(prefix)}
    _, down = _take(given, _DOWN, "experts' w_down")
    _, up = _take(given, _UP, "experts' w_up")
    _, gate = _take(given, _GATE, None)
    side = round(len(down) ** 0.5)
    if side * side != len(down) or up.shape != down.shape or down.ndim != 2:
        raise InvalidError(f"w_down has shape {down.shape} and w_up {up.shape}; both must be (side * side, d_model)")
    keys = _take_keys(given, side)
    query_name, query = _take(given, _QUERY_BY_HALF + _QUERY_BY_HEAD, "query projection")
    width, d_model = keys[0].shape[1], down.shape[1]
    if query.shape != (2 * heads * width, d_model):
        raise InvalidError(f"{query_name} has shape {query.shape}; with {heads} heads and keys of {width} it must be "
                           f"({2 * heads * width}, {d_model})")
    if given and strict:
        raise InvalidError(f"what are {', '.join(sorted(given))}? strict=False leaves them out")
    by_half = query_name in _QUERY_BY_HALF if order is None else order == "half,head"
    query = query.reshape((2, heads, width, d_model) if by_half else (heads, 2, width, d_model))
    query = query.transpose((3, 1, 0, 2) if by_half else (3, 0, 1, 2)).reshape(d_model, -1)
    layer = create_layer(path, d_model, heads=heads, topk=topk, d_key=2 * width, side=side, score=score,
                         expert="glu" if gate is not None else activation, batch_norm=False, **options)
    place = np.empty(side * side, np.int64)
    place[expert_ids(side).ravel()] = np.arange(side * side)  # of each id, where PyTorch has it
    try:
        for name, values in (("w_down", down), ("w_up", up), ("w_gate", gate)):
            if values is not None:
                layer.write(name, values[place])
        layer.write("w_query", query)
        layer.write("sub_keys_a", keys[0])
        layer.write("sub_keys_b", keys[1])
        layer.commit()
    except BaseException:  # a pool of what was drawn by chance is not what was asked for
        layer.close()
        shutil.rmtree(os.path.realpath(path), ignore_errors=True)  # where it is a link, what it leads to
        raise
    return layer


def _array(value):
    """A tensor or an array, as float32."""
    if hasattr(value, "detach"):
        value = value.detach().cpu().float().numpy()
    return np.asarray(value, np.float32)


def _take(given, names, what):
    for name in names:
        if name in given:
            return name, given.pop(name)
    if what is None:
        return None, None
    raise InvalidError(f"the {what} is not among {', '.join(sorted(given)) or 'no tensors'}; it may be called "
                       f"{', '.join(names)}")


def _take_keys(given, side):
    """Both tables, (side, width) each."""
    for a, b in _KEY_PAIRS:
        if a in given and b in given:
            return given.pop(a), given.pop(b)
    name, keys = _take(given, _KEYS, "sub-keys")
    if keys.ndim == 4 and keys.shape[1:3] == (side, 2):  # of each head
        if not (keys == keys[:1]).all():
            raise InvalidError(f"{name} has other keys for each of {len(keys)} heads; heads of a Reef layer share "
                               "theirs, so only a layer whose heads do, or of one head, can be imported")
        keys = keys[0]
    if keys.ndim == 3 and keys.shape[:2] == (side, 2):
        return keys[:, 0], keys[:, 1]
    if keys.ndim == 3 and keys.shape[:2] == (2, side):
        return keys[0], keys[1]
    raise InvalidError(f"{name} has shape {keys.shape}; with {side} keys a side it must be (heads, {side}, 2, width), "
                       f"({side}, 2, width) or (2, {side}, width)")
