#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""Fits a matrix under a recipe with fp8 products: what the wheel and numpy must be able to do together."""
import numpy as np

import mixedprec as mp

context, random = mp.Context(), np.random.default_rng(0)
recipe = mp.Recipe(context, "fp8_current")
x, start = random.standard_normal((64, 32), np.float32), np.zeros((16, 32), np.float32)
wanted = x @ random.standard_normal((32, 16), np.float32)
weight, optimizer = recipe.weight(start.shape, start), mp.Optimizer(recipe)
optimizer.add_group(lr=0.05)
optimizer.add_param("w", weight, initial=start)
linear, grad, losses = mp.Linear(recipe, weight), optimizer.state("w", "grad"), []
optimizer.set_linears([linear])
for _ in range(150):
    y, dx = np.zeros((64, 16), np.float32), np.zeros_like(x)
    linear.forward(x, y)
    losses.append(float(np.mean((y - wanted) ** 2)))
    linear.backward(y - wanted, dx, grad)
    optimizer.step()
print(f"loss {losses[0]:.3f} -> {losses[-1]:.3f}")
assert losses[-1] < 0.02 * losses[0], losses
