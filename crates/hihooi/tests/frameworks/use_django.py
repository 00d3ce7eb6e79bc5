"""Django's models, a transaction for each request (ATOMIC_REQUESTS)."""

import os

import django
import phases
from django.conf import settings
from django.db import connection, models
from django.http import JsonResponse
from django.test import RequestFactory
from django.urls import path

settings.configure(
    ROOT_URLCONF=__name__,
    ALLOWED_HOSTS=["*"],
    USE_TZ=True,
    DATABASES={
        "default": {
            "ENGINE": "django.db.backends.postgresql",
            "HOST": os.environ["PGHOST"],
            "PORT": os.environ["PGPORT"],
            "USER": os.environ["PGUSER"],
            "NAME": os.environ["PGDATABASE"],
            "ATOMIC_REQUESTS": True,
            "CONN_MAX_AGE": None,
        }
    },
)
django.setup()


class Note(models.Model):
    text = models.TextField()

    class Meta:
        app_label = "notes"
        db_table = "notes"


def reads(_, rows):
    found = [Note.objects.get(pk=row).text for row in rows.split("-")]
    return JsonResponse(found, safe=False)


def writes(_, rows):
    first, second, third = rows.split("-")
    note = Note.objects.get(pk=first)
    found = [note.text, Note.objects.get(pk=second).text]
    note.text += "!"
    note.save()
    found += [Note.objects.get(pk=third).text, Note.objects.get(pk=first).text]
    return JsonResponse(found, safe=False)


urlpatterns = [path("read/<rows>", reads), path("write/<rows>", writes)]


def ask(url):
    from django.core.handlers.wsgi import WSGIHandler

    request = RequestFactory().get(url)
    return handler().get_response(request).content.decode()


def handler(made=[]):
    from django.core.handlers.wsgi import WSGIHandler

    if not made:
        made.append(WSGIHandler())
    return made[0]


def of(kind):
    return lambda *rows: ask(f"/{kind}/" + "-".join(map(str, rows)))


connection.ensure_connection()
phases.run(of("read"), of("write"))
