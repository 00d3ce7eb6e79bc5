"""psycopg or psycopg2, whichever is named, as it is by default: the first statement begins a transaction."""

import importlib
import sys

import phases

connection = importlib.import_module(sys.argv[1]).connect("")
cursor = connection.cursor()


def value(row):
    cursor.execute("SELECT text FROM notes WHERE id = %s", (row,))
    return cursor.fetchone()[0]


def read(*rows):
    found = [value(row) for row in rows]
    connection.commit()
    return found


def write(first, second, third):
    found = [value(first), value(second)]
    cursor.execute("UPDATE notes SET text = text || '!' WHERE id = %s", (first,))
    found += [cursor.rowcount, value(third), value(first)]
    connection.commit()
    return found


phases.run(read, write)
