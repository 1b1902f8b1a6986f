"""Jobs: documents that are translated in the background, kept in a database and resumed after a restart."""
