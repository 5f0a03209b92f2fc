"""The batch: samples being drawn, one token each in a step. Knows no admission and no prompts."""

from collections.abc import Sequence

from workers.sample.torch.decode_pass import DecodePass
from workers.sample.torch.drawing import take
from workers.sample.torch.logits import Drawn
from workers.sample.torch.rows import Row
from workers.sample.torch.table import Table


class Decoding:
    def __init__(self, table: Table, decode_pass: DecodePass) -> None:
        self.tokens_drawn = 0
        self._table, self._pass = table, decode_pass

    def step(self) -> None:
        """One token for every row. Where that fails, all of them fail."""
        try:
            drawn = self._pass()
            self._remove(self._take(self._table.rows, drawn))
        except Exception as error:
            for row in self._table.rows:
                row.spoilt = True
                row.job.fail(error)
            self.drop_over()

    def begin(self, rows: Sequence[Row], drawn: Drawn) -> None:
        """Samples get their first tokens; those with a place in the table may end with them."""
        self._pass.forget()
        ended = [rows[index] for index in self._take(rows, drawn)]
        self._remove([row.strand.place for row in ended if row.stays])

    def drop_over(self) -> None:
        """Take out the rows that nobody waits for any more."""
        self._remove([place for place, row in enumerate(self._table.rows) if row.job.over])

    def _take(self, rows: Sequence[Row], drawn: Drawn) -> list[int]:
        self.tokens_drawn += len(rows)
        return take(rows, drawn)

    def _remove(self, places: list[int]) -> None:
        if places:
            self._table.remove(places)
            self._pass.forget()
