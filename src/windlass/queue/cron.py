"""Cron: the door to when schedules run. Pure: values in, instants out.

A trigger (trigger.py) is checked when it is stored; a series (series.py) has its slots, by the wall clock of a zone
(cronfields.py reads expressions, cronwalk.py walks) or by elapsed time, less days left out (exclusions.py).
`words` (cronwords.py) and `preview` tell people what will happen. Who fires the slots: firing.py.
"""

from __future__ import annotations

from windlass.queue.cronwords import words
from windlass.queue.exclusions import check_exclusions
from windlass.queue.series import Mark, Series, Shown, preview, series
from windlass.queue.trigger import At, Cron, Every, Trigger, check_trigger, check_zone

__all__ = [
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
