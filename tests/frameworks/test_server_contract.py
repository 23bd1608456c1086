"""What every framework must do on the server: a new one is tested by its row in the dict."""

import dataclasses
import inspect
import io
import typing

import pytest
import torch
from framework_cases import (
    CLASSES,
    DIM,
    EVERY,
    ROUNDS,
    SERVES_ANCHORS,
    build,
    now,
    rng,
    serve,
    step,
    total,
    upload,
    uploads_of,
)

from vpdr.errors import InvalidInput
from vpdr.frameworks import FRAMEWORKS, Framework, Now, ServerMemory
from vpdr.privacy.terms import EncoderKind
from vpdr.types import Prototypes


def only_plain(value) -> bool:
    if isinstance(value, dict):
        return all(isinstance(key, str) and only_plain(part) for key, part in value.items())
    return isinstance(value, torch.Tensor | int | float)


def copied(memory: ServerMemory) -> ServerMemory:
    file = io.BytesIO()
    torch.save(memory, file)
    file.seek(0)
    return torch.load(file, weights_only=True)


def same(a, b) -> bool:
    if isinstance(a, dict):
        return a.keys() == b.keys() and all(same(a[key], b[key]) for key in a)
    return torch.equal(a, b) if isinstance(a, torch.Tensor) else a == b


@EVERY
def test_only_a_framework_that_broadcasts_a_path_offers_one(name):
    framework = build(name)
    able = framework.transcript()
    assert framework.path(serve(framework, uploads_of("everybody has everything"))) is None
    assert (able is not None) is (name == "mpft")
    if able is not None:
        assert able.encoder is EncoderKind.TRANSCRIPT
        assert able.path(serve(able, uploads_of("everybody has everything"))) is not None
        assert able.path(serve(able, uploads_of("zero uploads"))) is None


@EVERY
def test_it_is_a_framework_with_frozen_settings(name):
    framework = build(name)
    assert isinstance(framework, Framework)
    with pytest.raises(dataclasses.FrozenInstanceError):
        framework.summarise = None
    assert framework.encoder is (EncoderKind.PUBLIC if name == "mpft" else EncoderKind.PERSONAL)


@EVERY
@pytest.mark.parametrize("kind", ["everybody has everything", "classes are missing"])
def test_the_order_of_clients_does_not_matter(name, kind):
    # dropout masks of the server are drawn row by row, in the order of the engine's sorted clients
    framework = build(name, **({"dropout": 0.0} if name == "mpft" else {}))
    given, batch = uploads_of(kind), step(0, 1, 2, 3, 0)
    weights = torch.rand(len(given), CLASSES, generator=rng()) + 0.1
    order = list(reversed(range(len(given))))
    here = framework.losses(batch, serve(framework, given, weights=weights))
    there = framework.losses(batch, serve(framework, [given[i] for i in order], weights=weights[order]))
    for term in here:
        torch.testing.assert_close(here[term], there[term], rtol=1e-4, atol=1e-6)


@pytest.mark.parametrize("name", SERVES_ANCHORS)
def test_a_missing_class_is_missing_and_not_zero(name):
    framework = build(name)
    anchors = framework.anchors(serve(framework, uploads_of("nobody has class 2")))
    assert sorted(set(anchors.labels.tolist())) == [0, 1, 3]
    assert (anchors.vectors.norm(dim=1) > 0).all()


@EVERY
@pytest.mark.parametrize("kind", ROUNDS)
def test_the_broadcast_survives_the_wire_bit_for_bit(name, kind):
    framework, batch = build(name), step(0, 1, 2, 3)
    broadcast = serve(framework, uploads_of(kind))
    arrays = {key: value.numpy().copy() for key, value in framework.pack(broadcast).items()}
    heard = framework.unpack({key: torch.from_numpy(value) for key, value in arrays.items()})
    again = framework.pack(heard)
    assert list(again) == list(arrays)
    for key, value in framework.pack(broadcast).items():
        assert value.dtype == again[key].dtype
        assert torch.equal(value, again[key])
    assert torch.equal(total(framework, batch, broadcast), total(framework, batch, heard))


@EVERY
def test_a_resumed_server_equals_one_that_never_stopped(name):
    framework = build(name)
    given = [uploads_of("nobody has class 2"), [], uploads_of("everybody has everything")]
    memory = resumed = framework.start(now([]))
    for t, uploads in enumerate(given, start=1):
        broadcast, memory = framework.generate(uploads, memory, now(uploads, t=t))
        loaded = copied(resumed)
        assert only_plain(loaded)
        continued, resumed = framework.generate(uploads, loaded, now(uploads, t=t))
        for key, value in framework.pack(broadcast).items():
            assert torch.equal(value, framework.pack(continued)[key])


@EVERY
def test_generate_leaves_its_inputs_alone(name):
    framework, uploads = build(name), uploads_of("classes are missing")
    moment = now(uploads)
    memory = framework.start(moment)
    before, sent = copied(memory), [(u.vectors.clone(), u.labels.clone()) for u in uploads]
    _, after = framework.generate(uploads, memory, moment)
    later = copied(after)
    framework.generate(uploads, after, now(uploads, t=2))
    assert same(memory, before)
    assert same(after, later)
    assert all(
        torch.equal(u.vectors, v) and torch.equal(u.labels, n)
        for u, (v, n) in zip(uploads, sent, strict=True)
    )


@EVERY
def test_nothing_comes_from_the_global_generator(name):
    framework, uploads = build(name), uploads_of("everybody has everything")
    state = torch.random.get_rng_state()
    total(framework, step(0, 1), serve(framework, uploads))
    assert torch.equal(state, torch.random.get_rng_state())


@EVERY
def test_the_server_can_only_be_given_prototypes(name):
    hints = typing.get_type_hints(FRAMEWORKS[name].generate)
    assert typing.get_args(hints["uploads"]) == (Prototypes,)
    assert list(inspect.signature(FRAMEWORKS[name].generate).parameters) == [
        "self",
        "uploads",
        "memory",
        "now",
    ]


def test_neither_prototypes_nor_the_moment_hold_sizes_or_features():
    assert [field.name for field in dataclasses.fields(Prototypes)] == [
        "vectors",
        "labels",
        "variances",
        "on_path",
    ]
    assert {f.name for f in dataclasses.fields(Now)} == {"t", "classes", "dim", "streams", "weights"}


@pytest.mark.parametrize("name", [name for name in FRAMEWORKS if name != "local"])
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
def test_a_spoilt_upload_is_refused_by_its_position(name, bad):
    with pytest.raises(InvalidInput, match="upload 1"):
        serve(build(name), [upload(0), bad])


@pytest.mark.parametrize("weights", [torch.ones(2, CLASSES), torch.full((1, CLASSES), -1.0)])
def test_weights_must_fit(weights):
    with pytest.raises(InvalidInput, match="weights"):
        serve(build("fedproto"), [upload(0)], weights=weights)
