# SPDX-License-Identifier: Apache-2.0
"""A small language model on bytes, the same in every language: same text, same seed, same losses to the last digit.

  train.py TEXT [RECIPE [STEPS [FOLDER]]]        recipe bf16_mixed, 60 steps; FOLDER: resume from there, save there

Model: the last 8 bytes, each by an embedding of 16 -> linear 128 -> 128, bias, relu -> linear 128 -> 256, bias ->
softmax. The two products are the library's, in the recipe's dtypes; what is between them is here, in fp32, the loss in
double. Random numbers: s = 48271 s mod (2^31 - 1)."""

import math
import os
import sys

import numpy as np

import mixedprec as mp

CONTEXT, EMBED, HIDDEN, BYTES, BATCH = 8, 16, 128, 256, 32
IN = CONTEXT * EMBED

random_state = np.array([1234], np.int64)  # an array, so that a checkpoint can keep it


def next_random():
    number = int(random_state[0]) * 48271 % 2147483647
    random_state[0] = number
    return number


def uniform(shape, bound):
    """fp32 numbers in [-bound, bound)."""
    numbers = [(2.0 * (next_random() / 2147483647.0) - 1.0) * bound for _ in range(math.prod(shape))]
    return np.array(numbers).astype(np.float32).reshape(shape)


def zeros(*shape):
    return np.zeros(shape, np.float32)


def cross_entropy(logits, targets, factor):
    """The rows' losses summed, and the gradient times `factor`. Sums go from left to right, as in every language."""
    rows = np.arange(len(logits))
    shifted = logits.astype(np.float64)
    shifted -= shifted.max(axis=1, keepdims=True)
    e = np.array([[math.exp(v) for v in row] for row in shifted.tolist()])
    total = e.cumsum(axis=1)[:, -1]
    share = e / total[:, None]
    share[rows, targets] -= 1.0
    losses = [math.log(t) - v for t, v in zip(total, shifted[rows, targets])]
    return sum(losses), (share * factor).astype(np.float32)


def checkpoint_of(context, optimizer, scaler, linear1, linear2):
    checkpoint = mp.Checkpoint(context)
    checkpoint.add_optimizer(optimizer)
    checkpoint.add_scaler(scaler)
    checkpoint.add_linear("linear1", linear1)
    checkpoint.add_linear("linear2", linear2)
    checkpoint.add_data("random", random_state)
    return checkpoint


def main():
    if len(sys.argv) < 2:
        sys.exit("usage: train.py TEXT [RECIPE [STEPS [FOLDER]]]")
    with open(sys.argv[1], "rb") as file:
        text = np.frombuffer(file.read(), np.uint8)
    name = sys.argv[2] if len(sys.argv) > 2 else "bf16_mixed"
    steps = int(sys.argv[3]) if len(sys.argv) > 3 else 60
    folder = sys.argv[4] if len(sys.argv) > 4 else None

    context = mp.Context()
    recipe = mp.Recipe(context, name)
    scaler = mp.Scaler.from_recipe(recipe)
    optimizer = mp.Optimizer(recipe)
    optimizer.add_group(lr=1e-2, weight_decay=0.01)

    embed, embed_grad = uniform((BYTES, EMBED), 1.0), zeros(BYTES, EMBED)
    values1 = uniform((HIDDEN, IN), math.sqrt(1.0 / IN))
    values2 = uniform((BYTES, HIDDEN), math.sqrt(1.0 / HIDDEN))
    bias1, bias1_grad, bias2, bias2_grad = zeros(HIDDEN), zeros(HIDDEN), zeros(BYTES), zeros(BYTES)
    w1, w2 = recipe.weight((HIDDEN, IN), values1), recipe.weight((BYTES, HIDDEN), values2)
    optimizer.add_param("embed", embed, embed_grad)
    optimizer.add_param("w1", w1, initial=values1)
    optimizer.add_param("b1", bias1, bias1_grad)
    optimizer.add_param("w2", w2, initial=values2)
    optimizer.add_param("b2", bias2, bias2_grad)
    dw1, dw2 = optimizer.state("w1", "grad"), optimizer.state("w2", "grad")
    linear1, linear2 = mp.Linear(recipe, w1, bias1), mp.Linear(recipe, w2, bias2)
    optimizer.set_linears([linear1, linear2])

    step = 0
    if folder is not None:
        checkpoint = checkpoint_of(context, optimizer, scaler, linear1, linear2)
        if os.path.isdir(folder):
            step = checkpoint.load(folder).step
            print(f"resumed at step {step}")

    dx, h, dh, logits = zeros(BATCH, IN), zeros(BATCH, HIDDEN), zeros(BATCH, HIDDEN), zeros(BATCH, BYTES)
    while step < steps:
        scale = scaler.scale
        position = np.array([next_random() % (len(text) - CONTEXT) for _ in range(BATCH)])
        inputs = text[position[:, None] + np.arange(CONTEXT)]
        linear1.forward(embed[inputs].reshape(BATCH, IN), h)
        h[~(h > 0)] = 0.0
        linear2.forward(h, logits)
        loss, dlogits = cross_entropy(logits, text[position + CONTEXT], scale / BATCH)

        linear2.backward(dlogits, dh, dw2, bias2_grad)
        dh[~(h > 0)] = 0.0
        linear1.backward(dh, dx, dw1, bias1_grad)
        embed_grad[:] = 0.0
        np.add.at(embed_grad, inputs.reshape(-1), dx.reshape(-1, EMBED))
        optimizer.step(scaler)
        scaler.update()

        step += 1
        if step % 10 == 0:
            print(f"step {step:3d}  loss {loss / BATCH:.9f}  scale {scale:.0f}")
    if folder is not None:
        checkpoint.save(folder, step)


if __name__ == "__main__":
    main()
