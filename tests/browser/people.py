"""Somebody with an organisation in the running stack, acting through the REST API, so that a browser test begins where it wants to."""

from __future__ import annotations

import io
import json
from dataclasses import dataclass
from typing import Any

import httpx

from tests.browser.stack import Stack

PASSWORD = "correct-horse-battery"
# An operator with a second factor, and a session that has passed it; the last line printed is its key.
OPERATOR = """
from importlib import import_module
from allauth.mfa.models import Authenticator
from django.conf import settings
from django.contrib.auth import BACKEND_SESSION_KEY, HASH_SESSION_KEY, SESSION_KEY
from tenants.models import User
user = User.objects.filter(email="op@example.org").first() or User.objects.create_user("op@example.org", "correct horse", is_staff=True)
Authenticator.objects.get_or_create(user=user, type=Authenticator.Type.TOTP, defaults={"data": {"secret": "x"}})
session = import_module(settings.SESSION_ENGINE).SessionStore()
session[SESSION_KEY] = str(user.pk)
session[BACKEND_SESSION_KEY] = settings.AUTHENTICATION_BACKENDS[0]
session[HASH_SESSION_KEY] = user.get_session_auth_hash()
session.save()
print(session.session_key)
"""


@dataclass(frozen=True, kw_only=True)
class Person:
    email: str
    api: httpx.Client

    def dataset(self, name: str = "additions", rows: int = 200) -> str:
        lines = (json.dumps({"prompt": f"{n}+{n + 1}=", "answer": str(2 * n + 1)}) for n in range(rows))
        file = io.BytesIO("\n".join(lines).encode())
        return self._made(self.api.post("datasets/", data={"name": name}, files={"file": ("rows.jsonl", file)}))

    def reward(self, name: str = "Right sum") -> str:
        return self._made(self.api.post("rewards/", json={"name": name, "grader": {"type": "numeric"}}))

    def probed(self) -> str:
        """A reward whose probe is done."""
        reward = self.reward("Probed")
        order = {"reward": reward, "dataset": self.dataset("to probe"), "base_model": "tiny-math", "rows": 16}
        probe = self.api.post("probes/", json=order).raise_for_status().json()
        while probe["state"] in ("waiting", "running"):
            probe = self.api.get(f"probes/{probe['id']}/").json()
        return reward

    def job(self, steps: int, name: str = "Sums", **more: Any) -> str:
        order = {
            "name": name,
            "dataset": self.dataset(),
            "reward": self.reward(),
            "base_model": "tiny-math",
            "train": {"steps": steps},
            **more,
        }
        return self._made(self.api.post("jobs/", json=order))

    def events(self, job: str) -> list[dict[str, Any]]:
        """Every event that the portal has stored."""
        found: list[dict[str, Any]] = []
        while page := self.api.get(f"jobs/{job}/events/", params={"after": len(found)}).json()["events"]:
            found += page
        return found

    def _made(self, response: httpx.Response) -> str:
        if response.status_code != 201:
            raise AssertionError(f"{response.request.url} answered {response.status_code}: {response.text}")
        return response.json()["id"]


def seed(stack: Stack, email: str, name: str) -> Person:
    made = json.loads(stack.manage("seed_tenant", "--email", email, "--password", PASSWORD, "--name", name, "--token"))
    headers = {"Authorization": f"Bearer {made['token']}"}
    return Person(email=email, api=httpx.Client(base_url=f"{stack.url}/api/v1/", headers=headers, timeout=30, trust_env=False))


def operator_session(stack: Stack) -> str:
    """The session cookie of somebody who may use the console."""
    return stack.manage("shell", "-c", OPERATOR).split()[-1]
