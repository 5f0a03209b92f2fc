import pytest
import torch

from workers.model.alike import BLOCK, Alike, sizes


def kernels(*edges, calls=None):
    """A product that adds up in another order beyond each of these numbers of rows."""
    weight = torch.randn(64, 700, generator=torch.Generator().manual_seed(1))

    def product(x):
        if calls is not None:
            calls.append(len(x))
        cut = 100 + sum(len(x) >= edge for edge in edges)
        return torch.stack([weight[:, :cut].mv(row[:cut]) + weight[:, cut:].mv(row[cut:]) for row in x])

    return product


@pytest.mark.parametrize("edges", [(), (2, 16), (17,), (33,), (9, 40)])
def test_a_row_gets_the_same_bits_in_any_number_of_rows(edges):
    alike, product = Alike(), kernels(*edges)
    x = torch.randn(50, 700)
    whole = product(x[:BLOCK])
    for count in (1, 2, 5, 16, 17, 31, 32, 33, 50):
        assert torch.equal(alike.rows("it", product, x[:count])[:BLOCK], whole[:count])


def test_a_number_of_rows_that_changes_nothing_is_taken_as_it_is():
    calls = []
    alike, product = Alike(), kernels(33, calls=calls)
    for count, taken in ((1, [1]), (20, [20]), (40, [32, 8])):
        alike.rows("it", product, torch.randn(count, 700))
        calls.clear()
        alike.rows("it", product, torch.randn(count, 700))
        assert calls == taken


def test_rows_that_depend_on_their_place_are_computed_one_by_one():
    calls = []

    def product(x):
        calls.append(len(x))
        return x + torch.arange(len(x))[:, None]

    alike, x = Alike(), torch.randn(3, 8)
    assert torch.equal(alike.rows("it", product, x), x)
    assert calls[-3:] == [1, 1, 1]


def test_sizes_fall_to_a_block():
    assert sizes(5) == [5, 16]
    assert sizes(16) == [16]
    assert sizes(100) == [100, 64, 32, 16]


def test_entries_of_a_batched_product_are_those_of_each_alone(monkeypatch):
    x, weights = torch.randn(3, 16, 40), torch.randn(3, 40, 8)
    alone = torch.cat([torch.bmm(x[n : n + 1], weights[n : n + 1]) for n in range(3)])
    assert torch.equal(Alike().entries(x, weights), alone)
    plain = torch.bmm
    monkeypatch.setattr(torch, "bmm", lambda a, b: plain(a, b) + (len(a) > 1) * 1e-3)
    assert torch.equal(Alike().entries(x, weights), alone)
