"""What every framework must do on the server: a registered one is tested without any change here."""

import dataclasses
import inspect
import io
import typing

import pytest
import torch

from tests.contracts.conftest import EVERY_FRAMEWORK, HAS_GLOBAL_PROTOTYPES
from tests.contracts.plug_ins import with_dummies
from tests.unit.frameworks.framework_cases import (
    CLASSES,
    DIM,
    ROUNDS,
    SMALL,
    build,
    now,
    rng,
    serve,
    step,
    total,
    upload,
    uploads_of,
)
from vpdr.frameworks import FRAMEWORKS, Framework, FrameworkState, ServerContext
from vpdr.privacy import EncoderKind
from vpdr.types import Prototypes
from vpdr.validation import InvalidInput


def is_plain(value) -> bool:
    if isinstance(value, dict):
        return all(isinstance(key, str) and is_plain(part) for key, part in value.items())
    return isinstance(value, torch.Tensor | int | float)


def copied(state: FrameworkState) -> FrameworkState:
    file = io.BytesIO()
    torch.save(state, file)
    file.seek(0)
    return torch.load(file, weights_only=True)


def same(a, b) -> bool:
    if isinstance(a, dict):
        return a.keys() == b.keys() and all(same(a[key], b[key]) for key in a)
    return torch.equal(a, b) if isinstance(a, torch.Tensor) else a == b


@EVERY_FRAMEWORK
def test_only_mpft_broadcasts_a_feature_map(name):
    framework = build(name)
    variant = framework.with_broadcast_features()
    assert framework.feature_map(serve(framework, uploads_of("all classes everywhere"))) is None
    assert (variant is not None) is (name == "mpft")
    if variant is not None:
        assert variant.encoder_kind is EncoderKind.BROADCAST
        assert variant.feature_map(serve(variant, uploads_of("all classes everywhere"))) is not None
        assert variant.feature_map(serve(variant, uploads_of("zero uploads"))) is None


@EVERY_FRAMEWORK
def test_it_is_a_framework_with_frozen_settings(name):
    framework = build(name)
    assert isinstance(framework, Framework)
    with pytest.raises(dataclasses.FrozenInstanceError):
        framework.summariser = None
    assert framework.encoder_kind is (EncoderKind.PUBLIC if name == "mpft" else EncoderKind.PERSONAL)


@EVERY_FRAMEWORK
def test_a_framework_is_made_from_its_settings_in_a_config(name):
    assert FRAMEWORKS[name].from_config({}) == FRAMEWORKS[name]()
    options = SMALL.get(name, {})
    assert FRAMEWORKS[name].from_config(options) == build(name)


@EVERY_FRAMEWORK
@pytest.mark.parametrize("has_variances", [False, True])
@pytest.mark.parametrize("kind", ["all classes everywhere", "classes are missing"])
def test_weights_change_a_broadcast_only_where_the_framework_says_so(name, kind, has_variances):
    """Where they do not, `weights.kind` is refused as a setting without effect."""
    framework, uploads = build(name), uploads_of(kind)
    if has_variances:
        uploads = [
            dataclasses.replace(each, variances=0.1 * torch.rand(len(each.labels), generator=rng()) + 0.1)
            for each in uploads
        ]
    weights = torch.rand(len(uploads), CLASSES, generator=rng()) + 0.1
    equal, weighted = (framework.pack(serve(framework, uploads, weights=each)) for each in (None, weights))
    changed = equal.keys() != weighted.keys() or not same(equal, weighted)
    assert not changed or (framework.has_uploads and framework.uses_weights(has_variances=has_variances))
    if framework.has_uploads and framework.uses_weights(has_variances=False):
        assert changed


@EVERY_FRAMEWORK
@pytest.mark.parametrize("kind", ["all classes everywhere", "classes are missing"])
def test_the_order_of_clients_does_not_matter(name, kind):
    # dropout masks of the server are drawn row by row, in the order of the engine's sorted clients
    framework = build(name, **({"dropout": 0.0} if name == "mpft" else {}))
    uploads, batch = uploads_of(kind), step(0, 1, 2, 3, 0)
    weights = torch.rand(len(uploads), CLASSES, generator=rng()) + 0.1
    order = list(reversed(range(len(uploads))))
    in_order = framework.losses(batch, serve(framework, uploads, weights=weights))
    reversed_order = framework.losses(batch, serve(framework, [uploads[i] for i in order], weights=weights[order]))
    for term in in_order:
        torch.testing.assert_close(in_order[term], reversed_order[term], rtol=1e-4, atol=1e-6)


@pytest.mark.parametrize("name", HAS_GLOBAL_PROTOTYPES)
def test_a_missing_class_is_missing_and_not_zero(name):
    framework = build(name)
    prototypes = framework.global_prototypes(serve(framework, uploads_of("class 2 is missing")))
    assert sorted(set(prototypes.labels.tolist())) == [0, 1, 3]
    assert (prototypes.vectors.norm(dim=1) > 0).all()


@EVERY_FRAMEWORK
@pytest.mark.parametrize("kind", ROUNDS)
def test_the_broadcast_survives_the_wire_bit_for_bit(name, kind):
    framework, batch = build(name), step(0, 1, 2, 3)
    broadcast = serve(framework, uploads_of(kind))
    arrays = {key: value.numpy().copy() for key, value in framework.pack(broadcast).items()}
    unpacked = framework.unpack({key: torch.from_numpy(value) for key, value in arrays.items()})
    again = framework.pack(unpacked)
    assert list(again) == list(arrays)
    for key, value in framework.pack(broadcast).items():
        assert value.dtype == again[key].dtype
        assert torch.equal(value, again[key])
    assert torch.equal(total(framework, batch, broadcast), total(framework, batch, unpacked))


@EVERY_FRAMEWORK
def test_a_resumed_server_equals_one_that_never_stopped(name):
    framework = build(name)
    uploads_by_round = [uploads_of("class 2 is missing"), [], uploads_of("all classes everywhere")]
    state = resumed = framework.init_state(now([]))
    for round, uploads in enumerate(uploads_by_round, start=1):
        broadcast, state = framework.aggregate(uploads, state, now(uploads, round=round))
        loaded = copied(resumed)
        assert is_plain(loaded)
        continued, resumed = framework.aggregate(uploads, loaded, now(uploads, round=round))
        for key, value in framework.pack(broadcast).items():
            assert torch.equal(value, framework.pack(continued)[key])


@EVERY_FRAMEWORK
def test_aggregate_leaves_its_inputs_alone(name):
    framework, uploads = build(name), uploads_of("classes are missing")
    context = now(uploads)
    state = framework.init_state(context)
    before, copies = copied(state), [(u.vectors.clone(), u.labels.clone()) for u in uploads]
    _, after = framework.aggregate(uploads, state, context)
    later = copied(after)
    framework.aggregate(uploads, after, now(uploads, round=2))
    assert same(state, before)
    assert same(after, later)
    assert all(
        torch.equal(u.vectors, v) and torch.equal(u.labels, n) for u, (v, n) in zip(uploads, copies, strict=True)
    )


@EVERY_FRAMEWORK
def test_nothing_comes_from_the_global_generator(name):
    framework, uploads = build(name), uploads_of("all classes everywhere")
    state = torch.random.get_rng_state()
    total(framework, step(0, 1), serve(framework, uploads))
    assert torch.equal(state, torch.random.get_rng_state())


@EVERY_FRAMEWORK
def test_the_server_can_only_be_given_prototypes(name):
    hints = typing.get_type_hints(FRAMEWORKS[name].aggregate)
    assert typing.get_args(hints["uploads"]) == (Prototypes,)
    assert list(inspect.signature(FRAMEWORKS[name].aggregate).parameters) == ["self", "uploads", "state", "context"]


def test_neither_prototypes_nor_the_context_hold_sizes_or_features():
    assert [field.name for field in dataclasses.fields(Prototypes)] == [
        "vectors",
        "labels",
        "variances",
        "in_broadcast_space",
    ]
    assert {f.name for f in dataclasses.fields(ServerContext)} == {"round", "classes", "dim", "streams", "weights"}


@pytest.mark.parametrize("name", [name for name, kind in with_dummies(FRAMEWORKS).items() if kind.has_uploads])
@pytest.mark.parametrize(
    "bad",
    [
        Prototypes(torch.full((1, DIM), torch.nan), torch.tensor([0])),
        Prototypes(torch.zeros(1, DIM), torch.tensor([CLASSES])),
        Prototypes(torch.zeros(1, DIM), torch.tensor([-1])),
        Prototypes(torch.zeros(1, DIM + 1), torch.tensor([0])),
        Prototypes(torch.zeros(1, DIM), torch.tensor([0]), torch.tensor([-1.0])),
    ],
)
def test_an_invalid_upload_is_refused_by_its_index(name, bad):
    with pytest.raises(InvalidInput, match="upload 1"):
        serve(build(name), [upload(0), bad])


@pytest.mark.parametrize("weights", [torch.ones(2, CLASSES), torch.full((1, CLASSES), -1.0)])
def test_weights_must_fit(weights):
    with pytest.raises(InvalidInput, match="weights"):
        serve(build("fedproto"), [upload(0)], weights=weights)
