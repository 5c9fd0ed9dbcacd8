from django.db import migrations, models

import tenants.models


def give_ids(apps, schema_editor):
    Membership = apps.get_model("tenants", "Membership")
    for membership in Membership.objects.filter(public_id=None).iterator():
        membership.public_id = tenants.models.membership_id()
        membership.save(update_fields=["public_id"])


class Migration(migrations.Migration):
    dependencies = [("tenants", "0002_accounts")]
    operations = [
        migrations.AddField("membership", "public_id", models.CharField(max_length=32, null=True, editable=False)),
        migrations.RunPython(give_ids, migrations.RunPython.noop),
        migrations.AlterField(
            "membership",
            "public_id",
            models.CharField(default=tenants.models.membership_id, editable=False, max_length=32, unique=True),
        ),
    ]
