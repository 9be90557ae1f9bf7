"""The sample application: what `windlass up` runs where no other is named. See tasks.py."""

from __future__ import annotations

from windlass.sample.tasks import app as app
