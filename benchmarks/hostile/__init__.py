"""Attacks on a running server, one table for each family: what is sent, and what a server may answer."""
