"""One device, one thread: training and sampling take turns on one copy of the base weights."""
