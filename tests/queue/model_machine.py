"""The machine: random commands, run on the model and on every store, compared after each.

Each rule draws a command and its arguments; `run` gives it to all. Ids are numbered, so a failure prints a program
that can be read: every command is noted with its answer.
"""

from __future__ import annotations

from collections.abc import Sequence
from datetime import datetime, timedelta
from typing import Any
from uuid import UUID

import hypothesis
import msgspec
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, initialize, rule

from tests.clock import START
from tests.queue import model_draws as draws
from tests.queue.model import Ask, Model
from tests.queue.model_rows import plain
from tests.queue.model_world import World, difference, unlike
from tests.queue.races.stage import NO_SILENCE
from windlass.job import FINAL_STATES, State
from windlass.queue.lanes import STRICT_PRIORITY_MS, LaneName
from windlass.queue.newjob import NewJob
from windlass.queue.rescue import TOLERANCE
from windlass.queue.workers import Beat, Held

OPEN = draws.QUEUES[:2]
"""The queues without limits."""
LAST = START + timedelta(days=5)
"""Day partitions are made for a week, and the check wants two days of it ahead."""


class StoreMachine(RuleBasedStateMachine):
    """Drives the model and the stores with the same commands."""

    def __init__(self, world: World) -> None:
        super().__init__()
        self.world = world
        world.run(world.begin())
        self.model = Model(world.clock)
        self.ids: list[UUID] = []
        self.sessions: list[UUID] = []
        self.leases: list[tuple[UUID, int, str, UUID, str]] = []
        self.requested: list[NewJob] = []
        self._numbers = 0

    def run(self, command: str, *arguments: Any) -> Any:
        """Give a command to the model and to every store; all must answer alike and look alike."""
        hypothesis.note(f"{draws.shown(self.model.now)} {command}({', '.join(map(draws.shown, arguments))})")
        answer = getattr(self.model, command)(*arguments)
        hypothesis.note(f"    -> {draws.shown(answer)}")
        for store in self.world.stores:
            found = self.world.run(store.run(command, arguments))
            if plain(found) != plain(answer):
                told = f"{draws.shown(found)}\n    not {draws.shown(answer)}"
                raise AssertionError(f"{store.name} answers {command} otherwise:\n        {told}")
        self.compare()
        return answer

    def compare(self) -> None:
        """What the stores show is what the model says, and every invariant holds."""
        expected = self.model.dump()
        dumps = []
        for store in self.world.stores:
            dumps.append(self.world.run(store.dump()))
            if (found := difference(expected, dumps[-1])) is not None:
                raise AssertionError(f"{store.name} looks otherwise than the model: {found}")
            if broken := self.world.run(store.violations()):
                raise AssertionError(f"{store.name} breaks an invariant: {broken}")
        for dump in dumps[1:]:
            if (found := unlike(dumps[0], dump)) is not None:
                raise AssertionError(f"the stores show different views: {found}")

    def new_id(self) -> UUID:
        """Return an id; their order is not the order in which they are made."""
        self._numbers += 1
        return UUID(f"01940000-0000-7000-8000-{self._numbers * 40_503 % 65_536:04x}{self._numbers:08x}")

    def pick(self, data: st.DataObject, likely: Sequence[UUID]) -> tuple[UUID, str]:
        """Draw a job, mostly one of the likely ones, and the tenant that names it, mostly its own."""
        some = [likely] * 6 if likely else []
        unknown = UUID(int=0)
        job_id = data.draw(
            st.sampled_from(data.draw(st.sampled_from([*some, *[self.ids or [unknown]] * 3, [unknown]]))), "job"
        )
        job = self.model.jobs.get(job_id)
        own = job.lane.tenant if job is not None else "default"
        return job_id, data.draw(draws.mostly(own, *draws.TENANTS), "tenant")

    def in_state(self, *states: State) -> list[UUID]:
        """Return the jobs in these states, by id."""
        return sorted(job.id for job in self.model.jobs.values() if job.state in states)

    def remember(self, claimed: Sequence[Sequence[Any]]) -> None:
        """Keep what was leased, and see that no fence is given out twice."""
        for row in claimed:
            session = self.model.sessions[row[5]]
            lease = (row[0], row[4], session.worker, session.id, session.tenant)
            assert not any(old[:2] == lease[:2] for old in self.leases), f"fence given out twice: {lease}"
            self.leases.append(lease)

    @initialize()
    def two_workers(self) -> None:
        """There is somebody to work."""
        for worker, lease_ms in (("w1", 30_000), ("w2", 5_000)):
            self.sessions.append(self.new_id())
            self.run("register", self.sessions[-1], worker, "default", lease_ms, 2)

    @initialize(data=st.data(), count=st.integers(0, 4))
    def some_jobs(self, data: st.DataObject, count: int) -> None:
        """There is something to do, perhaps not all of it at once."""
        limit = data.draw(draws.mostly(None, 1, 2), "limit")
        self.run("configure", LaneName("default", draws.LIMITED), {"max_running": limit})
        jobs = [data.draw(draws.new_jobs(self.new_id(), self.model.now, simple=True)) for _ in range(count)]
        self.ids += [job.id for job in jobs]
        if jobs:
            self.run("submit", [jobs])

    @rule(data=st.data())
    def step(self, data: st.DataObject) -> None:
        """Do one thing; things that lead on are drawn more often."""
        getattr(self, data.draw(st.sampled_from(self.choices()), "what"))(data)

    def choices(self) -> list[str]:
        """Return what can be done now, the frequent things several times; what shrinks best comes first."""
        model = self.model
        names = ["advance"] * 3 + ["duty"] * 3 + ["submit"] * 2 + ["claim"] * 4 + ["session", "pause", "seldom"]
        names += ["report"] * 6 + ["heartbeat"] * 2 + ["outlast"] * 3 if model.leased() else []
        names += ["claim_back"] * 4 if any(job.preferred for job in model.jobs.values()) else []
        names += ["report_again"] if self.leases else []
        names += ["cancel", "cancel", "change", "dead_letter"] if self.ids else []
        names += ["dead_letter"] * 2 if self.in_state(*FINAL_STATES) else []
        return names + (["resume"] * 2 if model.pauses else [])

    def submit(self, data: st.DataObject) -> None:
        """One request or several, of one job or several; some repeat what was asked before."""
        sizes = data.draw(st.lists(st.integers(1, 3), min_size=1, max_size=2), "requests")
        requests = []
        for size in sizes:
            jobs = []
            for _ in range(size):
                job = data.draw(draws.new_jobs(self.new_id(), self.model.now))
                keyed = [old for old in self.requested if old.idempotency_key]
                if keyed and data.draw(draws.mostly(False, True), "repeat"):
                    job = msgspec.structs.replace(data.draw(st.sampled_from(keyed)), id=job.id)
                jobs.append(job)
            requests.append(jobs)
        self.requested += [job for request in requests for job in request]
        self.ids += [job.id for request in requests for job in request]
        self.run("submit", requests)

    def ask(self, data: st.DataObject, queues: Sequence[str], own: tuple[UUID, ...] = ()) -> Ask:
        """Draw what a group of workers asks for; its slots are mostly of sessions of its tenant, or its own."""
        ranks = [job.rank for job in self.model.jobs.values() if job.rank is not None]
        tenant = data.draw(draws.TENANT, "tenant")
        fitting = [s.id for s in self.model.sessions.values() if s.tenant == tenant and not s.bare] or self.sessions
        some = st.sampled_from(data.draw(draws.mostly(fitting, fitting, fitting, self.sessions), "among"))
        return Ask(
            tenant=tenant,
            queues=tuple(queues),
            slots=own or tuple(data.draw(st.lists(some, min_size=1, max_size=4), "slots")),
            tasks=data.draw(draws.mostly(None, None, None, ("send",)), "tasks"),
            labels=data.draw(draws.mostly(("gpu", "big"), ("gpu", "big"), ("gpu",), ()), "labels"),
            hint=data.draw(draws.mostly(None, None, *ranks[:1]), "hint"),
        )

    def claim(self, data: st.DataObject) -> None:
        """Workers claim: in one or two groups, or without a session, or from the queue that may have limits."""
        how = data.draw(draws.mostly("claim", "claim_bare", "claim_limited"), "how")
        if how == "claim":
            parts: list[tuple[str, ...]] = data.draw(
                st.sampled_from([[OPEN], [OPEN[:1], OPEN[1:]], [OPEN[:1]]]), "groups"
            )
            self.remember(self.run("claim", [self.ask(data, part) for part in parts]))
        elif how == "claim_bare":
            own = tuple(self.new_id() for _ in range(data.draw(st.integers(1, 3), "count")))
            worker, lease_ms = data.draw(st.sampled_from(draws.WORKERS)), data.draw(draws.mostly(30_000, 2_000))
            self.remember(self.run("claim_bare", self.ask(data, OPEN, own), worker, lease_ms))
        else:
            ask = self.ask(data, [draws.LIMITED])._replace(hint=None)
            self.model.make_lanes([LaneName(ask.tenant, draws.LIMITED)])
            self.remember(self.run("claim_limited", ask))

    def claim_back(self, data: st.DataObject) -> None:
        """A worker claims what it failed and what is kept for it."""
        kept = [lease for lease in self.leases if self.model.jobs[lease[0]].preferred]
        lease = data.draw(st.sampled_from(kept), "lease")
        session = data.draw(draws.mostly(lease[3], lease[3], self.sessions[0]), "session")
        tenant = data.draw(draws.mostly(lease[4], lease[4], *draws.TENANTS), "tenant")
        self.remember(self.run("claim_back", [lease[:2]], session, tenant))

    def report(self, data: st.DataObject) -> None:
        """Workers report on what they hold, sometimes twice in one request; others speak without being asked."""
        held = sorted((job.id for job in self.model.leased()), key=str)
        chosen = data.draw(st.lists(st.sampled_from(held), min_size=1, max_size=3), "jobs")
        reports = []
        for job_id in chosen:
            job = self.model.jobs[job_id]
            session = self.model.sessions[job.session or job.id]
            named = data.draw(draws.mostly(session.id, None, *self.sessions[:1]), "session")
            fence = max(1, job.fence + data.draw(draws.mostly(0, 0, 1, -1), "fence"))
            worker = data.draw(draws.mostly(session.worker, session.worker, *draws.WORKERS), "worker")
            tenant = data.draw(draws.mostly(session.tenant, session.tenant, *draws.TENANTS), "tenant")
            reports.append(data.draw(draws.reports(job.id, fence, worker, named, tenant)))
        self.run("report", reports, data.draw(draws.CHANCES, "chance"))

    def report_again(self, data: st.DataObject) -> None:
        """Anybody reports on any lease there ever was: late, repeated, foreign, or with a fence never given out."""
        job_id, fence, worker, session, tenant = data.draw(st.sampled_from(self.leases), "lease")
        fence = max(1, fence + data.draw(draws.mostly(0, 0, 0, 1, -1), "fence"))
        worker = data.draw(draws.mostly(worker, worker, *draws.WORKERS), "worker")
        named = data.draw(draws.mostly(session, None, *self.sessions[:2]), "session")
        tenant = data.draw(draws.mostly(tenant, tenant, *draws.TENANTS), "tenant")
        again = data.draw(draws.reports(job_id, fence, worker, named, tenant))
        self.run("report", [again], data.draw(draws.CHANCES, "chance"))

    def heartbeat(self, data: st.DataObject) -> None:
        """Sessions are heard: with all they hold, with some of it missing, with what is not theirs."""
        everybody = sorted(self.model.sessions, key=str) or [UUID(int=0)]
        beats = []
        for session in data.draw(st.lists(st.sampled_from(everybody), min_size=1, max_size=2, unique=True), "sessions"):
            held = []
            for job in [job for job in self.model.leased() if job.session == session]:
                told = data.draw(draws.mostly("started", "held", "missing", "wrong"), "told")
                if told != "missing":
                    held.append(Held(job.id, job.fence + (told == "wrong"), told == "started"))
            others = [lease for lease in self.leases if lease[0] not in {h.job_id for h in held}]
            if others and data.draw(draws.mostly(False, False, True), "foreign"):
                held.append(Held(*data.draw(st.sampled_from(others))[:2], True))
            names = data.draw(draws.mostly(held, held, None), "names")
            known = self.model.sessions.get(session)
            tenant = data.draw(draws.mostly(known.tenant if known else "default", *draws.TENANTS), "tenant")
            beats.append(Beat(session, names, data.draw(draws.mostly(None, 1), "busy"), tenant=tenant))
        self.run("heartbeat", beats)

    def session(self, data: st.DataObject) -> None:
        """Workers come and go."""
        what = data.draw(draws.mostly("register", "close", "drain"), "what")
        worker, tenant = data.draw(st.sampled_from(draws.WORKERS)), data.draw(draws.TENANT)
        if what == "register":
            self.sessions.append(self.new_id())
            self.run("register", self.sessions[-1], worker, tenant, data.draw(draws.mostly(5_000, 30_000)), 1)
        elif what == "close":
            session = data.draw(st.sampled_from(self.sessions))
            known = self.model.sessions.get(session)
            self.run("close", session, data.draw(draws.mostly(known.tenant if known else tenant, tenant)), "bye")
        else:
            self.run("drain", tenant, worker)

    def cancel(self, data: st.DataObject) -> None:
        """Somebody cancels jobs, in any state."""
        live = self.in_state(*(set(State) - FINAL_STATES))
        picked = [self.pick(data, live) for _ in range(data.draw(st.integers(1, 2), "count"))]
        self.run(
            "cancel", [job_id for job_id, _ in picked], picked[0][1], "why not", data.draw(draws.mostly(30_000, 0))
        )

    def pause(self, data: st.DataObject) -> None:
        """Somebody pauses a job, a queue or a tenant, for good or until a time."""
        kind, end = data.draw(draws.mostly("job", "queue", "tenant")), data.draw(draws.mostly(None, 5, -1), "end")
        until = None if end is None else self.model.now + timedelta(seconds=end)
        if kind == "job":
            live = self.in_state(*(set(State) - FINAL_STATES))
            self.run("pause_job", *self.pick(data, live), "hm", until)
            return
        tenant = data.draw(draws.TENANT, "tenant")
        if kind == "queue":
            self.run("pause_queue", LaneName(tenant, data.draw(st.sampled_from(draws.QUEUES))), "hm", until)
        else:
            self.run("pause_tenant", tenant, "hm", until)

    def resume(self, data: st.DataObject) -> None:
        """Somebody resumes what is paused, or what is not."""
        paused = sorted(job.id for job in self.model.jobs.values() if job.paused)
        kind, tenant, name = data.draw(
            st.sampled_from([*sorted(self.model.pauses), ("queue", "default", "mail"), ("job", "", "")]), "pause"
        )
        if kind == "job":
            self.run("resume_job", *self.pick(data, paused), "ok")
        elif kind == "queue":
            self.run("resume_queue", LaneName(tenant, name))
        else:
            self.run("resume_tenant", tenant)

    def change(self, data: st.DataObject) -> None:
        """Somebody changes a waiting job: its priority, its queue, its time."""
        priority = data.draw(draws.mostly(None, 0, 5), "priority")
        queue = data.draw(draws.mostly(None, *draws.QUEUES), "queue")
        span = data.draw(st.none() | draws.seconds(-3600, -1, 0, 2, 3600), "run_at")
        run_at = None if span is None else self.model.now + span
        waiting = self.in_state(State.QUEUED, State.SCHEDULED)
        self.run("change", *self.pick(data, waiting), priority, queue, run_at)

    def duty(self, data: st.DataObject) -> None:
        """A duty does its round."""
        what = data.draw(draws.mostly("promote", "rescue", "rescue", "end_overdue", "expire", "resume_due"), "what")
        if what == "promote":
            self.run("promote", data.draw(draws.mostly(2000, 1)))
        elif what == "rescue":
            self.run("rescue", data.draw(draws.CHANCES), data.draw(draws.mostly(NO_SILENCE, TOLERANCE)))
        elif what == "end_overdue":
            self.run("end_overdue", data.draw(draws.CHANCES))
        else:
            self.run(what)

    def outlast(self, data: st.DataObject) -> None:
        """A lease comes to its end: its session lapses, or its deadline passes."""
        job = data.draw(st.sampled_from(sorted(self.model.leased(), key=lambda job: job.id)), "lease")
        chance = data.draw(draws.CHANCES, "chance")
        if job.deadline_at is not None and data.draw(st.booleans(), "by deadline"):
            self.move_to(job.deadline_at + timedelta(milliseconds=1))
            self.run("end_overdue", chance)
        else:
            session = self.model.sessions[job.session or job.id]
            self.run("rescue", chance, NO_SILENCE)
            self.move_to(self.model.now + timedelta(milliseconds=session.lease_ms + 1))
            self.run("rescue", chance, NO_SILENCE)

    def move_to(self, instant: datetime) -> None:
        """Let time pass until then, if history has room for that day."""
        if self.model.now < instant < LAST:
            self.world.clock.advance((instant - self.model.now).total_seconds())

    def dead_letter(self, data: st.DataObject) -> None:
        """Somebody retries, replays or purges what has ended, or what has not."""
        what, payload = data.draw(draws.mostly("retry", "replay", "purge")), data.draw(draws.mostly(None, "[2]"))
        likely = self.in_state(State.DEAD) if what == "purge" else self.in_state(*FINAL_STATES)
        picked = [self.pick(data, likely) for _ in range(1 if what == "replay" else data.draw(st.integers(1, 2)))]
        ids, tenant = [job_id for job_id, _ in picked], picked[0][1]
        if what == "replay":
            self.ids.append(self.new_id())
            self.run("replay", ids[0], tenant, self.ids[-1], payload)
        elif what == "retry":
            self.run("retry", ids, tenant, payload)
        else:
            self.run("purge", ids, tenant)

    def advance(self, data: st.DataObject) -> None:
        """Time passes."""
        span = data.draw(draws.steps(self.model), "span")
        self.move_to(self.model.now + span)

    def seldom(self, data: st.DataObject) -> None:
        """What happens less often."""
        getattr(self, data.draw(st.sampled_from(("find", "configure", "sweep", "restart")), "what"))(data)

    def sweep(self, data: st.DataObject) -> None:
        """Retention at midnight, when whole days and rows are the same."""
        now = self.model.now
        midnight = (now + timedelta(days=1)).replace(hour=0, minute=0, second=0, microsecond=0)
        self.move_to(midnight)
        if self.model.now == midnight:
            self.run("sweep", data.draw(st.integers(1, 2), "days"), data.draw(draws.mostly(0, 1), "dead_days"))

    def restart(self, data: st.DataObject) -> None:
        """The server stops and starts; SQLite's clock then begins above whatever was written, a second at most."""
        self.world.clock.advance(1)
        hypothesis.note("restart()")
        self.world.run(self.world.restart())
        self.compare()

    def configure(self, data: st.DataObject) -> None:
        """Somebody sets how a queue ranks and limits its jobs; a limit is not set below what runs."""
        queue, tenant = data.draw(st.sampled_from(draws.QUEUES)), data.draw(draws.TENANT)
        settings: dict[str, Any] = {
            "credit_ms": data.draw(draws.mostly(STRICT_PRIORITY_MS, 60_000)),
            "fifo": data.draw(draws.mostly(False, True)),
        }
        if queue == draws.LIMITED:
            running = sum(job.lane.of_queue == LaneName(tenant, queue) for job in self.model.leased())
            settings["max_running"] = data.draw(draws.mostly(None, max(1, running), running + 1))
            settings["rate_per_s"] = data.draw(draws.mostly(None, 0.5, 2.0))
            settings["burst"] = data.draw(draws.mostly(None, 3))
        self.run("configure", LaneName(tenant, queue), settings)

    def find(self, data: st.DataObject) -> None:
        """Somebody lists jobs."""
        states = data.draw(st.sets(st.sampled_from(sorted(State)), max_size=2), "states")
        where = data.draw(draws.mostly({}, {"queue": "mail"}, {"task": "send"}, {"worker": "w1"}), "where")
        tenant, limit = data.draw(draws.TENANT), data.draw(draws.mostly(100, 1, 2))
        self.run("find", tenant, frozenset(states), where, limit)
