"""How the budget is divided over stages, and stages over releases."""

import math
from dataclasses import dataclass

from vpdr.errors import InvalidInput
from vpdr.privacy.accountants.base import check_rounds
from vpdr.privacy.events import Gaussian

SHARES = (0.05, 0.10, 0.15, 0.30, 0.40)  # little while centres are unknown, most once noise is small


@dataclass(frozen=True, slots=True)
class Stage:
    """The noise of one look at the data: on sums and counts, and on the second moment."""

    sums: Gaussian
    moment: Gaussian | None

    @property
    def events(self) -> tuple[Gaussian, ...]:
        """What the stage costs."""
        return (self.sums,) if self.moment is None else (self.sums, self.moment)


@dataclass(frozen=True, kw_only=True, slots=True)
class Stages:
    """All looks at the data in order, and in how many releases they leave the client.

    With fewer releases than stages a release holds several of them; with more releases than shares the
    shares are cut finer, so that every release is one stage.
    """

    releases: int
    shares: tuple[float, ...] = SHARES
    moment_share: float = 0.03  # of each stage, for the second moment that sets the radius

    def __post_init__(self) -> None:
        check_rounds(self.releases)
        if not self.shares or not all(0 < share < math.inf for share in self.shares):
            raise InvalidInput(
                f"stage shares must be positive numbers, got {list(self.shares)}; use 5,10,15,30,40"
            )
        if not 0 <= self.moment_share < 1:
            raise InvalidInput(f"moment_share must lie in [0, 1), got {self.moment_share:g}; use 0.03")

    @property
    def count(self) -> int:
        """How many stages there are."""
        return max(len(self.shares), self.releases)

    def share(self, number: int) -> float:
        """The part of μ² that a stage may spend; all together 1. Beyond the last it is the last one again."""
        number = min(number, self.count - 1)
        upto = [self._cumulated(edge / self.count) for edge in (number, number + 1)]
        return upto[1] - upto[0]

    def _cumulated(self, part: float) -> float:
        """The shares as a curve over the run, straight within each of them."""
        place = part * len(self.shares)
        whole = min(int(place), len(self.shares) - 1)
        done = math.fsum([*self.shares[:whole], (place - whole) * self.shares[whole]])
        return done / math.fsum(self.shares)

    def of_release(self, done: int) -> range:
        """The stages of the next release, given how many are behind."""
        if done >= self.count:
            return range(done, done + 1)  # more than was planned for: the ledger will refuse it
        made = next(r for r in range(self.releases) if self._ends(r) > done)
        return range(done, self._ends(made))

    def _ends(self, release: int) -> int:
        """How many stages are behind after this release (counted from 0)."""
        return math.ceil((release + 1) * self.count / self.releases - 1e-9)

    def stage(self, number: int, multiplier: float) -> Stage:
        """The noise of a stage where one single release of everything would have this multiplier.

        Precisions 1/σ² add up, so the events of all stages together are that one release.
        """
        share, moment = self.share(number), self.moment_share
        sums = Gaussian(multiplier / math.sqrt(share * (1 - moment)))
        return Stage(sums, Gaussian(multiplier / math.sqrt(share * moment)) if moment else None)


def parsed_shares(text: str) -> tuple[float, ...]:
    """Stage shares as a plan writes them: numbers with commas between, in any unit."""
    try:
        return tuple(float(part) for part in text.split(","))
    except ValueError:
        raise InvalidInput(
            f"stages must be numbers with commas between, got {text!r}; use 5,10,15,30,40"
        ) from None
