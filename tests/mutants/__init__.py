"""Mutants: Windlass with one guard removed. For each there is a test that fails; `make mutants` replays them all.

`python -m tests.mutants` copies `src/`, removes the guard in the copy, and runs the named tests on it: every one of
them must fail, in its body and not by a slip of the mutant itself. First all of them must pass unmutated.
"""
