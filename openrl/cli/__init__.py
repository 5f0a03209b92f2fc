"""The `openrl` command: serving on one machine, single components, keys, models, and what is wrong here."""
