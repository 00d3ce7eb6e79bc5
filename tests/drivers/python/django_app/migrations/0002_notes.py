"""A column is added, and filled by Python."""

from django.db import migrations, models


def fill(apps, _):
    apps.get_model("django_app", "Account").objects.update(notes={})


class Migration(migrations.Migration):
    dependencies = [("django_app", "0001_initial")]
    operations = [
        migrations.AddField("Account", "notes", models.JSONField(default=dict)),
        migrations.RunPython(fill, migrations.RunPython.noop),
    ]
