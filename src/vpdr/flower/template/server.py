"""The server app."""

from pathlib import Path

from vpdr.flower.server_app import server_app

app = server_app(Path(__file__).with_name("plan.toml"))
