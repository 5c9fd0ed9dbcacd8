"""Seals the seeds of second factors that earlier releases stored in plain text."""

from __future__ import annotations

from typing import Any

from django.db import migrations

from portal.accounts.factors import seal_anew


def seal_all(apps: Any, schema_editor: Any) -> None:
    seal_anew(apps.get_model("mfa", "Authenticator").objects.all())


class Migration(migrations.Migration):
    initial = True
    dependencies = [("mfa", "0003_authenticator_type_uniq")]
    # Backwards the seals stay. An earlier release would take them for seeds, so its second factors fail until this one is back.
    operations = [migrations.RunPython(seal_all, migrations.RunPython.noop)]
