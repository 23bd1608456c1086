"""Families of models for clients that do not share one architecture: data, not code."""

import tomllib
from dataclasses import dataclass
from functools import cache
from importlib.resources import files

from vpdr.checks import at_least, one_of


@dataclass(frozen=True, kw_only=True, slots=True)
class Member:
    """One client's architecture: backbone, adapters, projection and head."""

    backbone: str
    width: int
    hidden: tuple[int, ...]
    projection: str


@dataclass(frozen=True, kw_only=True, slots=True)
class Family:
    """Architectures that clients are given in turn."""

    name: str
    title: str
    members: tuple[Member, ...]


@cache
def families() -> dict[str, Family]:
    """All families that the package describes, by name."""
    told = tomllib.loads(files("vpdr.encoder").joinpath("families.toml").read_text())
    return {
        name: Family(
            name=name,
            title=family["title"],
            members=tuple(
                Member(
                    backbone=member["backbone"],
                    width=member["width"],
                    hidden=tuple(member["hidden"]),
                    projection=family["projection"],
                )
                for member in family["members"]
            ),
        )
        for name, family in told.items()
    }


def family_member(name: str, index: int) -> Member:
    """The architecture of client number `index`, in turn."""
    one_of(tuple(families()), family=name)
    at_least(0, index=index)
    members = families()[name].members
    return members[index % len(members)]
