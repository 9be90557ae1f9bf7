"""The names of states in other words: four vocabularies a caller may choose for `status`, all of them as filters.

`state` in an answer is always canonical. A filter takes any of these names, in any case.
"""

from __future__ import annotations

from collections.abc import Mapping

from windlass.errors import InvalidInput
from windlass.job import State

S = State
_A = {
    **dict.fromkeys((S.SCHEDULED, S.BLOCKED, S.QUEUED, S.SLEEPING), "PENDING"),
    **dict.fromkeys((S.ASSIGNED, S.RUNNING, S.CANCELLING), "IN_PROGRESS"),
    S.SUCCEEDED: "COMPLETED",
    S.DEAD: "FAILED",
    **dict.fromkeys((S.CANCELLED, S.EXPIRED), "CANCELLED"),
}
_B = {
    **dict.fromkeys((S.SCHEDULED, S.BLOCKED, S.QUEUED, S.SLEEPING), "queued"),
    S.ASSIGNED: "assigned",
    **dict.fromkeys((S.RUNNING, S.CANCELLING), "running"),
    S.SUCCEEDED: "succeeded",
    S.DEAD: "failed",
    **dict.fromkeys((S.CANCELLED, S.EXPIRED), "canceled"),
}
_C = {
    **dict.fromkeys((S.SCHEDULED, S.SLEEPING), "scheduled"),
    S.BLOCKED: "waiting_dependencies",
    **dict.fromkeys((S.QUEUED, S.ASSIGNED), "queued"),
    S.RUNNING: "running",
    S.CANCELLING: "cancelling",
    S.SUCCEEDED: "completed",
    S.DEAD: "dead_letter",
    **dict.fromkeys((S.CANCELLED, S.EXPIRED), "cancelled"),
}
_D = {
    **dict.fromkeys((S.SCHEDULED, S.BLOCKED, S.QUEUED, S.SLEEPING), "queued"),
    **dict.fromkeys((S.ASSIGNED, S.RUNNING, S.CANCELLING), "processing"),
    S.SUCCEEDED: "done",
    **dict.fromkeys((S.DEAD, S.CANCELLED, S.EXPIRED), "failed"),
}
VOCABULARIES: Mapping[str, Mapping[State, str]] = {
    "canonical": {state: state.value for state in State},
    "a": _A,
    "b": _B,
    "c": _C,
    "d": _D,
}
OUTCOMES = ("succeeded", "failed", "timed_out", "lost", "cancelled", "canceled", "released", "snoozed", "stale")
"""Every word for the end of an attempt."""
STALE = "stale"
"""As a filter: the last attempt was lost and the job has not started again."""


def _filters() -> dict[str, frozenset[State]]:
    # A canonical name means itself, whatever else it means in other words.
    names: dict[str, set[State]] = {}
    for vocabulary in ("a", "b", "c", "d"):
        for state, name in VOCABULARIES[vocabulary].items():
            names.setdefault(name.lower(), set()).add(state)
    # Dead only: in vocabulary d the word also covers what was cancelled, in a, b and c it does not.
    names |= {"failed": {State.DEAD}, "canceled": {State.CANCELLED}, **{state.value: {state} for state in State}}
    return {name: frozenset(states) for name, states in names.items()}


_FILTERS = _filters()
FILTER_NAMES = (*_FILTERS, STALE)
"""Every name that a filter takes, in lower case."""


def any_case(*names: str) -> str:
    """Return a pattern that takes these names, in capitals too."""
    spelled = ("".join(f"[{letter}{letter.upper()}]" if letter.isalpha() else letter for letter in n) for n in names)
    return f"^({'|'.join(spelled)})$"


def word(state: State, vocabulary: str) -> str:
    """Return the name of a state in a vocabulary."""
    return VOCABULARIES[vocabulary][state]


def states_named(text: str, vocabulary: str = "canonical") -> tuple[frozenset[State], bool]:
    """Return the states that a filter names, in commas, and whether STALE is among them.

    In a vocabulary chosen by the caller a word means what it means there, else what it means canonically.
    """
    found: set[State] = set()
    stale = False
    own: dict[str, set[State]] = {}
    for state, name in VOCABULARIES[vocabulary].items():
        own.setdefault(name.lower(), set()).add(state)
    for part in text.split(","):
        name = part.strip().lower()
        if name == STALE:
            stale = True
        elif name in own or name in _FILTERS:
            found |= own.get(name) or _FILTERS[name]
        else:
            known = ", ".join(state.value for state in State)
            raise InvalidInput("status", f"{part[:100]!r} is no state. Use one of {known}, or a name of a vocabulary.")
    return frozenset(found), stale
