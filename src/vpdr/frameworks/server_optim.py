"""Training of small server models held as plain tensors: initial values, batches, SGD and AdamW."""

import math
from collections.abc import Iterator
from dataclasses import dataclass
from typing import TypeAlias

import torch
from jaxtyping import Float, Int
from torch import Tensor

from vpdr.frameworks.base import FrameworkState

Parameters: TypeAlias = dict[str, Tensor]

_BETA1, _BETA2, _EPS = 0.9, 0.999, 1e-8  # the defaults of AdamW


def init_uniform(*shape: int, fan_in: int, rng: torch.Generator) -> Tensor:
    """Uniform values in ±1/√fan_in, the default initialisation of a linear layer."""
    return (2 * torch.rand(shape, generator=rng) - 1) / math.sqrt(fan_in)


def init_linear(name: str, shape: tuple[int, int], rng: torch.Generator) -> Parameters:
    """Weight and bias of a linear layer of shape [outputs, inputs]."""
    outputs, inputs = shape
    return {
        f"{name}.weight": init_uniform(outputs, inputs, fan_in=inputs, rng=rng),
        f"{name}.bias": init_uniform(outputs, fan_in=inputs, rng=rng),
    }


def shuffled_batches(count: int, size: int, rng: torch.Generator) -> Iterator[Int[Tensor, " b"]]:
    """Row indices of one epoch in shuffled batches; in order if one batch holds all rows."""
    order = torch.arange(count) if count <= size else torch.randperm(count, generator=rng)
    yield from order.split(size)


def dropout_mask(shape: tuple[int, ...], rate: float, rng: torch.Generator) -> Tensor:
    """A mask of zeros and 1/(1 - rate)."""
    return (torch.rand(shape, generator=rng) >= rate) / (1 - rate)


def with_grad(parameters: Parameters) -> Parameters:
    """A copy of the parameters that records gradients."""
    return {name: value.clone().requires_grad_() for name, value in parameters.items()}


def detached(parameters: Parameters) -> Parameters:
    """The same values without gradients."""
    return {name: value.detach() for name, value in parameters.items()}


def sgd_step(parameters: Parameters, loss: Float[Tensor, ""], lr: float) -> None:
    """One step of gradient descent, in place."""
    gradients = torch.autograd.grad(loss, list(parameters.values()))
    with torch.no_grad():
        for value, gradient in zip(parameters.values(), gradients, strict=True):
            value.sub_(gradient, alpha=lr)


@dataclass(frozen=True, kw_only=True, slots=True)
class AdamW:
    """Adam with decoupled weight decay, with a state that the caller holds."""

    lr: float
    weight_decay: float

    def init_state(self, parameters: Parameters) -> FrameworkState:
        """The state before the first step: both moments are zero."""
        zeros = {name: torch.zeros_like(value) for name, value in parameters.items()}
        return {"steps": 0, "first": zeros, "second": {name: value.clone() for name, value in zeros.items()}}

    def step(self, parameters: Parameters, loss: Float[Tensor, ""], state: FrameworkState) -> FrameworkState:
        """Change the parameters in place by one step, and return the new state."""
        gradients = torch.autograd.grad(loss, list(parameters.values()))
        first, second, steps = dict(state["first"]), dict(state["second"]), state["steps"] + 1
        with torch.no_grad():
            for (name, value), gradient in zip(parameters.items(), gradients, strict=True):
                first[name] = first[name].lerp(gradient, 1 - _BETA1)
                second[name] = _BETA2 * second[name] + (1 - _BETA2) * gradient.square()
                denominator = (second[name] / (1 - _BETA2**steps)).sqrt_().add_(_EPS)
                value.mul_(1 - self.lr * self.weight_decay)
                value.addcdiv_(first[name], denominator, value=-self.lr / (1 - _BETA1**steps))
        return {"steps": steps, "first": first, "second": second}
