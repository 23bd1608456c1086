"""What keeps Flower and Ray from calling home, asking for updates or installing packages at run time."""

import os

VARIABLES = {
    "FLWR_TELEMETRY_ENABLED": "0",
    "FLWR_DISABLE_UPDATE_CHECK": "1",
    "FLWR_DISABLE_RUNTIME_DEPENDENCY_INSTALLATION": "1",
    "RAY_USAGE_STATS_ENABLED": "0",
    "RAY_ACCEL_ENV_VAR_OVERRIDE_ON_ZERO": "0",
    "HF_HUB_OFFLINE": "1",
}


def go_offline() -> None:
    """For this process and its children, before Flower is imported; what the user has set stays."""
    for name, value in VARIABLES.items():
        os.environ.setdefault(name, value)
