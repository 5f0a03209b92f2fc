"""How much memory a pass takes at its peak, told from the model's size before anything is computed. Knows no tensors.

Counted is what autograd keeps of a decoder layer as Transformers writes it (RMSNorm in float32, rotary positions, a
gated MLP) with our adapters on it, what works beside it at the worst moment, and the head's chunk of logits. Weights,
optimizers and gradients of runs lie there before the pass and are not counted.
"""

from dataclasses import dataclass

from workers.model.size import ModelSize

#: Allocators round up and leave gaps; what is not counted below is small against this.
MARGIN = 1.1
FLOAT = 4  #: bytes of a float32


@dataclass(frozen=True, slots=True, kw_only=True)
class Load:
    """What one pass is to hold."""

    rows: int
    longest: int  #: tokens of the longest row
    tokens: int  #: that the model runs: all of `rows` x `longest`, or fewer where rows are folded
    choices: int = 1  #: most targets for one token
    targets: int = 0  #: tokens of rows, shared ones each time; 0 where all tokens are one row's

    @property
    def cells(self) -> int:
        """Places of the rows that attention sees."""
        return self.rows * self.longest

    @property
    def folded(self) -> bool:
        return self.tokens < self.cells


@dataclass(frozen=True, slots=True, kw_only=True)
class Kernels:
    """How a device computes, as far as that takes memory."""

    chunk_elements: int  #: logits that the head makes at once
    keeps_scores: bool = False  #: attention keeps its scores for the backward pass, as a flash kernel does not
    scores_at_once: int = 0  #: scores that the backward pass of attention computes again at once; 0 for none
    short: int = 0  #: longest row for which it does that


@dataclass(frozen=True, slots=True, kw_only=True)
class Learning:
    """What learns in a pass, as far as that takes memory: adapters, or all weights."""

    count: int = 1
    rank: int = 0  #: the largest
    largest: int = 0  #: elements of A and B of the largest target within a layer of any of them
    head: int = 0  #: the same of the head, which is computed adapter by adapter
    weight: int = 0  #: elements of the model's largest weight, where all of them learn


def peak_bytes(
    size: ModelSize, load: Load, kernels: Kernels, learning: Learning, *, train: bool, recompute: bool = False
) -> int:
    """Bytes beyond what lies there already, at the worst moment of a pass; with `train` of both directions."""
    layer, working = _kept_by_layer(size, load, kernels, learning), _working(size, load, kernels)
    head = _head(size, load, kernels)
    if not train:
        inside, kept = _forward(size, load, kernels), 0
    elif recompute:
        inside = layer + working
        kept = size.layers * size.item_bytes * size.hidden * load.tokens
    else:
        inside = working
        kept = size.layers * layer
    return int(MARGIN * (kept + max(inside, head) + _ends(size, load, train) + _copies(size, learning, train)))


def _kept_by_layer(size: ModelSize, load: Load, kernels: Kernels, learning: Learning) -> int:
    """What a layer keeps for its backward pass."""
    item, inner = size.item_bytes, learning.rank * size.linears
    kept_norms = FLOAT + (size.item_bytes if learning.weight else 0)  # their weights' gradients want their results too
    norms = kept_norms * size.norms * size.hidden + (FLOAT * (size.queries + size.keys) if size.head_norms else 0)
    inputs = item * 2 * size.hidden  # of the linear layers
    gated = item * 4 * size.intermediate  # gate, activation, up and their product
    token = norms + inputs + gated + FLOAT * inner
    attended = item * 2 * (size.queries + size.keys)  # query, key, value, output
    unfolded = item * (2 * size.queries + 2 * size.keys) if load.folded else 0
    return load.tokens * (token + attended) + load.cells * unfolded + _scores(size, load, kernels)


def _forward(size: ModelSize, load: Load, kernels: Kernels) -> int:
    """What is there at once within a layer when nothing is kept."""
    widest = max(3 * size.intermediate, 2 * (size.queries + size.keys))
    token = 2 * FLOAT * size.hidden + size.item_bytes * (2 * size.hidden + widest)
    unfolded = size.item_bytes * (2 * size.queries + 2 * size.keys) if load.folded else 0
    return load.tokens * token + load.cells * unfolded + _scores(size, load, kernels)


def _scores(size: ModelSize, load: Load, kernels: Kernels) -> int:
    """What attention keeps that grows with the square of the length, a layer's share of it."""
    square = load.rows * load.longest**2
    kept = square * size.heads * (FLOAT + size.item_bytes) if kernels.keeps_scores else 0
    if size.window is None or load.longest <= size.window:
        return kept
    # Masked layers: the mask as numbers, and keys and values repeated for every query head.
    masked = square * size.item_bytes + load.cells * size.item_bytes * 2 * size.queries
    return kept + masked * size.window_layers // size.layers


def _working(size: ModelSize, load: Load, kernels: Kernels) -> int:
    """What computes a layer's gradient beside what is kept: gradients within the MLP, or attention's scores again."""
    mlp = load.tokens * (size.item_bytes * 3 * size.intermediate + 2 * FLOAT * size.hidden)
    square = load.longest**2 * max(1, size.queries // size.keys)
    again = 0
    if load.longest <= kernels.short:
        again = min(max(kernels.scores_at_once, square), load.rows * load.longest**2 * size.heads)
    attention = 2 * size.item_bytes * load.cells * (size.queries + size.keys) + again * 2 * FLOAT
    return max(mlp, attention)


def _head(size: ModelSize, load: Load, kernels: Kernels) -> int:
    """Logits of a chunk: as computed, in float32, and once more while they are summed up."""
    chunk = min(load.tokens, max(1, kernels.chunk_elements // size.vocab)) * size.vocab
    return chunk * (2 * FLOAT + (size.item_bytes if size.item_bytes < FLOAT else 0))


def _copies(size: ModelSize, learning: Learning, train: bool) -> int:
    """Of a target's A and B: one below another where there are several adapters, and cast, with their gradients. Of all
    weights: one's gradient at a time, on its way to the flat one."""
    cast = 2 * size.item_bytes if size.item_bytes < FLOAT else 0
    if learning.weight:
        return learning.weight * (size.item_bytes + (FLOAT if cast else 0)) if train else 0
    layer = learning.count * learning.largest * (cast + (FLOAT if learning.count > 1 else 0))
    return max(layer, learning.head * cast)


def _ends(size: ModelSize, load: Load, train: bool) -> int:
    """The last hidden states, as they are, of the real tokens, and their gradients; inputs and results."""
    states = load.tokens * size.hidden * (FLOAT + (5 if train else 2) * size.item_bytes)
    return states + (load.targets or load.cells) * (100 + 40 * load.choices)
