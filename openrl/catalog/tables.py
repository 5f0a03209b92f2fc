"""The tables. What is in them outlives every process; operations are not here but in the ledger.

A run names its session, and a checkpoint its run, together with the tenant: the database itself refuses a row that
would hang on another tenant's. A change here needs a migration beside it; a test compares the two.
"""

from datetime import UTC, datetime

from sqlalchemy import (
    JSON,
    BigInteger,
    Boolean,
    Column,
    DateTime,
    Dialect,
    ForeignKey,
    ForeignKeyConstraint,
    Index,
    Integer,
    MetaData,
    String,
    Table,
    TypeDecorator,
    UniqueConstraint,
)


class Utc(TypeDecorator[datetime]):
    """A moment, always aware and in UTC. SQLite keeps no zone, so it is taken off there and put on again."""

    impl = DateTime(timezone=True)
    cache_ok = True

    def process_bind_param(self, value: datetime | None, dialect: Dialect) -> datetime | None:
        if value is None:
            return None
        assert value.tzinfo is not None, f"{value} has no time zone"
        moment = value.astimezone(UTC)
        return moment.replace(tzinfo=None) if dialect.name == "sqlite" else moment

    def process_result_value(self, value: datetime | None, dialect: Dialect) -> datetime | None:
        if value is None:
            return None
        return value.replace(tzinfo=UTC) if value.tzinfo is None else value.astimezone(UTC)


metadata = MetaData(
    naming_convention={
        "ix": "ix_%(table_name)s_%(column_0_N_name)s",
        "uq": "uq_%(table_name)s_%(column_0_N_name)s",
        "fk": "fk_%(table_name)s_%(column_0_N_name)s",
        "pk": "pk_%(table_name)s",
    }
)

tenants = Table(
    "tenants",
    metadata,
    Column("id", String, primary_key=True),
    Column("name", String, nullable=False, unique=True),
    Column("created_at", Utc, nullable=False),
)

api_keys = Table(
    "api_keys",
    metadata,
    Column("id", Integer, primary_key=True),
    Column("tenant_id", ForeignKey("tenants.id"), nullable=False),
    Column("digest", String(64), nullable=False, unique=True),  # sha256 of the secret, in hex
    Column("prefix", String(8), nullable=False),
    Column("created_at", Utc, nullable=False),
    Column("expires_at", Utc),
    Column("revoked_at", Utc),
)

sessions = Table(
    "sessions",
    metadata,
    Column("id", String, primary_key=True),
    Column("tenant_id", ForeignKey("tenants.id"), nullable=False),
    Column("tags", JSON, nullable=False),
    Column("user_metadata", JSON, nullable=False),
    Column("display_name", String),
    Column("sdk_version", String, nullable=False),
    Column("project_id", String),
    Column("created_at", Utc, nullable=False),
    Column("last_seen_at", Utc, nullable=False),
    Column("finished_at", Utc),
    Column("finish_reason", String),
    Column("finish_detail", String),
    Column("released_at", Utc),  # what only it needed is gone: its runs' snapshots, its unnamed policies
    UniqueConstraint("tenant_id", "id"),
    Index(None, "tenant_id", "created_at"),
)

runs = Table(
    "runs",
    metadata,
    Column("id", String, primary_key=True),
    Column("tenant_id", String, nullable=False),
    Column("session_id", String, nullable=False),
    Column("base_model", String, nullable=False),
    Column("requested_model", String, nullable=False),
    Column("lora_rank", Integer, nullable=False),  # 0: no adapter, all weights are trained
    Column("lora_seed", BigInteger),
    Column("train_attn", Boolean, nullable=False),
    Column("train_mlp", Boolean, nullable=False),
    Column("train_unembed", Boolean, nullable=False),
    Column("user_metadata", JSON, nullable=False),
    Column("created_at", Utc, nullable=False),
    Column("last_request_at", Utc, nullable=False),
    ForeignKeyConstraint(["tenant_id", "session_id"], ["sessions.tenant_id", "sessions.id"]),
    UniqueConstraint("tenant_id", "id"),
    Index(None, "tenant_id", "created_at"),
    Index(None, "session_id"),
)

samplers = Table(
    "samplers",
    metadata,
    Column("id", String, primary_key=True),
    Column("tenant_id", String, nullable=False),
    Column("session_id", String, nullable=False),
    Column("base_model", String, nullable=False),
    Column("requested_model", String, nullable=False),
    Column("policy", String),
    Column("model_path", String),
    Column("created_at", Utc, nullable=False),
    Column("run_id", String),  # of an unnamed policy; none of an earlier release, which goes with its session
    Column("removed_at", Utc),  # the policy was let go of
    ForeignKeyConstraint(["tenant_id", "session_id"], ["sessions.tenant_id", "sessions.id"]),
    Index(None, "session_id"),
    Index(None, "policy"),
    Index(None, "removed_at", "run_id"),
)

checkpoints = Table(
    "checkpoints",
    metadata,
    Column("run_id", String, primary_key=True),
    Column("kind", String, primary_key=True),
    Column("name", String, primary_key=True),
    Column("tenant_id", String, nullable=False),
    Column("depot_key", String, nullable=False),
    Column("op_id", String, nullable=False),
    Column("size_bytes", BigInteger, nullable=False),
    Column("has_optimizer", Boolean, nullable=False),
    Column("user_metadata", JSON, nullable=False),
    Column("created_at", Utc, nullable=False),
    Column("expires_at", Utc),
    ForeignKeyConstraint(["tenant_id", "run_id"], ["runs.tenant_id", "runs.id"]),
    Index(None, "tenant_id", "created_at"),
    Index(None, "expires_at"),
)
