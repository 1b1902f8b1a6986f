"""Models on the command line, without a server: files or standard input in, a line for each text out."""
