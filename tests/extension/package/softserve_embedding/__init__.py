"""A third-party package: a task, `text-vector`, and a kernel, `Cosine`."""
