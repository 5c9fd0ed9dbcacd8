from __future__ import annotations

import json
from argparse import ArgumentParser
from typing import Any

from allauth.account.models import EmailAddress
from django.core.management.base import BaseCommand
from django.db import transaction
from django.utils import timezone

from tenants.actions import create_token, ensure_own_tenant
from tenants.models import ApiToken, User

TOKEN_NAME = "seed"


class Command(BaseCommand):
    help = "A person with a verified address and an organisation, made once; --token also issues an API token in place of the last one."

    def add_arguments(self, parser: ArgumentParser) -> None:
        parser.add_argument("--email", required=True)
        parser.add_argument("--password", required=True)
        parser.add_argument("--name", help="the organisation's name")
        parser.add_argument("--operator", action="store_true", help="may use the records admin")
        parser.add_argument("--token", action="store_true", help="issue an API token; its text is printed this once")

    def handle(self, *, email: str, password: str, name: str | None, operator: bool, token: bool, **_: Any) -> None:
        with transaction.atomic():
            user = _user(email.lower(), password, operator)
            tenant = ensure_own_tenant(user)
            if name and tenant.name != name:
                tenant.name = name
                tenant.save(update_fields=["name"])
            text = _fresh_token(user, tenant) if token else None
        self.stdout.write(json.dumps({"email": user.email, "tenant": tenant.public_id, "token": text}))


def _user(email: str, password: str, operator: bool) -> User:
    user = User.objects.filter(email=email).first() or User.objects.create_user(email, password)
    if not user.check_password(password):
        user.set_password(password)
        user.save(update_fields=["password"])
    if operator and not user.is_superuser:
        user.is_staff = user.is_superuser = True
        user.save(update_fields=["is_staff", "is_superuser"])
    EmailAddress.objects.update_or_create(user=user, email=email, defaults={"verified": True, "primary": True})
    return user


def _fresh_token(user: User, tenant: Any) -> str:
    now = timezone.now()
    ApiToken.objects.filter(tenant=tenant, user=user, name=TOKEN_NAME, revoked_at=None).update(revoked_at=now)
    return create_token(tenant, user, TOKEN_NAME, now)[1]
