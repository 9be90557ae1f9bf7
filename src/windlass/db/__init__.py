"""Where it is kept: the seam between the steps of `queue/` and the two databases."""

from windlass.db.base import Capabilities, Database, Row, Statements
from windlass.db.open import open_database
from windlass.db.sqlfile import Queries, Query, load, union

__all__ = ["Capabilities", "Database", "Queries", "Query", "Row", "Statements", "load", "open_database", "union"]
