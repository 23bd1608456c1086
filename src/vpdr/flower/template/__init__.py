"""The files of a new app folder; they are copied, not imported."""
