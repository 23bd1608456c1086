"""The weights of uploads in the average of a class."""

import numpy as np
import pytest
import torch

from tests.unit.frameworks.framework_cases import DIM, serve, upload
from vpdr.frameworks import FedPcl, FedProto
from vpdr.frameworks.aggregation import class_weights
from vpdr.types import Prototypes


def test_weights_over_the_holders_of_a_class_sum_to_one():
    prototypes = Prototypes.concat([upload(0, 1, 2), upload(1, 2), upload(2)])
    weights = class_weights(prototypes, torch.tensor([0.1, 7.0, 2.0, 1.0, 3.0, 0.0]))
    sums = torch.zeros(3, dtype=torch.float64).index_add_(0, prototypes.labels, weights)
    torch.testing.assert_close(sums, torch.ones(3, dtype=torch.float64))
    assert weights[-1] == 0


def test_published_noise_counts_against_a_prototype():
    prototypes = Prototypes(torch.zeros(3, 2), torch.tensor([0, 0, 1]), torch.tensor([1.0, 4.0, 0.0]))
    weights = class_weights(prototypes, torch.tensor([1.0, 2.0, 1.0]))
    np.testing.assert_allclose(weights, [2 / 3, 1 / 3, 1])


@pytest.mark.parametrize("framework", [FedProto(), FedPcl()])
def test_the_less_noisy_upload_dominates_the_average(framework):
    precise = Prototypes(torch.ones(1, DIM), torch.tensor([0]), torch.tensor([1.0]))
    noisy = Prototypes(-torch.ones(1, DIM), torch.tensor([0]), torch.tensor([3.0]))
    broadcast = framework.global_prototypes(serve(framework, [precise, noisy]))
    torch.testing.assert_close(broadcast.vectors, torch.full((1, DIM), 0.5))
