"""Servers that the service is compared with, each minimal and as its project's documentation recommends."""
