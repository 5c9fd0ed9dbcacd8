"""The commands. Each is: ask the API, show the answer. ``--json`` shows it as it came; exit codes are for scripts.

0 done · 1 refused, or the watched job failed · 2 wrong usage · 3 not signed in or not allowed · 4 not there · 5 the site does not answer ·
6 the watched job was cancelled
"""

from __future__ import annotations

import json
import sys
import time
from collections.abc import Iterable
from dataclasses import dataclass
from pathlib import Path
from typing import Annotated, Any

import httpx
import typer
from rich.console import Console
from rich.live import Live
from rich.progress import BarColumn, DownloadColumn, Progress, TextColumn, TransferSpeedColumn
from rich.table import Table
from rich.text import Text

from portal.cli import config as configs
from portal.cli.client import NOT_ALLOWED, REFUSED, Client, Failed
from portal.cli.watching import Watched

CANCELLED = 6
_ENDINGS = {"succeeded": 0, "failed": REFUSED, "cancelled": CANCELLED}
LOOK_SECONDS = 0.5
_RETENTION = "/organisation/retention/"
_UNSAID = -1

app = typer.Typer(no_args_is_help=True, help="Fine-tune models by reinforcement learning, from a terminal.")
datasets = typer.Typer(no_args_is_help=True, help="Datasets.")
rewards = typer.Typer(no_args_is_help=True, help="Rewards.")
jobs = typer.Typer(no_args_is_help=True, help="Jobs.")
adapters = typer.Typer(no_args_is_help=True, help="Adapters.")
retention = typer.Typer(no_args_is_help=True, help="How long what ended jobs left is kept.")
for name, group in (("datasets", datasets), ("rewards", rewards), ("jobs", jobs), ("adapters", adapters), ("retention", retention)):
    app.add_typer(group, name=name)


@dataclass(kw_only=True)
class Context:
    """``transport`` is for tests."""

    json: bool
    transport: httpx.BaseTransport | None = None

    @property
    def client(self) -> Client:
        return Client(_config(), self.transport)

    def show(self, answer: Any, table: Table | None = None) -> None:
        if self.json or table is None:
            typer.echo(json.dumps(answer, ensure_ascii=False, indent=None if self.json else 1))
        else:
            Console().print(table)


@app.callback()
def common(ctx: typer.Context, as_json: Annotated[bool, typer.Option("--json", help="Print the API's own answers.")] = False) -> None:
    ctx.obj = Context(json=as_json, transport=ctx.obj if isinstance(ctx.obj, httpx.BaseTransport) else None)


@app.command()
def login(
    ctx: typer.Context,
    url: Annotated[str, typer.Option(help="The site.")] = "",
    token: Annotated[str, typer.Option(help="An API token; asked for when it is left out, so that no shell keeps it.")] = "",
) -> None:
    """Keep a token for the commands that follow."""
    site = _address(url) if url else _config().url
    token = token or typer.prompt("API token (Settings, API tokens)", hide_input=True)
    chosen = configs.Config(url=site, token=token.strip())
    me = Client(chosen, ctx.obj.transport).get("/me/")
    place = configs.save(chosen)
    if ctx.obj.json:
        return ctx.obj.show(me)
    typer.echo(f"Signed in at {chosen.url} as {me['email']}, {me['role']} of {me['tenant']['name']}. Kept in {place}.")
    return None


@app.command()
def whoami(ctx: typer.Context) -> None:
    """Whose token it is, and what it may do."""
    me = ctx.obj.client.get("/me/")
    ctx.obj.show(
        me, _pairs({"person": me["email"], "organisation": me["tenant"]["name"], "role": me["role"], "may": " ".join(me["scopes"])})
    )


@datasets.command("list")
def list_datasets(ctx: typer.Context, limit: Annotated[int, typer.Option(min=1, max=10_000)] = 20) -> None:
    """The newest first."""
    rows = ctx.obj.client.pages("/datasets/", limit)
    ctx.obj.show(rows, _table(("id", "name", "rows"), rows))


@datasets.command()
def upload(
    ctx: typer.Context,
    file: Annotated[Path, typer.Argument(exists=True, dir_okay=False, readable=True, help="JSONL, CSV or Parquet.")],
    name: Annotated[str, typer.Option(help="[default: the file's]")] = "",
    eval_share: Annotated[float | None, typer.Option(help="Share of the rows that is held out.")] = None,
) -> None:
    """Check and store a file of prompts."""
    data = {"name": name or file.stem, **({} if eval_share is None else {"eval_share": str(eval_share)})}
    with _progress() as progress, progress.open(file, "rb", description=file.name) as content:
        made = ctx.obj.client.post("/datasets/", data=data, files={"file": (file.name, content)})
    ctx.obj.show(made, _pairs({name: made[name] for name in ("id", "name", "rows")}))


@datasets.command("delete")
def delete_dataset(
    ctx: typer.Context,
    dataset: Annotated[str, typer.Argument()],
    yes: Annotated[bool, typer.Option("--yes", "-y", help="Without asking.")] = False,
) -> None:
    """For good; one that a job was made of stays."""
    _delete(ctx, "datasets", dataset, "with all its rows", yes)


@rewards.command("list")
def list_rewards(ctx: typer.Context, limit: Annotated[int, typer.Option(min=1, max=10_000)] = 20) -> None:
    """The newest first."""
    rows = ctx.obj.client.pages("/rewards/", limit)
    ctx.obj.show(rows, _table(("id", "name"), rows))


@rewards.command("create")
def create_reward(
    ctx: typer.Context, name: Annotated[str, typer.Argument()], grader: Annotated[Path, typer.Argument(exists=True, dir_okay=False)]
) -> None:
    """Store the grader in a JSON file."""
    made = ctx.obj.client.post("/rewards/", json={"name": name, "grader": _json_file(grader)})
    ctx.obj.show(made, _pairs({"id": made["id"], "name": made["name"]}))


@rewards.command("delete")
def delete_reward(
    ctx: typer.Context,
    reward: Annotated[str, typer.Argument()],
    yes: Annotated[bool, typer.Option("--yes", "-y", help="Without asking.")] = False,
) -> None:
    """One that a job is learning from stays; jobs that have ended keep their copy."""
    _delete(ctx, "rewards", reward, "with its trials and probes", yes)


def _delete(ctx: typer.Context, noun: str, identity: str, along: str, yes: bool) -> None:
    if not yes:
        typer.confirm(f"Delete {identity} {along}?", abort=True)
    ctx.obj.client.delete(f"/{noun}/{identity}/")
    if ctx.obj.json:
        ctx.obj.show({"id": identity, "deleted": True})
    else:
        typer.echo(f"{identity} is deleted.")


@rewards.command("test")
def test_reward(
    ctx: typer.Context,
    reward: Annotated[str, typer.Argument(help="A reward's id (rw_…) or a JSON file with a grader.")],
    output: Annotated[str, typer.Option(help="What the model would say.")],
    item: Annotated[str, typer.Option(help="The row's columns, as JSON.")] = "{}",
) -> None:
    """What a reward gives a text; a grading that fails ends with 1."""
    client, sample = ctx.obj.client, {"output_text": output, "item": _json(item, "--item")}
    trial: dict[str, Any] = {"on": {"type": "text", "samples": [sample]}}
    path = "/rewards/run/" if (file := Path(reward)).is_file() else f"/rewards/{reward}/run/"
    run = client.post(path, json={**trial, **({"grader": _json_file(file)} if file.is_file() else {})})
    while run["state"] in ("waiting", "running"):
        time.sleep(LOOK_SECONDS)
        run = client.get(f"/reward-runs/{run['id']}/")
    cases = client.get(f"/reward-runs/{run['id']}/cases/")["cases"]
    outcomes = [outcome for case in cases for outcome in case["outcomes"] or ()]
    ctx.obj.show({**run, "cases": cases}, _table(("reward", "error"), outcomes))
    if not outcomes or any(outcome.get("reward") is None for outcome in outcomes):
        raise typer.Exit(REFUSED)


@jobs.command("create")
def create_job(
    ctx: typer.Context,
    spec: Annotated[Path | None, typer.Argument(exists=True, dir_okay=False, help="A JSON file in the shape of POST /jobs.")] = None,
    dataset: Annotated[str, typer.Option()] = "",
    reward: Annotated[str, typer.Option()] = "",
    model: Annotated[str, typer.Option(help="One of the site's base models.")] = "",
    name: Annotated[str, typer.Option()] = "",
    steps: Annotated[int | None, typer.Option(min=1)] = None,
    watch: Annotated[bool, typer.Option("--watch", help="Stay and watch it.")] = False,
) -> None:
    """Start a job; options overrule the file."""
    order = _json_file(spec) if spec else {}
    given = {"dataset": dataset, "reward": reward, "base_model": model, "name": name}
    order |= {field: value for field, value in given.items() if value}
    if steps is not None:
        order["train"] = {**order.get("train", {}), "steps": steps}
    job = ctx.obj.client.post("/jobs/", json=order)
    if watch:
        return _watch(ctx.obj, job)
    ctx.obj.show(job, _pairs({field: job[field] for field in ("id", "name", "state")}))
    return None


@jobs.command("list")
def list_jobs(ctx: typer.Context, limit: Annotated[int, typer.Option(min=1, max=10_000)] = 20) -> None:
    """The newest first."""
    rows = ctx.obj.client.pages("/jobs/", limit)
    ctx.obj.show(rows, _table(("id", "name", "state", "version", "steps"), rows))


@jobs.command("show")
def show_job(ctx: typer.Context, job: str) -> None:
    """One job with its configuration."""
    found = ctx.obj.client.get(f"/jobs/{job}/")
    ctx.obj.show(
        found, _pairs({field: found[field] for field in ("id", "name", "state", "state_reason", "version", "steps", "base_model")})
    )


@jobs.command()
def watch(ctx: typer.Context, job: str) -> None:
    """Its curve, live, until it ends; the exit code says how. With --json, or into a file, each event as a line."""
    _watch(ctx.obj, ctx.obj.client.get(f"/jobs/{job}/"))


@jobs.command()
def logs(
    ctx: typer.Context, job: str, after: Annotated[int, typer.Option(min=0, help="Events with a higher number.")] = 0,
    follow: Annotated[bool, typer.Option("--follow", "-f", help="Go on until the job ends.")] = False,
) -> None:  # fmt: skip
    """Its events, one a line."""
    client = ctx.obj.client
    if follow:
        return _lines(ctx.obj, client.events(job, after))
    while events := client.get(f"/jobs/{job}/events/", after=after)["events"]:
        _lines(ctx.obj, events)
        after = events[-1]["seq"]
    return None


@jobs.command()
def cancel(ctx: typer.Context, job: str) -> None:
    """A training step under way still commits."""
    _command(ctx.obj, job, "cancel")


@jobs.command()
def pause(ctx: typer.Context, job: str) -> None:
    """After the step under way."""
    _command(ctx.obj, job, "pause")


@jobs.command()
def resume(ctx: typer.Context, job: str) -> None:
    """Go on with a paused job."""
    _command(ctx.obj, job, "resume")


@adapters.command()
def download(
    ctx: typer.Context,
    job: str,
    version: Annotated[str, typer.Option(help="A step's number.")] = "latest",
    output: Annotated[Path | None, typer.Option("--output", "-o", dir_okay=False, help="[default: JOB-VERSION.zip]")] = None,
) -> None:
    """A LoRA adapter in PEFT's layout, as a zip archive."""
    place = output or Path(f"{job}-{version}.zip")
    with _progress() as progress:
        task = progress.add_task(place.name, total=None)
        size = ctx.obj.client.download(
            f"/jobs/{job}/adapters/{version}/", place, lambda done, total: progress.update(task, completed=done, total=total)
        )
    ctx.obj.show({"path": str(place), "bytes": size}, _pairs({"file": str(place), "bytes": f"{size:,}"}))


@retention.command("show")
def show_retention(ctx: typer.Context) -> None:
    """The rules, and what is due by them."""
    found = ctx.obj.client.get(_RETENTION)
    ctx.obj.show(found, _kept(found))


@retention.command("set")
def set_retention(
    ctx: typer.Context,
    completions: Annotated[str, typer.Option(help="Days after a job has ended until what it sampled goes, or: forever")] = "",
    versions: Annotated[str, typer.Option(help="Days after a job has ended until its checkpoints go, or: forever")] = "",
    look: Annotated[bool, typer.Option("--look", help="Only show what these rules would delete now.")] = False,
    yes: Annotated[bool, typer.Option("--yes", "-y", help="Without asking.")] = False,
) -> None:
    """What is not named stays as it is. The latest, best and kept checkpoints, and those that a job begins with, never go."""
    asked = {"completions_days": _days(completions, "--completions"), "versions_days": _days(versions, "--versions")}
    wanted = {name: days for name, days in asked.items() if days != _UNSAID}
    if not wanted:
        raise typer.BadParameter("name a rule, as in --completions 30 or --versions forever")
    if look or not yes:
        would = ctx.obj.client.patch(_RETENTION, json={**wanted, "dry_run": True})
        if look:
            return ctx.obj.show(would, _kept(would))
        typer.confirm(f"By these rules {_due(would)} would go within the hour, for good. Set them?", abort=True, err=True)
    done = ctx.obj.client.patch(_RETENTION, json=wanted)
    ctx.obj.show(done, _kept(done))
    return None


def main() -> None:
    """The console script: a failure is one sentence on standard error and an exit code."""
    try:
        app(prog_name="marl")
    except Failed as failed:
        typer.echo(f"marl: {failed}", err=True)
        for problem in failed.problems[1:]:
            typer.echo(f"      {problem['field']}: {problem['message']}", err=True)
        if failed.exit_code == NOT_ALLOWED and "marl login" not in str(failed):
            typer.echo("      marl login keeps another token", err=True)
        sys.exit(failed.exit_code)


def _watch(context: Context, job: dict[str, Any]) -> None:
    console, client = Console(), context.client
    seen = Watched(name=f"{job['name']} ({job['id']})", steps=job["steps"], state=job["state"])
    if context.json or not console.is_terminal:
        for event in client.events(job["id"]):
            seen.take(event)
            _lines(context, [event])
    else:
        with Live(seen.draw(console.width), console=console, refresh_per_second=8) as live:
            for event in client.events(job["id"]):
                seen.take(event)
                live.update(seen.draw(console.width))
    raise typer.Exit(_ENDINGS.get(client.get(f"/jobs/{job['id']}/")["state"], 0))


def _command(context: Context, job: str, kind: str) -> None:
    found = context.client.post(f"/jobs/{job}/{kind}/")
    known = "paused already; it stays so" if kind == "pause" and found["state"] == "paused" else f"{found['state']}; {kind} is on its way"
    context.show(found, _pairs({"id": found["id"], "state": known}))


def _days(text: str, option: str) -> int | None:
    """``_UNSAID`` for an option that was not given, None for ever."""
    if text in ("", "forever"):
        return None if text else _UNSAID
    if not text.isascii() or not text.isdigit() or int(text) < 1:
        raise typer.BadParameter(f"{option} takes a number of days, or: forever")
    return int(text)


def _kept(found: dict[str, Any]) -> Table:
    words = {name: found[f"{name}_days"] for name in ("completions", "versions")}
    told = {name: f"{days} days after a job has ended" if days else "for ever" for name, days in words.items()}
    return _pairs({**told, "due": _due(found)})


def _due(found: dict[str, Any]) -> str:
    jobs, versions = found["due"]["completions"], found["due"]["versions"]
    return f"completions of {jobs} job{'' if jobs == 1 else 's'} and {versions} checkpoint{'' if versions == 1 else 's'}"


def _config() -> configs.Config:
    try:
        return configs.load()
    except ValueError as error:
        raise typer.BadParameter(str(error)) from None


def _address(url: str) -> str:
    try:
        return configs.address(url, "--url")
    except ValueError as error:
        raise typer.BadParameter(str(error)) from None


def _lines(context: Context, events: Iterable[dict[str, Any]]) -> None:
    for event in events:
        if context.json:
            typer.echo(json.dumps(event, ensure_ascii=False))
        else:
            typer.echo(f"{event['seq']:>6}  {event['at']}  {event['kind']:<16}  {json.dumps(event['data'], ensure_ascii=False)[:400]}")


def _progress() -> Progress:
    columns = (TextColumn("{task.description}"), BarColumn(), DownloadColumn(), TransferSpeedColumn())
    return Progress(*columns, console=Console(stderr=True), transient=True)


def _table(columns: tuple[str, ...], rows: list[dict[str, Any]]) -> Table:
    table = Table(*columns, box=None, header_style="dim")
    for row in rows:
        table.add_row(*(Text("" if row.get(column) is None else str(row[column])) for column in columns))  # a name is no markup
    return table


def _pairs(facts: dict[str, Any]) -> Table:
    table = Table.grid(padding=(0, 2))
    for name, value in facts.items():
        table.add_row(Text(name, style="dim"), Text(str(value)))
    return table


def _json_file(path: Path) -> dict[str, Any]:
    return _json(path.read_text(), str(path))


def _json(text: str, where: str) -> dict[str, Any]:
    try:
        value = json.loads(text)
    except ValueError as error:
        raise typer.BadParameter(f"{where} is no JSON: {error}") from None
    if not isinstance(value, dict):
        raise typer.BadParameter(f"{where} must be an object, as in {{…}}")
    return value


if __name__ == "__main__":
    main()
