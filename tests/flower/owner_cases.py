"""A policy, a plan that it allows, and why a message was refused."""

import pytest

from vpdr.flower.errand import Errand
from vpdr.flower.home import Home
from vpdr.flower.node import answer
from vpdr.flower.refusals import Code, Refused

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
FINE = ("release.noise=system", "release.min_count=2")


def refused(home: Home, errand: Errand) -> Code:
    with pytest.raises(Refused) as refusal:
        answer(home, errand)
    return refusal.value.code
