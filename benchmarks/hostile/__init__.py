"""Attacks on a running server, one table for each family: the requests, and the allowed responses."""
