"""Read a log with Cowrie's own programs, run by Cowrie's Python; print one JSON object.

    python cowrie_reads.py LOG

Cowrie's output to SQLite writes each event into a database with the tables of its documentation
(docs/sql/sqlite3.sql, columns without types). Its formatters of OCSF and CEF get each event.
"""

from __future__ import annotations

import json
import sqlite3
import sys
from pathlib import Path
from typing import Any
from unittest.mock import patch

from cowrie.core.cef import formatCef
from cowrie.core.ocsf import formatOCSF
from cowrie.output import sqlite
from twisted.internet import defer
from twisted.python.failure import Failure

TABLES = {
    "auth": "id INTEGER PRIMARY KEY, session, success, username, password, timestamp",
    "clients": "id INTEGER PRIMARY KEY, version",
    "downloads": "id INTEGER PRIMARY KEY, session, timestamp, url, outfile, shasum",
    "input": "id INTEGER PRIMARY KEY, session, timestamp, realm, success, input",
    "ipforwards": "id INTEGER PRIMARY KEY, session, timestamp, dst_ip, dst_port",
    "keyfingerprints": "id INTEGER PRIMARY KEY, session, username, fingerprint",
    "params": "id INTEGER PRIMARY KEY, session, arch",
    "sensors": "id INTEGER PRIMARY KEY, ip",
    "sessions": "id PRIMARY KEY, starttime, endtime, sensor, ip, termsize, client",
    "ttylog": "id INTEGER PRIMARY KEY, session, ttylog, size",
}


class Database:
    """SQLite with the interface of Twisted's connection pool, but immediate."""

    def __init__(self) -> None:
        self._connection = sqlite3.connect(":memory:")
        for name, columns in TABLES.items():
            self._connection.execute(f"CREATE TABLE `{name}` ({columns})")

    def runQuery(self, statement: str, values: tuple[Any, ...] = ()) -> Any:  # noqa: N802
        """Return the rows of a statement."""
        statement = statement.replace("LAST_INSERT_ROWID()", "last_insert_rowid()")
        return defer.succeed(self._connection.execute(statement, values).fetchall())

    def rows(self, name: str) -> list[Any]:
        """All rows of a table."""
        return self._connection.execute(f"SELECT * FROM `{name}`").fetchall()


def main() -> None:
    """Print the tables, and the number of events that the formatters accepted."""
    with patch.object(sqlite.Output, "start", lambda self: None):  # it reads a configuration
        output = sqlite.Output()
    output.db = Database()
    output.simpleQuery = output.db.runQuery
    ocsf = cef = 0
    with Path(sys.argv[1]).open(encoding="utf-8") as log:
        for line in log:
            event = json.loads(line)
            written = output.write(dict(event))
            if written is not None and isinstance(written.result, Failure):
                written.result.raiseException()
            ocsf += isinstance(formatOCSF(dict(event)), dict)
            cef += isinstance(formatCef(dict(event)), str)
    tables = {name: output.db.rows(name) for name in TABLES}
    print(json.dumps({"tables": tables, "ocsf": ocsf, "cef": cef}))


if __name__ == "__main__":
    main()
