"""Starts the processes of a group on this machine, with PyTorch's own launcher, and ends when they have ended."""

import logging
import os

from torch.distributed.elastic.multiprocessing.api import SignalException
from torch.distributed.elastic.multiprocessing.errors import ChildFailedError
from torch.distributed.run import parse_args, run

from openrl.config import Train
from openrl.domain.errors import SettingInvalid
from openrl.machine import usable_cores
from workers.train.group.place import check_group, place_in

#: That the ranks have to end once they are told to stop. Whoever tells them sets the bound (Kubernetes'
#: terminationGracePeriodSeconds): the launcher's own is half a minute, and would cut off a drain in its snapshots.
STOP_SECONDS = 3600


def launch(role: str, processes: int, train: Train) -> int:
    """A worker of `processes` processes, none of which is this one. When one of them dies the others are ended too.

    Answers the exit status: of rank 0, or of the first to fail. Raises SettingInvalid.
    """
    check_group(role, train, "--processes")
    if place_in(os.environ) is not None:
        raise SettingInvalid("--processes", "torchrun has started a group already; leave --processes away")
    os.environ.setdefault("OMP_NUM_THREADS", str(max(1, usable_cores() // processes)))
    os.environ.setdefault("TORCH_ELASTIC_SHUTDOWN_TIMEOUT", str(STOP_SECONDS))
    logging.getLogger("torch.distributed").setLevel(logging.WARNING)
    command = ["--standalone", f"--nproc-per-node={processes}", "--module", "openrl.cli.main", "worker", role]
    arguments = parse_args(command)  # type: ignore[no-untyped-call]  # torch annotates neither
    try:
        run(arguments)  # type: ignore[no-untyped-call]  # as above
    except ChildFailedError as error:
        return exit_status({rank: failure.exitcode for rank, failure in error.failures.items()})
    except SignalException:
        return 0
    return 0


def exit_status(ended: dict[int, int]) -> int:
    """Of the group, from those of the ranks that failed: the lowest rank that ended by itself tells why it did; the
    others may have been ended because of it. Negative is the signal that ended one."""
    own = [ended[rank] for rank in sorted(ended) if ended[rank] > 0]
    return own[0] if own else 1
