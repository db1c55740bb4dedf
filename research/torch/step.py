"""A training step of the transformer that `reef-lab step` trains, in PyTorch on the CPU.

The same model: bytes, tables for the byte and the bytes before it, learned positions, pre-norm
blocks of causal attention and a feed-forward network (d: dense, p: PEER with sub-keys that all heads
share and batch norm on queries), a final norm and a head of its own. Adam for what is dense, with its
gradient clipped; SparseAdam for the tables of experts. In its favour: Reef also clips the gradient
of each expert, keeps a sample of the past and looks for drift.

Written as it was fastest with PyTorch 1.13: scores by one baddbmm with the mask as its addend, and
expert outputs by embedding_bag, which makes no copy of the rows.

Prints one line of JSON; seconds are of one step, the median of all but the first ones.
"""

import argparse
import json
import os
import statistics
import time

WARMUP_STEPS = 3
VOCAB = 256
PREVIOUS_BYTES = 3  # that a byte embeds beside its own


def parse():
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    for name in ("layers", "d-model", "context", "batch", "d-ffw", "attention-heads", "side",
                 "heads", "topk", "d-key", "threads", "steps"):
        parser.add_argument("--" + name, type=int, required=True)
    parser.add_argument("--ffw", required=True, help="d or p, one for all blocks or one per block")
    return parser.parse_args()


# OpenBLAS and OpenMP read these when they are loaded. Both have threads of their own, and a waiting
# thread that spins takes the core from one that works: on busy cores, passive waiting halved the time
# of a step.
ARGS = parse()
os.environ["OPENBLAS_NUM_THREADS"] = os.environ["OMP_NUM_THREADS"] = str(ARGS.threads)
os.environ.setdefault("OMP_WAIT_POLICY", "PASSIVE")

import torch  # noqa: E402
from torch import nn  # noqa: E402
from torch.nn import functional as F  # noqa: E402


def normal(*shape, deviation):
    return nn.Parameter(torch.randn(shape) * deviation)


class Attention(nn.Module):
    def __init__(self, width, heads, context):
        super().__init__()
        self.heads = heads
        self.qkv = nn.Linear(width, 3 * width, bias=False)
        self.out = nn.Linear(width, width, bias=False)
        mask = torch.full((context, context), float("-inf")).triu(1)
        self.register_buffer("mask", mask, persistent=False)

    def forward(self, x):
        batch, context, width = x.shape
        rows, each = batch * self.heads, width // self.heads
        qkv = self.qkv(x).view(batch, context, 3, self.heads, each).permute(2, 0, 3, 1, 4)
        q, k, v = qkv.reshape(3, rows, context, each)
        mask = self.mask.expand(rows, context, context)
        scores = torch.baddbmm(mask, q, k.transpose(1, 2), alpha=each**-0.5)
        y = torch.bmm(F.softmax(scores, dim=-1), v).view(batch, self.heads, context, each)
        return self.out(y.transpose(1, 2).reshape(batch, context, width))


class Dense(nn.Module):
    def __init__(self, width, hidden):
        super().__init__()
        self.up = nn.Linear(width, hidden, bias=False)
        self.down = nn.Linear(hidden, width, bias=False)

    def forward(self, x):
        return self.down(F.gelu(self.up(x), approximate="tanh"))


class Peer(nn.Module):
    """He 2024, listing 1, with the paper's softmax scores and shared sub-keys."""

    def __init__(self, width, args):
        super().__init__()
        self.heads, self.topk, self.side = args.heads, args.topk, args.side
        half = args.d_key // 2
        self.query = nn.Linear(width, args.heads * args.d_key, bias=False)
        self.norm = nn.BatchNorm1d(args.heads * args.d_key, momentum=0.05)
        self.sub_keys = normal(2, args.side, half, deviation=args.d_key**-0.5)
        self.w_down = normal(args.side**2, width, deviation=width**-0.5)
        self.w_up = normal(args.side**2, width, deviation=(args.heads * args.topk) ** -0.5)

    def retrieve(self, x):
        query = self.norm(self.query(x)).view(len(x), self.heads, 2, -1)
        score_a, index_a = (query[:, :, 0] @ self.sub_keys[0].T).topk(self.topk, dim=-1)
        score_b, index_b = (query[:, :, 1] @ self.sub_keys[1].T).topk(self.topk, dim=-1)
        pairs = (score_a[..., :, None] + score_b[..., None, :]).flatten(-2)
        scores, place = pairs.topk(self.topk, dim=-1)
        indices = (index_a[..., :, None] * self.side + index_b[..., None, :]).flatten(-2)
        gate = F.softmax(scores, dim=-1)
        return indices.gather(-1, place).flatten(1), gate.flatten(1)

    def forward(self, x):
        shape = x.shape
        x = x.reshape(-1, shape[-1])
        indices, gate = self.retrieve(x)
        hidden = torch.bmm(F.embedding(indices, self.w_down, sparse=True), x.unsqueeze(-1))
        weights = F.gelu(hidden.squeeze(-1), approximate="tanh") * gate
        y = F.embedding_bag(indices, self.w_up, mode="sum", sparse=True, per_sample_weights=weights)
        return y.view(shape)


class Block(nn.Module):
    def __init__(self, letter, args):
        super().__init__()
        self.norm1 = nn.LayerNorm(args.d_model)
        self.attention = Attention(args.d_model, args.attention_heads, args.context)
        self.norm2 = nn.LayerNorm(args.d_model)
        peer = letter == "p"
        self.ffw = Peer(args.d_model, args) if peer else Dense(args.d_model, args.d_ffw)

    def forward(self, x):
        x = x + self.attention(self.norm1(x))
        return x + self.ffw(self.norm2(x))


class Transformer(nn.Module):
    def __init__(self, args):
        super().__init__()
        letters = args.ffw * args.layers if len(args.ffw) == 1 else args.ffw
        self.embedding = normal(1 + PREVIOUS_BYTES, VOCAB, args.d_model, deviation=0.1)
        self.position = normal(args.context, args.d_model, deviation=0.02)
        self.blocks = nn.Sequential(*(Block(letter, args) for letter in letters))
        self.norm = nn.LayerNorm(args.d_model)
        self.head = nn.Linear(args.d_model, VOCAB, bias=False)

    def forward(self, tokens):
        x = F.embedding(tokens, self.embedding[0]) + self.position
        for back in range(1, min(len(self.embedding), tokens.shape[1])):
            x = x + F.pad(F.embedding(tokens[:, :-back], self.embedding[back]), (0, 0, back, 0))
        return self.head(self.norm(self.blocks(x)))

    def parameter_count(self):
        """With the running statistics of batch norm, which Reef counts and stores as well."""
        stored = self.state_dict().values()
        return sum(t.numel() for t in stored if t.is_floating_point())


class Trainer:
    CLIP, RATE, EXPERT_RATE, WARMUP, DECAY = 1.0, 0.002, 6.0, 80, 800  # as Reef's by default

    def __init__(self, model, args):
        self.model, self.args, self.count = model, args, 0
        experts = [t for m in model.modules() if isinstance(m, Peer) for t in (m.w_down, m.w_up)]
        held = {id(t) for t in experts}
        self.dense = [t for t in model.parameters() if id(t) not in held]
        options = {"betas": (0.9, 0.98), "eps": 1e-8}
        self.optimisers = [torch.optim.Adam(self.dense, self.RATE, **options)]
        if experts:
            rate = self.RATE * self.EXPERT_RATE
            self.optimisers.append(torch.optim.SparseAdam(experts, rate, **options))
        self.schedules = [torch.optim.lr_scheduler.LambdaLR(o, self.rate) for o in self.optimisers]

    def rate(self, step):
        age = step + 1
        if age < self.WARMUP:
            return age / self.WARMUP
        return (1 + (age - self.WARMUP) / self.DECAY) ** -0.5

    def step(self):
        # As many letters as in Reef's own text, so that as many experts are found.
        text = torch.randint(97, 97 + 22, (self.args.batch, self.args.context + 1))
        for optimiser in self.optimisers:
            optimiser.zero_grad(set_to_none=True)
        logits = self.model(text[:, :-1])
        F.cross_entropy(logits.view(-1, VOCAB), text[:, 1:].reshape(-1)).backward()
        nn.utils.clip_grad_norm_(self.dense, self.CLIP)
        for optimiser, schedule in zip(self.optimisers, self.schedules):
            optimiser.step()
            schedule.step()


def main():
    torch.set_num_threads(ARGS.threads)
    torch.manual_seed(1)
    model = Transformer(ARGS).train()
    trainer = Trainer(model, ARGS)
    seconds = []
    for _ in range(WARMUP_STEPS + ARGS.steps):
        started = time.perf_counter()
        trainer.step()
        seconds.append(time.perf_counter() - started)
    step_s = statistics.median(seconds[WARMUP_STEPS:])
    print(json.dumps({
        "step_seconds": step_s,
        "tokens_per_s": ARGS.batch * ARGS.context / step_s,
        "parameters": model.parameter_count(),
        "torch": torch.__version__,
    }))


main()
