"""How one person wants to be told in one organisation, and how far they have read."""

from __future__ import annotations

from portal.notices.models import NoticeSetting
from tenants.models import Tenant, User


def setting_of(tenant: Tenant, user: User) -> NoticeSetting:
    """The stored one, or what holds while nobody has chosen."""
    return NoticeSetting.objects.filter(tenant=tenant, user=user).first() or NoticeSetting(tenant=tenant, user=user)


def want_mail(tenant: Tenant, user: User, *, wanted: bool) -> None:
    NoticeSetting.objects.update_or_create(tenant=tenant, user=user, defaults={"email": wanted})


def read_up_to(tenant: Tenant, user: User, notice_id: int) -> None:
    """Never back: an older page that is looked at again makes nothing new."""
    setting, made = NoticeSetting.objects.get_or_create(tenant=tenant, user=user, defaults={"read_id": notice_id})
    if not made:
        NoticeSetting.objects.filter(pk=setting.pk, read_id__lt=notice_id).update(read_id=notice_id)


def unread(tenant: Tenant, user: User) -> int:
    """How many notices came since this person looked, at most a hundred; two small queries."""
    seen = NoticeSetting.objects.filter(tenant=tenant, user=user).values_list("read_id", flat=True).first() or 0
    return tenant.notices.filter(pk__gt=seen)[:100].count()
