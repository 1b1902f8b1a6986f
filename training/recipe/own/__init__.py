"""Recipes that are made for a user's data."""
