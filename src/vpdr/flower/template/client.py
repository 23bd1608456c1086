"""The client app."""

from vpdr.flower.client_app import client_app

app = client_app()
