"""Base models that have a name of ours: where they lie, and how they get there."""
