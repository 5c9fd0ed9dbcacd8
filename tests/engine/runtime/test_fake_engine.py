"""The whole engine over fakes: its processes, its door and its healing, without the minutes that real models take."""

from __future__ import annotations

import json
import os
import signal
import socket
import subprocess
import sys
from collections.abc import Iterator
from datetime import UTC, datetime

import httpx
import pytest

from engine.runtime import reaper, run_file
from engine.runtime.child import EngineChild, variables
from engine.runtime.readiness import StartFailed
from engine.settings import REPOSITORY
from tests.engine.engines import TestEngine, running_engine, wait_until

pytestmark = [pytest.mark.engine, pytest.mark.timeout(180)]

MODULE = "tests.engine.runtime.fake_engine"
GATE = "nothing starts while this is here"


@pytest.fixture(scope="module")
def engine(tmp_path_factory: pytest.TempPathFactory) -> Iterator[TestEngine]:
    state = tmp_path_factory.mktemp("state")
    fakes = {"FAKE_SAMPLER_SECONDS": "0.05", "FAKE_STEP_SECONDS": "0.02", "FAKE_GATE": str(state / GATE)}
    with running_engine(state, module=MODULE, environment=fakes) as engine:
        yield engine


def _steps_once(views) -> bool:
    return all([data["version"] for data in view.committed] == list(range(1, view.steps + 1)) for view in views.values())


def test_jobs_of_several_tenants_run_to_their_end(engine):
    views = engine.play(["add", "max", "reverse"])

    assert {view.state for view in views.values()} == {"succeeded"}
    assert _steps_once(views)


def test_the_door_logs_which_job_was_changed(engine):
    [job] = engine.play(["add"])
    assert f"PUT /jobs/{job}: 200 job={job}\n" in (engine.settings.log_dir / "engine-http.log").read_text()


def test_the_door_wants_the_secret(engine):
    assert httpx.get(f"{engine.settings.engine_url}/status").status_code == 401
    assert httpx.get(f"{engine.settings.engine_url}/healthz").json()["ok"]


def test_the_walls_around_tenants_code_are_known_from_the_start(engine):
    health = httpx.get(f"{engine.settings.engine_url}/healthz").json()
    headers = {"Authorization": f"Bearer {engine.settings.secret()}"}
    status, models = [httpx.get(f"{engine.settings.engine_url}/{what}", headers=headers).json() for what in ("status", "models")]

    assert health["sandbox"] == status["sandbox"]["tier"] == models["models"][0]["reward_sandbox"]
    assert health["sandbox"] in ("bwrap", "plain")
    assert "reward sandbox: tier" in (engine.settings.log_dir / "engine-launcher.log").read_text()


def test_a_trial_in_the_lab_can_be_judged_by_the_base_model(engine):
    message = {"role": "user", "content": "Grade: {{sample.output_text}}"}
    grader = {"type": "score_model", "model": "base", "input": [message]}
    order = {"tenant": "ten_a", "grader": grader, "cases": [{"sample": {"output_text": "42"}, "item": {}}]}
    headers = {"Authorization": f"Bearer {engine.settings.secret()}"}
    answer = httpx.post(f"{engine.settings.engine_url}/graders/run", json=order, headers=headers, timeout=60).json()

    assert {outcome["reward"] for result in answer["results"] for outcome in result["outcomes"]} == {1.0}, answer


def test_production_does_not_start_behind_weaker_walls(tmp_path):
    with (
        pytest.raises(StartFailed, match="too weak for production"),
        running_engine(tmp_path, module=MODULE, production=True, reward_sandbox="weak"),
    ):
        pass


def test_who_hands_on_goes_before_who_calculates(engine):
    """None is less nice than it was started, that is, than this process."""
    wanted = {"ray::Manager": 0, "ray::Http": 0, "ray::Rollout": 5, "ray::Train": 15}
    niceness = {title: os.getpriority(os.PRIO_PROCESS, *engine.processes(title)) for title in wanted}
    own = os.getpriority(os.PRIO_PROCESS, 0)
    assert niceness == {title: max(own, least) for title, least in wanted.items()}


def test_nothing_of_the_engine_can_be_reached_from_outside(engine):
    listening = wait_until(lambda: bool(_listeners(engine)))

    assert listening
    assert [address for address in _listeners(engine) if not address.startswith(("127.", "[::ffff:127."))] == []


@pytest.mark.parametrize("title", ["ray::ManagerActor", "ray::RolloutActor", "ray::TrainActor", "ray::HttpActor"])
def test_a_killed_process_heals_and_no_step_is_lost_or_doubled(engine, title):
    killed: list[int] = []

    def kill_once(view) -> None:
        if not killed and view.step == 3:
            killed.append(engine.kill(title))

    views = engine.play(["add", "max"], on_step=kill_once, steps=8)

    assert killed
    assert {view.state for view in views.values()} == {"succeeded"}
    assert _steps_once(views)
    assert engine.run(engine.until_healthy())["ok"]
    assert engine.violations() == []


@pytest.mark.parametrize(("title", "part"), [("ray::RolloutActor", "sampler"), ("ray::TrainActor", "trainer")])
def test_the_door_tells_which_part_is_restarting_and_since_when(engine, title, part):
    engine.run(engine.until_healthy())
    before = datetime.now(UTC)
    gate = engine.settings.state / GATE
    gate.touch()
    engine.kill(title)
    health: dict = {}
    try:
        assert wait_until(lambda: part in health_of(engine, health).get("stopped", {}), seconds=60.0)
    finally:
        gate.unlink()

    assert before <= datetime.fromisoformat(health["stopped"][part]) <= datetime.now(UTC)
    assert [*health["stopped"]] == [part]
    assert "stopped" not in engine.run(engine.until_healthy())


def health_of(engine: TestEngine, health: dict) -> dict:
    """The door's answer, kept in ``health``."""
    health.clear()
    health.update(httpx.get(f"{engine.settings.engine_url}/healthz").json())
    return health


def test_a_new_manager_takes_a_new_epoch(engine):
    before = engine.run(engine.until_healthy())["epoch"]
    engine.kill("ray::ManagerActor")
    wait_until(lambda: bool(engine.processes("ray::ManagerActor")))

    assert engine.run(engine.until_healthy())["epoch"] > before


def test_a_second_engine_on_the_same_folder_is_refused_and_harms_nothing(engine):
    second = EngineChild(engine.settings, module=MODULE)

    with pytest.raises(StartFailed, match="already runs on"):
        engine.run(second.__aenter__())

    assert engine.run(engine.until_healthy())["ok"]


def test_a_taken_port_is_named(tmp_path):
    with socket.create_server(("127.0.0.1", 0)) as taken:
        url = f"http://127.0.0.1:{taken.getsockname()[1]}"
        with pytest.raises(StartFailed, match=f"{url} cannot be served"), running_engine(tmp_path, module=MODULE, engine_url=url):
            pass


@pytest.mark.parametrize(
    ("command", "steps"),
    [(["engine", "demo", "--jobs", "2", "--steps", "4"], 8), (["engine.bench", "--workload", "peer-plain", "--jobs", "2"], 20)],
    ids=["demo", "bench"],
)
def test_demo_and_bench_use_the_engine_that_is_up_and_write_their_figures(engine, tmp_path, command, steps):
    figures = tmp_path / "deep" / "figures.json"
    environment = {**os.environ, **variables(engine.settings)}

    done = subprocess.run([sys.executable, "-m", *command, "--json", str(figures)], env=environment, cwd=REPOSITORY, capture_output=True)

    assert done.returncode == 0, done.stderr.decode()
    written = json.loads(figures.read_text())
    assert (written["steps"] if "workload" in written else sum(job["steps"] for job in written["jobs"])) == steps
    assert {"rollout_overlap", "train_rollout_overlap", "decode_steps_with_2_adapters"} <= written.keys()


@pytest.mark.parametrize("number", [signal.SIGTERM, signal.SIGKILL])
def test_nothing_stays_behind_however_the_launcher_ends(tmp_path, number):
    with running_engine(tmp_path, module=MODULE) as engine:
        tag = run_file.read(engine.settings)["tag"]
        assert len(reaper.tagged(tag)) >= 6

        os.kill(engine.child.process_id, number)
        engine.run(engine.child.stop())

        assert wait_until(lambda: reaper.tagged(tag) == [])


def test_the_death_of_ray_itself_ends_the_engine_with_an_error(tmp_path):
    with running_engine(tmp_path, module=MODULE) as engine:
        (raylet,) = [pid for pid in run_file.processes(engine.settings) if os.readlink(f"/proc/{pid}/exe").endswith("/raylet")]
        os.kill(raylet, signal.SIGKILL)

        assert engine.run(engine.child.ended()) == 1


def _listeners(engine: TestEngine) -> list[str]:
    """Local addresses on which this engine's processes accept connections."""
    inodes = {link for pid in run_file.processes(engine.settings) for link in _sockets(pid)}
    found = []
    for family in ("tcp", "tcp6"):
        with open(f"/proc/net/{family}") as table:
            rows = [line.split() for line in table.readlines()[1:]]
        found += [_address(row[1]) for row in rows if row[3] == "0A" and f"socket:[{row[9]}]" in inodes]
    return found


def _sockets(pid: int) -> set[str]:
    try:
        return {os.readlink(f"/proc/{pid}/fd/{fd}") for fd in os.listdir(f"/proc/{pid}/fd")}
    except OSError:
        return set()


def _address(hexadecimal: str) -> str:
    host = hexadecimal.partition(":")[0]
    octets = [int(host[-8:][i : i + 2], 16) for i in (6, 4, 2, 0)]
    prefix = "[::ffff:" if len(host) == 32 and host[:24] == "0000000000000000FFFF0000" else ""
    return prefix + ".".join(map(str, octets)) if len(host) == 8 or prefix else f"[{host}]"


def test_two_samplers_and_two_trainers_share_the_work(tmp_path):
    with running_engine(tmp_path, module=MODULE, rollout_replicas=2, train_groups=2) as engine:
        views = engine.play(["add", "max", "reverse"])
        status = engine.run(_status(engine))

    assert {view.state for view in views.values()} == {"succeeded"}
    assert _steps_once(views)
    assert (status["policy"]["train_slots"], status["sampler"]["replicas_alive"]) == (2, 2)
    assert engine.violations() == []


async def _status(engine):
    async with engine.client() as client:
        return await client.status()
