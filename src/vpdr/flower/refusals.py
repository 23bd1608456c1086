"""Why a client says no: a code for the server, the details for the owner's eyes only."""

from enum import StrEnum

from vpdr.errors import VpdrError


class Code(StrEnum):
    """All that a server ever learns about a refusal.

    Guarantee: all but three are decided from the policy, the plan, the messages and the ledger. `other-data`
    and `own-data` speak of the owner's source as a whole, the same whatever a server sends. `failed` is what
    nobody foresaw, and the only one that samples and a server's settings could decide together: training,
    measuring, broadcasts and features, where such errors were found, do not end in it.
    """

    NO_POLICY = "no-policy"
    BAD_REQUEST = "bad-request"
    EPSILON = "epsilon"
    DELTA = "delta"
    MECHANISM = "mechanism"
    ADJACENCY = "adjacency"
    MIN_CLASS_COUNT = "min-class-count"
    ROUNDS = "rounds"
    GUARANTEE = "guarantee"
    SIMULATION = "simulation"
    BENCHMARK = "benchmark"
    DIVISION = "division"
    PLACE = "place"
    SELECTION = "selection"
    OTHER_DATA = "other-data"
    OWN_DATA = "own-data"
    LEDGER = "ledger"
    OTHER_PLAN = "other-plan"
    ROUND_ORDER = "round-order"
    BROADCAST = "broadcast"
    BUDGET = "budget"
    BUSY = "busy"
    NO_PRIVATE_RECORD = "no-private-record"
    FAILED = "failed"


class Refused(VpdrError):
    """Raised where an answer ends; the text stays on the client, only the code may travel."""

    def __init__(self, code: Code, details: str = "") -> None:
        super().__init__(f"{code}: {details}" if details else str(code))
        self.code = code
