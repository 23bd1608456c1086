"""Reference forms that the package is compared with."""
