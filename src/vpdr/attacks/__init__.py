"""What an adversary learns from uploads: membership and reconstruction, beside what pure chance would give.

An attack looks over a run's shoulder: it sees exactly what a client uploaded, with the encoder of that
moment, changes nothing, and draws from streams of its own. It may look at private data, because it must know
the truth to say how often the adversary was right; what it finds belongs to simulations.
"""

from vpdr.attacks.base import Attack, AttackOrder, Gallery, Moment, Scene
from vpdr.attacks.watch import ATTACKS, Watch, order_from

__all__ = ["ATTACKS", "Attack", "AttackOrder", "Gallery", "Moment", "Scene", "Watch", "order_from"]
