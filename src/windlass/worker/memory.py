"""How much memory this process takes."""

from __future__ import annotations

import os
import resource
import sys
from contextlib import suppress
from pathlib import Path

_PAGE = os.sysconf("SC_PAGE_SIZE")


def memory_mb() -> int:
    """Return the resident memory in MB; where the system does not tell, the most it has been."""
    with suppress(OSError, ValueError, IndexError):
        return int(Path("/proc/self/statm").read_text(encoding="ascii").split()[1]) * _PAGE >> 20
    most = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
    # In bytes on macOS, in KB elsewhere.
    return most >> 20 if sys.platform == "darwin" else most >> 10
