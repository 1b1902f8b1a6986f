"""Addresses of databases for tests: SQLite, and PostgreSQL where `SOFTSERVE_TEST_POSTGRES` is the URL of a server."""

import hashlib
import os

__all__ = ["POSTGRES", "database_url"]

POSTGRES = os.environ.get("SOFTSERVE_TEST_POSTGRES", "")


def database_url(path):
    """Return the URL of a database that belongs to a path: its file, or a schema of the server."""
    if not POSTGRES:
        return f"sqlite:///{path}"
    import psycopg

    schema = f"test_{hashlib.sha256(os.fsencode(path)).hexdigest()[:24]}"
    with psycopg.connect(POSTGRES.replace("+psycopg", ""), autocommit=True) as connection:
        connection.execute("SELECT pg_advisory_lock(1)")  # until the end of the connection: several threads may do so
        connection.execute(f"CREATE SCHEMA IF NOT EXISTS {schema}")
    return f"{POSTGRES}{'&' if '?' in POSTGRES else '?'}options=-csearch_path%3D{schema}"
