"""Models of pydantic as arguments and results, in programs that use it; the others need not have it."""

from __future__ import annotations

import sys
from types import SimpleNamespace
from typing import Any, Self

import pytest

from tests.client.serving import NoOne
from windlass import App, Context
from windlass.client.context import AboutJob
from windlass.clock import system_clock
from windlass.errors import InvalidInput
from windlass.ids import Ids


class StandIn:
    """What Windlass uses of a model: how it is dumped and validated."""

    def __init__(self, number: int) -> None:
        self.number = number

    def model_dump(self, *, mode: str) -> dict[str, Any]:
        """Return the fields as JSON."""
        assert "json" == mode
        return {"number": self.number}

    @classmethod
    def model_validate(cls, value: Any) -> Self:
        """Return a model of what JSON says; ValueError for what is none."""
        if not isinstance(value, dict):
            raise ValueError("a model is an object")
        return cls(value["number"])


@pytest.fixture(params=["stand-in", "real"])
def model(request: pytest.FixtureRequest, monkeypatch: pytest.MonkeyPatch) -> Any:
    """A model with one number: of pydantic itself where it is installed, and of something that looks like it."""
    if request.param == "stand-in":
        monkeypatch.setitem(sys.modules, "pydantic", SimpleNamespace(BaseModel=StandIn))
        return type("Model", (StandIn,), {})
    pydantic = pytest.importorskip("pydantic", reason="pydantic is the user's choice; its stand-in is tried always")
    return pydantic.create_model("Model", number=(int, ...))


def test_a_model_goes_there_and_comes_back(model: Any) -> None:
    """As an argument, inside a list, and as a result."""
    app = App()

    def double(one: Any, more: Any) -> Any:
        return model(number=one.number + sum(item.number for item in more))

    double.__annotations__ = {"one": model, "more": list[model], "return": model}
    task = app.task(double)
    context = Context(AboutJob(id=Ids(system_clock).new(), task="double"), NoOne())

    call = task.s(model(number=1), [model(number=2)])
    result = task.run(call.payload, context)

    assert b'{"one":{"number":1},"more":[{"number":2}]}' == call.payload
    assert 3 == result.number
    assert 3 == task.decode(task.encode(result)).number


def test_what_is_no_model_is_named(model: Any) -> None:
    """The error of the model's own check, with the argument's name."""
    app = App()

    def take(one: Any) -> None:
        pass

    take.__annotations__ = {"one": model}

    with pytest.raises(InvalidInput, match="one: "):
        app.task(take).s([1])
