"""The process that serves: its limits of connections, its end, and several processes side by side."""
