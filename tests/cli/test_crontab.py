r"""Crontabs are read as cron reads them: variables, zones, users, `%`, and a reason for every line that is refused."""

from __future__ import annotations

from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from windlass.cli.crontab import MAX_BYTES, Crontab, Entry, names, read_crontab, split_percent
from windlass.errors import InvalidInput


def read(text: str, *, zone: str = "UTC", is_system: bool = False) -> Crontab:
    """Return what a text asks for."""
    return read_crontab(text.encode(), zone=zone, is_system=is_system)


def one(text: str, *, is_system: bool = False) -> Entry:
    """Return the entry of a crontab that has one, and nothing else to say."""
    found = read(text, is_system=is_system)
    assert [] == found.refused
    [entry] = found.entries
    return entry


def why_not(text: str, *, is_system: bool = False) -> str:
    """Return why the only bad line of a crontab is refused."""
    [refused] = read(text, is_system=is_system).refused
    return refused.text


def test_a_line_is_five_fields_and_a_command() -> None:
    """Blanks before and between do not count, those inside the command do; quotes stay for the shell."""
    entry = one("  30\t2 *  * 1-5   /usr/bin/backup \"a  b\" 'c' # kept")

    assert "30 2 * * 1-5" == entry.expression
    assert "/usr/bin/backup \"a  b\" 'c' # kept" == entry.command
    assert {"command": entry.command} == entry.payload


def test_comments_and_blank_lines_ask_for_nothing() -> None:
    """A comment stands at the beginning of a line; the lines keep their numbers."""
    found = read("# m h dom mon dow command\n\n  \t \n   # indented\r\n5 * * * * run\r\n")

    assert [(5, "run")] == [(entry.line, entry.command) for entry in found.entries]
    assert ([], []) == (found.refused, found.ignored)


def test_the_last_line_needs_no_end() -> None:
    """Where cron would refuse the whole file, nothing is lost here."""
    assert ["a", "b"] == [entry.command for entry in read("@daily a\n@daily b").entries]


@pytest.mark.parametrize("form", ["@hourly", "@daily", "@midnight", "@weekly", "@monthly", "@yearly", "@annually"])
def test_named_times_are_kept_as_they_are(form: str) -> None:
    """One word in the place of five fields."""
    assert (form, "run it") == (one(f"{form} run it").expression, one(f"{form} run it").command)


def test_variables_hold_for_the_lines_below_them() -> None:
    """As the environment of their commands; quotes keep blanks, and nothing is expanded."""
    text = "@daily a\nA = 1\n\"B\"='  two '\nPATH=$HOME/bin:/bin  \n@daily b\nA=\n@daily c"

    a, b, c = read(text).entries

    assert {"command": "a"} == a.payload
    assert {"A": "1", "B": "  two ", "PATH": "$HOME/bin:/bin"} == b.payload["env"]
    assert "" == c.env["A"]
    assert "1" == b.env["A"]


def test_an_assignment_inside_a_command_is_no_variable() -> None:
    """Only a line that begins with NAME= is one."""
    assert ("A=1 run", "B=2 run") == (one("* * * * * A=1 run").command, one("@daily B=2 run").command)


def test_zones_change_for_what_follows() -> None:
    """CRON_TZ names the zone of the times below it; empty means the first one again."""
    text = "@daily a\nCRON_TZ=:Europe/Berlin\n@daily b\nCRON_TZ=\n@daily c"

    found = read(text, zone="America/New_York").entries

    assert ["America/New_York", "Europe/Berlin", "America/New_York"] == [entry.zone for entry in found]
    assert [{}, {}, {}] == [entry.env for entry in found]


def test_tz_is_for_commands_and_moves_no_times() -> None:
    """Debian's cron and cronie hand TZ to the command and go by their own clock; who hoped otherwise is told."""
    found = read("TZ=Asia/Tokyo\n@daily a\nTZ=no zone\n@daily b", zone="America/New_York")

    assert ["America/New_York", "America/New_York"] == [entry.zone for entry in found.entries]
    assert [{"TZ": "Asia/Tokyo"}, {"TZ": "no zone"}] == [entry.env for entry in found.entries]
    assert [1, 3] == [remark.line for remark in found.ignored]
    assert "CRON_TZ" in found.ignored[0].text


def test_lines_below_a_zone_that_is_none_are_refused_too() -> None:
    """Without them a skipped bad line would move what follows to another time, in silence."""
    found = read("CRON_TZ=Mars/Base\n@daily a\nCRON_TZ=UTC\n@daily b")

    assert [1, 2] == [refused.line for refused in found.refused]
    assert "line 1" in found.refused[1].text
    assert ["b"] == [entry.command for entry in found.entries]


def test_variables_about_mail_are_ignored_and_shown() -> None:
    """Each with its line and the reason."""
    found = read('MAILTO=""\nSHELL=/bin/bash\n@daily run')

    assert [1] == [remark.line for remark in found.ignored]
    assert "MAILTO is ignored" in found.ignored[0].text
    assert {"SHELL": "/bin/bash"} == found.entries[0].env


@pytest.mark.parametrize(
    ("written", "command", "stdin"),
    [
        ("mail ann", "mail ann", None),
        ("mail ann%Hello%there", "mail ann", "Hello\nthere\n"),
        ("mail ann%", "mail ann", ""),
        ("mail ann%Hello%", "mail ann", "Hello\n"),
        (r"date +\%F", "date +%F", None),
        (r"date +\%F%a\%b%c", "date +%F", "a%b\nc\n"),
        (r"echo \\", r"echo \\", None),
        (r"echo \n", r"echo \n", None),
        (r"echo \\%x", r"echo \\", "x\n"),
        (r"cat%a\b", "cat", "a\\b\n"),
        ("cat%a\\", "cat", "a\\\n"),
        (r"cat%a\\%b", "cat", "a\\%b\n"),
    ],
)
def test_percent_signs_are_what_they_are_to_cron(written: str, command: str, stdin: str | None) -> None:
    r"""The first `%` begins the input, later ones end its lines, `\%` is a `%`, other backslashes stay."""
    assert (command, stdin) == split_percent(written)
    assert stdin == one(f"@daily {written}").payload.get("stdin")


def test_a_system_crontab_names_users() -> None:
    """The word after the time; also after a named one."""
    text = "17 * * * * root cd / && run-parts --report /etc/cron.hourly\n@daily www-data  php  run.php"

    hourly, daily = read(text, is_system=True).entries

    assert {"command": "cd / && run-parts --report /etc/cron.hourly", "user": "root"} == hourly.payload
    assert {"command": "php  run.php", "user": "www-data"} == daily.payload


def test_a_user_is_not_taken_for_a_command_in_silence() -> None:
    """Whoever forgets --system is told; whoever says it by mistake is refused."""
    [remark] = read("@daily root /bin/run").ignored

    assert "--system" in remark.text
    assert "'/bin/run' is no user" in why_not("@daily /bin/run now", is_system=True)


@pytest.mark.parametrize(
    ("text", "why"),
    [
        ("@reboot run", "@reboot is no time"),
        ("@fortnightly run", "@fortnightly"),
        ("0 25 * * * run", "hour 25"),
        ("*/0 * * * * run", "*/0"),
        ("0 0 30 2 * run", "never"),
        ("0 2 * * run", "neither a time followed by a command nor NAME=value"),
        ("0 2 * * *", "neither"),
        ("0 2 * * *   ", "neither"),
        ("@daily", "neither"),
        ("run", "neither"),
        ("@daily %input", "no command before the first %"),
        ("A='x", "does not end with it"),
        ('A="x" y', "does not end with it"),
        ("''=x", "no name"),
        ("CRON_TZ=Mars/Base", "Mars/Base"),
        ("CRON_TZ=../../etc/passwd", "../../etc/passwd"),
        ("@daily run\0", "control character"),
        ("@daily \x1b[2Jrun", "control character"),
        ("@daily " + "x" * 10_001, "characters"),
    ],
)
def test_a_line_that_cannot_be_taken_says_why(text: str, why: str) -> None:
    """Each is refused alone, with its number."""
    found = read(f"# first\n{text}\n")

    assert [2] == [refused.line for refused in found.refused]
    assert why in found.refused[0].text
    assert [] == found.entries


def test_a_line_that_is_no_text_is_refused() -> None:
    """The byte is named."""
    [refused] = read_crontab(b"@daily a\n@daily \xff\xfe\n", zone="UTC").refused

    assert (2, "byte 8 of the line is not UTF-8.") == (refused.line, refused.text)


def test_a_file_that_is_no_crontab_is_refused_whole() -> None:
    """Before anything is read of it; as is a zone that does not exist."""
    with pytest.raises(InvalidInput, match="bytes"):
        read_crontab(b"#" * (MAX_BYTES + 1), zone="UTC")
    with pytest.raises(InvalidInput, match="Mars"):
        read_crontab(b"", zone="Mars/Base")


def test_a_line_keeps_its_name_wherever_it_stands() -> None:
    """Other lines, comments and variables do not change it; another time or command does."""
    [before] = names(read("0 2 * * * /opt/backup.sh --all").entries, "cron-")

    after = names(read("A=1\n@daily x\n# moved\n0  2 * * *   /opt/backup.sh --all").entries, "cron-")

    assert before == after[1]
    assert before.startswith("cron-backup.sh-")
    assert before not in names(read("0 3 * * * /opt/backup.sh --all").entries, "cron-")


def test_equal_lines_have_different_names() -> None:
    """Cron runs both; so do we."""
    first, second = names(read("@daily run\n@daily run").entries, "")

    assert f"{first}-2" == second


@given(st.binary(max_size=300) | st.text(alphabet="*/%\\\"'=@ \t\n0123abTZ", max_size=120).map(str.encode))
def test_whatever_a_file_has_each_line_is_taken_or_refused(content: bytes) -> None:
    """No input raises anything else, and no line is both."""
    found = read_crontab(content, zone="UTC")

    taken, refused = ({item.line for item in items} for items in (found.entries, found.refused))
    assert not taken & refused
    assert len(found.entries) == len(set(names(found.entries, "x-")))


def test_a_real_crontab() -> None:
    """In the form of the /etc/crontab of Debian: comments, a table of the fields, tabs, users."""
    text = (Path(__file__).parent / "debian.crontab").read_bytes()

    found = read_crontab(text, zone="UTC", is_system=True)

    assert ["17 * * * *", "25 6 * * *", "47 6 * * 7", "52 6 1 * *"] == [entry.expression for entry in found.entries]
    assert {"root"} == {entry.user for entry in found.entries}
    assert [] == found.refused
