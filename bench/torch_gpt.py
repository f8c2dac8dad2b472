#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""The model of mixedprec_train and examples/train_gpt in eager PyTorch: same layers, initial weights, batches and schedule.

A program that measures tokens per second, and the module from which tests/fixtures/make_train_gpt.py takes the
model. Needs torch and numpy; nothing in the library does.
"""
import argparse
import json
import math
import time

import numpy as np
import torch
import torch.nn.functional as F
from torch import nn

GAMMA = 0x9E3779B97F4A7C15
MASK = (1 << 64) - 1
STREAM_TRAIN, STREAM_PARAM = 0, 16  # as in tools/train/random.h


def mix(z):
    """The output function of SplitMix64 (Steele, Lea, Flood 2014), for one Python integer."""
    z = ((z ^ (z >> 30)) * 0xBF58476D1CE4E5B9) & MASK
    z = ((z ^ (z >> 27)) * 0x94D049BB133111EB) & MASK
    return z ^ (z >> 31)


def draws(seed, stream, first, count):
    """Numbers first .. first+count-1 of a stream, 64 bits each."""
    key = mix((seed + GAMMA * (stream + 1)) & MASK)
    with np.errstate(over="ignore"):
        z = np.uint64(key) + np.uint64(GAMMA) * (np.arange(first, first + count, dtype=np.uint64) + np.uint64(1))
        z = (z ^ (z >> np.uint64(30))) * np.uint64(0xBF58476D1CE4E5B9)
        z = (z ^ (z >> np.uint64(27))) * np.uint64(0x94D049BB133111EB)
        return z ^ (z >> np.uint64(31))


def normals(seed, stream, count):
    """Box-Muller, one draw for each number: the upper 32 bits give the radius, the lower 32 the angle."""
    z = draws(seed, stream, 0, count)
    radius = np.sqrt(-2.0 * np.log(((z >> np.uint64(32)).astype(np.float64) + 1.0) / 4294967296.0))
    angle = 2.0 * math.pi * ((z & np.uint64(0xFFFFFFFF)).astype(np.float64) / 4294967296.0)
    return radius * np.cos(angle)


class Block(nn.Module):
    def __init__(self, dim, heads):
        super().__init__()
        self.heads = heads
        self.ln1 = nn.LayerNorm(dim)
        self.qkv = nn.Linear(dim, 3 * dim)
        self.proj = nn.Linear(dim, dim)
        self.ln2 = nn.LayerNorm(dim)
        self.fc = nn.Linear(dim, 4 * dim)
        self.fc2 = nn.Linear(4 * dim, dim)

    def forward(self, x):
        batch, context, dim = x.shape
        q, k, v = self.qkv(self.ln1(x)).split(dim, dim=2)
        q, k, v = (t.view(batch, context, self.heads, -1).transpose(1, 2) for t in (q, k, v))
        y = F.scaled_dot_product_attention(q, k, v, is_causal=True)
        x = x + self.proj(y.transpose(1, 2).contiguous().view(batch, context, dim))
        return x + self.fc2(F.gelu(self.fc(self.ln2(x)), approximate="tanh"))


class GPT(nn.Module):
    def __init__(self, layers, dim, heads, context):
        super().__init__()
        self.wte = nn.Embedding(256, dim)
        self.wpe = nn.Embedding(context, dim)
        self.h = nn.ModuleList(Block(dim, heads) for _ in range(layers))
        self.lnf = nn.LayerNorm(dim)
        self.head = nn.Linear(dim, 256, bias=False)

    def forward(self, tokens, targets):
        x = self.wte(tokens) + self.wpe(torch.arange(tokens.shape[1]))
        for block in self.h:
            x = block(x)
        logits = self.head(self.lnf(x))
        return F.cross_entropy(logits.view(-1, 256).float(), targets.reshape(-1))

    def initialize(self, seed):
        """The initial weights of both programs; parameters() has them in the same order."""
        residual = 0.02 / math.sqrt(2 * len(self.h))
        with torch.no_grad():
            for index, (name, p) in enumerate(self.named_parameters()):
                if p.ndim == 1:
                    p.fill_(1.0 if ".weight" in name else 0.0)
                    continue
                std = residual if "proj." in name or "fc2." in name else 0.02
                value = normals(seed, STREAM_PARAM + index, p.numel()) * std
                p.copy_(torch.from_numpy(value.astype(np.float32)).view_as(p))


def batch_of(text, seed, step, batch, context):
    """Rows of micro-batch `step` (with accumulation: step * accum + micro)."""
    train = len(text) - len(text) // 10
    starts = draws(seed, STREAM_TRAIN, step * batch, batch) % np.uint64(train - context)
    rows = np.stack([text[int(s):int(s) + context + 1] for s in starts])
    rows = torch.from_numpy(rows.astype(np.int64))
    return rows[:, :-1], rows[:, 1:]


def learning_rate(step, steps, lr, min_lr, warmup):
    if step < warmup:
        return lr * (step + 1) / warmup
    return min_lr + 0.5 * (lr - min_lr) * (1.0 + math.cos(math.pi * (step - warmup) / max(1, steps - warmup)))


def train(args, text):
    """Returns the losses and the seconds of each step."""
    torch.manual_seed(0)
    torch.set_num_threads(args.threads)
    model = GPT(args.layers, args.dim, args.heads, args.context)
    model.initialize(args.seed)
    if args.mode == "bf16":
        model = model.to(torch.bfloat16)
    matrices = [p for p in model.parameters() if p.ndim > 1]
    vectors = [p for p in model.parameters() if p.ndim == 1]
    optimizer = torch.optim.AdamW(
        [{"params": matrices, "weight_decay": args.weight_decay}, {"params": vectors, "weight_decay": 0.0}],
        lr=args.lr, betas=(args.beta1, args.beta2), eps=args.eps, fused=True)
    losses, seconds = [], []
    for step in range(args.steps):
        start = time.perf_counter()
        for group in optimizer.param_groups:
            group["lr"] = learning_rate(step, args.steps, args.lr, args.min_lr, args.warmup)
        tokens, targets = batch_of(text, args.seed, step, args.batch, args.context)
        with torch.autocast("cpu", dtype=torch.bfloat16, enabled=args.mode == "autocast"):
            loss = model(tokens, targets)
        loss.backward()
        torch.nn.utils.clip_grad_norm_(model.parameters(), args.clip)
        optimizer.step()
        optimizer.zero_grad(set_to_none=True)
        losses.append(loss.item())
        seconds.append(time.perf_counter() - start)
    return losses, seconds


def parser():
    p = argparse.ArgumentParser(description=__doc__)
    p.add_argument("--data", required=True)
    p.add_argument("--mode", choices=["fp32", "autocast", "bf16"], default="fp32")
    for name, kind, default in (
            ("steps", int, 20), ("layers", int, 4), ("dim", int, 256), ("heads", int, 4), ("context", int, 256),
            ("batch", int, 8), ("threads", int, 2), ("seed", int, 1), ("warmup", int, 10), ("lr", float, 1e-3),
            ("min-lr", float, 1e-4), ("beta1", float, 0.9), ("beta2", float, 0.95), ("eps", float, 1e-8),
            ("weight-decay", float, 0.1), ("clip", float, 1.0)):
        p.add_argument("--" + name, type=kind, default=default)
    return p


def main():
    args = parser().parse_args()
    with open(args.data, "rb") as file:
        text = np.frombuffer(file.read(), dtype=np.uint8)
    losses, seconds = train(args, text)
    median = float(np.median(seconds[min(3, args.steps - 1):]))
    print(json.dumps({"mode": args.mode, "torch": torch.__version__, "steps": args.steps,
                      "first_loss": losses[0], "last_loss": losses[-1],
                      "step_seconds_median": median, "tokens_per_second": args.batch * args.context / median}))


if __name__ == "__main__":
    main()
