"""All attacks of one run, and how they are asked for."""

from collections.abc import Callable, Mapping, Sequence
from typing import Any

from vpdr.attacks.base import Attack, AttackOrder, Moment, Scene
from vpdr.attacks.fsh import Fsh
from vpdr.attacks.mia import Mia
from vpdr.errors import InvalidInput

Maker = Callable[[Scene], Attack]


def _mia(scene: Scene) -> Attack:
    return Mia(scene.order, scene.streams)


def _fsh(scene: Scene) -> Attack:
    return Fsh(scene)


ATTACKS: dict[str, Maker] = {"mia": _mia, "fsh": _fsh}


class Watch:
    """Hears every upload before the server does. Guarantee: the run cannot tell that it is there."""

    def __init__(self, scene: Scene) -> None:
        self.order = scene.order
        self.attacks = {kind: ATTACKS[kind](scene) for kind in scene.order.kinds}

    def __call__(self, moment: Moment) -> None:
        """Attack this round, if it is one of those that were asked for."""
        if self.order.wants(moment.t) and moment.uploads:
            for attack in self.attacks.values():
                attack.observe(moment)

    def state(self) -> dict[str, Any]:
        """For a checkpoint: what was asked, and how far each attack has come."""
        found = {kind: attack.state() for kind, attack in self.attacks.items()}
        return {"order": self.order.to_data(), "attacks": found}

    def resume(self, state: Mapping[str, Any]) -> None:
        """Go on, if the same attacks were asked for."""
        if state["order"] != self.order.to_data():
            raise InvalidInput(
                f"this run was started with the attacks {state['order']}, not {self.order.to_data()}; "
                "resume with the same options, or attack it afterwards with vpdr attack"
            )
        for kind, attack in self.attacks.items():
            attack.resume(state["attacks"][kind])

    def result(self) -> dict[str, Any]:
        """For the record."""
        return {kind: attack.result() for kind, attack in self.attacks.items()}


def order_from(kinds: str, rounds: str | None, **details: Any) -> AttackOrder:
    """An order from words: `fsh,mia` and `1,5,20`; the details are those of an `AttackOrder`."""
    wanted = tuple(dict.fromkeys(word.strip() for word in kinds.split(",") if word.strip()))
    unknown = [word for word in wanted if word not in ATTACKS]
    if unknown or not wanted:
        raise InvalidInput(f"attacks must be among {', '.join(ATTACKS)}, got {kinds!r}")
    return AttackOrder(kinds=wanted, rounds=_rounds(rounds), **details)


def _rounds(text: str | None) -> tuple[int, ...]:
    words: Sequence[str] = [word.strip() for word in (text or "").split(",") if word.strip()]
    try:
        return tuple(sorted({int(word) for word in words}))
    except ValueError as error:
        raise InvalidInput(f"attack rounds must be whole numbers such as 1,5,20, got {text!r}") from error
