"""The catalog: what outlives every process — tenants, their keys, sessions, runs, samplers, checkpoints.

`repository.Catalog` is the one door. Behind it each noun has its module (keys, sessions, runs, samplers, checkpoints),
all on one `database.Database`; `tables` is the schema as it is, `migrations` how it came to be.

- Everything belongs to a tenant, and another tenant's thing raises the same error as one that is not there.
- Times are aware and in UTC. Lists are newest first unless they say otherwise.
- Adding is idempotent by id, so a request that was sent twice does no harm.
- Calls block, are short, and may come from any thread; a database that does not answer is CatalogUnreachable.
- The catalog knows no operation (that is the ledger) and no bytes (that is the depot, named here by key).
"""
