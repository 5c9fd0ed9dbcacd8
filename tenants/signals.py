"""Whatever changes what a person may see makes that person's open connections look again, whichever way it was changed."""

from __future__ import annotations

from typing import Any

from allauth.usersessions.models import UserSession
from django.db.models.signals import post_delete, post_save

from tenants.doors import look_again
from tenants.models import Membership, Tenant, User


def connect() -> None:
    for signal in (post_save, post_delete):
        signal.connect(_of_membership, sender=Membership, dispatch_uid=f"tenants.membership.{id(signal)}")
    post_delete.connect(_of_membership, sender=UserSession, dispatch_uid="tenants.session")
    post_save.connect(_of_user, sender=User, dispatch_uid="tenants.user")
    post_save.connect(_of_tenant, sender=Tenant, dispatch_uid="tenants.tenant")


def _of_membership(sender: Any, instance: Any, **_: Any) -> None:
    look_again(instance.user_id)


def _of_user(sender: Any, instance: User, created: bool, **_: Any) -> None:
    if not created:
        look_again(instance.pk)


def _of_tenant(sender: Any, instance: Tenant, created: bool, **_: Any) -> None:
    if not created:
        look_again(*instance.memberships.values_list("user_id", flat=True))
