"""asyncpg: transactions are asked for; it looks types up in the catalogs when it first meets them."""

import asyncio
import os

import asyncpg
import phases

loop = asyncio.new_event_loop()
login = {name: os.environ[f"PG{name.upper()}"] for name in ("host", "port", "user", "database")}
connection = loop.run_until_complete(asyncpg.connect(**login))


def value(row):
    return connection.fetchval("SELECT text FROM notes WHERE id = $1", row)


async def reads(rows):
    async with connection.transaction():
        return [await value(row) for row in rows]


async def writes(first, second, third):
    async with connection.transaction():
        found = [await value(first), await value(second)]
        await connection.execute("UPDATE notes SET text = text || '!' WHERE id = $1", first)
        return found + [await value(third), await value(first)]


async def snapshot():
    async with connection.transaction(isolation="repeatable_read", readonly=True):
        found = [await value(row) for row in (40, 50)]
        found.append(await connection.fetchval("SELECT mood FROM notes WHERE id = 60"))
        return found + [await value(row) for row in (70, 80)]


phases.run(
    lambda *rows: loop.run_until_complete(reads(rows)),
    lambda *rows: loop.run_until_complete(writes(*rows)),
    snapshot=lambda: [loop.run_until_complete(snapshot())],
)
