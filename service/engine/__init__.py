"""Batching: what waits, what runs next, and what runs it."""
