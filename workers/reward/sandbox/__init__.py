"""Where model output is scored: child processes without network, files, keys or a way to reach anybody."""
