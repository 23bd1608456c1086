"""Builds clients and server from a config, and runs them: in one process, or many runs in parallel."""

from vpdr.federation.benchmarks import ClientSetup, ClientSetups, load_clients, model_spec_for
from vpdr.federation.builder import ClientFactory, Federation, Server, build, make_ledger, make_release_config
from vpdr.federation.rounds import Callbacks, PhaseTimer, RoundUploads, RunState, never_stop, simulate
from vpdr.federation.run import Job, JobResult, RunOptions, RunResult, make_jobs, run_federation, sweep
