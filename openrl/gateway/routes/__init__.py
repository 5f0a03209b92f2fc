"""Endpoints by noun: each reads a request, calls on the services and answers."""
