"""The reference pages, which are generated from the code: `python -m docs.generators`."""
