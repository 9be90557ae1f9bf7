"""Cron: the door to when schedules run. Pure: values in, instants out.

A trigger (trigger.py) is checked when it is stored; a series (series.py) has its slots, by the wall clock of a zone
(fields.py reads expressions, walk.py walks) or by elapsed time, less days left out (exclusions.py).
`words` (words.py) and `preview` tell people what will happen. Who fires the slots: firing.py.
"""

from __future__ import annotations

from windlass.queue.cron.exclusions import MANY_DAYS, check_exclusions
from windlass.queue.cron.series import Mark, Series, Shown, preview, series
from windlass.queue.cron.trigger import At, Cron, Every, Trigger, check_trigger, check_zone
from windlass.queue.cron.words import words

__all__ = [
    "MANY_DAYS",
    "At",
    "Cron",
    "Every",
    "Mark",
    "Series",
    "Shown",
    "Trigger",
    "check_exclusions",
    "check_trigger",
    "check_zone",
    "preview",
    "series",
    "words",
]
