"""A third-party package: a task, `text-embedding`, and a kernel, `Cosine`."""
