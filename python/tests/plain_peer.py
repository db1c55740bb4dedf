"""A PEER layer in plain PyTorch, slow and obviously right: all pairs of sub-keys are scored."""

import numpy as np
import torch

import reef

NAMES = ("w_down", "w_up", "w_query", "sub_keys_a", "sub_keys_b")


class PlainPeer(torch.nn.Module):
    """The open generation of a layer, with a copy of its parameters."""

    def __init__(self, layer, batch_norm):
        super().__init__()
        info = layer.info
        self.heads, self.topk, self.half = info.heads, info.topk, info.d_key // 2
        self.batch_norm = batch_norm
        self.names = NAMES + (("bn_scale", "bn_shift") if batch_norm else ())
        for name in self.names:
            setattr(self, name, torch.nn.Parameter(torch.from_numpy(layer.read(name))))
        self.side = layer.generations[-1].side
        self.ids = torch.from_numpy(reef.expert_ids(self.side).astype(np.int64).ravel())

    def forward(self, x):
        query = x @ self.w_query
        if self.batch_norm:
            mean, var = query.mean(0), query.var(0, unbiased=False)
            query = (query - mean) / torch.sqrt(var + 1e-5) * self.bn_scale + self.bn_shift
        query = query.view(len(x), self.heads, 2, self.half)
        a, b = query[:, :, 0] @ self.sub_keys_a.T, query[:, :, 1] @ self.sub_keys_b.T
        scores = (a[..., :, None] + b[..., None, :]).flatten(-2)
        best, pairs = scores.topk(self.topk, -1)
        gate, ids = best.softmax(-1), self.ids[pairs]
        hidden = torch.nn.functional.gelu((self.w_down[ids] * x[:, None, None, :]).sum(-1), approximate="tanh")
        return ((gate * hidden)[..., None] * self.w_up[ids]).sum((1, 2))
