"""One PEER layer in PyTorch (He 2024, listing 1), as `reef-lab peer --rival` runs it; on the CPU or a GPU.

usage: peer.py SIDE D_MODEL TOKENS sparse|dense|best THREADS [DEVICE]

Sub-keys that all heads share, softmax scores and batch norm on queries, 8 heads of 16 experts: the paper's defaults.
Experts are computed in two forms, and the faster counts: as in the listing, by gathered rows and einsum; and by a
product of matrices and embedding_bag, which makes no copy of half of the rows. Gradients of experts are sparse, with
SparseAdam, or dense, with Adam over all rows; "best" is the faster of both. On a GPU products may use TF32.

Prints one line for each measurement: name, seconds (the median of 5 after a first one), tokens a second.
"""

import statistics
import sys
import time

import torch
from torch import nn
from torch.nn import functional as F

HEADS, TOPK, D_KEY = 8, 16, 128
REPEATS = 5


class Peer(nn.Module):
    def __init__(self, side, width, sparse, gathers):
        super().__init__()
        self.side, self.sparse, self.gathers = side, sparse, gathers
        half = D_KEY // 2
        self.query = nn.Linear(width, HEADS * D_KEY, bias=False)
        self.norm = nn.BatchNorm1d(HEADS * D_KEY)
        self.sub_keys = nn.Parameter(torch.randn(2, side, half) * D_KEY**-0.5)
        self.w_down = nn.Parameter(torch.randn(side**2, width) * width**-0.5)
        self.w_up = nn.Parameter(torch.randn(side**2, width) * (HEADS * TOPK) ** -0.5)

    def retrieve(self, x):
        """(tokens, heads * topk) ids of experts, and their weights"""
        query = self.norm(self.query(x)).view(len(x), HEADS, 2, -1)
        score_a, index_a = (query[:, :, 0] @ self.sub_keys[0].T).topk(TOPK, dim=-1)
        score_b, index_b = (query[:, :, 1] @ self.sub_keys[1].T).topk(TOPK, dim=-1)
        pairs = (score_a[..., :, None] + score_b[..., None, :]).flatten(-2)
        scores, place = pairs.topk(TOPK, dim=-1)
        indices = (index_a[..., :, None] * self.side + index_b[..., None, :]).flatten(-2)
        return indices.gather(-1, place).flatten(1), F.softmax(scores, dim=-1).flatten(1)

    def forward(self, x):
        indices, gate = self.retrieve(x)
        down = F.embedding(indices, self.w_down, sparse=self.sparse)
        if self.gathers:
            hidden = F.gelu(torch.einsum("td,tkd->tk", x, down)) * gate
            return torch.einsum("tk,tkd->td", hidden, F.embedding(indices, self.w_up, sparse=self.sparse))
        hidden = F.gelu(torch.bmm(down, x.unsqueeze(-1)).squeeze(-1)) * gate
        return F.embedding_bag(indices, self.w_up, mode="sum", sparse=self.sparse, per_sample_weights=hidden)


def optimisers(layer):
    experts = [layer.w_down, layer.w_up]
    dense = [layer.query.weight, layer.norm.weight, layer.norm.bias, layer.sub_keys]
    if layer.sparse:
        return [torch.optim.Adam(dense), torch.optim.SparseAdam(experts)]
    return [torch.optim.Adam(dense + experts)]


def median_seconds(run, device):
    def timed():
        started = time.perf_counter()
        run()
        if device.type == "cuda":
            torch.cuda.synchronize()
        return time.perf_counter() - started

    timed()  # the first one makes what the others find
    return statistics.median(timed() for _ in range(REPEATS))


def measure(layer, x, y):
    """Seconds of each pass, by name."""
    steps = optimisers(layer)

    def backward():
        for optimiser in steps:
            optimiser.zero_grad(set_to_none=True)
        F.mse_loss(layer(x), y).backward()

    def step():
        backward()
        for optimiser in steps:
            optimiser.step()

    layer.eval()
    with torch.no_grad():
        seconds = {"retrieve": median_seconds(lambda: layer.retrieve(x), x.device),
                   "forward": median_seconds(lambda: layer(x), x.device)}
    layer.train()
    seconds["forward+backward"] = median_seconds(backward, x.device)
    seconds["train step (+Adam)"] = median_seconds(step, x.device)
    return seconds


def main():
    side, width, tokens = map(int, sys.argv[1:4])
    gradients = {"sparse": [True], "dense": [False], "best": [True, False]}[sys.argv[4]]
    torch.set_num_threads(int(sys.argv[5]))
    device = torch.device(sys.argv[6] if len(sys.argv) > 6 else "cpu")
    torch.backends.cuda.matmul.allow_tf32 = True
    torch.manual_seed(0)
    x, y = torch.randn(2, tokens, width, device=device)
    fastest = {}
    for sparse in gradients:
        for gathers in (True, False):
            layer = Peer(side, width, sparse, gathers).to(device)
            for name, seconds in measure(layer, x, y).items():
                fastest[name] = min(seconds, fastest.get(name, seconds))
            del layer
    for name, seconds in fastest.items():
        print(f"{name:28s} {seconds:.5f} s  {tokens / seconds:10.0f} tok/s", flush=True)


if __name__ == "__main__":
    main()
