# SPDX-License-Identifier: Apache-2.0
"""A torch optimizer in the dtypes of a recipe, over DLPack: weights, gradients and states are not copied.

    model = Net().to(torch.bfloat16)
    optimizer = MixedPrecAdamW(model.parameters(), recipe="bf16_pure_kahan", lr=1e-3)
    for x, target in batches:
        optimizer.zero_grad()
        optimizer.scale(loss_of(model(x), target)).backward()
        optimizer.step()

Run as a program it trains a small network three times: beside torch.optim.AdamW, in bf16 with Kahan's compensation, and
in fp16 with a loss scale."""

import torch

import mixedprec as mp


class MixedPrecAdamW(torch.optim.Optimizer):
    """AdamW by libmixedprec. Schedulers, parameter groups, state_dict and load_state_dict are torch's.

    recipe         a name out of mixedprec.presets(). Parameters are fp32, or of the recipe's weight.dtype
    max_grad_norm  clip the global norm; 0: no clipping
    seed           of stochastic rounding
    context        a mixedprec.Context; None: one for the device of the first parameter

    Gradients keep their memory: zero_grad() writes zeros. A parameter without a gradient is left alone, as torch does;
    so each is a group of its own in the library, which counts its steps.
    """

    def __init__(
        self,
        params,
        recipe="fp32",
        lr=1e-3,
        betas=(0.9, 0.999),
        eps=1e-8,
        weight_decay=1e-2,
        max_grad_norm=0.0,
        seed=0,
        context=None,
    ):
        params = list(params)
        if not params:
            raise ValueError("the optimizer got no parameters")
        if context is None:
            first = params[0]["params"] if isinstance(params[0], dict) else params[0]
            first = first if isinstance(first, torch.Tensor) else list(first)[0]
            context = (
                mp.Context() if first.device.type == "cpu" else mp.Context(device="cuda", index=first.device.index)
            )
        self._context = context
        self._recipe = mp.Recipe(context, recipe)
        self._scaler = mp.Scaler.from_recipe(self._recipe)
        self._optimizer = mp.Optimizer(self._recipe, max_grad_norm=max_grad_norm, seed=seed)
        self._params = []  # (param, its gradient, (address, lr) that the library knows), by the library's number
        super().__init__(params, dict(lr=lr, betas=betas, eps=eps, weight_decay=weight_decay))

    def add_param_group(self, param_group):
        super().add_param_group(param_group)
        group = self.param_groups[-1]
        group["fixed"] = group["betas"], group["eps"], group["weight_decay"]  # the library takes these once
        for param in group["params"]:
            param.grad = torch.zeros_like(param, memory_format=torch.contiguous_format)
            number = self._optimizer.add_group(
                lr=group["lr"], betas=group["betas"], eps=group["eps"], weight_decay=group["weight_decay"]
            )
            self._optimizer.add_param(f"param{number}", param.detach(), param.grad, group=number)
            self._params.append([param, param.grad, param.data_ptr(), group["lr"]])

    @property
    def scaler(self):
        """The loss scaler of the recipe; its scale is 1 where the recipe needs none."""
        return self._scaler

    def scale(self, loss):
        """The loss times the loss scale: call backward() on it."""
        return loss * self._scaler.scale

    def zero_grad(self, set_to_none=False):
        """Gradients of zeros; their memory stays, also where set_to_none is asked for."""
        for param, grad, *_ in self._params:
            grad.zero_()
            param.grad = grad

    @torch.no_grad()
    def step(self, closure=None):
        """One step; skipped where the loss scaler finds a gradient that is not finite."""
        loss = None
        if closure is not None:
            with torch.enable_grad():
                loss = closure()
        lr = {param: self._lr(group) for group in self.param_groups for param in group["params"]}
        for number, known in enumerate(self._params):
            param, grad, address, old = known
            if param.data_ptr() != address:
                raise RuntimeError(f"parameter {number} has moved: make the optimizer after model.to(...)")
            if param.grad is not None and param.grad is not grad:  # made by autograd after somebody's grad = None
                grad.copy_(param.grad)
                param.grad = grad
            self._optimizer.set_enabled(param.grad is not None, number)
            if lr[param] != old:
                self._optimizer.set_lr(lr[param], number)
                known[3] = lr[param]
        if self._params[0][0].is_cuda:
            torch.cuda.current_stream().synchronize()
        self._optimizer.step(self._scaler)
        self._scaler.update()
        self._context.sync()
        return loss

    def _lr(self, group):
        if group["fixed"] != (group["betas"], group["eps"], group["weight_decay"]):
            raise ValueError("only lr of a parameter group can change")
        return float(group["lr"])

    def _states(self):
        names = ["exp_avg", "exp_avg_sq"]
        if self._recipe["optimizer.compensation.dtype"] != "none":
            names.append("compensation")
        if self._recipe["master.dtype"] != "none":
            names.append("fp32_param")
        return names

    def state_dict(self):
        """As torch's, the states as fp32 values: "step", "exp_avg", "exp_avg_sq", and what the recipe has beside
        them."""
        for number, (param, *_) in enumerate(self._params):
            state = {"step": torch.tensor(float(self._optimizer.group_step(number)))}
            for name in self._states():
                try:
                    state[name] = torch.from_dlpack(self._optimizer.read_state(number, name)).reshape(param.shape)
                except mp.UnknownNameError:  # a parameter in fp32 has no master weight or compensation
                    pass
            self.state[param] = state
        saved = super().state_dict()
        self.state.clear()
        saved["mixedprec"] = {
            "recipe": self._recipe.to_json(),
            "scaler": tuple(self._scaler.state),
            "step": self._optimizer.stats.step,
        }
        return saved

    def load_state_dict(self, state_dict):
        """Takes a state_dict of this class, or one of torch.optim.AdamW. Load the model's first."""
        super().load_state_dict({"state": {}, "param_groups": state_dict["param_groups"]})
        numbers = {id(param): number for number, (param, *_) in enumerate(self._params)}
        order = [numbers[id(param)] for group in self.param_groups for param in group["params"]]
        saved = [index for group in state_dict["param_groups"] for index in group["params"]]
        for group in self.param_groups:
            group["fixed"] = group["betas"], group["eps"], group["weight_decay"]
        own = state_dict.get("mixedprec", {})
        steps = {
            number: int(state_dict["state"][index]["step"])
            for number, index in zip(order, saved)
            if index in state_dict["state"]
        }
        self._optimizer.set_step(own.get("step", max(steps.values(), default=0)))
        for number, index in zip(order, saved):
            self._optimizer.set_group_step(steps.get(number, 0), number)
            self._optimizer.sync_master(number)
            for name in self._states():
                values = state_dict["state"].get(index, {}).get(name)
                if values is not None:
                    self._optimizer.write_state(number, name, values.detach().float().contiguous())
        if own:
            self._scaler.state = own["scaler"]


def train(model, optimizer, steps=50, dtype=torch.float32):
    """Losses of some steps on numbers that are always the same."""
    random = torch.Generator().manual_seed(1)
    x, target = torch.randn(256, 16, generator=random), torch.randn(256, 4, generator=random)
    losses = []
    for _ in range(steps):
        optimizer.zero_grad()
        loss = torch.nn.functional.mse_loss(model(x.to(dtype)).float(), target)
        getattr(optimizer, "scale", lambda loss: loss)(loss).backward()
        optimizer.step()
        losses.append(loss.item())
    return losses


def network(dtype=torch.float32):
    torch.manual_seed(0)
    return torch.nn.Sequential(torch.nn.Linear(16, 64), torch.nn.Tanh(), torch.nn.Linear(64, 4)).to(dtype)


def main():
    ours, theirs = network(), network()
    ours_losses = train(ours, MixedPrecAdamW(ours.parameters()))
    losses = train(theirs, torch.optim.AdamW(theirs.parameters()))
    with torch.no_grad():
        difference = max(float((a - b).norm() / b.norm()) for a, b in zip(ours.parameters(), theirs.parameters()))
    line = f"fp32             {ours_losses[-1]:.6f}, torch.optim.AdamW {losses[-1]:.6f}"
    print(f"{line}; weights differ by {difference:.1e}")
    for recipe, dtype in (("bf16_pure_kahan", torch.bfloat16), ("fp16_mixed", torch.float16)):
        model = network(dtype)
        optimizer = MixedPrecAdamW(model.parameters(), recipe=recipe)
        losses = train(model, optimizer, dtype=dtype)
        print(f"{recipe:16} {losses[-1]:.6f}, loss scale {optimizer.scaler.scale:.0f}")


if __name__ == "__main__":
    main()
