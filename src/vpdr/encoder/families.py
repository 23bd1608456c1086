"""Model families for clients with different architectures, read from families.toml."""

import tomllib
from dataclasses import dataclass
from functools import cache
from importlib.resources import files

from vpdr.validation import at_least, one_of


@dataclass(frozen=True, kw_only=True, slots=True)
class ModelSpec:
    """The architecture of one client.

    Args:
        backbone: a name in `BACKBONES`.
        width: the width of its adapters.
        hidden: the widths of the hidden layers of its head.
        projection: a name in `PROJECTIONS`.
    """

    backbone: str
    width: int
    hidden: tuple[int, ...]
    projection: str


@dataclass(frozen=True, kw_only=True, slots=True)
class ModelFamily:
    """Architectures that are assigned to clients in turn.

    Args:
        name: the name in configurations.
        title: a description in a few words.
        members: the architectures.
    """

    name: str
    title: str
    members: tuple[ModelSpec, ...]


@cache
def model_families() -> dict[str, ModelFamily]:
    """All families of families.toml, by name."""
    families = tomllib.loads(files("vpdr.encoder").joinpath("families.toml").read_text())
    return {
        name: ModelFamily(
            name=name,
            title=family["title"],
            members=tuple(
                ModelSpec(
                    backbone=member["backbone"],
                    width=member["width"],
                    hidden=tuple(member["hidden"]),
                    projection=family["projection"],
                )
                for member in family["members"]
            ),
        )
        for name, family in families.items()
    }


def family_model_spec(name: str, index: int) -> ModelSpec:
    """The architecture of one client.

    Args:
        name: the name of the family.
        index: the index of the client; members are assigned in turn.

    Returns:
        The member of the family.

    Raises:
        InvalidInput: the family is unknown, or the index is negative.

    >>> family_model_spec("HtFE4", 6).backbone
    'vit_tiny'
    """
    one_of(tuple(model_families()), family=name)
    at_least(0, index=index)
    members = model_families()[name].members
    return members[index % len(members)]
