"""The processor time of the service itself, with a model that takes none."""
