"""As much of curl as docs/api.md uses, for machines without one: run as a program with curl's arguments.

-sS, -N: as they are; -X, -H, -d, and -w of a line break, the status and a line break.
"""

from __future__ import annotations

import http.client
import sys
from urllib.parse import urlsplit


def main(arguments: list[str]) -> None:
    """Make one request and write its answer."""
    method, headers, body, url, shows_status = "", {"Accept": "*/*"}, None, "", False
    rest = iter(arguments)
    for argument in rest:
        match argument:
            case "-sS" | "-N":
                pass
            case "-w":
                shows_status = next(rest) == r"\n%{http_code}\n"
            case "-X":
                method = next(rest)
            case "-H":
                name, _, value = next(rest).partition(":")
                headers[name] = value.strip()
            case "-d":
                body = next(rest)
            case _ if argument.startswith("http://"):
                url = argument
            case _:
                sys.exit(f"This stand-in of curl does not know {argument!r}.")
    target = urlsplit(url)
    connection = http.client.HTTPConnection(target.netloc, timeout=60)
    path = target.path + (f"?{target.query}" if target.query else "")
    connection.request(method or ("GET" if body is None else "POST"), path, body, headers)
    answer = connection.getresponse()
    sys.stdout.write(answer.read().decode())
    if shows_status:
        sys.stdout.write(f"\n{answer.status}\n")
    connection.close()


if __name__ == "__main__":
    main(sys.argv[1:])
