"""A rank other than 0 in a process of its own, for the tests of this folder: folder of the model, tokens of a pass."""

import logging
import os
import sys

import torch

from workers.train.group.member import join
from workers.train.group.place import place_in

if __name__ == "__main__":
    logging.basicConfig(level=logging.INFO)
    torch.set_num_threads(1)
    place = place_in(os.environ)
    assert place is not None
    member = join(place, device="cpu", wait_seconds=30.0)
    member.follow(member.load(sys.argv[1], torch.float32), pack_tokens=int(sys.argv[2]))
