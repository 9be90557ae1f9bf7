"""Odd values, group by group: as raw JSON for bodies, as texts for queries and paths.

The groups are those of bad input: JSON form, strings, numbers, times, cron, identifiers, and second order (what does
harm later, where it is shown, stored or logged).
"""

from __future__ import annotations

import json
from itertools import product

DEPTHS = (63, 64, 65, 500, 5_000, 100_000)
FORMS: list[bytes] = [
    *(b"null", b"true", b"false", b"{}", b"[]", b"[[]]", b"[null]", b'{"a":1}', b'{"":{}}', b'{"a":1,"a":2}', b""),
    *(b"NaN", b"Infinity", b"-Infinity", b"1e999", b"-1e999", b"-0", b"-0.0", b"01", b"+1", b".5", b"1.", b"0x10"),
    *(b"'a'", b",", b"a", b"{", b"[", b"]", b'"', b"/**/1", b'"\\x"', b'"\\u12"', b'"\\ud800"', b'"\\udc00\\ud800"'),
    *(b'"\xff"', b'"\xc0\xaf"', b'"\xed\xa0\x80"', b'"\xf4\x90\x80\x80"', b'"\x00"', b'"\n"', b"\xef\xbb\xbf1"),
    *(b'"\\u0000"', b'"\\u0001"', b'"\\ud83d\\ude00"', b'{"__proto__":{"a":1}}', b'{"constructor":1}'),
    *(b"[" * depth + b"]" * depth for depth in DEPTHS),
    *(b'{"a":' * depth + b"1" + b"}" * depth for depth in DEPTHS),
    *(b"[" + b",".join([item] * count) + b"]" for item in (b"0", b"{}", b'"x"') for count in (1, 2, 33, 1_001)),
    *(b"{" + b",".join(b'"k%d":1' % number for number in range(count)) + b"}" for count in (33, 256, 5_000)),
]
STRINGS: list[str] = [
    *("", " ", "\t", "\r\n", "x", "a b", "/", "a/b", "a,b", ",", ".", "..", "-", "0", "null", "undefined", "true"),
    *("\x00", "a\x00b", "\x01", "\x1b[31m", "\x7f", "\x80", "\x9f", "\u2028", "\u202e", "\u200b", "\ufeff", "\ufffe"),
    *("e\u0301", "\u00e9", "\u0430dmin", "I\u0307", "\u00df", "\U0001f600", "\U0010ffff", "\u0661\u0662", "\uff11"),
    *("a" + "\u0300" * 1_000, "\U0001f468\u200d" * 50, "%00", "%n%s%x", "${jndi:ldap://x}", "{{7*7}}", "$(id)", "`id`"),
    *("x" * length for length in (20, 21, 36, 60, 61, 100, 101, 199, 200, 201, 299, 300, 301, 512, 513, 2_000, 2_001)),
    *("x" * length for length in (16_384, 16_385, 65_535, 65_536, 65_537, 262_145)),
]
SECOND_ORDER: list[str] = [
    *("<script>alert(1)</script>", '"><img src=x onerror=alert(1)>', "javascript:alert(1)", "<!--", "]]>", "&lt;"),
    *("' OR '1'='1", "'; DROP TABLE job;--", '" OR ""="', "1;SELECT pg_sleep(9)", "\\'; --", "' UNION SELECT NULL--"),
    *(
        "=cmd|' /C calc'!A0",
        "@SUM(1)",
        "+1",
        "-1",
        "(a+)+$",
        "^(a|a)*$",
        "[",
        "\\",
        "%",
        "_",
        "*",
        "?",
        "a%' ESCAPE '!",
    ),
    *(
        "x\n2026-01-01 ERROR forged",
        "x\r\nSet-Cookie: a=b",
        "os.system",
        "__import__",
        "builtins.eval",
        "a.b.__class__",
    ),
    *("http://127.0.0.1/", "http://[::1]/", "file:///etc/passwd", "gopher://x", "http://169.254.169.254/latest"),
]
NUMBERS: list[str] = [
    *("0", "-1", "1", "2", "5", "6", "7", "59", "60", "99", "100", "101", "127", "128", "-127", "-128", "255", "499"),
    *(
        "500",
        "501",
        "999",
        "1000",
        "1001",
        "32767",
        "32768",
        "86400",
        "86401",
        "1000000000",
        "1000000001",
        "1.0",
        "1.5",
    ),
    *(f"{sign}{number}" for sign in ("", "-") for number in (2**31 - 1, 2**31, 2**32, 2**53, 2**53 + 1, 2**63 - 1)),
    *(f"{sign}{number}" for sign in ("", "-") for number in (2**63, 2**64, 10**30, 10**400)),
    *(
        "1e3",
        "1E3",
        "1e-3",
        "1e-400",
        "1e308",
        "1e309",
        "1e100000",
        "0.1",
        "0.000000001",
        "9" * 5_000,
        "0." + "3" * 5_000,
    ),
]
NUMBER_TEXTS = ["1_0", "\u0661", " 1", "1 ", "+1", "0x1", "1,0", "1e1", "0b1", "\u00bd", "\u221e", "NaN", "inf", "--1"]
SPANS = [
    "0s",
    "1s",
    "1h30m",
    "30m1h",
    "1.5h",
    "1y",
    "-1s",
    "1ms",
    "9999999s",
    "99999999s",
    "1w1d1h1m1s1ms",
    "1 h",
    "PT1H",
]
DAYS = ["2026-01-01", "2026-02-29", "2024-02-29", "0000-01-01", "0001-01-01", "1969-12-31", "1970-01-01", "9999-12-31"]
CLOCKS = ["00:00:00", "24:00:00", "23:59:60", "12:60:00", "02:30:00", "12:00:00." + "9" * 30]
ZONES_AT = ["Z", "z", "", "+24:00", "+14:00", "-14:00", "+00:60", "-00:00", " Europe/Berlin", "[UTC]"]
TIMES: list[str] = [
    *(
        "now",
        "infinity",
        "-infinity",
        "today",
        "2026",
        "2026-W01",
        "20260101T000000Z",
        "1767225600",
        "294277-01-01T00:00Z",
    ),
    *(f"{day}T{clock}{zone}" for day, clock, zone in product(DAYS, CLOCKS, ZONES_AT)),
]
ZONES: list[str] = [
    *(
        "UTC",
        "utc",
        "Europe/Berlin",
        "America/New_York",
        "Australia/Lord_Howe",
        "Asia/Kathmandu",
        "Etc/GMT+12",
        "EST5EDT",
    ),
    *("posixrules", "localtime", "Factory", "../../etc/passwd", "/etc/localtime", "Europe", "Europe/", "europe/berlin"),
    *(
        "Europe/Berlin\x00",
        "right/UTC",
        "posix/UTC",
        "zone.tab",
        "Mars/Olympus",
        "GMT+1",
        "+01:00",
        "X" * 100,
        "X" * 101,
    ),
]
CRON: list[str] = [
    *(
        "* * * * *",
        "* * * * * *",
        "*",
        "* *",
        "* * *",
        "* * * *",
        "* * * * * * *",
        "* * * * * * * *",
        "@hourly",
        "@never",
    ),
    *(
        "*/0 * * * *",
        "*/-1 * * * *",
        "*/1000000 * * * *",
        "5-1 * * * *",
        "60 * * * *",
        "-1 * * * *",
        "0-99999999 * * * *",
    ),
    *("0 24 * * *", "0 0 0 * *", "0 0 32 * *", "0 0 31 2 *", "0 0 30 2 *", "0 0 29 2 *", "0 0 * 13 *", "0 0 * * 8"),
    *(
        "0 0 L * *",
        "0 0 LW * *",
        "0 0 15W * *",
        "0 0 31W 2 *",
        "0 0 * * 5#5",
        "0 0 * * 5#6",
        "0 0 * * 1#0",
        "0 0 ? * ?",
    ),
    *("* 2 * * 0#5", "0 0 29 2 1#5", "0 0 29 2 MON", "59 23 31 12 7#5", "H H H H H", "H(0-7) H * * *", "H/0 * * * *"),
    *(
        "@every -1s",
        "@every 1s",
        "@reboot",
        "@yearly",
        "@DAILY",
        "@",
        "0 0 * JAN,FOO *",
        "0 0 * * MON-FOO",
        "0 0 * * SUN-MON",
    ),
    *(
        ",".join(map(str, range(60))) + " * * * *",
        ",".join(["0"] * 200) + " * * * *",
        "\u0661 * * * *",
        "0\t0\t*\t*\t*",
    ),
    *(
        "0 0 1,15 * MON",
        "1-59/2 1-23/2 * * *",
        "*/7 */5 */3 */2 */2",
        "0 0 * * *\x00",
        "0 0 * * *\n0 1 * * *",
        "x" * 200,
    ),
]
EXCLUSIONS = [
    "2026-01-01/2074-12-31",
    "1970-01-01/9999-12-31",
    "2027-01-01/2026-01-01",
    "--02-30",
    "--02-29",
    "SAT",
    "sat",
]
IDENTIFIERS: list[str] = [
    *("00000000-0000-0000-0000-000000000000", "ffffffff-ffff-ffff-ffff-ffffffffffff", "0" * 36, "0" * 32, "x" * 36),
    *(
        "01890a5d-ac96-774b-bcce-b302099a8057",
        "01890A5D-AC96-774B-BCCE-B302099A8057",
        "01890a5dac96774bbcceb302099a8057",
    ),
    *("{01890a5d-ac96-774b-bcce-b302099a8057}", "urn:uuid:01890a5d-ac96-774b-bcce-b302099a8057", "01890a5d-ac96-774b"),
    *(
        "01890a5d-ac96-774b-bcce-b302099a805",
        "01890a5d-ac96-774b-bcce-b302099a80570",
        "1767268800000000_x_1",
        "1.1.1",
        "0.0",
    ),
    *("__proto__", "constructor", "toString", "health", "healthz", "readyz", "docs", "openapi.json", "claim", "batch"),
    *(
        "report",
        "status",
        "register",
        "declared",
        "preview",
        "purge",
        "retry",
        "*",
        "admin",
        "default",
        "DEFAULT",
        "self",
    ),
]
TEXTS: list[str] = [*STRINGS, *SECOND_ORDER, *NUMBER_TEXTS, *SPANS, *ZONES, *CRON, *EXCLUSIONS, *IDENTIFIERS]
EVERY_TIME = 7
"""Of the times every so many-th stands in the general list: fields of times get all of them."""


def _raw(texts: list[str]) -> list[bytes]:
    return [json.dumps(text).encode() for text in texts]


ODD: list[bytes] = [*FORMS, *_raw(TEXTS), *(number.encode() for number in NUMBERS), *_raw(TIMES[::EVERY_TIME])]
"""What every field of a body is given."""
ODD_TIMES: list[bytes] = _raw(TIMES)
ODD_TEXTS: list[str] = [*(text for text in TEXTS if len(text) <= 2_001), *NUMBERS[:-2], *TIMES[::EVERY_TIME]]
"""What every name of a query and every path is given."""
PATHS: list[str] = [
    *(
        "%00",
        "%2e%2e",
        "%2e%2e%2f%2e%2e",
        "..%2f..",
        "%252e%252e%252f",
        "%c0%ae",
        "%ff",
        "%",
        "%zz",
        "%2",
        "%u0041",
        "a%2Fb",
    ),
    *(
        "%f0%9f%90%99",
        "%e2%80%ae",
        "%0d%0aX:y",
        "%20",
        "+",
        ";a=b",
        "a;b",
        "a:b",
        "a@b",
        "a=b",
        "a&b",
        "%3Fa",
        "%23a",
        "x" * 5_000,
    ),
]
"""What stands in a path as it is."""
