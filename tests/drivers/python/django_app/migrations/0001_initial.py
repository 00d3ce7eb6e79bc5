"""The table, without the column that the next migration adds."""

from django.db import migrations, models


class Migration(migrations.Migration):
    initial = True
    operations = [
        migrations.CreateModel(
            name="Account",
            fields=[
                ("id", models.BigAutoField(auto_created=True, primary_key=True, serialize=False, verbose_name="ID")),
                ("owner", models.TextField(unique=True)),
                ("balance", models.IntegerField(default=0)),
                ("mood", models.TextField(choices=[("sad", "sad"), ("happy", "happy")], null=True)),
            ],
            options={"db_table": "django_accounts"},
        ),
        migrations.AddIndex("Account", models.Index(fields=["balance"], name="django_accounts_balance")),
    ]
