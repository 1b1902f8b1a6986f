"""All tables of the database. A new one needs no migration: it is created where a database lacks it."""

from collections.abc import Callable, Sequence

from sqlalchemy import (
    BigInteger,
    Column,
    Connection,
    Float,
    ForeignKey,
    Index,
    Integer,
    LargeBinary,
    MetaData,
    String,
    Table,
    Text,
)

__all__ = [
    "DICTIONARIES",
    "GLOSSARIES",
    "JOBS",
    "JOB_FILES",
    "JOB_RESULTS",
    "MIGRATIONS",
    "SCHEMA",
    "USAGE",
    "metadata",
]

metadata = MetaData()

MIGRATIONS: Sequence[Callable[[Connection], None]] = ()
"""The changes of tables that have been released, oldest first. The version of a database is how many it has."""

SCHEMA = Table("softserve_schema", metadata, Column("version", Integer, nullable=False))
"""The version of the tables: one row."""

JOBS = Table(
    "softserve_jobs",
    metadata,
    Column("id", String(32), primary_key=True),
    Column("secret", String(64), nullable=False),
    Column("owner", String(200), nullable=False),
    Column("state", String(16), nullable=False),
    Column("form", String(16), nullable=False),
    Column("model", String(300), nullable=False),
    Column("operation", String(100), nullable=False),
    Column("options", Text, nullable=False),
    Column("size", Integer, nullable=False),
    Column("characters", Integer),
    Column("characters_done", Integer, nullable=False, default=0),
    Column("failed", Integer, nullable=False, default=0),
    Column("doubtful", Integer, nullable=False, default=0),
    Column("doubtful_texts", Text, nullable=False, default="[]"),
    Column("attempts", Integer, nullable=False, default=0),
    Column("error", Text),
    Column("created", Float, nullable=False),
    Column("expires", Float, nullable=False),
    Column("claimed", Float),
    Column("claimed_characters", Integer, nullable=False, default=0),
    Column("lease", String(64)),
    Column("lease_until", Float, nullable=False, default=0.0),
    Index("softserve_jobs_waiting", "state", "lease_until", "created"),
)
"""Documents that are translated in the background."""

JOB_FILES = Table(
    "softserve_job_files",
    metadata,
    Column("job", String(32), ForeignKey("softserve_jobs.id", ondelete="CASCADE"), primary_key=True),
    Column("kind", String(8), primary_key=True),
    Column("content", LargeBinary, nullable=False),
)
"""The document of a job, then its translation."""

JOB_RESULTS = Table(
    "softserve_job_results",
    metadata,
    Column("job", String(32), ForeignKey("softserve_jobs.id", ondelete="CASCADE"), primary_key=True),
    Column("position", Integer, primary_key=True),
    Column("text", Text),
)
"""The results of the texts of a job that is not done."""

GLOSSARIES = Table(
    "softserve_glossaries",
    metadata,
    Column("id", String(36), primary_key=True),
    Column("owner", String(200), nullable=False, index=True),
    Column("name", Text, nullable=False),
    Column("created", Float, nullable=False),
    Column("revision", Integer, nullable=False, default=0),
)
"""Glossaries of API keys. The revision counts changes of their dictionaries."""

DICTIONARIES = Table(
    "softserve_dictionaries",
    metadata,
    Column("glossary", String(36), ForeignKey("softserve_glossaries.id", ondelete="CASCADE"), primary_key=True),
    Column("source", String(16), primary_key=True),
    Column("target", String(16), primary_key=True),
    Column("entry_count", Integer, nullable=False),
    Column("entries", Text, nullable=False),
)
"""The entries of a glossary for two languages, as a JSON object of translations by term."""

USAGE = Table(
    "softserve_usage",
    metadata,
    Column("owner", String(200), primary_key=True),
    Column("characters", BigInteger, nullable=False),
)
"""Characters that were translated with each API key."""

DAY_USE = Table(
    "softserve_day_use",
    metadata,
    Column("owner", String(200), primary_key=True),
    Column("day", Integer, nullable=False),
    Column("characters", BigInteger, nullable=False),
)
"""Characters of the last day, in days since 1970, that an API key has used of its daily budget."""
