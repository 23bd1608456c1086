"""Whom a membership attack asks about: members and non-members of each class, the same in every round."""

from collections.abc import Sequence
from dataclasses import dataclass

import torch
from jaxtyping import Bool, Float, Int
from torch import Tensor

from vpdr.attacks.chance import labellings
from vpdr.client import Shard
from vpdr.rng import Streams

CAP = 800  # of each kind and class
FOLDS = 3  # so that the reference of a likelihood ratio never holds the candidate that it judges


@dataclass(frozen=True, kw_only=True, slots=True)
class Candidates:
    """Members, then non-members, each sorted by fold; `place` finds those of each class (padded)."""

    classes: Int[Tensor, " c"]
    sizes: Int[Tensor, " c"]  # how many training samples each class has, asked about or not
    members: Int[Tensor, " a"]  # rows of the training set
    others: Int[Tensor, " b"]  # rows of the test set
    owner: Int[Tensor, " s"]  # index of the class of each candidate
    cell: Int[Tensor, " s"]  # fold and class as one number
    folds: tuple[tuple[slice, slice], ...]  # members and non-members of each fold
    dealt: Float[Tensor, "o q"]  # which non-member is in which cell
    place: Int[Tensor, "c n"]
    present: Bool[Tensor, "c n"]
    labellings: Bool[Tensor, "c n k"]

    @property
    def outsiders(self) -> Int[Tensor, " c"]:
        """How many non-members each class has."""
        return torch.bincount(self.owner[len(self.members) :], minlength=len(self.classes))


def candidates_of(shard: Shard, client: str, streams: Streams) -> Candidates | None:
    """Training and test samples of every class that has both; None where no class has."""
    sides = (shard.train, shard.test)
    present = [set(side.labels.tolist()) for side in sides]
    classes = sorted(present[0] & present[1])
    if not classes:
        return None
    chosen = [
        _chosen(side.labels, classes, streams.draw(f"side {i}", client=client))
        for i, side in enumerate(sides)
    ]
    members, others = (rows for rows, _ in chosen)
    labels = torch.tensor(classes)
    owner = torch.searchsorted(labels, torch.cat([shard.train.labels[members], shard.test.labels[others]]))
    cuts = [(_slices(folds), len(folds)) for _, folds in chosen]
    shifted = [slice(cut.start + cuts[0][1], cut.stop + cuts[0][1]) for cut in cuts[1][0]]
    place, there = _places(owner, len(classes))
    cell = torch.cat([folds for _, folds in chosen]) * len(classes) + owner
    dealt = torch.nn.functional.one_hot(cell[len(members) :], FOLDS * len(classes))
    return Candidates(
        classes=labels,
        sizes=torch.bincount(shard.train.labels)[labels],
        members=members,
        others=others,
        owner=owner,
        cell=cell,
        dealt=dealt.float(),
        folds=tuple(zip(cuts[0][0], shifted, strict=True)),
        place=place,
        present=there,
        labellings=_chances(owner, len(members), there, streams.draw("chance", client=client)),
    )


def _chosen(
    labels: Int[Tensor, " x"], classes: Sequence[int], rng: torch.Generator
) -> tuple[Int[Tensor, " m"], Int[Tensor, " m"]]:
    """Rows of every class in random order, as many as the cap allows, dealt to folds; sorted by fold."""
    rows, folds = [], []
    for label in classes:
        found = (labels == label).nonzero()[:, 0]
        found = found[torch.randperm(len(found), generator=rng)][:CAP]
        rows.append(found)
        folds.append(torch.arange(len(found)) % FOLDS)
    fold = torch.cat(folds)
    order = fold.argsort(stable=True)
    return torch.cat(rows)[order], fold[order]


def _slices(folds: Int[Tensor, " m"]) -> list[slice]:
    ends = torch.bincount(folds, minlength=FOLDS).cumsum(0).tolist()
    return [slice(start, end) for start, end in zip([0, *ends[:-1]], ends, strict=True)]


def _places(owner: Int[Tensor, " s"], classes: int) -> tuple[Int[Tensor, "c n"], Bool[Tensor, "c n"]]:
    """The candidates of each class, members first; places beyond the last point at the first."""
    widths = torch.bincount(owner, minlength=classes)
    order = owner.argsort(stable=True)
    starts = (widths.cumsum(0) - widths)[:, None]
    steps = torch.arange(int(widths.max()))
    present = steps < widths[:, None]
    return order[torch.where(present, starts + steps, starts)], present


def _chances(
    owner: Int[Tensor, " s"], members: int, present: Bool[Tensor, "c n"], rng: torch.Generator
) -> Bool[Tensor, "c n k"]:
    """Who is a member in each class, by the truth and by chance."""
    inside = torch.bincount(owner[:members], minlength=len(present)).tolist()
    found = [labellings(n, int(row.sum()) - n, rng) for n, row in zip(inside, present, strict=True)]
    table = torch.zeros(*present.shape, found[0].shape[1], dtype=torch.bool)
    for index, each in enumerate(found):
        table[index, : len(each)] = each
    return table
