"""`softserve bench`: a model in this process, or a server under load."""
