import pytest

from vpdr.encoder import load_lite0


@pytest.fixture(scope="session")
def lite0():
    return load_lite0()
