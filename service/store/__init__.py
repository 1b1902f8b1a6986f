"""The embedded database: its connections, its tables, and the data that they hold."""
