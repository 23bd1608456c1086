"""What a client may add to its local training: nothing, or DCR."""

from vpdr.finetune.base import Guide, Regulariser
from vpdr.finetune.dcr import Dcr
from vpdr.finetune.plain import Plain

REGULARISERS: dict[str, type[Regulariser]] = {"plain": Plain, "dcr": Dcr}

__all__ = ["REGULARISERS", "Dcr", "Guide", "Plain", "Regulariser"]
