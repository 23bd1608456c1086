"""Clients and server connected by Flower; each data owner holds a policy and a ledger.

`PrototypePrivacyMod` adds private prototypes to any Flower app. `client_app` and `server_app` run a whole
vpdr configuration, `simulation` on one machine, `deploy` with a SuperLink and SuperNodes.
"""

from vpdr.flower.mod import PrototypePrivacyMod
