"""Candidates of a membership attack: members and non-members of each class, the same in every round.

Beside the true membership, each class has random permutations of it. Scores under permuted memberships show
what an attack without any information would achieve.
"""

from collections.abc import Sequence
from dataclasses import dataclass

import torch
from jaxtyping import Bool, Float, Int
from torch import Tensor

from vpdr.client import Shard
from vpdr.rng import Streams

MAX_CANDIDATES = 800  # members, and non-members, of each class
FOLDS = 3  # cross-fitting: the reference data of a likelihood ratio never contain the scored candidate
PERMUTATIONS = 31


@dataclass(frozen=True, kw_only=True, slots=True)
class Candidates:
    """Members, then non-members, each sorted by fold; `rows_by_class` lists those of each class (padded)."""

    classes: Int[Tensor, " c"]
    train_counts: Int[Tensor, " c"]  # number of training samples of each class, candidates or not
    member_rows: Int[Tensor, " a"]  # rows of the training set
    non_member_rows: Int[Tensor, " b"]  # rows of the test set
    class_index: Int[Tensor, " s"]  # index into `classes` of each candidate
    fold_class_index: Int[Tensor, " s"]  # fold and class as one number
    fold_slices: tuple[tuple[slice, slice], ...]  # members and non-members of each fold
    fold_class_one_hot: Float[Tensor, "o q"]  # fold and class of each non-member, one-hot
    rows_by_class: Int[Tensor, "c n"]
    mask: Bool[Tensor, "c n"]
    memberships: Bool[Tensor, "c n k"]

    @property
    def non_member_counts(self) -> Int[Tensor, " c"]:
        """Number of non-members of each class."""
        return torch.bincount(self.class_index[len(self.member_rows) :], minlength=len(self.classes))


def sample_candidates(shard: Shard, client: str, streams: Streams) -> Candidates | None:
    """Sample training and test rows of every class that has both; None if no class has."""
    sides = (shard.train, shard.test)
    present = [set(side.labels.tolist()) for side in sides]
    class_list = sorted(present[0] & present[1])
    if not class_list:
        return None
    (members, member_folds), (others, other_folds) = (
        _sample_rows(side.labels, class_list, streams.generator(f"side {i}", client=client))
        for i, side in enumerate(sides)
    )
    classes = torch.tensor(class_list)
    class_index = torch.searchsorted(classes, torch.cat([shard.train.labels[members], shard.test.labels[others]]))
    fold_class_index = torch.cat([member_folds, other_folds]) * len(classes) + class_index
    one_hot = torch.nn.functional.one_hot(fold_class_index[len(members) :], FOLDS * len(classes))
    rows_by_class, mask = _rows_by_class(class_index, len(classes))
    return Candidates(
        classes=classes,
        train_counts=torch.bincount(shard.train.labels)[classes],
        member_rows=members,
        non_member_rows=others,
        class_index=class_index,
        fold_class_index=fold_class_index,
        fold_slices=tuple(zip(_fold_slices(member_folds), _fold_slices(other_folds, offset=len(members)), strict=True)),
        fold_class_one_hot=one_hot.float(),
        rows_by_class=rows_by_class,
        mask=mask,
        memberships=_memberships(class_index, len(members), mask, streams.generator("chance", client=client)),
    )


def permuted_memberships(
    members: int, non_members: int, rng: torch.Generator, permutations: int = PERMUTATIONS
) -> Bool[Tensor, "n k"]:
    """The true membership (members first) in the first column, then `permutations` random ones.

    The same permutations serve every round. Rounds share their samples, and so their chance deviations; with
    common permutations the mean over rounds has a null distribution as well.
    """
    size = members + non_members
    draws = torch.rand(size, permutations, generator=rng, dtype=torch.float64)
    permuted = draws <= draws.kthvalue(members, dim=0).values
    truth = torch.arange(size)[:, None] < members
    return torch.cat([truth, permuted], dim=1)


def _sample_rows(
    labels: Int[Tensor, " x"], classes: Sequence[int], rng: torch.Generator
) -> tuple[Int[Tensor, " m"], Int[Tensor, " m"]]:
    """Random rows of every class, at most `MAX_CANDIDATES` each, with their folds; sorted by fold."""
    rows, folds = [], []
    for label in classes:
        of_class = (labels == label).nonzero()[:, 0]
        of_class = of_class[torch.randperm(len(of_class), generator=rng)][:MAX_CANDIDATES]
        rows.append(of_class)
        folds.append(torch.arange(len(of_class)) % FOLDS)
    fold = torch.cat(folds)
    order = fold.argsort(stable=True)
    return torch.cat(rows)[order], fold[order]


def _fold_slices(folds: Int[Tensor, " m"], offset: int = 0) -> list[slice]:
    ends = (torch.bincount(folds, minlength=FOLDS).cumsum(0) + offset).tolist()
    return [slice(start, end) for start, end in zip([offset, *ends[:-1]], ends, strict=True)]


def _rows_by_class(class_index: Int[Tensor, " s"], classes: int) -> tuple[Int[Tensor, "c n"], Bool[Tensor, "c n"]]:
    """The candidates of each class, members first; padding repeats the first one."""
    sizes = torch.bincount(class_index, minlength=classes)
    order = class_index.argsort(stable=True)
    starts = (sizes.cumsum(0) - sizes)[:, None]
    steps = torch.arange(int(sizes.max()))
    mask = steps < sizes[:, None]
    return order[torch.where(mask, starts + steps, starts)], mask


def _memberships(
    class_index: Int[Tensor, " s"], members: int, mask: Bool[Tensor, "c n"], rng: torch.Generator
) -> Bool[Tensor, "c n k"]:
    """True and permuted memberships of each class."""
    member_counts = torch.bincount(class_index[:members], minlength=len(mask)).tolist()
    by_class = [permuted_memberships(n, int(row.sum()) - n, rng) for n, row in zip(member_counts, mask, strict=True)]
    table = torch.zeros(*mask.shape, by_class[0].shape[1], dtype=torch.bool)
    for index, memberships in enumerate(by_class):
        table[index, : len(memberships)] = memberships
    return table
