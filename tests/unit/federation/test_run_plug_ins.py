"""Parallel runs of plug-ins that another process does not have."""

from pathlib import Path

import pytest

from tests.unit.federation.conftest import tiny
from vpdr.federation.run import Job, sweep
from vpdr.mechanisms import MECHANISMS, Igpp
from vpdr.validation import InvalidInput


def test_a_plug_in_of_this_process_alone_is_refused_in_parallel_runs(tmp_path: Path) -> None:
    MECHANISMS.register("nb", Igpp)
    try:
        job = Job("", "nb", tiny("mechanism.kind=nb"), tmp_path)
        with pytest.raises(InvalidInput, match="'nb' is registered in another process only; use jobs=1 or an entry"):
            list(sweep([job], workers=2, resume=False))
    finally:
        MECHANISMS.unregister("nb")
