"""The settings of a process: what there is (settings.py), and where their values come from (load.py). Pure."""

from __future__ import annotations

from windlass.config.load import Loaded, load
from windlass.config.settings import Settings

__all__ = ["Loaded", "Settings", "load"]
