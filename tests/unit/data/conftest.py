"""A separate cache directory for tests."""

import pytest


@pytest.fixture(scope="session", autouse=True)
def separate_cache(tmp_path_factory: pytest.TempPathFactory):
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("VPDR_CACHE", str(tmp_path_factory.mktemp("cache")))
        yield
