"""What the numbers of a language model compute, by docs/FORMAT.md alone: plain loops, double precision."""

import math

from pool import check, local_id

PREVIOUS_BYTES = 3  # that a token embeds beside its own


class Tensors:
    """The tensors and rows of one generation, which lie under `number`."""

    def __init__(self, pool, number, info):
        self.values = {r.key["name"]: r.floats() for r in pool.find("tensors", number) if r.dtype == "f32"}
        self.side, self.pool, self.number, self.rows = info["side"], pool, number, {}

    def get(self, name):
        return self.values.get(name)

    def row(self, layer, local):
        place = layer, local
        if place not in self.rows:
            self.rows[place] = self.pool.row(self.number, layer, local)
        return self.rows[place]


def times(x, w, columns):
    """x (n) times w (n, columns)."""
    return [sum(x[i] * w[i * columns + c] for i in range(len(x))) for c in range(columns)]


def norm(x, scale, shift):
    mean = sum(x) / len(x)
    variance = sum((v - mean) ** 2 for v in x) / len(x)
    return [(v - mean) / math.sqrt(variance + 1e-5) * a + b for v, a, b in zip(x, scale, shift)]


def gelu(v):
    return 0.5 * v * (1 + math.tanh(math.sqrt(2 / math.pi) * (v + 0.044715 * v**3)))


def add(x, y):
    for i, v in enumerate(y):
        x[i] += v


def softmax(scores):
    top = max(scores)
    powers = [math.exp(s - top) for s in scores]
    total = sum(powers)
    return [p / total for p in powers]


class Model:
    """Generations 0 to `last`, as they are now."""

    def __init__(self, pool, last):
        self.c = pool.configuration
        self.generations = [Tensors(pool, g, pool.generations[g]) for g in range(last + 1)]
        self.ffw = self.c["ffw"] * self.c["layers"] if len(self.c["ffw"]) == 1 else self.c["ffw"]
        self.expert, self.score = self.c.get("expert", "gelu"), self.c.get("score", "softmax")
        for generation in self.generations:
            for layer, kind in enumerate(self.ffw):
                if kind in "pk":
                    self._fold(generation, f"block{layer}.")

    def _fold(self, g, block):
        """Of an open generation, as sealing would."""
        w, scale = g.get(block + "w_query"), g.get(block + "bn_scale")
        columns = self.c["heads"] * self.c["d_key"]
        if g.get(block + "query_bias") is not None:
            return
        if scale is None:
            g.values[block + "query_bias"] = [0.0] * columns
            return
        shift, mean, var = (g.get(block + name) for name in ("bn_shift", "bn_mean", "bn_var"))
        f = [scale[c] / math.sqrt(var[c] + 1e-5) for c in range(columns)]
        g.values[block + "w_query"] = [v * f[i % columns] for i, v in enumerate(w)]
        g.values[block + "query_bias"] = [shift[c] - mean[c] * f[c] for c in range(columns)]

    # -- the parts --

    def _firing(self, text):
        """For each token the generations that take part: the first, and the newest."""
        return [[self.generations[g] for g in sorted({0, len(self.generations) - 1})]] * len(text)

    def _input(self, window, firing):
        D, V, first = self.c["d_model"], 256, self.generations[0]
        rows = []
        for t in range(len(window)):
            x = list(first.get("position")[t * D :][:D])
            for b in range(min(PREVIOUS_BYTES, t) + 1):
                at = (b * V + window[t - b]) * D
                add(x, first.get("embedding")[at : at + D])
                for g in firing[t][1:]:
                    add(x, g.get("delta_embedding")[at : at + D])
            for g in firing[t][1:]:
                add(x, g.get("delta_position")[t * D :][:D])
            rows.append(x)
        return rows

    def _product(self, t, x, name, columns, block, firing):
        y = times(x, self.generations[0].get(f"{block}w_{name}"), columns)
        for g in firing[t][1:]:
            add(y, times(x, g.get(f"{block}delta_{name}"), columns))
        return y

    def _attend(self, xs, block, firing):
        D, A, first = self.c["d_model"], self.c["attention_heads"], self.generations[0]
        part = D // A
        normed = [norm(x, first.get(block + "norm1_scale"), first.get(block + "norm1_shift")) for x in xs]
        qkv = [self._product(t, n, "qkv", 3 * D, block, firing) for t, n in enumerate(normed)]
        for t, x in enumerate(xs):
            out = []
            for a in range(A):
                q = qkv[t][a * part :][:part]
                scores = [
                    sum(u * v for u, v in zip(q, qkv[s][D + a * part :])) / math.sqrt(part) for s in range(t + 1)
                ]
                weights = softmax(scores)
                out += [
                    sum(weights[s] * qkv[s][2 * D + a * part + d] for s in range(t + 1)) for d in range(part)
                ]
            add(x, self._product(t, out, "out", D, block, firing))

    def _dense(self, t, n, block, firing):
        hidden = self._product(t, n, "ffw_in", self.c["d_ffw"], block, firing)
        return self._product(t, [gelu(h) for h in hidden], "ffw_out", self.c["d_model"], block, firing)

    def _mixture(self, n, block):
        """Every expert whose threshold the token's score reaches."""
        c, first, y = self.c, self.generations[0], [0.0] * self.c["d_model"]
        D, F, E = c["d_model"], c["d_ffw"], c["moe_experts"]
        scores = softmax(times(n, first.get(block + "w_moe_router"), E))
        for e, threshold in enumerate(first.get(block + "moe_threshold")):
            if scores[e] >= threshold:
                hidden = times(n, first.get(block + "w_moe_in")[e * D * F :], F)
                out = times([gelu(h) for h in hidden], first.get(block + "w_moe_out")[e * F * D :], D)
                add(y, [scores[e] * v for v in out])
        return y

    def _experts(self, g, layer, n, y):
        D, H, K, half = self.c["d_model"], self.c["heads"], self.c["topk"], self.c["d_key"] // 2
        block = f"block{layer}."
        q = times(n, g.get(block + "w_query"), 2 * half * H)
        add(q, g.get(block + "query_bias"))
        tables = g.get(block + "sub_keys_a"), g.get(block + "sub_keys_b")
        each = H if self.c.get("subkeys") == "head" else 1  # sub-keys in a row of a table
        for h in range(H):
            at = [(i * each + h % each) * half for i in range(g.side)]
            halves = [
                [sum(q[2 * half * h + half * p + d] * keys[at[i] + d] for d in range(half)) for i in range(g.side)]
                for p, keys in enumerate(tables)
            ]
            pairs = [
                (-(halves[0][i] + halves[1][j]), local_id(i, j)) for i in range(g.side) for j in range(g.side)
            ]
            best = sorted(pairs)[:K] # the lower id among equals
            for weight, (_, local) in zip(self._weights([-score for score, _ in best]), best):
                row = g.row(layer, local)
                if self.ffw[layer] == "k":
                    add(y, [weight * v for v in row])
                    continue
                act = sum(u * v for u, v in zip(row[:D], n))
                if self.expert == "glu":
                    act *= gelu(sum(u * v for u, v in zip(row[2 * D :], n)))
                else:
                    act = max(0.0, act) if self.expert == "relu" else gelu(act)
                add(y, [weight * act * v for v in row[D : 2 * D]])

    def _weights(self, scores):
        if self.score == "softmax":
            return softmax(scores)
        return [max(0.0, s) if self.score == "relu" else 1 / (1 + math.exp(-s)) for s in scores]

    def _peer(self, t, n, layer, firing):
        y = [0.0] * self.c["d_model"]
        for g in firing[t]:
            self._experts(g, layer, n, y)
        return y

    def _logits(self, window, firing):
        first, D = self.generations[0], self.c["d_model"]
        xs = self._input(window, firing)
        for layer, kind in enumerate(self.ffw):
            block = f"block{layer}."
            self._attend(xs, block, firing)
            for t, x in enumerate(xs):
                n = norm(x, first.get(block + "norm2_scale"), first.get(block + "norm2_shift"))
                if kind == "d":
                    add(x, self._dense(t, n, block, firing))
                else:
                    add(x, self._mixture(n, block) if kind == "m" else self._peer(t, n, layer, firing))
        for t, x in enumerate(xs):
            y = norm(x, first.get("norm_scale"), first.get("norm_shift"))
            logits = times(y, first.get("head"), 256)
            for g in firing[t][1:]:
                add(logits, times(y, g.get("delta_head"), 256))
            yield logits

    # -- the whole --

    def bits_per_byte(self, text):
        """Mean cross-entropy of each token but the first, given what comes before it in its window."""
        T, firing, bits = self.c["context"], self._firing(text), 0.0
        for at in range(0, len(text) - 1, T):
            for t, logits in enumerate(self._logits(text[at : at + T], firing[at : at + T])):
                if at + t + 1 < len(text):
                    bits -= math.log2(softmax(logits)[text[at + t + 1]])
        return bits / (len(text) - 1)
