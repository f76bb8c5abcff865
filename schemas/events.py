"""The click event of the demo, and the first model for the Spark side.

As compact JSON about 140 bytes. ``amount`` is a string there, as pydantic writes decimals: a reader
that takes numbers for doubles would round money.
"""

from decimal import Decimal

from pydantic import AwareDatetime, BaseModel, ConfigDict, Field


class ClickEvent(BaseModel):
    """Somebody followed an advertisement to a page of the shop, and perhaps bought something."""

    # A producer adds a field, such as a sequence, before all readers know of it.
    model_config = ConfigDict(frozen=True, extra="ignore")

    event_id: str = Field(description="Unique; a record sent again carries it again.")
    occurred_at: AwareDatetime = Field(description="When, to the millisecond.")
    campaign: str = Field(description="The advertisement.")
    user_id: str = Field(description="Who; the record's key too.")
    page: str = Field(description="Path of the page.")
    amount: Decimal = Field(ge=0, decimal_places=2, description="What was spent; 0.00 mostly.")
