"""What OpenRL talks about: frozen dataclasses and the errors, on the standard library alone."""
