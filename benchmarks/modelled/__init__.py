"""What the service itself takes, beside a model that costs it no processor time."""
