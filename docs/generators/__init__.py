"""The pages that are generated from the code and from results: `python -m docs.generators`."""
