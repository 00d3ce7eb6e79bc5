"""psycopg, as it is by default: the first statement begins a transaction."""

import phases
import psycopg

connection = psycopg.connect("")
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
