"""What is measured and logged of a running service."""
