"""Guards of taking in: keys, unknown commits, poison."""

from __future__ import annotations

from tests.mutants.mutant import Edit, Mutant, both, races

UNIQUE_ENDS = {
    "complete": ("report", "complete"),
    "cancelled": ("moves", "lease_to_end"),
    "dead": ("moves", "lease_to_end"),
    "cancel_ready": ("control", "cancel_queued"),
    "cancel_timer": ("control", "cancel_timed"),
    "expire": ("deadlines", "expire"),
}

MUTANTS = (
    Mutant(
        "key-taken-from-a-holder",
        both("submit", "take_keys", "WHERE d.expires_at <= :now", "WHERE d.key IS NOT NULL"),
        races("submits::rel_x19_one_key_on_two_servers"),
        "I3: a key within its window stays with the job that has it",
    ),
    Mutant(
        "key-held-for-ever",
        both("submit", "take_keys", "WHERE d.expires_at <= :now", "WHERE d.key IS NULL"),
        races("submits::rel_x19_a_key_whose_time_is_over"),
        "I3: a key whose window is over can be taken",
    ),
    Mutant(
        "key-content-not-compared",
        (Edit("queue/submit.py", "if content_hash != job.content_hash:", "if not content_hash:"),),
        races("submits::rel_x19_one_key_other_content"),
        "rule 15: the same key with other content is refused",
    ),
    Mutant(
        "commit-not-tracked",
        (Edit("queue/submit.py", "db.transaction(tracked=True)", "db.transaction()"),),
        races("submits::rel_x4_cut_after_commit", "submits::rel_x4_cut_before_commit"),
        "rule 4: an unknown commit is asked about",
    ),
    Mutant(
        "commit-aborted-taken-for-done",
        (Edit("db/postgres.py", 'if status == "committed":', 'if status in ("committed", "aborted"):'),),
        races("submits::rel_x4_cut_before_commit"),
        "I1: what was rolled back is not acknowledged",
    ),
    Mutant(
        "commit-done-taken-for-aborted",
        (
            Edit("db/postgres.py", 'if status == "committed":', 'if status == "":'),
            Edit("db/postgres.py", 'if status == "aborted":', "if status is not None:"),
        ),
        races("submits::rel_x4_cut_after_commit"),
        "M9, I2: what was committed is not run again",
    ),
    Mutant(
        "nul-accepted",
        (Edit("queue/newjob.py", 'if "\\x00" in text:', 'if "\\x00" == text:'),),
        races("submits::rel_k14_nul_in_a_job_is_refused[*-unique_key]"),
        "K14: a NUL is refused before any statement",
    ),
    Mutant(
        "nul-in-an-error",
        (Edit("queue/newjob.py", '.replace("\\x00", "\\N{SYMBOL FOR NULL}")', ""),),
        races("submits::rel_k14_nul_in_an_error_keeps_the_status"),
        "K14: what a task says never costs the record that it failed",
    ),
    Mutant(
        "poison-fails-its-neighbours",
        (
            Edit(
                "queue/submit.py",
                "            answers[number] = problem\n        else:",
                "            raise problem\n        else:",
            ),
        ),
        races("submits::rel_x28_poison_among_many_requests"),
        "rule 16: a bad request never fails its neighbours",
    ),
    Mutant(
        "retry-takes-a-unique-key",
        (Edit("queue/deadletters.py", 'if row["unique_key"] is None or row["id"] in won', "if won is not None"),),
        races("submits::rel_x19_unique_key_beside_retry"),
        "I3: a retry does not live beside the job that has its unique key",
    ),
    *(
        Mutant(
            f"unique-key-kept-after-{end}",
            both(step, query, "flags & 4 = 4", "flags & 4 = 5"),
            races(f"guards::unique_key_is_free_after_every_end[*-{end}]"),
            "I3: a job that ends frees its unique key",
        )
        for end, (step, query) in UNIQUE_ENDS.items()
    ),
)
