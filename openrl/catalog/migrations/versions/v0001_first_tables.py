"""Tenants and their keys, sessions, runs, samplers, checkpoints."""

import sqlalchemy as sa
from alembic import op

revision = "0001"
down_revision = None


def upgrade() -> None:
    op.create_table(
        "tenants",
        sa.Column("id", sa.String, nullable=False),
        sa.Column("name", sa.String, nullable=False),
        _moment("created_at"),
        sa.PrimaryKeyConstraint("id", name="pk_tenants"),
        sa.UniqueConstraint("name", name="uq_tenants_name"),
    )
    op.create_table(
        "api_keys",
        sa.Column("id", sa.Integer, nullable=False),
        sa.Column("tenant_id", sa.String, nullable=False),
        sa.Column("digest", sa.String(64), nullable=False),
        sa.Column("prefix", sa.String(8), nullable=False),
        _moment("created_at"),
        _moment("expires_at", nullable=True),
        _moment("revoked_at", nullable=True),
        sa.PrimaryKeyConstraint("id", name="pk_api_keys"),
        sa.ForeignKeyConstraint(["tenant_id"], ["tenants.id"], name="fk_api_keys_tenant_id"),
        sa.UniqueConstraint("digest", name="uq_api_keys_digest"),
    )
    _sessions()
    _runs()
    _samplers()
    _checkpoints()


def downgrade() -> None:
    for table in ("checkpoints", "samplers", "runs", "sessions", "api_keys", "tenants"):
        op.drop_table(table)


def _sessions() -> None:
    op.create_table(
        "sessions",
        sa.Column("id", sa.String, nullable=False),
        sa.Column("tenant_id", sa.String, nullable=False),
        sa.Column("tags", sa.JSON, nullable=False),
        sa.Column("user_metadata", sa.JSON, nullable=False),
        sa.Column("display_name", sa.String),
        sa.Column("sdk_version", sa.String, nullable=False),
        sa.Column("project_id", sa.String),
        _moment("created_at"),
        _moment("last_seen_at"),
        _moment("finished_at", nullable=True),
        sa.Column("finish_reason", sa.String),
        sa.Column("finish_detail", sa.String),
        _moment("released_at", nullable=True),
        sa.PrimaryKeyConstraint("id", name="pk_sessions"),
        sa.ForeignKeyConstraint(["tenant_id"], ["tenants.id"], name="fk_sessions_tenant_id"),
        sa.UniqueConstraint("tenant_id", "id", name="uq_sessions_tenant_id_id"),
    )
    op.create_index("ix_sessions_tenant_id_created_at", "sessions", ["tenant_id", "created_at"])


def _runs() -> None:
    op.create_table(
        "runs",
        *_of_a_session(),
        sa.Column("lora_rank", sa.Integer, nullable=False),
        sa.Column("lora_seed", sa.BigInteger),
        sa.Column("train_attn", sa.Boolean, nullable=False),
        sa.Column("train_mlp", sa.Boolean, nullable=False),
        sa.Column("train_unembed", sa.Boolean, nullable=False),
        sa.Column("user_metadata", sa.JSON, nullable=False),
        _moment("created_at"),
        _moment("last_request_at"),
        sa.PrimaryKeyConstraint("id", name="pk_runs"),
        _session_key("runs"),
        sa.UniqueConstraint("tenant_id", "id", name="uq_runs_tenant_id_id"),
    )
    op.create_index("ix_runs_tenant_id_created_at", "runs", ["tenant_id", "created_at"])
    op.create_index("ix_runs_session_id", "runs", ["session_id"])


def _samplers() -> None:
    op.create_table(
        "samplers",
        *_of_a_session(),
        sa.Column("policy", sa.String),
        sa.Column("model_path", sa.String),
        _moment("created_at"),
        sa.PrimaryKeyConstraint("id", name="pk_samplers"),
        _session_key("samplers"),
    )
    op.create_index("ix_samplers_session_id", "samplers", ["session_id"])


def _checkpoints() -> None:
    op.create_table(
        "checkpoints",
        sa.Column("run_id", sa.String, nullable=False),
        sa.Column("kind", sa.String, nullable=False),
        sa.Column("name", sa.String, nullable=False),
        sa.Column("tenant_id", sa.String, nullable=False),
        sa.Column("depot_key", sa.String, nullable=False),
        sa.Column("op_id", sa.String, nullable=False),
        sa.Column("size_bytes", sa.BigInteger, nullable=False),
        sa.Column("has_optimizer", sa.Boolean, nullable=False),
        sa.Column("user_metadata", sa.JSON, nullable=False),
        _moment("created_at"),
        _moment("expires_at", nullable=True),
        sa.PrimaryKeyConstraint("run_id", "kind", "name", name="pk_checkpoints"),
        sa.ForeignKeyConstraint(
            ["tenant_id", "run_id"], ["runs.tenant_id", "runs.id"], name="fk_checkpoints_tenant_id_run_id"
        ),
    )
    op.create_index("ix_checkpoints_tenant_id_created_at", "checkpoints", ["tenant_id", "created_at"])
    op.create_index("ix_checkpoints_expires_at", "checkpoints", ["expires_at"])


def _of_a_session() -> list[sa.Column[str]]:
    return [
        sa.Column(name, sa.String, nullable=False)
        for name in ("id", "tenant_id", "session_id", "base_model", "requested_model")
    ]


def _session_key(table: str) -> sa.ForeignKeyConstraint:
    return sa.ForeignKeyConstraint(
        ["tenant_id", "session_id"], ["sessions.tenant_id", "sessions.id"], name=f"fk_{table}_tenant_id_session_id"
    )


def _moment(name: str, *, nullable: bool = False) -> "sa.Column[object]":
    return sa.Column(name, sa.DateTime(timezone=True), nullable=nullable)
