"""Reef's language model in plain PyTorch, from a file of `reef export model`; written to be read, not to be fast.

Everything is computed the long way: all pairs of sub-keys are scored and the best taken (He 2024 eq. 1, 4), rows of
experts are gathered (eq. 6), each expert of a mixture looks at all tokens and keeps its best (Zhou et al. 2022). In
float64, so that what differs is Reef's rounding. Generation 0 alone: that is the model of the paper.

Names of tensors are those of docs/FORMAT.md; D width, T bytes of a window, H heads, K experts of a head, S sub-keys a
side, E experts of a mixture.
"""

import json
import math

import numpy as np
import torch
from torch.nn import functional as F

VOCAB = 256
EPSILON = 1e-5  # of layer norm and batch norm
KEPT = ("bn_mean", "bn_var", "moe_threshold")  # measured, not trained
ROWS = ("w_down", "w_up", "w_gate")  # of experts: an optimiser of their own
PREVIOUS_BYTES, WARMUP, DECAY = 3, 80, 400  # constants of Reef: tokens embedded beside a token's own; steps
MOMENTUM, AVERAGE = 0.05, 0.01  # of what is measured; rate of the weights' average
TYPES = {"F32": "<f4", "U8": "u1", "I64": "<i8"}


def read_safetensors(path):
    """(arrays by name, metadata)"""
    with open(path, "rb") as file:
        size = int.from_bytes(file.read(8), "little")
        header = json.loads(file.read(size))
        data = file.read()
    metadata = header.pop("__metadata__")
    arrays = {}
    for name, entry in header.items():
        begin, end = entry["data_offsets"]
        arrays[name] = np.frombuffer(data[begin:end], TYPES[entry["dtype"]]).reshape(entry["shape"])
    return arrays, metadata


def expert_ids(side):
    """(S, S) the expert of each pair of sub-keys: in shells, so that a grid grows without changing any."""
    ids = np.empty((side, side), np.int64)
    for i in range(side):
        for j in range(side):
            m = max(i, j)
            ids[i, j] = m * m + (m + (m - j) if i == m else i)
    return torch.from_numpy(ids)


def gelu(x):
    return 0.5 * x * (1 + torch.tanh(math.sqrt(2 / math.pi) * (x + 0.044715 * x ** 3)))


class Model:
    """`training` chooses between the statistics of a batch and the running ones, and moves the latter."""

    def __init__(self, path):
        arrays, metadata = read_safetensors(path)
        self.config = c = json.loads(metadata["configuration"])
        if len(json.loads(metadata["generations"])) != 1:
            raise SystemExit(f"{path} has more than one generation; export one with --as-of 0")
        self.kinds = c["ffw"] if len(c["ffw"]) > 1 else c["ffw"] * c["layers"]
        self.training = False
        self.weights, self.kept = {}, {}
        for name, array in arrays.items():
            last = name.split(".")[-1]
            if last in ("frozen", "usage_count", "usage_score"):
                continue
            tensor = torch.from_numpy(array.astype(np.float64))
            if last in KEPT:
                self.kept[name] = tensor
            else:
                self.weights[name] = tensor.requires_grad_()
        side = max((math.isqrt(w.shape[0]) for n, w in self.weights.items() if n.endswith(".w_up")), default=1)
        self.ids = expert_ids(side)
        self.chosen = {}  # by block: the experts that the last forward retrieved
        self.closest = math.inf  # the smallest distance, in training, between the last that was taken and the next

    def norm(self, x, name):
        return F.layer_norm(x, x.shape[-1:], self.weights[name + "_scale"], self.weights[name + "_shift"], EPSILON)

    def best(self, scores, count, dim):
        """topk; what two implementations round differently decides where the distance is next to nothing."""
        best = scores.topk(min(count + 1, scores.shape[dim]), dim=dim)
        values, indices = (x.narrow(dim, 0, count) for x in best)
        if self.training and best.values.shape[dim] > count:
            last, following = (best.values.narrow(dim, at, 1) for at in (count - 1, count))
            self.closest = min(self.closest, (last - following).min().item())
        return values, indices

    def embed(self, tokens):
        """The byte's own vector, those of the bytes before it in its window, and its position's."""
        tables = self.weights["embedding"]
        x = tables[0][tokens]
        for back in range(1, PREVIOUS_BYTES + 1):
            x = x + F.pad(tables[back][tokens[:, :-back]], (0, 0, back, 0))
        return x + self.weights["position"][:tokens.shape[1]]

    def attention(self, x, block):
        B, T, D = x.shape
        heads = self.config["attention_heads"]
        q, k, v = (x @ self.weights[block + "w_qkv"]).view(B, T, 3, heads, D // heads).permute(2, 0, 3, 1, 4)
        scores = q @ k.transpose(-1, -2) / math.sqrt(D // heads)
        later = torch.ones(T, T, dtype=torch.bool).triu(1)
        y = scores.masked_fill(later, -math.inf).softmax(-1) @ v
        return y.transpose(1, 2).reshape(B, T, D) @ self.weights[block + "w_out"]

    def dense(self, x, block):
        return gelu(x @ self.weights[block + "w_ffw_in"]) @ self.weights[block + "w_ffw_out"]

    def mixture(self, x, block):
        """Training: each expert takes its best tokens of each window. Evaluation: those that reach its threshold."""
        c, T = self.config, self.config["context"]
        scores = (x @ self.weights[block + "w_moe_router"]).softmax(-1)  # (B, T, E)
        if self.training:
            count = min(max(math.ceil(T / c["moe_experts"]), 1), T)
            values, indices = self.best(scores.detach(), count, 1)
            taken = torch.zeros_like(scores).scatter(1, indices, 1.0)
            lowest = values[:, -1].mean(0)
            threshold = self.kept[block + "moe_threshold"]
            threshold += MOMENTUM * (lowest - threshold)
        else:
            taken = (scores >= self.kept[block + "moe_threshold"]).to(scores.dtype)
        y = 0
        for e in range(c["moe_experts"]):
            hidden = gelu(x @ self.weights[block + "w_moe_in"][e])
            y = y + (scores * taken)[..., e:e + 1] * (hidden @ self.weights[block + "w_moe_out"][e])
        return y

    def queries(self, x, block):
        """(rows, H, d_key); batch norm by the batch, or by what was measured."""
        c = self.config
        q = x @ self.weights[block + "w_query"]
        if c["batch_norm"]:
            mean, var = self.kept[block + "bn_mean"], self.kept[block + "bn_var"]
            if self.training:
                of_batch = q.mean(0), q.var(0, unbiased=False)
                for kept, new in zip((mean, var), of_batch):
                    kept += MOMENTUM * (new.detach() - kept)
                mean, var = of_batch
            q = (q - mean) / torch.sqrt(var + EPSILON) * self.weights[block + "bn_scale"]
            q = q + self.weights[block + "bn_shift"]
        return q.view(-1, c["heads"], c["d_key"])

    def retrieve(self, x, block):
        """(rows, H, K) experts and their gates: the best of all pairs of sub-keys."""
        c = self.config
        q = self.queries(x, block)
        half = c["d_key"] // 2
        scores = []
        for part, table in enumerate(("sub_keys_a", "sub_keys_b")):
            keys = self.weights[block + table]
            keys = keys.view(keys.shape[0], -1, half).expand(-1, c["heads"], -1)  # shared, or one for each head
            scores.append(torch.einsum("nhd,shd->nhs", q[..., part * half:(part + 1) * half], keys))
        pairs = scores[0][..., :, None] + scores[1][..., None, :]
        values, indices = self.best(pairs.flatten(2), c["topk"], -1)
        gate = {"softmax": lambda s: s.softmax(-1), "sigmoid": torch.sigmoid, "relu": torch.relu}[c["score"]]
        return self.ids.flatten()[indices], gate(values)

    def peer(self, x, block):
        rows = x.reshape(-1, x.shape[-1])
        ids, gate = self.retrieve(rows, block)
        self.chosen[block] = ids
        if block + "w_down" not in self.weights:  # product-key memory: values alone
            hidden = gate
        else:
            down = torch.einsum("nhkd,nd->nhk", self.weights[block + "w_down"][ids], rows)
            if self.config["expert"] == "glu":
                hidden = gate * down * gelu(torch.einsum("nhkd,nd->nhk", self.weights[block + "w_gate"][ids], rows))
            else:
                hidden = gate * (gelu(down) if self.config["expert"] == "gelu" else torch.relu(down))
        return torch.einsum("nhk,nhkd->nd", hidden, self.weights[block + "w_up"][ids]).view_as(x)

    def logits(self, tokens):
        """(B, T, 256) of (B, T) bytes: what follows each of them."""
        x = self.embed(tokens)
        for layer, kind in enumerate(self.kinds):
            block = f"block{layer}."
            x = x + self.attention(self.norm(x, block + "norm1"), block)
            ffw = {"d": self.dense, "m": self.mixture, "p": self.peer, "k": self.peer}[kind]
            x = x + ffw(self.norm(x, block + "norm2"), block)
        return self.norm(x, "norm") @ self.weights["head"]


class Trainer:
    """Adam as Reef does it: the dense gradient is clipped as a whole, each row of experts by itself, and a row moves
    only in steps in which it was retrieved, with a bias correction by how often that was.
    """

    def __init__(self, model):
        self.model, self.c, self.steps = model, model.config, 0
        self.moments = {name: (torch.zeros_like(w), torch.zeros_like(w)) for name, w in model.weights.items()}
        self.updates = {}  # by block, of each expert
        self.averages = {name: w.detach().clone() for name, w in model.weights.items()}

    def rate(self):
        age, c = self.steps + 1, self.c
        if age < WARMUP:
            return c["learning_rate"] * age / WARMUP
        return c["learning_rate"] / math.sqrt(1 + (age - WARMUP) / DECAY)

    def adam(self, name, gradient, count, rate, rows=slice(None)):
        """`count` is a number, or one for each of `rows`."""
        c, (m, v), weight = self.c, self.moments[name], self.model.weights[name]
        m[rows] = c["beta1"] * m[rows] + (1 - c["beta1"]) * gradient
        v[rows] = c["beta2"] * v[rows] + (1 - c["beta2"]) * gradient ** 2
        mean, root = m[rows] / (1 - c["beta1"] ** count), torch.sqrt(v[rows] / (1 - c["beta2"] ** count))
        with torch.no_grad():
            weight[rows] -= rate * mean / (root + c["epsilon"])
            # The running average that a model is evaluated by; a young one forgets its first values sooner.
            count = torch.as_tensor(count, dtype=torch.float64)
            share = torch.where(count == 1, 1.0, torch.clamp(1 / (1 + 0.1 * count), min=AVERAGE))
            self.averages[name][rows] += share * (weight[rows] - self.averages[name][rows])

    def finish(self):
        """Weights become their averages: the model as it is evaluated."""
        self.model.weights = self.averages
        return self.model

    def update_experts(self, block):
        names = [block + name for name in ROWS if block + name in self.model.weights]
        rows = self.model.chosen[block].unique()
        gradients = [self.model.weights[name].grad[rows] for name in names]
        length = torch.sqrt(sum((g ** 2).sum(1) for g in gradients))
        scale = torch.clamp(self.c["clip"] / length, max=1.0)[:, None] if self.c["clip"] > 0 else 1.0
        count = self.updates.setdefault(block, torch.zeros(self.model.weights[names[0]].shape[0], 1))
        count[rows] += 1
        for name, gradient in zip(names, gradients):
            self.adam(name, gradient * scale, count[rows].double(), self.rate() * self.c["expert_rate"], rows)

    def step(self, tokens, targets):
        """Train on one batch; returns its loss before that, in bits per byte."""
        model = self.model
        for weight in model.weights.values():
            weight.grad = None
        model.training = True
        loss = F.cross_entropy(model.logits(tokens).reshape(-1, VOCAB), targets.reshape(-1))
        model.training = False
        loss.backward()
        for block in model.chosen:
            self.update_experts(block)
        dense = {n: w.grad for n, w in model.weights.items() if n.split(".")[-1] not in ROWS}
        length = math.sqrt(sum(float((g ** 2).sum()) for g in dense.values()))
        scale = self.c["clip"] / length if 0 < self.c["clip"] < length else 1.0
        for name, gradient in dense.items():
            self.adam(name, gradient * scale, self.steps + 1, self.rate())
        self.steps += 1
        return loss.item() / math.log(2)
