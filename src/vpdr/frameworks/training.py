"""Small server models as plain tensors: initial values, batches, and one step of SGD or AdamW."""

import math
from collections.abc import Iterator
from dataclasses import dataclass
from typing import TypeAlias

import torch
from jaxtyping import Float, Int
from torch import Tensor

from vpdr.checks import fraction, not_negative, positive
from vpdr.frameworks.base import ServerMemory

Parameters: TypeAlias = dict[str, Tensor]


def uniform(*shape: int, fan_in: int, rng: torch.Generator) -> Tensor:
    """The usual start of a linear layer's weight and bias: uniform in ±1/√fan_in."""
    return (2 * torch.rand(shape, generator=rng) - 1) / math.sqrt(fan_in)


def linear(name: str, shape: tuple[int, int], rng: torch.Generator) -> Parameters:
    """Weight and bias of a linear layer of shape [outputs, inputs]."""
    outputs, inputs = shape
    return {
        f"{name}.weight": uniform(outputs, inputs, fan_in=inputs, rng=rng),
        f"{name}.bias": uniform(outputs, fan_in=inputs, rng=rng),
    }


def batches(count: int, size: int, rng: torch.Generator) -> Iterator[Int[Tensor, " b"]]:
    """One epoch in shuffled batches; in the given order where one batch holds everything."""
    order = torch.arange(count) if count <= size else torch.randperm(count, generator=rng)
    yield from order.split(size)


def dropout(shape: tuple[int, ...], rate: float, rng: torch.Generator) -> Tensor:
    """A mask of zeros and 1/(1 - rate)."""
    return (torch.rand(shape, generator=rng) >= rate) / (1 - rate)


def trainable(parameters: Parameters) -> Parameters:
    """A copy that records gradients, so that the given one stays as it is."""
    return {name: value.clone().requires_grad_() for name, value in parameters.items()}


def frozen(parameters: Parameters) -> Parameters:
    """The same values without a gradient."""
    return {name: value.detach() for name, value in parameters.items()}


def descend(parameters: Parameters, loss: Float[Tensor, ""], rate: float) -> None:
    """One step of plain gradient descent, in place."""
    gradients = torch.autograd.grad(loss, list(parameters.values()))
    with torch.no_grad():
        for value, gradient in zip(parameters.values(), gradients, strict=True):
            value.sub_(gradient, alpha=rate)


@dataclass(frozen=True, kw_only=True, slots=True)
class AdamW:
    """Adam with decoupled weight decay, with its state in the open."""

    rate: float = 1e-3
    decay: float = 1e-5
    betas: tuple[float, float] = (0.9, 0.999)
    floor: float = 1e-8

    def __post_init__(self) -> None:
        positive(rate=self.rate, floor=self.floor)
        not_negative(decay=self.decay)
        fraction(beta1=self.betas[0], beta2=self.betas[1])

    def start(self, parameters: Parameters) -> ServerMemory:
        """No step taken, both moments zero."""
        zeros = {name: torch.zeros_like(value) for name, value in parameters.items()}
        return {"steps": 0, "first": zeros, "second": {name: value.clone() for name, value in zeros.items()}}

    def step(self, parameters: Parameters, loss: Float[Tensor, ""], state: ServerMemory) -> ServerMemory:
        """One step in place on the parameters; the state given stays as it is."""
        gradients = torch.autograd.grad(loss, list(parameters.values()))
        first, second = dict(state["first"]), dict(state["second"])
        steps, (slow, slower) = state["steps"] + 1, self.betas
        with torch.no_grad():
            for (name, value), gradient in zip(parameters.items(), gradients, strict=True):
                first[name] = first[name].lerp(gradient, 1 - slow)
                second[name] = slower * second[name] + (1 - slower) * gradient.square()
                spread = (second[name] / (1 - slower**steps)).sqrt_().add_(self.floor)
                value.mul_(1 - self.rate * self.decay)
                value.addcdiv_(first[name], spread, value=-self.rate / (1 - slow**steps))
        return {"steps": steps, "first": first, "second": second}
