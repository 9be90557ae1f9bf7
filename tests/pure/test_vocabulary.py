"""The names of states in the four vocabularies, and the names that filters take."""

from __future__ import annotations

import pytest

from windlass.errors import InvalidInput
from windlass.job import State
from windlass.wire.vocabulary import FILTER_NAMES, VOCABULARIES, states_named, word

TABLE = {
    State.SCHEDULED: ("PENDING", "queued", "scheduled", "queued"),
    State.BLOCKED: ("PENDING", "queued", "waiting_dependencies", "queued"),
    State.QUEUED: ("PENDING", "queued", "queued", "queued"),
    State.ASSIGNED: ("IN_PROGRESS", "assigned", "queued", "processing"),
    State.RUNNING: ("IN_PROGRESS", "running", "running", "processing"),
    State.SLEEPING: ("PENDING", "queued", "scheduled", "queued"),
    State.CANCELLING: ("IN_PROGRESS", "running", "cancelling", "processing"),
    State.SUCCEEDED: ("COMPLETED", "succeeded", "completed", "done"),
    State.DEAD: ("FAILED", "failed", "dead_letter", "failed"),
    State.CANCELLED: ("CANCELLED", "canceled", "cancelled", "failed"),
    State.EXPIRED: ("CANCELLED", "canceled", "cancelled", "failed"),
}


@pytest.mark.parametrize("state", State)
def test_every_state_has_a_name_in_every_vocabulary(state: State) -> None:
    """The table of the API's contract; canonical names are the states themselves."""
    assert TABLE[state] == tuple(word(state, vocabulary) for vocabulary in "abcd")
    assert state.value == word(state, "canonical")


@pytest.mark.parametrize("vocabulary", sorted(VOCABULARIES))
def test_a_filter_finds_what_is_shown_under_its_name(vocabulary: str) -> None:
    """In a chosen vocabulary a name finds every state that is told by it, in any case."""
    for state in State:
        found, stale = states_named(word(state, vocabulary).swapcase(), vocabulary)
        assert state in found
        assert not stale
        assert all(word(other, vocabulary) == word(state, vocabulary) for other in found)


def test_a_canonical_name_means_itself_where_none_is_chosen() -> None:
    """Other names are known too; several stand between commas; canceled is cancelled, failed is dead."""
    assert (frozenset({State.QUEUED}), False) == states_named("queued")
    assert (frozenset({State.CANCELLED}), False) == states_named("Canceled")
    assert (frozenset({State.DEAD}), False) == states_named("failed")
    assert (frozenset({State.DEAD, State.SUCCEEDED}), False) == states_named("dead_letter, done")
    assert (frozenset[State](), True) == states_named("STALE")


@pytest.mark.parametrize("text", ["", "sleepy", "queued,", "queued;dead", "\x00", "x" * 1000])
def test_what_is_no_state_is_refused(text: str) -> None:
    """With the names that are known, and the value cut short."""
    with pytest.raises(InvalidInput) as caught:
        states_named(text)

    assert "scheduled" in str(caught.value)
    assert len(str(caught.value)) < 500


def test_every_name_of_the_document_is_taken() -> None:
    """The names that the document lists are those that filters take."""
    for name in FILTER_NAMES:
        states_named(name)
