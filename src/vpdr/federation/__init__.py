"""Builds clients and server from a config, and runs them: in one process, or many runs in parallel."""

from vpdr.federation.builder import ClientFactory, ClientSetup, ClientSetups, Federation, Server, build, load_clients
from vpdr.federation.rounds import Callbacks, PhaseTimer, RoundUploads, RunState, never_stop, simulate
from vpdr.federation.run import Job, JobResult, RunOptions, RunResult, make_jobs, run_federation, sweep
