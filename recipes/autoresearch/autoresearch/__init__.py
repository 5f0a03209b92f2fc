"""Parallel experiments: settings or edits are proposed, run side by side, compared fairly, kept or dropped."""
