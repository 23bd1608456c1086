"""Attacks on the uploads of a run: membership inference and reconstruction, beside their null values.

An attack observes exactly what each client uploaded, with the encoder of that round. It changes nothing and
draws from its own random streams. It reads private data to evaluate the adversary's success, so its results
are for simulations only.
"""

from vpdr.attacks.base import Attack, AttackCallbacks, AttackConfig, AttackContext
from vpdr.attacks.run import ATTACKS, AttackFactory, attack_finished_run, parse_attack_config
