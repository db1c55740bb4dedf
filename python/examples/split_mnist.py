#!/usr/bin/env python3
"""A two-layer PyTorch model whose PEER layers live in Reef pools: Split-MNIST without forgetting.

Task 1 is the digits 0 and 1, task 2 the digits 2 and 3. After task 1 the layers seal what they learned, and the rest of
the model is frozen with them; task 2 trains only new generations of experts. As of generation 0 the model is what it
was, to the bit.

usage: split_mnist.py MNIST-DIRECTORY NEW-POOLS [--images N] [--epochs N]
"""

import argparse
import gzip
import os

import numpy as np
import torch
from torch import nn

import reef
import reef.torch


class Model(nn.Module):
    """Projection, two PEER layers with residuals, head."""

    def __init__(self, pools, width=64):
        super().__init__()
        sizes = dict(heads=4, topk=8, d_key=32, side=16, learning_rate=0.002)
        self.project = nn.Linear(784, width)
        self.peers = nn.ModuleList(
            reef.torch.PeerLayer(reef.create_layer(os.path.join(pools, name), width, **sizes))
            for name in ("first", "second"))
        self.head = nn.Linear(width, 10)

    def forward(self, x):
        h = self.project(x)
        for peer in self.peers:
            h = h + peer(h)
        return self.head(h)


def read(directory, part, digits, count):
    """Images in 0 .. 1 and labels of some digits."""
    with gzip.open(os.path.join(directory, f"{part}-images-idx3-ubyte.gz")) as file:
        images = np.frombuffer(file.read(), np.uint8, offset=16).reshape(-1, 784)
    with gzip.open(os.path.join(directory, f"{part}-labels-idx1-ubyte.gz")) as file:
        labels = np.frombuffer(file.read(), np.uint8, offset=8)
    chosen = np.flatnonzero(np.isin(labels, digits))[:count]
    return torch.from_numpy(images[chosen].astype(np.float32) / 255), torch.from_numpy(labels[chosen].astype(np.int64))


def train(model, images, labels, epochs, optimizer):
    """A pass over the images in batches of 50, some times."""
    model.train()
    for _ in range(epochs):
        for batch in torch.randperm(len(images)).split(50):
            loss = nn.functional.cross_entropy(model(images[batch]), labels[batch])
            model.zero_grad()
            loss.backward()
            if optimizer:
                optimizer.step()
            reef.torch.step(model)


def outputs(model, images):
    """The logits, evaluated."""
    model.eval()
    with torch.no_grad():
        return model(images)


def accuracy(logits, labels):
    """In percent."""
    return 100 * float((logits.argmax(1) == labels).float().mean())


def main():
    """The two tasks."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("mnist")
    parser.add_argument("pools")
    parser.add_argument("--images", type=int, default=5000, help="of each task to train on")
    parser.add_argument("--epochs", type=int, default=3)
    args = parser.parse_args()
    torch.manual_seed(1)
    os.makedirs(args.pools)
    model = Model(args.pools)
    tests = {task: read(args.mnist, "t10k", digits, 2000) for task, digits in ((1, (0, 1)), (2, (2, 3)))}

    train(model, *read(args.mnist, "train", (0, 1), args.images), args.epochs,
          torch.optim.Adam(model.parameters(), lr=0.001))
    reef.torch.seal(model)
    for part in model.project, model.head:
        part.requires_grad_(False)
    sealed = outputs(model, tests[1][0])
    print(f"task 1: {accuracy(sealed, tests[1][1]):.1f} %")

    train(model, *read(args.mnist, "train", (2, 3), args.images), args.epochs, None)
    for peer in model.peers:
        peer.pool.commit()
    now = outputs(model, tests[2][0])
    print(f"task 2, all generations: {accuracy(now, tests[2][1]):.1f} %")
    print(f"task 1, all generations: {accuracy(outputs(model, tests[1][0]), tests[1][1]):.1f} %")
    with reef.torch.as_of(model, 0):
        then = outputs(model, tests[1][0])
    same = torch.equal(then, sealed)
    print(f"task 1 as of generation 0, after task 2: {'identical to the bit' if same else 'CHANGED'}")
    return 0 if same else 1


if __name__ == "__main__":
    raise SystemExit(main())
