"""A worker registers before it imports anything of the user's, and is shown as starting until it claims (W3)."""

from __future__ import annotations

from pathlib import Path

from tests.worker.process.installation import Installation

SLOW = """
import json, os, socket, windlass

app = windlass.App()
with socket.create_connection(("127.0.0.1", {port})) as gate:
    gate.sendall(json.dumps(dict(pid=os.getpid(), job="import", attempt=0)).encode() + b"\\n")
    gate.recv(100)

@app.task
def double(x: int) -> int:
    return 2 * x
"""


async def test_a_worker_is_starting_while_its_modules_are_imported(installation: Installation, tmp_path: Path) -> None:
    """Also when that takes longer than a lease; it is idle when it claims."""
    module = tmp_path / "shop.py"
    module.write_text(SLOW.format(port=installation.port))
    fleet = await installation.launch_workers("--name", "ann", app=str(module), worker_lease_seconds="4")
    importing = await installation.begun()
    beats: set[object] = set()

    def has_outlived_its_lease(worker: dict[str, object]) -> bool:
        beats.add(worker["last_heartbeat_at"])
        return worker["status"] != "starting" or len(beats) == 9

    starting = await installation.until(has_outlived_its_lease, "/workers/ann")
    importing.go_on()
    await fleet.said("is ready")
    idle = await installation.until(lambda worker: worker["status"] != "starting", "/workers/ann")

    assert ("starting", "idle") == (starting["status"], idle["status"])
    assert ([], ["double"]) == (starting["tasks"], [task for task in idle["tasks"] if task == "double"])
    assert 4 == (await installation.ended(await installation.submit("double", x=2)))["result"]
