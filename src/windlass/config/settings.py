"""The settings: one frozen struct, a section each, and for each setting who changes it and why. Pure.

The sentence under a setting stands in `default.toml` and in docs/configuration.md too; a test holds them equal.
How values get here is in load.py; which values do not go together is in check.py.
"""

from __future__ import annotations

from typing import Annotated, Literal

import msgspec
from msgspec import Meta

from windlass.config.redact import SECRET_NAMES
from windlass.config.workkinds import WorkKind

Seconds = Annotated[float, Meta(gt=0, le=31_536_000)]
Pause = Annotated[float, Meta(ge=0.01, le=31_536_000)]
"""Between calls of a server: never so short that asking becomes a load."""
SecondsOrNone = Annotated[float, Meta(ge=0, le=31_536_000)]
"""0 turns it off, or means at once."""
Count = Annotated[int, Meta(ge=1, le=1_000_000)]
CountOrNone = Annotated[int, Meta(ge=0, le=1_000_000_000)]
Milliseconds = Annotated[int, Meta(ge=10, le=3_600_000)]
Port = Annotated[int, Meta(ge=0, le=65_535)]
Bytes = Annotated[int, Meta(ge=1, le=262_144)]
Text = Annotated[str, Meta(min_length=1, max_length=4096)]
Word = Annotated[str, Meta(pattern=r"^[^\s]{1,4096}$", title="a text without spaces")]
Host = Annotated[str, Meta(pattern=r"^[^\s/@]{1,255}$", title="a host name or an address such as 0.0.0.0")]
Name = Annotated[str, Meta(pattern=r"^[^/,]{1,200}$", title="a name of 1 to 200 characters without / and ,")]
HttpUrl = Annotated[str, Meta(pattern=r"^https?://[^\s/?#]+", title="a URL like http://localhost:8000")]
DatabaseUrl = Annotated[
    str,
    Meta(
        pattern=r"^(postgres(ql)?://[^\s/]|sqlite:///[^\s])",
        title="postgresql://user@host/name or sqlite:///file.db",
    ),
]
MetricPrefix = Annotated[str, Meta(pattern=r"^[a-zA-Z_][a-zA-Z0-9_]*$", title="letters, digits and _")]
Address = Annotated[str, Meta(pattern=r"^[^\s:/@]+:[0-9]{1,5}$", title="an address like localhost:8125")]


class Section(msgspec.Struct, frozen=True, kw_only=True):
    """The form of every section."""


class Server(Section, frozen=True, kw_only=True):
    """Where the server listens, and how it answers."""

    url: HttpUrl = "http://localhost:8000"
    """Set it on clients and workers: where the servers, or the load balancer before them, are reached."""
    host: Host = "127.0.0.1"
    """Set it to 0.0.0.0 when others than this machine may call; keys and TLS are needed then."""
    port: Port = 8000
    """Change it when 8000 is taken; 0 takes any free one."""
    vocabulary: Literal["canonical", "a", "b", "c", "d"] = "canonical"
    """Change it when existing clients expect the state names of another system."""
    insecure: bool = False
    """Only on a closed network: listen on another address than loopback without keys, and without TLS."""
    allow_plain: bool = False
    """Set it behind a proxy that has TLS: listen on another address than loopback without TLS; keys stay needed."""
    max_connections: Count = 10_000
    """Lower it where memory is short; the limit of open files is raised for it, and may allow fewer."""
    body_budget_mib: Annotated[int, Meta(ge=32, le=65_536)] = 128
    """Lower it where memory is short: MiB of request bodies at a time, and of answers; a tenant has half of each."""
    drain_seconds: SecondsOrNone = 30.0
    """Raise it when requests take long: how long a stopping server finishes those under way."""


class Database(Section, frozen=True, kw_only=True):
    """Where everything is stored."""

    url: DatabaseUrl = "sqlite:///windlass.db"
    """Set it to PostgreSQL for more than one server; add ?pooler=transaction behind a transaction-mode pooler."""
    pool_size: Annotated[int, Meta(ge=1, le=100)] = 3
    """Raise it when dashboards and lists wait for each other: connections for reads; the others are fixed."""
    allow_undurable: bool = False
    """Only where losing jobs is no harm: serve PostgreSQL with fsync, full_page_writes or synchronous_commit off."""


class Worker(Section, frozen=True, kw_only=True):
    """How a worker process behaves."""

    app: Text | None = None
    """Set it in images: the MODULE:APP that `windlass worker` and `windlass up` run where their command names none."""
    id: Name | None = None
    """Set it to a stable name, such as the host's; without it a worker is called worker-<uuid>."""
    profile: Literal["usual", "sequential"] = "usual"
    """Set it to sequential where a machine does one job at a time: 1 thread, poll 5 s, lease 300 s, beat 60 s."""
    version: Name | None = None
    """Set it at deployment: the version of your code, shown beside the worker."""
    threads: Annotated[int, Meta(ge=1, le=10_000)] = 20
    """Lower it for jobs heavy in memory or processor, raise it for jobs that wait: how many run at once."""
    claim_batch: Annotated[int, Meta(ge=1, le=1000)] | Literal["auto"] = "auto"
    """Set it to 1 for long jobs that must spread evenly; auto claims as many as keep the threads busy."""
    wait_seconds: Annotated[float, Meta(ge=0, le=20)] = 20.0
    """Lower it behind a proxy that cuts long requests: how long a claim waits for work."""
    poll_interval_seconds: Pause = 1.0
    """Raise it to spare the server when wait_seconds is 0: the pause after a claim that found nothing."""
    backoff_min_seconds: Pause = 1.0
    """Rarely changed: the first pause when the server does not answer."""
    backoff_max_seconds: Pause = 30.0
    """Lower it to be back sooner after an outage: the longest such pause."""
    error_pause_seconds: SecondsOrNone = 5.0
    """Rarely changed: the pause after an error of the worker itself."""
    claim_timeout_seconds: Seconds = 10.0
    """Raise it on slow networks: how long a claim may take beyond the wait it asked for."""
    heartbeat_timeout_seconds: Seconds = 5.0
    """Raise it on slow networks: how long a heartbeat may take."""
    report_timeout_seconds: Seconds = 10.0
    """Raise it for large results on slow networks: how long a report may take."""
    lease_seconds: Annotated[float, Meta(ge=1, le=86_400)] | None = None
    """Set it when these workers stall for long, or must be missed sooner; not set, the server's jobs.lease_seconds."""
    heartbeat_seconds: Annotated[float, Meta(gt=0, le=86_400)] | None = None
    """Rarely changed: how often a worker says that it lives; not set, a third of its lease."""
    exclusive: bool = False
    """Turn it on where a job must not run twice at a time: it is stopped when its lease is not renewed in time."""
    drain_seconds: SecondsOrNone = 300.0
    """Keep it below the grace period of the platform: how long a stopping worker finishes its jobs."""
    cancel_grace_seconds: SecondsOrNone = 30.0
    """Raise it when tasks need time to clean up after a cancel."""
    timeout_grace_seconds: SecondsOrNone = 5.0
    """Raise it when tasks need time to clean up after their time-out; then an exception or SIGTERM ends them."""
    queues: Annotated[tuple[Name, ...], Meta(min_length=1, max_length=100)] = ("default",)
    """Set it to dedicate workers to queues; unless it is set they serve also those that the tasks name."""
    labels: Annotated[tuple[Name, ...], Meta(max_length=32)] = ()
    """Set it for what only this worker has, such as gpu: jobs that ask for a label go only there."""
    isolation: Literal["thread", "process"] = "thread"
    """Set it to process for tasks that hold the interpreter or must be killed."""
    spot_notice: Literal["auto", "off", "aws", "gcp", "azure"] = "auto"
    """Turn it off where no notice of a cloud's withdrawal can come; auto finds out which cloud it is."""
    spot_url: HttpUrl | None = None
    """Set it in tests, or where the notice comes from elsewhere than the cloud's own address."""
    processes: Annotated[int, Meta(ge=1, le=1000)] = 1
    """Raise it to use more cores: how many processes one `windlass worker` keeps, each with its own threads."""
    kill_seconds: SecondsOrNone = 5.0
    """Raise it when isolated tasks clean up slowly: how long after SIGTERM such a process is killed."""
    max_jobs: CountOrNone = 0
    """Set it where tasks leak: after so many jobs a process finishes and a fresh one takes its place; 0: never."""
    max_memory_mb: CountOrNone = 0
    """Set it where tasks leak: above this a process finishes and a fresh one takes its place; 0: never."""
    log_bytes: Annotated[int, Meta(ge=0, le=16_777_216)] = 1_048_576
    """Raise it for tasks that say much: how much log of one attempt is kept; the rest is counted; 0 keeps none."""
    log_jobs: Literal["all", "failures"] = "all"
    """Set it to failures where jobs are many and logs cost money: which ends of attempts are logged, a line each."""
    health_address: Address | None = None
    """Set it to have /healthz answer there while claims and heartbeats are tried, for a platform's probe."""
    health_seconds: Seconds = 120.0
    """Raise it when tasks hold the interpreter for longer: how long claims may stand still before /healthz fails."""


class Workers(Section, frozen=True, kw_only=True):
    """The local pool of workers that `windlass up` starts."""

    default_count: Annotated[int, Meta(ge=0, le=1000)] = 2
    """Raise it to have more workers ready: how many processes start at boot and stay."""
    max_count: Annotated[int, Meta(ge=1, le=1000)] = 8
    """Raise it on larger machines: how many processes there may be."""
    threads: Annotated[int, Meta(ge=1, le=10_000)] = 1
    """Raise it for jobs that wait: threads of each process; with 1 the depth of the queue drives the count."""
    poll_interval_ms: Milliseconds = 250
    """Raise it on a small machine: the pause of a local worker after a claim that found nothing."""
    scale_interval_ms: Milliseconds = 1000
    """Raise it on a small machine: how often the pool asks how many processes there should be."""


class Jobs(Section, frozen=True, kw_only=True):
    """What a job gets that does not say otherwise."""

    max_attempts: Annotated[int, Meta(ge=1, le=1000)] = 3
    """Set it to 1 when nothing may run twice on failure."""
    timeout_seconds: Annotated[int, Meta(ge=1, le=315_360_000)] = 3600
    """Raise it for long jobs: how long one attempt may run."""
    priority: Annotated[int, Meta(ge=-127, le=127)] = 0
    """Rarely changed: higher goes first."""
    lease_seconds: Annotated[float, Meta(ge=1, le=86_400)] = 30.0
    """Raise it for callers that seldom send heartbeats: the lease of a claim that names none."""
    max_lost: Annotated[int, Meta(ge=1, le=1000)] = 5
    """Lower it when jobs kill their workers: the lost lease at which a job is dead."""
    idempotency_hours: Annotated[float, Meta(gt=0, le=8760)] = 24.0
    """Raise it when callers repeat requests after longer: how long an idempotency key is remembered."""
    max_payload_bytes: Bytes = 262_144
    """Lower it to protect a small database."""
    max_result_bytes: Bytes = 262_144
    """Lower it to protect a small database."""


class Retry(Section, frozen=True, kw_only=True):
    """When a failed job runs again, where it has no policy of its own."""

    kind: Literal["exponential", "linear", "fixed"] = "exponential"
    """Set it to fixed for a steady pace."""
    base_seconds: SecondsOrNone = 1.0
    """Raise it when what jobs depend on recovers slowly: after attempt n the wait is base × factorⁿ, so 2, 4, 8 … s."""
    factor: Annotated[float, Meta(ge=1, le=100)] = 2.0
    """Rarely changed: by how much each wait is longer than the last, of kind exponential."""
    cap_seconds: SecondsOrNone = 3600.0
    """Lower it when a job must not wait for long: the longest wait."""
    jitter: Annotated[float, Meta(ge=0, le=1)] = 0.1
    """Raise it when many jobs fail together: the share of the wait added by chance."""


class Schedules(Section, frozen=True, kw_only=True):
    """How schedules fire."""

    tick_seconds: Annotated[float, Meta(gt=0, le=60)] = 0.5
    """Rarely changed: the longest pause between looks at what is due."""
    batch: Annotated[int, Meta(ge=1, le=10_000)] = 1000
    """Rarely changed: how many schedules fire in one transaction."""
    catch_up: Literal["latest", "skip", "all"] = "latest"
    """Change it to decide what becomes of slots missed during an outage."""
    overlap: Literal["skip", "allow", "queue_one", "queue_all", "cancel_previous"] = "skip"
    """Change it to decide what happens when the previous job of a schedule is still live."""
    shards: Annotated[int, Meta(ge=1, le=16)] = 16
    """Rarely changed: into how many duties firing is parted; those of one server look together."""


class Duties(Section, frozen=True, kw_only=True):
    """How servers share the background work."""

    mode: Literal["lease", "all", "steal"] = "lease"
    """Set it to steal with hundreds of servers, to all in development."""
    heartbeat_seconds: Annotated[float, Meta(gt=0, le=3600)] = 2.0
    """Raise it to spare the database, together with lease_seconds."""
    lease_seconds: Annotated[float, Meta(gt=0, le=3600)] = 6.0
    """Raise it when servers stall for long: how long after its last sign of life a holder loses a duty."""
    standby_seconds: Annotated[float, Meta(gt=0, le=60)] = 0.5
    """Rarely changed: how long after the expiry a standby takes over, at most."""
    rotate_seconds: SecondsOrNone = 0.0
    """Set it to 60 to move duties around (each rests up to a heartbeat behind a pooler); 0: a holder keeps them."""
    expire_seconds: Annotated[float, Meta(gt=0, le=60)] = 0.5
    """Rarely changed: the longest pause between looks for lapsed leases and passed deadlines."""
    cleanup_seconds: Seconds = 3600.0
    """Rarely changed: how often old history is removed."""
    health_seconds: Seconds = 300.0
    """Lower it to be warned sooner: how often the health of the queues is logged."""


class Queue(Section, frozen=True, kw_only=True):
    """When the depth of the queues is worth a warning."""

    depth_warning: CountOrNone = 50
    """Raise it where a longer line is normal: waiting jobs above which a warning is logged."""
    depth_critical: CountOrNone = 10_000
    """Raise it where a longer line is normal: waiting jobs above which the queue counts as critical."""


class Scaling(Section, frozen=True, kw_only=True):
    """How many workers are recommended, and started by the local pool."""

    policy: Literal["depth", "per_worker", "threshold"] = "depth"
    """Set it to per_worker for workers of many threads, to threshold for large fleets."""
    jobs_per_worker: Count = 10
    """Of per_worker: how many waiting jobs make one more worker worth it."""
    up_above: CountOrNone = 1000
    """Of threshold: with more waiting jobs than this there should be more workers."""
    down_below: CountOrNone = 100
    """Of threshold: with fewer waiting jobs than this there should be fewer workers."""
    min: CountOrNone = 2
    """Not set: workers.default_count for depth, 3 for per_worker, 10 for threshold."""
    max: Count = 8
    """Not set: workers.max_count for depth, 20 for per_worker, 1000 for threshold."""
    cooldown_seconds: SecondsOrNone = 60.0
    """Raise it when load comes in waves: how long fewer must be enough before workers go."""


class Retention(Section, frozen=True, kw_only=True):
    """How long history is kept."""

    days: Annotated[int, Meta(ge=0, le=36_500)] = 30
    """Raise it to look back further, lower it to save space; 0 keeps everything."""
    dead_days: Annotated[int, Meta(ge=0, le=36_500)] = 0
    """Set it where nobody replays dead jobs after so long; 0 keeps them."""


class Metrics(Section, frozen=True, kw_only=True):
    """How figures leave the server."""

    prefix: MetricPrefix = "windlass_"
    """Change it when another program has these names."""
    statsd_address: Address | None = None
    """Set it to send figures to StatsD too."""


class Security(Section, frozen=True, kw_only=True):
    """Who may call, and what must not be seen."""

    keys_required: bool | Literal["auto"] = "auto"
    """Set it to true to demand keys on loopback too; auto demands them on every other address."""
    tls_cert: Text | None = None
    """Set it, with tls_key, to serve HTTPS without a proxy: the certificate's file, read anew when it changes."""
    tls_key: Text | None = None
    """The file of the certificate's private key."""
    redact: Annotated[tuple[Word, ...], Meta(max_length=200)] = SECRET_NAMES
    """Extend it with names of arguments that hold secrets; names are compared without case, - and _."""
    bootstrap_key: Word | None = None
    """Set it at the first start to have a first key, better by its file: made once, then ignored."""


class Api(Section, frozen=True, kw_only=True):
    """What the API lets pass."""

    allow_unfenced: bool = False
    """Only for old workers that know no fence: reports are taken on trust of the worker's name."""


class Client(Section, frozen=True, kw_only=True):
    """How this process calls a server."""

    key: Word | None = None
    """Set it on clients and workers, better by its file: the key they show."""


class Log(Section, frozen=True, kw_only=True):
    """What is logged, and how."""

    format: Literal["auto", "text", "json"] = "auto"
    """Set it to json or text to have the same everywhere; auto is text on a terminal, else JSON lines."""
    level: Literal["debug", "info", "warning", "error"] = "info"
    """Lower it to debug while looking for a cause; raise it where logs cost money."""


class Settings(Section, frozen=True, kw_only=True):
    """All settings of one process."""

    mode: Literal["server", "worker"] | None = None
    """Set it in images: what `windlass` without a command runs."""
    server: Server = Server()
    database: Database = Database()
    worker: Worker = Worker()
    workers: Workers = Workers()
    jobs: Jobs = Jobs()
    retry: Retry = Retry()
    schedules: Schedules = Schedules()
    duties: Duties = Duties()
    queue: Queue = Queue()
    scaling: Scaling = Scaling()
    retention: Retention = Retention()
    metrics: Metrics = Metrics()
    security: Security = Security()
    api: Api = Api()
    client: Client = Client()
    log: Log = Log()
    work_kinds: dict[Name, WorkKind] = {}
