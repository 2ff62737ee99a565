#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""Writes optimizers.txt: where 100 steps of each optimizer lead, computed in double by PyTorch.

    python3 make_optimizer_goldens.py > optimizers.txt          (made with torch 2.15.0)

Two problems, each with its start rounded to f32 so that tern begins from the same numbers:

    quadratic   mean over j of ((w - c) L)_j^2 / 2, w (8, 6) flattened, plus mean of (b - d)^2 / 2
    mlp         y ~ fc3(tanh(fc2(tanh(fc1 x)))), mean squared error over 16 examples

SGD, Adam, AdamW and Adafactor are torch.optim's. Its Adafactor has no way to leave out the scaling by the parameter's
size, so it gets lr / size anew for each parameter and step, which cancels. Lion is not in torch; its Muon rounds to
bf16. Both are written out below in double. Learning rates are small enough that nothing converges (the gradients of a
minimum are noise, and Adam makes steps of noise); the script refuses Lion's sign of a number near zero.
"""
import sys

import numpy
import torch

torch.manual_seed(20261130)
torch.set_default_dtype(torch.float64)
STEPS = 100
QUINTIC = (3.4445, -4.7750, 2.0315)


def f32(x):
    return torch.as_tensor(numpy.asarray(x, dtype=numpy.float32).astype(numpy.float64))


def rate(x):
    return float(numpy.float32(x))


def normal(*shape, scale=1.0):
    return f32(torch.randn(*shape) * scale)


def quadratic():
    data = {"L": normal(48, 48, scale=0.3), "c": normal(8, 6), "d": normal(5)}
    start = {"w": normal(8, 6), "b": normal(5)}

    def loss(p):
        x = (p["w"] - data["c"]).reshape(1, 48) @ data["L"]
        return ((x * x).sum() / 2 + ((p["b"] - data["d"]) ** 2).sum() / 2) / 53

    return data, start, loss, ("w",)  # by name


def mlp():
    data = {"x": normal(16, 5), "y": normal(16, 3)}
    sizes = [("fc1", 5, 7), ("fc2", 7, 6), ("fc3", 6, 3)]
    start = {}
    for name, inputs, outputs in sizes:
        start[name + ".weight"] = normal(outputs, inputs, scale=inputs**-0.5)
        start[name + ".bias"] = normal(outputs, scale=0.3)

    def loss(p):
        x = data["x"]
        for name, _, _ in sizes:
            x = x @ p[name + ".weight"].T + p[name + ".bias"]
            if name != "fc3":
                x = torch.tanh(x)
        return ((x - data["y"]) ** 2).mean()

    return data, start, loss, ("fc1.weight", "fc2.weight")  # hidden matrices: not the last layer


# ------------------------------------------------------------------ optimizers


class Lion:
    def __init__(self, groups, lr, betas, weight_decay):
        self.groups, self.lr, self.betas, self.weight_decay = groups, lr, betas, weight_decay
        self.m = {}

    @torch.no_grad()
    def step(self):
        b1, b2 = self.betas
        for group in self.groups:
            for p in group["params"]:
                m = self.m.get(p, torch.zeros_like(p))
                c = b1 * m + (1 - b1) * p.grad
                assert c.abs().min() > 1e-6 * c.abs().max(), "a sign hangs on rounding; take another seed"
                p -= self.lr * (c.sign() + group["weight_decay"] * p)
                self.m[p] = b2 * m + (1 - b2) * p.grad


class Muon:
    """Jordan et al., in the form that keeps momentum as a sum; the orthogonal factor does not see its size."""

    def __init__(self, params, lr, weight_decay, momentum=0.95, nesterov=True):
        self.params, self.lr, self.weight_decay = params, lr, weight_decay
        self.momentum, self.nesterov, self.m = momentum, nesterov, {}

    @torch.no_grad()
    def step(self):
        for p in self.params:
            m = self.m[p] = self.momentum * self.m.get(p, torch.zeros_like(p)) + p.grad
            u = p.grad + self.momentum * m if self.nesterov else m
            tall = u.shape[0] > u.shape[1]
            x = u.T if tall else u
            x = x / (x.norm() + 1e-7)
            for _ in range(5):
                a = x @ x.T
                x = QUINTIC[0] * x + (QUINTIC[1] * a + QUINTIC[2] * a @ a) @ x
            x = x.T if tall else x
            p -= self.lr * (max(1, p.shape[0] / p.shape[1]) ** 0.5 * x + self.weight_decay * p)


class Adafactor:
    """One torch.optim.Adafactor per parameter, with lr and decay divided by what it multiplies lr with."""

    def __init__(self, groups, lr):
        self.lr, self.each = lr, []
        for group in groups:
            for p in group["params"]:
                self.each.append((p, group["weight_decay"], torch.optim.Adafactor([p], lr=lr, d=1.0)))

    def step(self):
        for p, decay, optimizer in self.each:
            size = max(1e-3, p.detach().norm().item() / p.numel() ** 0.5)
            assert self.lr / size <= STEPS**-0.5, "Adafactor would cap this learning rate"
            optimizer.param_groups[0]["lr"] = self.lr / size
            optimizer.param_groups[0]["weight_decay"] = decay * size
            optimizer.step()


class Both:
    def __init__(self, *optimizers):
        self.optimizers = optimizers

    def step(self):
        for optimizer in self.optimizers:
            optimizer.step()


def decaying(params, weight_decay):
    """Matrices decay, vectors do not."""
    matrices = [p for p in params.values() if p.dim() >= 2]
    vectors = [p for p in params.values() if p.dim() < 2]
    groups = [{"params": matrices, "weight_decay": weight_decay}, {"params": vectors, "weight_decay": 0.0}]
    return [g for g in groups if g["params"]]


def muon(params, hidden, lr, nesterov):
    rest = {k: p for k, p in params.items() if k not in hidden}
    return Both(
        Muon([params[k] for k in hidden], lr, 0.1, nesterov=nesterov),
        torch.optim.AdamW(decaying(rest, 0.1), lr=lr, betas=(0.9, 0.95), eps=1e-8),
    )


def grouped(params, lr):
    """AdamW with "*b*:lr=0.5,decay=0.2" (the names with a b in them) before the default rule."""
    named = [p for k, p in params.items() if "b" in k]
    others = {k: p for k, p in params.items() if "b" not in k}
    groups = [{"params": named, "weight_decay": 0.2, "lr": lr * 0.5}] + decaying(others, 0.1)
    return torch.optim.AdamW(groups, lr=lr, betas=(0.9, 0.95), eps=1e-8)


OPTIMIZERS = {  # name: (learning rate, make(params, hidden, lr))
    "sgd": (0.02, lambda p, h, lr: torch.optim.SGD(decaying(p, 0.1), lr=lr)),
    "momentum": (0.01, lambda p, h, lr: torch.optim.SGD(decaying(p, 0.1), lr=lr, momentum=0.9)),
    "nesterov": (0.01, lambda p, h, lr: torch.optim.SGD(decaying(p, 0.1), lr=lr, momentum=0.9, nesterov=True)),
    "adam": (0.001, lambda p, h, lr: torch.optim.Adam(decaying(p, 0.1), lr=lr, betas=(0.9, 0.999), eps=1e-8)),
    "adamw": (0.001, lambda p, h, lr: torch.optim.AdamW(decaying(p, 0.1), lr=lr, betas=(0.9, 0.95), eps=1e-8)),
    "lion": (2.0**-12, lambda p, h, lr: Lion(decaying(p, 0.1), lr, (0.9, 0.99), 0.1)),
    "adafactor": (0.001, lambda p, h, lr: Adafactor(decaying(p, 0.1), lr)),
    "muon": (0.001, lambda p, h, lr: muon(p, h, lr, True)),
    "muon_plain": (0.001, lambda p, h, lr: muon(p, h, lr, False)),
    "groups": (0.001, lambda p, h, lr: grouped(p, lr)),
}


def show(problem, run, name, x):
    values = x.detach().reshape(-1).tolist()
    print(f"{problem} {run} {name} {len(values)}")
    for i in range(0, len(values), 6):
        print(" ".join(f"{v:.12g}" for v in values[i : i + 6]))


def main():
    print(f"# make_optimizer_goldens.py, torch {torch.__version__}: problem run tensor count, then its values")
    for problem, make in (("quadratic", quadratic), ("mlp", mlp)):
        data, start, loss, hidden = make()
        for name, x in data.items():
            show(problem, "data", name, x)
        for name, x in start.items():
            show(problem, "start", name, x)
        for run, (lr, create) in OPTIMIZERS.items():
            params = {k: x.clone().requires_grad_() for k, x in start.items()}
            optimizer = create(params, hidden, rate(lr))
            first = loss(params).item()
            for _ in range(STEPS):
                for p in params.values():
                    p.grad = None
                loss(params).backward()
                optimizer.step()
            print(f"{problem} {run}: loss {first:.4f} -> {loss(params).item():.4f}", file=sys.stderr)
            for name, p in params.items():
                show(problem, run, name, p)


if __name__ == "__main__":
    main()
