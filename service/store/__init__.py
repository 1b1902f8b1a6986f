"""The embedded database: its connections, its tables, and what is kept in them."""
