"""Comparison tables: what they compare, their results, one JSON line a row and seed, and the page made of them."""
