"""From records to tables, figures and a page that needs no network."""
