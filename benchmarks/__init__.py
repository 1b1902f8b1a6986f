"""What produces the numbers in the README and the model cards."""
