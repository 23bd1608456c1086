"""The plug-ins of `plug_ins.py` are registered in every contract test; these are the subjects."""

from collections.abc import Iterator

import pytest

from tests.conftest import BUDGET, CLASSES, DIM, ROUNDS
from tests.contracts.plug_ins import PLUG_INS, with_dummies
from tests.unit.frameworks.framework_cases import SMALL, serve, uploads_of
from vpdr import FRAMEWORKS, MECHANISMS, Adjacency
from vpdr.frameworks import Framework
from vpdr.mechanisms import SELECTIONS, Mechanism, MechanismConfig
from vpdr.rng import Streams

# Modes beside the one without options; a mechanism without a row here is tested without options.
MODES: dict[str, dict[str, dict[str, object]]] = {
    "igpp": {"accumulated": {"accumulate": True}},
    "vpp": {selection: {"selection": selection} for selection in SELECTIONS},
    "rapp": {"projected": {"release_dim": DIM // 2}},
}
SUBJECTS = {
    " ".join((kind, mode)).strip(): (mechanism, options)
    for kind, mechanism in with_dummies(MECHANISMS).items()
    for mode, options in ({"": {}} | MODES.get(kind, {})).items()
}
EVERY_FRAMEWORK = pytest.mark.parametrize("name", with_dummies(FRAMEWORKS))


def broadcasts_prototypes(framework: Framework) -> bool:
    return framework.global_prototypes(serve(framework, uploads_of("all classes everywhere"))) is not None


HAS_GLOBAL_PROTOTYPES = [
    name
    for name, framework in with_dummies(FRAMEWORKS).items()
    if broadcasts_prototypes(framework(**SMALL.get(name, {})))
]
PRIVATE = [
    name
    for name, (mechanism, options) in SUBJECTS.items()
    if mechanism.traits.is_private and options.get("selection") != "oracle"
]


def mechanism_config(adjacency: Adjacency = Adjacency.REPLACE_SAME_LABEL, **options: object) -> MechanismConfig:
    return MechanismConfig(
        budget=BUDGET,
        releases=ROUNDS,
        clip_norm=5.0,
        dim=DIM,
        classes=CLASSES,
        adjacency=adjacency,
        accountant="exact",
        samples_per_class=0,
        rng=Streams(0).generator("release-space"),
        options=options,
    )


def make(name: str) -> Mechanism:
    mechanism, options = SUBJECTS[name]
    return mechanism.from_config(mechanism_config(**options))


@pytest.fixture(params=SUBJECTS, ids=str, scope="session")
def mechanism(request: pytest.FixtureRequest) -> Mechanism:
    """Every registered mechanism in every mode."""
    return make(request.param)


@pytest.fixture(params=PRIVATE, ids=str, scope="session")
def private_mechanism(request: pytest.FixtureRequest) -> Mechanism:
    """Every registered mechanism that claims a guarantee."""
    return make(request.param)


@pytest.fixture(autouse=True)
def _registered() -> Iterator[None]:
    for registry, plug_in in PLUG_INS:
        registry.register("dummy", plug_in)
    yield
    for registry, _ in PLUG_INS:
        registry.unregister("dummy")
