"""The pages of the service: the playground and the API reference."""
