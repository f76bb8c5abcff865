"""Event models with every kind of field there is, and values of them."""

from __future__ import annotations

import datetime as dt
import enum
from decimal import Decimal
from typing import Annotated, Literal
from uuid import UUID  # noqa: TC003 - pydantic reads the annotations when the program runs

from hypothesis import strategies as st
from pydantic import AwareDatetime, BaseModel, ConfigDict, Field, NaiveDatetime

INT64 = 2**63


class Colour(enum.StrEnum):
    """Text that looks like other JSON is a text all the same."""

    RED = "red"
    ONE = "1"


class Level(enum.IntEnum):
    """Ints."""

    LOW = 1
    HIGH = 2


class Place(BaseModel):
    """Deep inside."""

    model_config = ConfigDict(extra="forbid")

    city: str | None = None
    height: float


class User(BaseModel):
    """In the middle."""

    id: int
    place: Place | None


class Flat(BaseModel):
    """What can be read directly, closed."""

    model_config = ConfigDict(extra="forbid")

    text: str
    at: AwareDatetime
    local: NaiveDatetime
    either: dt.datetime
    day: dt.date
    amount: Annotated[Decimal, Field(max_digits=12, decimal_places=3)]
    free: Decimal
    number: int
    small: Annotated[int, Field(ge=-5, lt=10)]
    flag: bool
    colour: Colour
    level: Level
    word: Literal["a", "b"]
    id: UUID
    maybe: int | None = None
    left: str | None


class Deep(BaseModel):
    """Objects in objects, lists, dicts, defaults, names of their own."""

    user: User
    ratio: float = Field(alias="theRatio")
    tags: list[str]
    places: list[Place]
    matrix: list[list[int | None]]
    pair: tuple[int, int]
    prices: dict[str, Decimal]
    people: dict[str, User]
    count: int = 7
    note: str | None = "none"
    when: list[AwareDatetime] = []


class Item(BaseModel):
    """Open: a list of these can be read directly."""

    name: str
    price: Decimal | None = None


class Listed(BaseModel):
    """Lists that can be read directly."""

    tags: list[str | None]
    items: list[Item]
    pair: tuple[float, float]


class Switches(BaseModel):
    """Closed, with what may be left out."""

    model_config = ConfigDict(extra="forbid")

    text: str
    flag: bool | None = None
    off: bool | None = None
    amount: Decimal | None = None


TEXTS = st.text(st.characters(exclude_categories=["Cs"]), max_size=12) | st.sampled_from(
    ["1", "-2.5", "true", "null", "[]", '{"a":1}', "", '"', "\\", " ", "\u00e4", "\U0001f600"]
)
INTS = st.integers(-INT64, INT64 - 1)
FLOATS = st.floats(allow_nan=False, allow_infinity=False)
ZONES: st.SearchStrategy[dt.tzinfo] = st.integers(-17 * 60, 17 * 60).map(
    lambda minutes: dt.timezone(dt.timedelta(minutes=minutes))
)
FIRST, LAST = dt.datetime(1900, 1, 2), dt.datetime(2100, 1, 1)  # noqa: DTZ001 - strategies add the zone
POINTS = st.datetimes(FIRST, LAST, timezones=ZONES)
LOCALS = st.datetimes(FIRST, LAST)
AMOUNTS = st.decimals(-999_999_999, 999_999_999, places=3)
FREE = st.decimals(-(10**17), 10**17, places=10) | st.sampled_from(
    [Decimal("1E+3"), Decimal("-0"), Decimal("1E-9")]
)
PLACES = st.builds(Place, city=st.none() | TEXTS, height=FLOATS)
USERS = st.builds(User, id=INTS, place=st.none() | PLACES)
FLATS = st.builds(
    Flat,
    text=TEXTS,
    at=POINTS,
    local=LOCALS,
    either=POINTS | LOCALS,
    day=st.dates(),
    amount=AMOUNTS,
    free=FREE,
    number=INTS,
    small=st.integers(-5, 9),
    flag=st.booleans(),
    colour=st.sampled_from(Colour),
    level=st.sampled_from(Level),
    word=st.sampled_from(["a", "b"]),
    id=st.uuids(),
    maybe=st.none() | INTS,
    left=st.none() | TEXTS,
)
DEEPS = st.builds(
    Deep,
    user=USERS,
    theRatio=FLOATS,
    tags=st.lists(TEXTS, max_size=3),
    places=st.lists(PLACES, max_size=3),
    matrix=st.lists(st.lists(st.none() | INTS, max_size=2), max_size=2),
    pair=st.tuples(INTS, INTS),
    prices=st.dictionaries(TEXTS, FREE, max_size=2),
    people=st.dictionaries(TEXTS, USERS, max_size=2),
    count=INTS,
    note=st.none() | TEXTS,
    when=st.lists(POINTS, max_size=2),
)
LISTEDS = st.builds(
    Listed,
    tags=st.lists(st.none() | TEXTS, max_size=3),
    items=st.lists(st.builds(Item, name=TEXTS, price=st.none() | FREE), max_size=2),
    pair=st.tuples(FLOATS, FLOATS),
)
MODELS: list[tuple[type[BaseModel], st.SearchStrategy[BaseModel]]] = [
    (Flat, FLATS),
    (Deep, DEEPS),
    (Listed, LISTEDS),
]
