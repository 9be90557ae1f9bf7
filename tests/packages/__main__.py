"""`python -m tests.packages lock`, `… sbom FILE`, `… audit PROGRAM`."""

from __future__ import annotations

import sys
from pathlib import Path

from tests.packages.audit import audit
from tests.packages.lock import lock
from tests.packages.sbom import write

if __name__ == "__main__":
    match sys.argv[1:]:
        case ["lock"]:
            lock()
        case ["sbom", file]:
            write(Path(file))
        case ["audit", program]:
            sys.exit(audit(Path(program)))
        case _:
            sys.exit(__doc__)
