"""Names in Redis that Python and the scripts share; `rows.lua` spells the same names, and the ones only it uses."""

from dataclasses import dataclass

from openrl.domain.ids import BatchId, OpId


@dataclass(frozen=True, slots=True)
class Keys:
    prefix: str

    def op(self, op_id: OpId) -> str:
        """Hash: the op's row."""
        return f"{self.prefix}op:{op_id}"

    def batch(self, batch: BatchId) -> str:
        """Hash: the batch. With `:order` behind it a list: ids of the ops that ended its groups."""
        return f"{self.prefix}batch:{batch}"

    @property
    def tenants(self) -> str:
        """Hash: unsettled ops by tenant; no field for none."""
        return f"{self.prefix}tenants"

    @property
    def settled(self) -> str:
        """Channel: the id of each op as it settles."""
        return f"{self.prefix}settled"


def body_key(op_id: OpId) -> str:
    """Where an action too big for its row lies on the shelf."""
    return f"ops/{op_id}/body"


def result_key(op_id: OpId, epoch: int) -> str:
    """Where a result too big for its row lies on the shelf. A claim has its own place, so that a worker which lost
    the op cannot write over the result of the one that has it now."""
    return f"ops/{op_id}/result-{epoch}"
