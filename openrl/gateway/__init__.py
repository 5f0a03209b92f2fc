"""The HTTP side: Tinker's API and our own, over ledger, catalog and depot. Stateless; never imports torch."""
