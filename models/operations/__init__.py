"""The operations of models: parameters, queries and records, the same for every caller."""
