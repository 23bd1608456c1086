"""Pictures that are not a table: each from records, or from features of a run that is played again."""
