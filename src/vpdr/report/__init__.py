"""Tables, figures and self-contained HTML pages from the records of runs."""
