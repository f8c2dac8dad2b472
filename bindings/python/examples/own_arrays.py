# SPDX-License-Identifier: Apache-2.0
"""Only the optimizer and the loss scaler, on arrays of the program's own: AdamW moves p to a target. Gradients overflow
at step 20: the scaler skips that step and halves its scale. Prints what the same program prints in every language."""

import numpy as np

import mixedprec as mp

context = mp.Context()
scaler = mp.Scaler(context)
p, grad, exp_avg, exp_avg_sq = np.zeros((4, 1000), np.float32)
slot = mp.Slot(p, grad, exp_avg, exp_avg_sq)
target = np.arange(1000, dtype=np.float32) % 7 - 3
step = 1
for i in range(1, 101):
    grad[:] = (p - target) * np.float32(scaler.scale)
    if i == 20:
        grad[5] = np.inf
    stats = mp.step(context, [slot], step=step, scaler=scaler, lr=0.1)
    step += not stats.found_inf
    scaler.update()

taken = step - 1
print(
    f"steps {taken}  skipped {100 - taken}  scale {scaler.scale:.0f}  "
    f"sum {sum(abs(p.astype(float)).tolist()):.9f}  p[1] {p[1]:.9f}"
)
