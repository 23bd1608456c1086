"""The privacy plug-in for people who have a Flower app of their own."""

import hashlib
from collections import OrderedDict
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import torch
from jaxtyping import Float
from torch import Tensor

from vpdr.client.usual import usual
from vpdr.engines.promises import promise_of
from vpdr.errors import InvalidInput
from vpdr.flower.client_app import guarded, noted
from vpdr.flower.home import Home
from vpdr.flower.judgement import judge
from vpdr.flower.policy import Policy
from vpdr.flower.purse import older
from vpdr.flower.refusals import Code, Refused
from vpdr.mechanisms import Occasion
from vpdr.mechanisms.admission import admit
from vpdr.plan.accumulation import check_fixed
from vpdr.plan.combinations import framework_of
from vpdr.plan.plan import Plan
from vpdr.privacy import EncoderKind, Purpose
from vpdr.rng import Streams
from vpdr.types import Features, Prototypes

if TYPE_CHECKING:
    from flwr.app import Context, Message, RecordDict

PRIVATE, PROTOTYPES = "private", "prototypes"
"""What an app fills with `vectors` [n d] and `labels` [n], and what leaves in its place."""


@dataclass(frozen=True, kw_only=True)
class PrototypePrivacyMod:
    """Put it last in `ClientApp(mods=[...])`: other mods then see private prototypes only.

    Guarantee: a reply holds prototypes that were paid to the ledger of the node's owner before, or one code.
    ε, δ, adjacency, what kind of encoder it is, and everything else that protects come from the owner's
    policy; `rounds` only says over how many releases they are spread. Measurements pass where the policy's
    `metrics` is "everything". The folder is bound to the number of labels of each class only.

    Before it is paid the mod looks at shapes and labels, which no server moves, and refuses for nothing what
    cannot be released; at values only of an encoder that is declared public. Any other a server may have made
    steep: there every value is brought within usual numbers, so that no sample can make a release fail, and
    an error costs what the release would have cost. What the app does before is its own: it must hand over
    all samples and must not fail on any, since a server sees whether it did.
    """

    classes: int
    dim: int
    rounds: int
    mechanism: str = "igpp"
    clip_norm: float = 5.0
    summariser: str = "means"  # sums, where class counts are private

    def __call__(
        self, message: "Message", context: "Context", call_next: "Callable[[Message, Context], Message]"
    ) -> "Message":
        """Let the app answer, and pass on what may leave."""

        def private(home: Home) -> "RecordDict":
            policy = home.policy()
            plan = self.plan(policy)
            judge(policy, plan)  # before the app touches any data
            reply = call_next(message, context)
            if reply.has_error():
                raise Refused(Code.FAILED, f"the app: {reply.error.reason}")
            return self._rebuilt(home, policy, reply.content, _run(context))

        return guarded(message, context, private)

    def plan(self, policy: Policy) -> Plan:
        """What the mod will do, as a plan that the policy can judge."""
        budget = {"epsilon": policy.budget.epsilon, "delta": policy.budget.delta}
        declared = EncoderKind(policy.data.encoder)
        plan = Plan.from_data(
            {
                "run": {"rounds": self.rounds},
                "model": {"dim": self.dim},
                "mechanism": {"kind": self.mechanism, "clip_norm": self.clip_norm},
                "budget": {
                    **budget,
                    "accountant": policy.budget.accountant,
                    "adjacency": policy.budget.adjacency,
                },
                "release": {
                    # what the app computed from broadcasts is fixed before this release, as public is
                    "encoder": "personal" if declared.trained else "public",
                    "summariser": self.summariser,
                    "noise": "system",
                    "min_count": policy.allow.min_class_count if self.summariser == "means" else 1,
                },
            }
        )
        check_fixed(plan, declared)
        return plan

    def _rebuilt(self, home: Home, policy: Policy, content: "RecordDict", run: str) -> "RecordDict":
        """A reply from nothing but what is named here."""
        from flwr.app import ArrayRecord, RecordDict

        found = content.array_records.get(PRIVATE)
        if found is None:
            raise Refused(Code.NO_PRIVATE_RECORD, f"the app's reply has no array record {PRIVATE!r}")
        arrays = found.to_torch_state_dict()
        upload = self._released(home, policy, Features(arrays["vectors"], arrays["labels"]), run)
        parts = OrderedDict(upload.arrays())
        records: dict[str, Any] = {PROTOTYPES: ArrayRecord(parts)}
        if policy.allow.metrics == "everything":
            records |= dict(content.metric_records)
        return RecordDict(records)

    def _released(self, home: Home, policy: Policy, features: Features, run: str) -> Prototypes:
        """One release, paid from the owner's ledger."""
        plan = self.plan(policy)
        promise = promise_of(plan, framework_of(plan, plan.framework.kind), self.classes, Streams(0))
        with home.alone():
            purse = home.purse(policy)
            home.bind(_fingerprint(features))
            saved: Mapping[str, Any] = home.load(run) or {"releases": 0, "memory": {}}
            if saved["releases"] > len(purse.read().entries):
                raise older(purse)
            t = saved["releases"] + 1
            occasion = Occasion(
                client=policy.name,
                round=t,
                classes=self.classes,
                summarise=promise.summarise,
                encoder=EncoderKind(policy.data.encoder),
                noise=promise.noise(policy.name, t, Purpose.RELEASE),
                memory=saved["memory"],
            )
            _check_outside(features, occasion)
            planned = promise.mechanism.planned(occasion)
            purse.charge(planned, round=t)  # first: an error after the look could tell what was not paid for
            made = promise.mechanism.release(_usual(features.vectors, home), features.labels, occasion)
            upload = made.paid_with(planned)
            home.save(run, {"releases": t, "memory": dict(made.memory)})
            return upload


def _check_outside(features: Features, occasion: Occasion) -> None:
    """Refuse what can be refused for nothing: it is the same whatever a server sends."""
    fixed = occasion.encoder.fixed
    admit(features.vectors if fixed else torch.zeros_like(features.vectors), features.labels, occasion)


def _usual(vectors: Float[Tensor, "n d"], home: Home) -> Float[Tensor, "n d"]:
    """Features that every mechanism admits; the owner reads of those that were none."""
    shown = usual(vectors)
    if strange := int((shown != vectors).any(dim=1).sum()):
        told = f"{strange} of {len(shown)} features held NaN, infinity or numbers beyond 1e15: "
        noted(home, InvalidInput(told + "they were brought back, check the app and what it was sent"))
    return shown


def _run(context: "Context") -> str:
    """A name for this run in the owner's folder."""
    return hashlib.sha256(f"mod/{context.run_id}".encode()).hexdigest()[:16]


def _fingerprint(features: Features) -> bytes:
    """Of the labels alone: features move with the encoder, the samples' labels do not."""
    counted = torch.bincount(features.labels.flatten()) if len(features.labels) else features.labels
    return hashlib.sha256(counted.numpy().tobytes()).digest()
