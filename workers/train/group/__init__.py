"""A train worker of several processes: rank 0 is the worker that everybody sees, the others compute along with it."""
