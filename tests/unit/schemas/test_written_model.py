"""A model that was written down judges as it did: everything that it says comes back."""

from __future__ import annotations

import json
from datetime import date, datetime  # noqa: TC003 - pydantic reads annotations
from decimal import Decimal  # noqa: TC003 - see above
from enum import Enum
from typing import Annotated, Literal

import pytest
from pydantic import AwareDatetime, BaseModel, Field

from schemas.event import EventModel
from schemas.event.written import read_model, written_model


class Colour(Enum):
    """Texts."""

    RED = "red"
    BLUE = "blue"


class Inner(BaseModel, extra="forbid"):
    """Closed."""

    kind: str = Field(alias="kind")
    amount: Annotated[Decimal, Field(max_digits=12, decimal_places=2)] | None = None


class Wide(BaseModel):
    """A field of each kind."""

    name: str
    note: str | None = None
    ok: bool = True
    count: int = Field(ge=1, le=100)
    level: Literal[1, 2, 3] = 2
    colour: Colour = Colour.RED
    price: float
    at: AwareDatetime
    wall: datetime
    day: date
    items: list[Inner]
    tags: dict[str, int]
    inner: Inner


def test_a_model_that_was_written_down_is_read_as_it_was() -> None:
    for each in (EventModel.of(Wide), EventModel.load("schemas.events:ClickEvent")):
        assert read_model(json.loads(json.dumps(written_model(each)))) == each


@pytest.mark.parametrize(
    "told", [{}, {"name": "a"}, {"name": "a", "root": {"kind": "text"}}, {"name": 1, "root": 5}]
)
def test_what_is_no_model_is_refused(told: dict[str, object]) -> None:
    with pytest.raises(ValueError, match="no event model"):
        read_model(told)
