"""OpenRL: a self-hosted post-training service that speaks the Tinker API."""

__version__ = "0.1.0"
