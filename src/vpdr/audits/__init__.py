"""Two worlds and an attacker: what a claim of privacy is really worth, certified from below."""

from vpdr.audits.audit import Effort, audit
from vpdr.audits.claims import Claim
from vpdr.audits.findings import Finding
from vpdr.audits.subject import Subject

__all__ = ["Claim", "Effort", "Finding", "Subject", "audit"]
