"""Small tasks that show what Windlass does: arguments, retries, progress, logs, asyncio, processes, schedules.

Copy this file, throw out what you do not need, and run it with `windlass dev tasks:app`.
"""

from __future__ import annotations

import asyncio
import time
from collections import Counter

from windlass import App, Context, every

app = App("sample")


@app.task
def add(x: int, y: int) -> int:
    """Return the sum: arguments and results are plain JSON."""
    return x + y


@app.task
def greet(name: str = "world") -> str:
    """Return a greeting; what it prints is kept in the log of the job."""
    text = f"Hello, {name}!"
    print(text)  # noqa: T201 that this is kept is what it shows
    return text


@app.task(max_attempts=5, retry={"kind": "exponential", "base": "100ms", "factor": 2})
def unsteady(context: Context, failures: int = 2) -> str:
    """Fail on the first attempts and then succeed: retries come by themselves, after longer and longer waits."""
    if context.attempt <= failures:
        raise ConnectionError(f"attempt {context.attempt} of {failures + 1}: the other side hung up")
    return f"succeeded on attempt {context.attempt}"


@app.task
def summarise(context: Context, rows: int = 50, pause_s: float = 0.02) -> dict[str, int]:
    """Work through rows: shows progress, writes a log, goes on where it was after a restart, stops when cancelled."""
    done = int(context.checkpoint or 0)
    if done:
        context.log.info("going on at row %d of %d", done, rows)
    while done < rows:
        context.check()
        time.sleep(pause_s)
        done += 1
        if done % 10 == 0 or done == rows:
            context.progress(done / rows)
            context.checkpoint = done
            context.log.info("%d of %d rows", done, rows)
    return {"rows": rows, "total": sum(range(rows))}


@app.task(timeout="30s")
async def fetch(url: str = "https://example.org/", delay_s: float = 0.2) -> dict[str, str | int]:
    """Pretend to fetch a page: hundreds of these wait side by side in one thread."""
    await asyncio.sleep(delay_s)
    return {"url": url, "status": 200}


@app.task(priority=-5)
def thumbnail(width: int, height: int, factor: float = 0.5) -> list[int]:
    """Pretend to make a small picture; of low priority, so that others go first."""
    time.sleep(0.05)
    return [round(width * factor), round(height * factor)]


@app.task(isolation="process", timeout="1m")
def count_words(text: str) -> dict[str, int]:
    """Count words in a process of its own, which can be killed at any moment."""
    return dict(Counter(text.lower().split()).most_common(10))


@app.scheduled(every("30s"))
@app.task(max_attempts=1)
def heartbeat() -> str:
    """Run every half a minute, by itself: `windlass schedules show heartbeat` tells what became of each slot."""
    return "still here"
