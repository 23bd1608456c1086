"""Who listens to a run's uploads: the folder that keeps them, and the attacks that were ordered."""

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from vpdr.attacks import AttackOrder, Moment, Scene, Watch
from vpdr.attacks.base import silent
from vpdr.engines.build import Federation
from vpdr.engines.simulate import Hearing
from vpdr.engines.spaces import space_of
from vpdr.errors import InvalidInput
from vpdr.progress import Progress, quiet
from vpdr.records.reconstructions import ReconstructionFolder
from vpdr.records.uploads import UploadFolder


@dataclass(frozen=True, kw_only=True, slots=True)
class Audience:
    """Who wants to know how an attack goes: a line now and then, and how far it is."""

    tell: Callable[[str], None] = silent
    progress: Progress = quiet


@dataclass(frozen=True, slots=True)
class Ears:
    """The listeners of one run, saved and resumed with it."""

    uploads: UploadFolder | None
    watch: Watch | None

    def hearing(self) -> Hearing:
        """For the engine: first the evidence is kept, then it is attacked."""
        kept = [] if self.uploads is None else [self._keep]
        return Hearing(listeners=[*kept, *([] if self.watch is None else [self.watch])])

    def _keep(self, moment: Moment) -> None:
        if self.uploads is not None and moment.uploads:
            self.uploads.keep(moment.t, moment.uploads)

    def state(self) -> dict[str, Any]:
        """What a checkpoint must hold; nothing where nothing was ordered."""
        return {} if self.watch is None else {"attacks": self.watch.state()}

    def resume(self, saved: Mapping[str, Any]) -> None:
        """Go on with the attacks that the run was started with."""
        begun = saved.get("attacks")
        if (begun is None) != (self.watch is None):
            came = "without attacks" if begun is None else f"with the attacks {begun['order']}"
            raise InvalidInput(
                f"this run was started {came}; resume with the same options, or use vpdr attack afterwards"
            )
        if self.watch is not None and begun is not None:
            self.watch.resume(begun)

    def result(self) -> dict[str, Any]:
        """What they add to the record."""
        return {} if self.watch is None else {"attacks": self.watch.result()}


def watch_of(order: AttackOrder, federation: Federation, audience: Audience, run: Path) -> Watch:
    """The ordered attacks on this federation."""
    plan = federation.plan
    beyond = [t for t in order.rounds if t > plan.run.rounds]
    if beyond:
        raise InvalidInput(
            f"attack rounds must lie in 1..{plan.run.rounds}, got {beyond[0]}; name none for every round"
        )
    scene = Scene(
        order=order,
        streams=federation.streams.apart("attacks"),
        rounds=plan.run.rounds,
        space=lambda client: space_of(federation, client),
        tell=audience.tell,
        progress=audience.progress,
        keep=ReconstructionFolder(run).keep,
    )
    return Watch(scene)
