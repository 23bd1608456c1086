"""A policy, settings that it allows, and the code of a refused request."""

import pytest

from vpdr.flower.client_app import handle_request
from vpdr.flower.messages import RoundRequest
from vpdr.flower.owner import NodeStore, Refusal, RefusalCode

POLICY = """
name = "hospital-a"

[budget]
epsilon = 1.0
delta = 1e-5
adjacency = "replace-same-label"

[allow]
mechanisms = ["igpp", "vpp", "rapp"]
rounds = 20
guarantee = "conditional"
min_class_count = 2

[data]
benchmark = "synthetic"
"""
ALLOWED_SETTINGS = ("release.noise=system", "release.min_count=2")


def refusal_code(store: NodeStore, request: RoundRequest) -> RefusalCode:
    with pytest.raises(Refusal) as refusal:
        handle_request(store, request)
    return refusal.value.code
