"""Readers of the public datasets in their published file formats; no file is trusted."""
