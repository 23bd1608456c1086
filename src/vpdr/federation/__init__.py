"""Builds clients and server from a config, and runs them: in one process, or many runs in parallel."""
