"""A package of somebody else's: a task, `text-embedding`, and a kernel, `Cosine`."""
