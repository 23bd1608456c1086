"""`vpdr.predict` on plain arrays: the same labels as the clients of a run."""

import numpy as np
import pytest
import torch

import vpdr
from vpdr.client.evaluation import predict_all
from vpdr.validation import InvalidInput

SMALL = ("benchmark.kind=synthetic", "benchmark.samples=60", "model.dim=8", "run.rounds=1")


def test_it_predicts_what_a_client_predicts() -> None:
    federation = vpdr.build(vpdr.load_config("strict", *SMALL))
    server, client = federation.server, federation.clients[0]
    uploads = {each.id: each.release(1) for each in federation.clients}
    broadcast, _ = server.aggregate(uploads, server.init_state(), 1)
    client.finetune(broadcast, 1)
    test, train = client.shard.test, client.shard.train
    with torch.no_grad():
        expected = predict_all(client, test, client.personal_features(train))
        released, own = client.released_features(test), client.released_features(train)
        by_features = {id(released): client.personal_features(test), id(own): client.personal_features(train)}
    shared = client.global_prototypes
    options = {"head": lambda rows: client.model.head(by_features[id(rows)])}
    options |= {"own_features": own, "own_labels": train.labels}
    for rule in ("nearest", "head", "fused"):
        assert torch.equal(vpdr.predict(released, shared, rule=rule, **options), expected[rule]), rule


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"rule": "best"}, "rule must be one of nearest, head, fused"),
        ({"rule": "head"}, "needs the client's head"),
        ({"rule": "fused", "head": lambda rows: rows}, "own_features and own_labels"),
        ({"features": np.ones((2, 3))}, "expected prototypes of 3 dimensions"),
        ({"features": np.ones(2)}, r"finite floating-point numbers \[n, d\]"),
        ({"rule": "fused", "head": lambda rows: rows[:, :1], "own_features": np.ones((1, 2)), "own_labels": [0]},
         "labels up to 1"),
    ],
)  # fmt: skip
def test_bad_input_is_one_line(options, message) -> None:
    shared = vpdr.Prototypes(torch.eye(2), torch.tensor([0, 1]))
    with pytest.raises(InvalidInput, match=message):
        vpdr.predict(**{"features": np.ones((2, 2)), "prototypes": shared, **options})
