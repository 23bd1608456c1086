"""Privacy mechanisms: from a client's features to a release, with its privacy cost."""

from vpdr.mechanisms import base
from vpdr.mechanisms.base import Mechanism, MechanismConfig, MechanismTraits, ReleaseContext, SeededNoise, SystemNoise
from vpdr.mechanisms.dpsgd import DpSgdConfig, DpSgdTrainer, split_budget_with_training
from vpdr.mechanisms.igpp import Igpp, NoPrivacy
from vpdr.mechanisms.rapp import DEFAULT_STAGE_SHARES, Rapp, RappState, ReleaseProjection, StageSchedule, parse_shares
from vpdr.mechanisms.vpp import SELECTIONS, NoiseAllocation, SelectionConfig, Vpp, anova_scores, describe_selection
from vpdr.registry import Registry

MECHANISMS: Registry[type[Mechanism]] = Registry(
    "mechanism", {"none": NoPrivacy, "igpp": Igpp, "vpp": Vpp, "rapp": Rapp}, base.check_plug_in
)
