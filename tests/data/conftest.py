"""A cache of the tests' own, so that they neither read nor fill the user's."""

import pytest


@pytest.fixture(scope="session", autouse=True)
def own_cache(tmp_path_factory: pytest.TempPathFactory):
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("VPDR_CACHE", str(tmp_path_factory.mktemp("cache")))
        yield
