"""Certificates, processes and app directories for Flower deployments; imports no Flower."""
