"""Audits of privacy claims: certified lower bounds on ε from a distinguishing game.

An attacker sees the uploads of one client and must tell on which of two neighbouring datasets the client ran.
How well the attacker does bounds the ε of the releases from below, at a stated confidence.
"""

from vpdr.audits.auditor import AuditConfig, AuditOptions, AuditResult, audit, request_from_options, request_from_run
from vpdr.audits.selftest import run_selftests
from vpdr.audits.target import AuditTarget, make_noise_factory
