"""What can be asked of models: the parameters, queries and records of each operation, the same for every caller."""
