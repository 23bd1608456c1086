"""The files of a new app directory; they are copied, not imported."""
