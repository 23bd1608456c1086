"""Whom a membership attack asks about: members and non-members of each class, the same in every round."""

from dataclasses import dataclass

import torch
from jaxtyping import Bool, Float, Int
from torch import Tensor

from vpdr.attacks.chance import labellings
from vpdr.client import Shard
from vpdr.rng import Streams

CAP = 800  # of each kind and class


@dataclass(frozen=True, slots=True)
class Candidates:
    """Samples in a row, class by class and members first; `place` cuts the row into padded classes."""

    classes: Int[Tensor, " c"]
    train: Int[Tensor, " a"]  # rows of the training set, in the order of the row's members
    test: Int[Tensor, " b"]
    row: Int[Tensor, " s"]  # the row as positions in [train, test]
    owner: Int[Tensor, " s"]  # index of the class of each candidate
    member: Bool[Tensor, " s"]
    place: Int[Tensor, "c n"]
    present: Bool[Tensor, "c n"]
    labellings: Bool[Tensor, "c n k"]

    def in_a_row(self, train: Float[Tensor, "x d"], test: Float[Tensor, "y d"]) -> Float[Tensor, "s d"]:
        """Features of all candidates."""
        return torch.cat([train[self.train], test[self.test]])[self.row]

    def others(self) -> Int[Tensor, " c"]:
        """How many non-members each class has."""
        return torch.bincount(self.owner[~self.member], minlength=len(self.classes))


def candidates_of(shard: Shard, client: str, streams: Streams) -> Candidates | None:
    """Training and test samples of every class that has both; None where no class has."""
    inside, outside = shard.train.labels, shard.test.labels
    shared = [label for label in inside.unique().tolist() if bool((outside == label).any())]
    if not shared:
        return None
    train, test, row, member, choices = [], [], [], [], []
    for label in shared:
        mine = _some(inside == label, streams.draw(f"members of {label}", client=client))
        other = _some(outside == label, streams.draw(f"others of {label}", client=client))
        train.append(mine)
        test.append(other)
        row.append((len(mine), len(other)))
        member.append(torch.arange(len(mine) + len(other)) < len(mine))
        rng = streams.draw(f"chance of {label}", client=client)
        choices.append(labellings(len(mine), len(other), rng))
    place, present = _padded([len(each) for each in member])
    table = torch.zeros(*place.shape, choices[0].shape[1], dtype=torch.bool)
    for index, each in enumerate(choices):
        table[index, : len(each)] = each
    sizes = torch.tensor([len(each) for each in member])
    return Candidates(
        classes=torch.tensor(shared),
        train=torch.cat(train),
        test=torch.cat(test),
        row=_woven(row),
        owner=torch.arange(len(shared)).repeat_interleave(sizes),
        member=torch.cat(member),
        place=place,
        present=present,
        labellings=table,
    )


def _some(mask: Bool[Tensor, " x"], rng: torch.Generator) -> Int[Tensor, " m"]:
    """The rows of one class, or as many of them as the cap allows."""
    rows = mask.nonzero()[:, 0]
    return rows if len(rows) <= CAP else rows[torch.randperm(len(rows), generator=rng)[:CAP]]


def _woven(sizes: list[tuple[int, int]]) -> Int[Tensor, " s"]:
    """Positions in [all members, all others] class by class."""
    start = sum(members for members, _ in sizes)
    first, out = 0, []
    for members, others in sizes:
        out += [torch.arange(first, first + members), torch.arange(start, start + others)]
        first, start = first + members, start + others
    return torch.cat(out)


def _padded(sizes: list[int]) -> tuple[Int[Tensor, "c n"], Bool[Tensor, "c n"]]:
    """Where each class lies in the row; places beyond its end point at its first candidate."""
    widths = torch.tensor(sizes)
    starts = widths.cumsum(0) - widths
    steps = torch.arange(int(widths.max()))
    present = steps < widths[:, None]
    return torch.where(present, starts[:, None] + steps, starts[:, None]), present
