"""The one world of the portal's tests: Alice owns an organisation, Bob is a member, Vera may look, Charlie is a stranger with his own."""

from __future__ import annotations

import io
import json
import time
from dataclasses import dataclass
from datetime import UTC, datetime
from typing import Any

from allauth.account.models import EmailAddress
from allauth.mfa.models import Authenticator
from django.test import Client

from portal.datasets import uploads
from portal.datasets.actions import create_dataset
from portal.datasets.models import Dataset, Upload
from portal.jobs.actions import create_job
from portal.jobs.models import Job
from portal.notices.models import Webhook
from portal.notices.webhooks import create_webhook
from portal.rewards import lab, sheets
from portal.rewards.actions import create_reward
from portal.rewards.models import LabRun, Probe, Reward, Sheet
from portal.rewards.probes import start_probe
from portal.rewards.trial import parse_trial
from tenants import members, tokens
from tenants.actions import create_tenant
from tenants.models import Invitation, Membership, Role, Tenant, User

NOW = datetime(2026, 1, 1, 12, tzinfo=UTC)
PASSWORD = "correct horse"


@dataclass(frozen=True, kw_only=True)
class World:
    alice: User
    bob: User
    vera: User
    charlie: User
    sums: Tenant  # Alice's
    other: Tenant  # Charlie's

    def client(self, user: User, *, proven: bool = False) -> Client:
        """``proven``: the person has just given the password once more."""
        client = Client()
        client.force_login(user)
        if proven:
            session = client.session
            session["account_authentication_methods"] = [{"method": "password", "at": time.time(), "reauthenticated": True}]
            session["account_authentication_methods_user"] = str(user.pk)
            session.save()
        return client

    def api(self, user: User, tenant: Tenant | None = None, **issue: Any) -> Client:
        """A client with a bearer token that expires in 90 days from now."""
        tenant = tenant or user.tenants.order_by("id").first()
        _, text = tokens.issue(tenant, user, "test", issue.pop("now", datetime.now(UTC)), **issue)
        return Client(headers={"Authorization": f"Bearer {text}"})

    def dataset(self, user: User | None = None, rows: int = 40) -> Dataset:
        user = user or self.alice
        return create_dataset(user.tenants.get(), user, "additions", additions(rows))

    def upload(self, user: User | None = None, file: io.BytesIO | None = None, **more: Any) -> Upload:
        """A file that is not stored, since it has an error."""
        user = user or self.alice
        file = file or jsonl({"prompt": "1+1="}, "{broken")
        order = {"name": "mine", "filename": "rows.jsonl", "options": {}, **more}
        return uploads.begin(user.tenants.get(), user, datetime.now(UTC), file=file, **order)

    def sheet(self, user: User | None = None) -> Sheet:
        user = user or self.alice
        return sheets.new_draft(user.tenants.get(), user, {"name": ["mine"], "type": ["numeric"]}, datetime.now(UTC))

    def lab_run(self, user: User | None = None) -> LabRun:
        user = user or self.alice
        trial = parse_trial({"on": {"type": "text", "samples": [{"output_text": "42", "item": {"answer": "42"}}]}})
        return lab.begin_run(user.tenants.get(), user, {"type": "numeric"}, trial, datetime.now(UTC))

    def webhook(self, user: User | None = None) -> Webhook:
        user = user or self.alice
        tenant = user.tenants.get()
        return create_webhook(tenant, user, f"https://hooks.example.org/{tenant.webhooks.count() or ''}")[0]

    def reward(self, user: User | None = None) -> Reward:
        user = user or self.alice
        return create_reward(user.tenants.get(), user, "exact", {"type": "string_check"})

    def probe(self, user: User | None = None, **changes: Any) -> Probe:
        user = user or self.alice
        asked = {"dataset": self.dataset(user).public_id, "base_model": "tiny-math", "rows": 8, **changes}
        return start_probe(user.tenants.get(), user, self.reward(user), asked, datetime.now(UTC))

    def invitation(self, user: User | None = None, email: str = "dora@example.org") -> Invitation:
        user = user or self.alice
        return members.invite(user.tenants.get(), user, email, Role.MEMBER, datetime.now(UTC), lambda invited, secret: "https://x/")

    def order(self, user: User | None = None, **changes: Any) -> dict[str, Any]:
        """A request for a job that the door takes."""
        user = user or self.alice
        return {"dataset": self.dataset(user).public_id, "reward": self.reward(user).public_id, "base_model": "tiny-math", **changes}

    def job(self, user: User | None = None, **changes: Any) -> Job:
        user = user or self.alice
        return create_job(user.tenants.get(), user, self.order(user, **changes), NOW)


def with_factor(user: User) -> User:
    """Operators' pages open to nobody without a second factor."""
    Authenticator.objects.create(user=user, type=Authenticator.Type.TOTP, data={"secret": "x"})
    return user


def build() -> World:
    alice, bob, vera, charlie = (User.objects.create_user(f"{name}@example.org", PASSWORD) for name in ("alice", "bob", "vera", "charlie"))
    addresses = (EmailAddress(user=user, email=user.email, verified=True, primary=True) for user in (alice, bob, vera, charlie))
    EmailAddress.objects.bulk_create(addresses)
    sums, other = create_tenant(alice, "Sums"), create_tenant(charlie, "Other")
    Membership.objects.create(tenant=sums, user=bob, role=Role.MEMBER)
    Membership.objects.create(tenant=sums, user=vera, role=Role.VIEWER)
    return World(alice=alice, bob=bob, vera=vera, charlie=charlie, sums=sums, other=other)


def additions(rows: int) -> io.BytesIO:
    return jsonl(*({"prompt": f"{n}+{n + 1}=", "answer": str(2 * n + 1)} for n in range(rows)))


def jsonl(*rows: Any) -> io.BytesIO:
    """A file of ``rows``; text and bytes stand as they are."""
    lines = [row if isinstance(row, bytes) else (row if isinstance(row, str) else json.dumps(row)).encode() for row in rows]
    file = io.BytesIO(b"".join(line + b"\n" for line in lines))
    file.name = "rows.jsonl"
    return file
