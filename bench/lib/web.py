"""A web application's requests, each in a transaction block, as Django sends them with ATOMIC_REQUESTS: the session and
its user are read by key, then what the page shows; a form writes behind them, and shows what it wrote.
"""

USERS = 10_000
ARTICLES = 20_000
CATEGORIES = 500
COMMENTS = 100_000
SPREAD = 7919  # between the sessions' keys

SCHEMA = [
    "DROP TABLE IF EXISTS comment, article, session, account",
    "CREATE TABLE account (id int PRIMARY KEY, name text, email text, last_login timestamptz)",
    "CREATE TABLE session (key bigint PRIMARY KEY, account int, data text, expires timestamptz)",
    "CREATE TABLE article (id int PRIMARY KEY, author int, category int, title text, body text, comments int)",
    "CREATE TABLE comment (id bigserial PRIMARY KEY, article int, author int, at timestamptz DEFAULT now(), body text)",
    f"INSERT INTO account SELECT g, md5(g::text), md5(g::text) || '@example.org', now() FROM generate_series(1, {USERS}) g",
    f"INSERT INTO session SELECT g * {SPREAD}, g, repeat(md5(g::text), 5), now() + '1 day' FROM generate_series(1, {USERS}) g",
    f"INSERT INTO article SELECT g, g % {USERS} + 1, g % {CATEGORIES}, md5(g::text), repeat(md5(g::text), 30), 5"
    f" FROM generate_series(1, {ARTICLES}) g",
    f"INSERT INTO comment (article, author, body) SELECT g % {ARTICLES} + 1, g % {USERS} + 1, repeat(md5(g::text), 3)"
    f" FROM generate_series(1, {COMMENTS}) g",
    "CREATE INDEX ON article (category)",
    "CREATE INDEX ON comment (article)",
    "ANALYZE account, session, article, comment",
]

_USER = f"\\set user random(1, {USERS})\n\\set key :user * {SPREAD}\n"
_WHO = (
    f"{_USER}\\set article random(1, {ARTICLES})\n\\set category random(0, {CATEGORIES - 1})\n"
    "BEGIN;\nSELECT account, data FROM session WHERE key = :key AND expires > '2020-01-01';\n"
    "SELECT id, name, email, last_login FROM account WHERE id = :user;\n"
)
_ARTICLE = "SELECT id, author, title, body, comments FROM article WHERE id = :article;\n"
_COMMENTS = "SELECT id, author, at, body FROM comment WHERE article = :article ORDER BY id DESC LIMIT 20;\n"

BLOCKS = {
    "list": _WHO + "SELECT id, title, comments FROM article WHERE category = :category ORDER BY id DESC LIMIT 20;\nCOMMIT;\n",
    "page": _WHO + _ARTICLE + _COMMENTS + "COMMIT;\n",
    "form": _WHO + _ARTICLE
    + "INSERT INTO comment (article, author, body) VALUES (:article, :user, 'a comment');\n"
    "UPDATE article SET comments = comments + 1 WHERE id = :article;\n" + _COMMENTS + "COMMIT;\n",
    "login": _USER + "BEGIN;\nSELECT id, name, email FROM account WHERE id = :user;\n"
    "UPDATE account SET last_login = now() WHERE id = :user;\n"
    "UPDATE session SET expires = now() + '1 day' WHERE key = :key;\nCOMMIT;\n",
}
MIXES = {"web requests: 15 % write": {"list": 45, "page": 40, "form": 12, "login": 3}}
