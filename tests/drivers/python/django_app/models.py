"""What use_django.py does its work with."""

from django.db import models


class Account(models.Model):
    owner = models.TextField(unique=True)
    balance = models.IntegerField(default=0)
    mood = models.TextField(null=True, choices=[("sad", "sad"), ("happy", "happy")])
    notes = models.JSONField(default=dict)

    class Meta:
        db_table = "django_accounts"
        indexes = [models.Index(fields=["balance"], name="django_accounts_balance")]
