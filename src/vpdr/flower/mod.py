"""A Flower mod that replaces the private features of an app's reply by private prototypes."""

import hashlib
from collections import OrderedDict
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import torch

from vpdr.client import sanitize
from vpdr.config import RunConfig, resolve, rules
from vpdr.flower import client_app, owner
from vpdr.mechanisms import ReleaseContext, base
from vpdr.privacy import ChargePurpose, EncoderKind
from vpdr.rng import Streams
from vpdr.types import Features, Prototypes

if TYPE_CHECKING:
    from flwr.app import Context, Message, RecordDict


PRIVATE_RECORD, PROTOTYPES_RECORD = "private", "prototypes"
"""The app's record with `vectors` [n d] and `labels` [n], and the record that is sent instead."""


@dataclass(frozen=True, kw_only=True)
class PrototypePrivacyMod:
    """A mod for `ClientApp(mods=[..., mod])`; as the last mod, so that others see private prototypes only.

    The app puts all its samples into an array record `private` with `vectors` [n d] and `labels` [n]; the
    reply holds a record `prototypes` instead. The directory named by the node config holds `policy.toml`.

    Args:
        classes: number of classes.
        dim: dimension of the features.
        rounds: number of releases over which the policy's budget is spread.
        mechanism: name in `MECHANISMS`.
        clip_norm: norm to which each feature is clipped.
        summariser: "means", or "sums" where class counts are private.

    Guarantee: a reply holds prototypes that were charged to the ledger of the node's owner before, or one
    refusal code. ε, δ, adjacency, the kind of encoder and everything else that protects come from the owner's
    policy; `rounds` only says over how many releases they are spread. Metrics pass where the policy's
    `metrics` is "everything". The directory is bound to the number of labels of each class only.

    Before the charge the mod reads shapes and labels, which no server influences, and refuses at no cost what
    cannot be released; it reads values only if the encoder is declared public. Any other encoder may have
    been made steep by a server: there every value is clamped to a finite range, so that no sample can make a
    release fail, and an error costs what the release would have cost. What the app does before is its own
    responsibility: it must pass on all samples and must not fail on any, since a server sees whether it did.

    >>> mod = PrototypePrivacyMod(classes=10, dim=64, rounds=20)
    >>> config = mod.make_config(owner.Policy(name="hospital-a"))
    >>> config.mechanism.kind, config.budget.epsilon, config.release.noise
    ('igpp', 1.0, 'system')
    """

    classes: int
    dim: int
    rounds: int
    mechanism: str = "igpp"
    clip_norm: float = 5.0
    summariser: str = "means"

    def __call__(
        self, message: "Message", context: "Context", call_next: "Callable[[Message, Context], Message]"
    ) -> "Message":
        """Run the app (`call_next`) and replace its reply by private prototypes, or an error with a refusal code."""

        def handle(store: owner.NodeStore) -> "RecordDict":
            policy = store.policy()
            config = self.make_config(policy)
            owner.check_config_against_policy(policy, config)  # before the app reads any data
            reply = call_next(message, context)
            if reply.has_error():
                raise owner.Refusal(owner.RefusalCode.FAILED, f"the app: {reply.error.reason}")
            run = hashlib.sha256(f"mod/{context.run_id}".encode()).hexdigest()[:16]  # its name in the directory
            return self._build_reply(store, policy, config, reply.content, run)

        return client_app.reply_or_refusal(message, context, handle)

    def make_config(self, policy: owner.Policy) -> RunConfig:
        """The run configuration of the mod under this policy, for `check_config_against_policy` to check."""
        encoder = EncoderKind(policy.data.encoder)
        config = RunConfig.from_tables(
            {
                "run": {"rounds": self.rounds},
                "model": {"dim": self.dim},
                "mechanism": {"kind": self.mechanism, "clip_norm": self.clip_norm},
                "budget": {
                    "epsilon": policy.budget.epsilon,
                    "delta": policy.budget.delta,
                    "accountant": policy.budget.accountant,
                    "adjacency": policy.budget.adjacency,
                },
                "release": {
                    # features computed from broadcasts are fixed before this release, as public ones are
                    "encoder": "personal" if encoder.is_trained_on_private_data else "public",
                    "summariser": self.summariser,
                    "noise": "system",
                    "min_count": policy.allow.min_class_count if self.summariser == "means" else 1,
                },
            }
        )
        rules.check_encoder_is_fixed(config, encoder)
        return config

    def _build_reply(
        self, store: owner.NodeStore, policy: owner.Policy, config: RunConfig, content: "RecordDict", run: str
    ) -> "RecordDict":
        """A reply from the records listed here only."""
        from flwr.app import ArrayRecord, RecordDict

        record = content.array_records.get(PRIVATE_RECORD)
        if record is None:
            details = f"the app's reply has no array record {PRIVATE_RECORD!r}"
            raise owner.Refusal(owner.RefusalCode.NO_PRIVATE_RECORD, details)
        arrays = record.to_torch_state_dict()
        upload = self._release(store, policy, config, Features(arrays["vectors"], arrays["labels"]), run)
        records: dict[str, Any] = {PROTOTYPES_RECORD: ArrayRecord(OrderedDict(upload.to_arrays()))}
        if policy.allow.metrics == "everything":
            records |= dict(content.metric_records)
        return RecordDict(records)

    def _release(
        self, store: owner.NodeStore, policy: owner.Policy, config: RunConfig, features: Features, run: str
    ) -> Prototypes:
        """One release, charged to the owner's ledger."""
        release_config = resolve.make_release_config(config, resolve.make_framework(config), self.classes, Streams(0))
        mechanism = release_config.mechanism
        with store.lock():
            ledger = store.ledger(policy, run)
            # to the class counts: features change with the encoder, labels do not
            counts = torch.bincount(features.labels.flatten()) if len(features.labels) else features.labels
            store.bind_dataset(hashlib.sha256(counts.numpy().tobytes()).digest())
            saved: Mapping[str, Any] = store.load(run) or {"releases": 0, "memory": {}}
            stored = ledger.read()
            # states of version 0.1 hold the number of releases only
            if saved["releases"] > len(stored.entries) or saved.get("ledger", stored.head) not in stored.chain:
                raise ledger.older_copy_refusal()
            round = saved["releases"] + 1
            context = ReleaseContext(
                client=policy.name,
                round=round,
                classes=self.classes,
                summariser=release_config.summariser,
                encoder=EncoderKind(policy.data.encoder),
                noise=release_config.make_noise(policy.name, round, ChargePurpose.RELEASE),
                state=saved["memory"],
            )
            # refused at no cost: what depends on shapes, labels and (of a fixed encoder) values only
            values = features.vectors if context.encoder.is_fixed else torch.zeros_like(features.vectors)
            base.validate_features(values, features.labels, context)
            receipt = mechanism.receipt_for(context)
            # before the values are read: an error could depend on them
            charge = ledger.charge(receipt, round=round, mechanism=type(mechanism).__name__)
            vectors = sanitize(features.vectors)
            if count := int((vectors != features.vectors).any(dim=1).sum()):
                client_app.log_to_owner(
                    store,
                    f"{count} of {len(vectors)} features held NaN, infinity or values beyond 1e15, "
                    "which were replaced; check the app and what it received",
                )
            release = mechanism.release(vectors, features.labels, context)
            upload = release.open(charge)
            store.save(run, {"releases": round, "memory": dict(release.state), "ledger": ledger.read().head})
            return upload
