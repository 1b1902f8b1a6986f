"""The endpoints that run models: one for each operation of the tasks."""
