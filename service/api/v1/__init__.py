"""The endpoints that run models, one file for each kind of task."""
