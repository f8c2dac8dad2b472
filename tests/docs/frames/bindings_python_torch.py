# SPDX-License-Identifier: Apache-2.0
# bindings/python/README.md: torch's parameters under the optimizer of examples/torch_optimizer.py.
# snippet needs: python:numpy python:torch
# snippet with: bindings/python/examples/torch_optimizer.py
import torch
from torch_optimizer import MixedPrecAdamW

torch.manual_seed(1)
x = torch.randn(32, 8, dtype=torch.bfloat16)


class Net(torch.nn.Linear):
    def __init__(self):
        super().__init__(8, 1)


def loss_of(model):
    return (model(x) - 1).square().mean()


# snippet: step
before = loss_of(model).item()
for _ in range(100):
    optimizer.zero_grad()
    optimizer.scale(loss_of(model)).backward()
    optimizer.step()
assert loss_of(model).item() < 0.9 * before, (before, loss_of(model).item())
