"""Server-side processing of uploads: validation, denoising, class averages and FINCH centroids.

All of it is post-processing of released prototypes and public numbers: it costs no privacy.
"""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass

import torch

from vpdr.frameworks import base
from vpdr.prototypes import shrinkage, summarisers
from vpdr.rng import Streams
from vpdr.types import Bool, Float, Int, Prototypes, Tensor
from vpdr.validation import InvalidInput

_MIN_RELIABILITY = 1e-9


@dataclass(frozen=True, slots=True)
class PooledUploads:
    """All prototypes of a round, with the index of the upload and the public weight of each."""

    prototypes: Prototypes
    upload_index: Int[Tensor, " p"]
    weights: Float[Tensor, " p"]


def merge(
    uploads: Sequence[Prototypes] | Mapping[str, Prototypes],
    *,
    weights: Sequence[float] | Mapping[str, float] | None = None,
    classes: int | None = None,
) -> Prototypes:
    """One prototype for each class from the uploads of several clients, as the servers of the frameworks read them.

    Where uploads publish their noise and have a row for every class, they are shrunk by it first, all clients and
    classes together; otherwise this is the weighted mean of each class, by precision where that is published.

    Args:
        uploads: what each client sent, in any order, or by the name of the client.
        weights: how much each client counts, in the order of the uploads or by name. Public: sizes only if they may
            be known. Equal if None.
        classes: the public number of classes; one more than the largest label if None.

    Returns:
        The prototypes of all classes that a client with a positive weight uploaded, in the order of their labels.

    Raises:
        InvalidInput: no uploads, an upload of another dimension or with NaN, or weights that do not fit.

    Guarantee: post-processing of uploads that were paid for, and of public numbers: it costs no privacy.

    >>> first = Prototypes(torch.tensor([[0.0, 2.0], [4.0, 0.0]]), torch.tensor([0, 1]))
    >>> second = Prototypes(torch.tensor([[2.0, 2.0]]), torch.tensor([0]))
    >>> merge([first, second]).vectors.tolist()
    [[1.0, 2.0], [4.0, 0.0]]
    >>> merge({"a": first, "b": second}, weights={"a": 1, "b": 3}).vectors.tolist()
    [[1.5, 2.0], [4.0, 0.0]]
    """
    names = sorted(uploads) if isinstance(uploads, Mapping) else [f"upload {number}" for number in range(len(uploads))]
    ordered = [uploads[name] for name in names] if isinstance(uploads, Mapping) else list(uploads)
    if not ordered:
        raise InvalidInput("expected the uploads of at least one client, got none")
    if isinstance(weights, Mapping):
        if set(weights) != set(names):
            raise InvalidInput(f"expected a weight for each of {', '.join(names)}, got those of {', '.join(weights)}")
        weights = [weights[name] for name in names]
    ones = torch.ones(len(ordered), dtype=torch.float64)
    by_client = ones if weights is None else torch.as_tensor(weights, dtype=torch.float64)
    if classes is None:
        classes = 1 + max((int(each.labels.max()) for each in ordered if len(each.labels)), default=-1)
    if by_client.shape != (len(ordered),):
        raise InvalidInput(f"expected {len(ordered)} weights, one for each upload, got {list(by_client.shape)}")
    context = base.ServerContext(
        round=1,
        classes=classes,
        dim=ordered[0].vectors.shape[-1],
        streams=Streams(0),
        weights=by_client[:, None].expand(-1, classes),
    )
    merged = denoise_uploads(pool_uploads(ordered, context, names), classes).class_prototypes
    variances = None if merged.variances is None else merged.variances.float()
    return Prototypes(merged.vectors.float(), merged.labels, variances)


def pool_uploads(
    uploads: Sequence[Prototypes], context: base.ServerContext, names: Sequence[str] = ()
) -> PooledUploads:
    """The uploads in double precision and in the given order; InvalidInput where they do not fit the context."""
    if context.weights.shape != (len(uploads), context.classes):
        shape = list(context.weights.shape)
        raise InvalidInput(f"expected weights of shape [{len(uploads)}, {context.classes}], got {shape}")
    if not bool((context.weights >= 0).all() & context.weights.isfinite().all()):
        raise InvalidInput("weights of clients must be finite and not negative")
    for index, upload in enumerate(uploads):
        name, vectors, labels = names[index] if names else f"upload {index}", upload.vectors, upload.labels
        if vectors.shape != (len(labels), context.dim):
            expected = [len(labels), context.dim]
            raise InvalidInput(f"{name}: expected prototypes of shape {expected}, got {list(vectors.shape)}")
        if not bool(vectors.isfinite().all()):
            raise InvalidInput(
                f"{name}: prototypes hold NaN or infinity, which would pass into every client's broadcast"
            )
        if bool(((labels < 0) | (labels >= context.classes)).any()):
            raise InvalidInput(f"{name}: labels must lie in [0, {context.classes}), got {labels.tolist()}")
        if upload.variances is not None and not bool((upload.variances >= 0).all()):
            raise InvalidInput(f"{name}: published variances must not be negative")
    if not uploads:
        uploads = [Prototypes(torch.zeros(0, context.dim), torch.zeros(0, dtype=torch.int64))]
    upload_index = torch.arange(len(uploads)).repeat_interleave(torch.tensor([len(each.labels) for each in uploads]))
    pooled = Prototypes.concat(uploads)
    variances = None if pooled.variances is None else pooled.variances.double()
    prototypes = Prototypes(pooled.vectors.double(), pooled.labels, variances)
    return PooledUploads(prototypes, upload_index, context.weights[upload_index, pooled.labels].double())


@dataclass(frozen=True, slots=True)
class DenoisedUploads:
    """Uploads after shrinkage, and one prototype for each class with its remaining variance."""

    prototypes: Prototypes  # as many rows as were uploaded; after shrinkage without variances
    class_prototypes: Prototypes


def denoise_uploads(pooled: PooledUploads, classes: int) -> DenoisedUploads:
    """Shrink the uploads by their published noise, and average them by class.

    Where every client sent the same number of rows for each class, with variances, clients and classes are
    estimated together (`blup`): the average is the part of a class that all clients share or, where clients
    have different public weights, the weighted mean of their shrunk uploads, with its own variance.
    Otherwise the uploads stay as they are, and averages weight by public weights and precision.
    """
    uploaded, grid = pooled.prototypes, _rows_by_client_and_class(pooled, classes)
    if grid is None or uploaded.variances is None:
        averages = class_averages(uploaded, class_weights(uploaded, pooled.weights))
        return DenoisedUploads(uploaded, averages)
    result = shrinkage.blup(uploaded.vectors[grid], uploaded.variances[grid])
    vectors = torch.empty_like(uploaded.vectors)
    vectors[grid] = result.per_client
    shrunk = Prototypes(vectors, uploaded.labels)
    vectors, variances = result.per_class, result.per_class_variances
    if len(pooled.weights.unique()) > 1 and bool((pooled.weights[grid].sum(dim=0) > 0).all()):
        weights = class_weights(shrunk, pooled.weights)
        vectors = class_averages(shrunk, weights).vectors
        variances = result.variance_of_means(weights[grid])
    return DenoisedUploads(shrunk, Prototypes(vectors, torch.arange(classes), variances))


def _rows_by_client_and_class(pooled: PooledUploads, classes: int) -> Int[Tensor, "m c"] | None:
    """Which row of the uploads a client sent for a class; None if the clients' labels differ.

    Rows come by client, then by class, then by cluster of the class. Each cluster of a client counts as a
    client of its own: clusters follow the samples of their client, so the same cluster index of two clients
    may mean different groups of samples, which have only the class in common.
    """
    sizes = pooled.upload_index.unique(return_counts=True)[1]
    if len(sizes.unique()) != 1 or int(sizes[0]) < classes:
        return None
    clients, per_class = len(sizes), int(sizes[0]) // classes
    if not torch.equal(pooled.prototypes.labels, torch.arange(classes).repeat_interleave(per_class).repeat(clients)):
        return None
    rows = torch.arange(len(pooled.upload_index)).reshape(clients, classes, per_class)
    return rows.transpose(1, 2).flatten(0, 1)


def class_weights(prototypes: Prototypes, client_weights: Float[Tensor, " p"]) -> Float[Tensor, " p"]:
    """The weight of each prototype in the average of its class; they sum to 1 over the class.

    Public weights, times 1/variance where the noise is published. All 0 where the public weights of a class
    are 0.
    """
    raw = client_weights.double()
    if prototypes.variances is not None:
        raw = raw / prototypes.variances.double().clamp(min=base.MIN_VARIANCE)
    _, rows = prototypes.labels.unique(return_inverse=True)
    total = summarisers.sums_by_row(raw[:, None], rows, len(raw))[rows, 0]
    return torch.where(total > 0, raw / torch.where(total > 0, total, 1.0), 0.0)


def class_averages(prototypes: Prototypes, weights: Float[Tensor, " p"]) -> Prototypes:
    """One prototype for each class that has a positive weight, in double precision."""
    positive = weights > 0
    classes, rows = prototypes.labels[positive].unique(return_inverse=True)
    terms = weights[positive, None] * prototypes.vectors[positive].double()
    return Prototypes(summarisers.sums_by_row(terms, rows, len(classes)), classes)


def finch_centroids(prototypes: Prototypes, *, early_exit: bool) -> Prototypes:
    """FINCH within each class: the cluster means, with the variances of these means."""
    parts = [_select_rows(prototypes, torch.zeros_like(prototypes.labels, dtype=torch.bool))]
    for label in prototypes.labels.unique().tolist():
        members = _select_rows(prototypes, prototypes.labels == label)
        cluster = summarisers.finch(members.vectors, early_exit=early_exit)
        sizes = cluster.bincount()[:, None]
        vectors = summarisers.sums_by_row(members.vectors, cluster, len(sizes)) / sizes
        variances = None
        if members.variances is not None:
            variances = (summarisers.sums_by_row(members.variances[:, None], cluster, len(sizes)) / sizes.square())[
                :, 0
            ]
        parts.append(Prototypes(vectors, torch.full((len(sizes),), label), variances))
    return Prototypes.concat(parts)


def _select_rows(prototypes: Prototypes, mask: Bool[Tensor, " p"]) -> Prototypes:
    variances = None if prototypes.variances is None else prototypes.variances[mask]
    return Prototypes(prototypes.vectors[mask], prototypes.labels[mask], variances)


def with_reliability(prototypes: Prototypes, class_prototypes: Prototypes) -> Prototypes:
    """Prototypes for the broadcast, in single precision, with the variances that clients weight them by.

    The prototypes may be made of the uploads in another way than the class averages. They are as reliable
    as these: each gets the variance at which `class_reliability` gives it the value of its class. Without
    variances of the class averages, there are none in the broadcast.
    """
    if class_prototypes.variances is None or not len(prototypes.labels):
        return to_float32_without_variances(prototypes)
    classes = int(class_prototypes.labels.max()) + 1
    reliability = base.class_reliability(class_prototypes, classes).clamp(min=_MIN_RELIABILITY)
    variances = base.between_class_energy(prototypes) * (1 / reliability[prototypes.labels] - 1)
    return Prototypes(prototypes.vectors.float(), prototypes.labels, variances.float())


def to_float32_without_variances(prototypes: Prototypes) -> Prototypes:
    """Prototypes for the broadcast, in single precision, where clients use no variances."""
    return Prototypes(prototypes.vectors.float(), prototypes.labels)
