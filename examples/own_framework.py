"""Your own framework: the median of the clients' prototypes instead of their mean.

Run it as a script, or by name: vpdr run paper --plugin own_framework.py --set framework.kind=fedmedian
"""

from collections.abc import Sequence
from dataclasses import dataclass

import torch

import vpdr
from vpdr.frameworks import FRAMEWORKS, FedProto, FrameworkState, ServerContext
from vpdr.types import Prototypes


@dataclass(frozen=True, kw_only=True, slots=True)
class FedMedian(FedProto):
    """FedProto with a median on the server, which one hostile client cannot move far.

    Guarantee: the server reads uploads only, so the median is post-processing and costs no privacy.
    """

    def aggregate(
        self, uploads: Sequence[Prototypes], state: FrameworkState, context: ServerContext
    ) -> tuple[Prototypes, FrameworkState]:
        """The coordinate-wise median of each class over the clients that uploaded it."""
        pooled = Prototypes.concat(uploads)
        labels = pooled.labels.unique()
        medians = [pooled.vectors[pooled.labels == label].median(dim=0).values for label in labels]
        return Prototypes(torch.stack(medians), labels), state


FRAMEWORKS.register("fedmedian", FedMedian)

if __name__ == "__main__":
    config = vpdr.load_config(
        "paper",
        "framework.kind=fedmedian",
        "framework.fedmedian.weight=0.2",
        "mechanism.kind=vpp",
        "benchmark.kind=synthetic",
        "benchmark.samples=100",
        "model.dim=32",
        "run.rounds=3",
    )
    record = vpdr.run(config)
    print(f"accuracy {record.final['own']['head'].average:.3f}: {record.privacy.sentence}")
