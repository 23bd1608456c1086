"""The gradient of every sample by itself, through Opacus."""

import importlib.util
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Any, TypeAlias

from jaxtyping import Float
from torch import Tensor, nn

from vpdr.encoder.adapters import SeededDropout
from vpdr.errors import InvalidInput

Gradients: TypeAlias = Callable[[Float[Tensor, ""]], list[Float[Tensor, "b ..."]]]


def require_opacus() -> None:
    """Say what is missing before anything starts."""
    if importlib.util.find_spec("opacus") is None:
        raise InvalidInput(
            "train.privacy=dpsgd needs Opacus, which is not installed; run pip install 'vpdr[dpsgd]'"
        )


@contextmanager
def by_sample(model: nn.Module) -> Iterator[Gradients]:
    """Inside, a loss that is summed over the rows of one forward pass gives the gradient of each row.

    The rows are those of the model's inputs, and the loss must be a sum of terms of one row each: Opacus
    takes what comes back along a row as that row's own. Dropout is off: nothing random but the noise.
    """
    from opacus import GradSampleModule

    model.train()  # without this Opacus would not listen
    for part in model.modules():
        if isinstance(part, SeededDropout):
            part.eval()
    wrapped = GradSampleModule(model, batch_first=True, loss_reduction="sum")
    parameters: list[Any] = list(model.parameters())  # Opacus gives them one attribute more

    def gradients(loss: Float[Tensor, ""]) -> list[Float[Tensor, "b ..."]]:
        loss.backward()
        found = [each.grad_sample.detach() for each in parameters]
        wrapped.zero_grad(set_to_none=True)
        return found

    try:
        yield gradients
    finally:
        wrapped.to_standard_module()
        for part in model.modules():
            vars(part).pop("activations", None)  # private, and of no use to anybody
        model.zero_grad(set_to_none=True)
        model.eval()
