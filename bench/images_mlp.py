#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""Trains a classifier of images under one recipe, for bench/convergence.py: Fashion-MNIST (Debian's package
dataset-fashion-mnist), 784 -> 256 -> 256 -> 10 with relu, AdamW, linear warm-up and half a cosine. Images and initial
weights depend on the seed alone. Writes losses.csv as mixedprec_train does: recipe, step, training loss, and in the last row
the loss over the test images.

MIXEDPREC_DIR is an installation or a build folder with the library; numpy 1.24 or newer."""

import argparse
import gzip
import math
import sys
from pathlib import Path

import numpy as np

sys.path.insert(0, str(Path(__file__).resolve().parents[1] / "bindings/python"))
import mixedprec as mp  # noqa: E402

SIZES, BATCH, WARMUP = (784, 256, 256, 10), 128, 20


def idx(path):
    """An array of bytes: LeCun's IDX format."""
    with gzip.open(path) as file:
        data = file.read()
    ndim = data[3]
    shape = tuple(int.from_bytes(data[4 + 4 * i:8 + 4 * i], "big") for i in range(ndim))
    return np.frombuffer(data, np.uint8, offset=4 + 4 * ndim).reshape(shape)


def images_of(folder, part):
    pixels = idx(folder / f"{part}-images-idx3-ubyte.gz").reshape(-1, SIZES[0])
    labels = idx(folder / f"{part}-labels-idx1-ubyte.gz")
    return ((pixels.astype(np.float32) / 255.0 - 0.2860) / 0.3530).astype(np.float32), labels


def cross_entropy(logits, labels, factor):
    """The mean loss, and its gradient times `factor`."""
    rows = np.arange(len(logits))
    shifted = logits.astype(np.float64) - logits.max(axis=1, keepdims=True)
    e = np.exp(shifted)
    total = e.sum(axis=1)
    loss = float(np.mean(np.log(total) - shifted[rows, labels]))
    share = e / total[:, None]
    share[rows, labels] -= 1.0
    return loss, (share * (factor / len(logits))).astype(np.float32)


class Classifier:
    def __init__(self, context, recipe, lr, draw):
        self.recipe, self.lr = mp.Recipe(context, recipe), lr
        self.scaler = mp.Scaler.from_recipe(self.recipe)
        self.optimizer = mp.Optimizer(self.recipe)
        self.optimizer.add_group(lr=lr, weight_decay=0.01)
        self.layers, self.dw, self.db = [], [], []
        for i, (n, m) in enumerate(zip(SIZES, SIZES[1:])):
            values = (draw.standard_normal((m, n)) * math.sqrt(2.0 / n)).astype(np.float32)
            weight, bias, db = self.recipe.weight((m, n), values), np.zeros(m, np.float32), np.zeros(m, np.float32)
            self.optimizer.add_param(f"w{i}", weight, initial=values)
            self.optimizer.add_param(f"b{i}", bias, db)
            self.layers.append(mp.Linear(self.recipe, weight, bias))
            self.dw.append(self.optimizer.state(f"w{i}", "grad"))
            self.db.append(db)
        self.optimizer.set_linears(self.layers)

    def forward(self, x):
        self.kept = [x]
        for layer, n in zip(self.layers, SIZES[1:]):
            y = np.zeros((len(x), n), np.float32)
            layer.forward(self.kept[-1], y)
            self.kept.append(y if n == SIZES[-1] else np.maximum(y, 0.0))
        return self.kept[-1]

    def step(self, x, labels, lr):
        scale = self.scaler.scale
        loss, d = cross_entropy(self.forward(x), labels, scale)
        for i in reversed(range(len(self.layers))):
            dx = np.zeros((len(x), SIZES[i]), np.float32)
            self.layers[i].backward(d, dx, self.dw[i], self.db[i])
            d = np.where(self.kept[i] > 0, dx, 0.0).astype(np.float32)
        self.optimizer.set_lr(lr)
        self.optimizer.step(self.scaler)
        self.scaler.update()
        return loss


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--data", type=Path, required=True)
    parser.add_argument("--out", type=Path, required=True)
    parser.add_argument("--recipe", default="fp32")
    parser.add_argument("--seed", type=int, default=1)
    parser.add_argument("--steps", type=int, default=400)
    parser.add_argument("--lr", type=float, default=1e-3)
    arguments = parser.parse_args()
    images, labels = images_of(arguments.data, "train")
    draw = np.random.RandomState(arguments.seed)  # whose numbers numpy does not change
    model = Classifier(mp.Context(threads=1), arguments.recipe, arguments.lr, draw)
    rows = ["recipe,step,train_loss,val_loss"]
    for step in range(arguments.steps):
        progress = max(step - WARMUP, 0) / max(arguments.steps - WARMUP, 1)
        lr = arguments.lr * min((step + 1) / WARMUP, 0.1 + 0.45 * (1.0 + math.cos(math.pi * progress)))
        batch = draw.randint(0, len(images), BATCH)
        rows.append(f"{arguments.recipe},{step + 1},{model.step(images[batch], labels[batch], lr):.9g},")
    test, answers = images_of(arguments.data, "t10k")
    losses = [cross_entropy(model.forward(test[i:i + 1000]), answers[i:i + 1000], 1.0)[0] for i in range(0, len(test), 1000)]
    rows[-1] += f"{sum(losses) / len(losses):.9g}"
    (arguments.out / "losses.csv").write_text("\n".join(rows) + "\n", encoding="utf-8")


if __name__ == "__main__":
    main()
