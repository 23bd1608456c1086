"""What will run: settings as data, read from TOML, checked before anything starts."""

from vpdr.plan.experiment import Arm, Experiment, load_experiment
from vpdr.plan.plan import Plan

__all__ = ["Arm", "Experiment", "Plan", "load_experiment"]
