"""FPL against the equations."""

import pytest
import torch

from tests.unit.frameworks.framework_cases import cluster_upload, cosines, negative_log_shares, serve, step, upload
from vpdr.frameworks import Fpl
from vpdr.frameworks.fpl import FplBroadcast
from vpdr.types import Prototypes
from vpdr.validation import InvalidInput


def test_fpl_by_hand():
    batch, prototypes = step(0, 1, 3), cluster_upload()
    mean = Prototypes(
        torch.stack([prototypes.vectors[prototypes.labels == c].mean(0) for c in (0, 1, 3)]), torch.tensor([0, 1, 3])
    )
    losses = Fpl().losses(batch, FplBroadcast(prototypes, mean))
    expected = 0.5 * negative_log_shares(cosines(batch.features, prototypes.vectors) / 0.07, [0, 1, 3]).mean()
    assert losses["contrast"].item() == pytest.approx(expected, rel=1e-4)
    pull = 0.5 * ((batch.features - mean.vectors) ** 2).mean().item()
    assert losses["align"].item() == pytest.approx(pull, rel=1e-5)
    assert set(losses) == {"task", "contrast", "align"}


def test_fpl_server_clusters_and_the_mean_ignores_cluster_sizes():
    near = [Prototypes(torch.tensor([[10.0, e]]), torch.tensor([2])) for e in (0.0, 0.1, 0.2)]
    far = [Prototypes(torch.tensor([[e, 4.0]]), torch.tensor([2])) for e in (0.0, 0.1)]
    broadcast = serve(Fpl(), near + far, dim=2)
    torch.testing.assert_close(broadcast.centroids.vectors, torch.tensor([[10.0, 0.1], [0.05, 4.0]]))
    torch.testing.assert_close(broadcast.unbiased.vectors, torch.tensor([[5.025, 2.05]]))
    assert broadcast.unbiased.labels.tolist() == [2]


def test_fpl_trusts_a_cluster_by_the_noise_of_its_mean():
    near = [Prototypes(torch.tensor([[8.0, e]]), torch.tensor([2]), torch.tensor([2.0])) for e in (0.0, 0.1)]
    far = [Prototypes(torch.tensor([[e, 4.0]]), torch.tensor([2]), torch.tensor([6.0])) for e in (0.0, 0.1)]
    unbiased = serve(Fpl(), near + far, dim=2).unbiased.vectors
    # means of two have variances 1 and 3, so weights 3/4 and 1/4
    torch.testing.assert_close(unbiased, torch.tensor([[6.0125, 1.0375]]))


def test_one_upload_is_its_own_centroid():
    prototypes = upload(0, 2)
    broadcast = serve(Fpl(), [prototypes])
    assert torch.equal(broadcast.centroids.vectors, prototypes.vectors)
    assert torch.equal(broadcast.unbiased.vectors, prototypes.vectors)


def test_settings_are_checked():
    with pytest.raises(InvalidInput):
        Fpl(temperature=0.0)
