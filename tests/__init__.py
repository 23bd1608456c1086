"""How annotations are checked while the tests run: shapes and types, an integer passing for a float."""

from beartype import BeartypeConf, beartype

checker = beartype(conf=BeartypeConf(is_pep484_tower=True))
