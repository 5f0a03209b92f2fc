"""Endpoints by noun: each reads a request, calls on the services and answers. What they mean lies in `wire` and `domain`."""
