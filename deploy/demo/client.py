"""One tenant's calls to the product's own API, with its API token: nothing here that a customer could not do."""

from __future__ import annotations

from typing import Any

import httpx

from deploy.demo.plan import EVAL_SHARE, Order

CALL_SECONDS = 60.0


class Refused(RuntimeError):
    """The API said no; the text is what it said."""


class Tenant:
    def __init__(self, url: str, token: str, order: Order, transport: httpx.AsyncBaseTransport | None = None):
        self.order = order
        self.job = ""
        headers = {"Authorization": f"Bearer {token}"}
        self._http = httpx.AsyncClient(base_url=f"{url}/api/v1", headers=headers, timeout=CALL_SECONDS, transport=transport)

    async def start_job(self) -> str:
        """Upload the dataset, make the reward, start the job; returns its id."""
        order = self.order
        upload = {"file": (f"{order.task}.jsonl", order.dataset(), "application/jsonl")}
        dataset = await self._call(
            "POST", "/datasets/", files=upload, data={"name": f"{order.task} problems", "eval_share": str(EVAL_SHARE)}
        )
        reward = await self._call("POST", "/rewards/", json={"name": f"{order.task}: right answer", "grader": order.grader})
        body = {"name": f"learn to {order.task}", "dataset": dataset["id"], "reward": reward["id"], **order.spec}
        self.job = (await self._call("POST", "/jobs/", json=body))["id"]
        return self.job

    async def events(self, after: int) -> list[dict[str, Any]]:
        return (await self._call("GET", f"/jobs/{self.job}/events/", params={"after": after}))["events"]

    async def close(self) -> None:
        await self._http.aclose()

    async def _call(self, method: str, path: str, **content: Any) -> Any:
        answer = await self._http.request(method, path, **content)
        if answer.is_error:
            raise Refused(f"{method} {path} for {self.order.tenant}: {answer.status_code} {answer.text[:2000]}")
        return answer.json()
