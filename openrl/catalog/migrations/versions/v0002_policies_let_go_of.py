"""Samplers know the run of their unnamed policy, and whether it was let go of."""

import sqlalchemy as sa
from alembic import op

revision = "0002"
down_revision = "0001"


def upgrade() -> None:
    op.add_column("samplers", sa.Column("run_id", sa.String))
    op.add_column("samplers", sa.Column("removed_at", sa.DateTime(timezone=True)))
    op.create_index("ix_samplers_policy", "samplers", ["policy"])
    op.create_index("ix_samplers_removed_at_run_id", "samplers", ["removed_at", "run_id"])


def downgrade() -> None:
    op.drop_index("ix_samplers_removed_at_run_id", "samplers")
    op.drop_index("ix_samplers_policy", "samplers")
    with op.batch_alter_table("samplers") as samplers:
        samplers.drop_column("removed_at")
        samplers.drop_column("run_id")
