"""Cheap checks of an installation: what the guarantees rest on, tried out where it will run."""

from collections.abc import Callable, Iterator

from vpdr.audits.checkup.accounting import accountants
from vpdr.audits.checkup.base import Failed, Result
from vpdr.audits.checkup.encoders import encoder_independence
from vpdr.audits.checkup.entropy import system_noise
from vpdr.audits.checkup.ledgers import ledgers
from vpdr.audits.checkup.neighbours import neighbours
from vpdr.audits.checkup.noise_levels import noise_levels
from vpdr.audits.checkup.uploads import uploads
from vpdr.audits.checkup.versions import installed
from vpdr.errors import VpdrError

Check = Callable[[], str]
CHECKS: dict[str, Check] = {
    "versions": installed,
    "sensitivities": neighbours,
    "noise of mechanisms": noise_levels,
    "noise of the system": system_noise,
    "encoder independence": encoder_independence,
    "uploads": uploads,
    "ledger": ledgers,
    "accountants": accountants,
}
_TROUBLE = (Failed, VpdrError, OSError, ArithmeticError, RuntimeError, ValueError, TypeError, LookupError)


def checkup(checks: dict[str, Check] | None = None) -> Iterator[Result]:
    """Each check in turn; one that breaks is a failed one, and the rest goes on."""
    for name, check in (checks or CHECKS).items():
        try:
            yield Result(name, True, check())
        except _TROUBLE as trouble:
            yield Result(name, False, f"{type(trouble).__name__}: {trouble}")


__all__ = ["CHECKS", "Check", "Failed", "Result", "checkup"]
