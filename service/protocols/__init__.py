"""Protocols of other projects, so that their clients can use the models: one folder each, over the same engine."""
