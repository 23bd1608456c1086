"""The client, as Flower starts it."""

from vpdr.flower.client_app import client_app

app = client_app()
