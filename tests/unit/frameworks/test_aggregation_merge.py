"""`vpdr.merge`: what a server makes of uploads, without a framework."""

import pytest
import torch

import vpdr
from vpdr import Prototypes
from vpdr.frameworks import FedProto, ServerContext
from vpdr.rng import Streams
from vpdr.validation import InvalidInput


def uploads(with_variances: bool) -> list[Prototypes]:
    rng = torch.Generator().manual_seed(0)
    variances = torch.full((3,), 0.1) if with_variances else None
    return [Prototypes(torch.randn(3, 5, generator=rng), torch.arange(3), variances) for _ in range(4)]


@pytest.mark.parametrize("with_variances", [False, True])
@pytest.mark.parametrize("weights", [None, [1.0, 2.0, 3.0, 4.0]])
def test_it_reads_uploads_as_the_server_of_fedproto_does(with_variances, weights) -> None:
    sent = uploads(with_variances)
    by_client = torch.tensor(weights or [1.0] * 4)[:, None].expand(-1, 3)
    context = ServerContext(round=1, classes=3, dim=5, streams=Streams(0), weights=by_client)
    expected, _ = FedProto().aggregate(sent, {}, context)
    merged = vpdr.merge(sent, weights=weights)
    torch.testing.assert_close(merged.vectors, expected.vectors)
    assert torch.equal(merged.labels, expected.labels)
    assert (merged.variances is not None) == with_variances


def test_names_do_not_depend_on_their_order() -> None:
    named = dict(zip("abcd", uploads(True), strict=True))
    backwards = dict(reversed(named.items()))
    assert torch.equal(vpdr.merge(named).vectors, vpdr.merge(backwards).vectors)


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        ({"uploads": []}, "at least one client"),
        ({"weights": [1.0]}, "expected 4 weights"),
        ({"weights": [1.0, 1.0, 1.0, -1.0]}, "finite and not negative"),
        ({"classes": 2}, r"labels must lie in \[0, 2\)"),
        ({"uploads": {"a": uploads(False)[0]}, "weights": {"b": 1.0}}, "a weight for each of a, got those of b"),
        ({"uploads": {"a": uploads(False)[0], "b": Prototypes(torch.full((1, 5), torch.nan), torch.tensor([0]))}},
         "b: prototypes hold NaN"),
    ],
)  # fmt: skip
def test_bad_input_is_one_line(arguments, message) -> None:
    with pytest.raises(InvalidInput, match=message):
        vpdr.merge(**{"uploads": uploads(False), **arguments})
