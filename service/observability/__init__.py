"""Measurements of a running service: metrics, spans, delays of the event loop."""
