"""The same clients and server with Flower between them; policy and ledger belong to the client's owner."""

from vpdr.flower.mod import PrototypePrivacyMod

__all__ = ["PrototypePrivacyMod"]
