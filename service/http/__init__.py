"""The service over HTTP: application, routes, keys, bodies, answers and errors."""
