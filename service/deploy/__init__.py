"""Deployment of the service on several machines."""
