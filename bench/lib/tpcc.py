"""TPC-C's transactions as pgbench scripts: with their reads in autocommit and their writes in a block, and (BLOCKS) as
blocks that read and write as in the standard. The tables are the
standard's with their keys, a tenth as large; of the columns, those that the transactions use. Departures: an order
has always ten lines, of one item from each tenth of the items (so that orders don't deadlock); no remote
warehouses; Delivery commits each district by itself; where the standard reads and then writes a district's next
order, the write returns it, as nothing else would be right outside of a transaction.
"""

import random

WAREHOUSES = 10
DISTRICTS = 10
CUSTOMERS = 300  # of a district, and as many orders
NAMES = 100
ITEMS = 10_000
LINES = 10
UNDELIVERED = 210  # orders above this number are new

TABLES = {
    "warehouse": "w_id int PRIMARY KEY, w_name text, w_street_1 text, w_city text, w_tax numeric(4,4), "
    "w_ytd numeric(12,2)",
    "district": "d_w_id int, d_id int, d_name text, d_street_1 text, d_city text, d_tax numeric(4,4), "
    "d_ytd numeric(12,2), d_next_o_id int, PRIMARY KEY (d_w_id, d_id)",
    "customer": "c_w_id int, c_d_id int, c_id int, c_first text, c_middle text, c_last text, c_credit text, "
    "c_discount numeric(4,4), c_balance numeric(12,2), c_ytd_payment numeric(12,2), c_payment_cnt int, "
    "c_delivery_cnt int, c_data text, PRIMARY KEY (c_w_id, c_d_id, c_id)",
    "history": "h_c_id int, h_c_d_id int, h_c_w_id int, h_d_id int, h_w_id int, h_date timestamp, "
    "h_amount numeric(6,2), h_data text",
    "item": "i_id int PRIMARY KEY, i_name text, i_price numeric(5,2), i_data text",
    "stock": "s_w_id int, s_i_id int, s_quantity int, s_dist_01 text, s_ytd int, s_order_cnt int, s_data text, "
    "PRIMARY KEY (s_w_id, s_i_id)",
    "orders": "o_w_id int, o_d_id int, o_id int, o_c_id int, o_entry_d timestamp, o_carrier_id int, o_ol_cnt int, "
    "PRIMARY KEY (o_w_id, o_d_id, o_id)",
    "new_order": "no_w_id int, no_d_id int, no_o_id int, PRIMARY KEY (no_w_id, no_d_id, no_o_id)",
    "order_line": "ol_w_id int, ol_d_id int, ol_o_id int, ol_number int, ol_i_id int, ol_delivery_d timestamp, "
    "ol_quantity int, ol_amount numeric(6,2), ol_dist_info text, "
    "PRIMARY KEY (ol_w_id, ol_d_id, ol_o_id, ol_number)",
}


def _numbers(**most):
    """FROM generate_series of each name, all of them combined."""
    return " FROM " + ", ".join(f"generate_series(1, {top}) {name}" for name, top in most.items())


ROWS = {
    "warehouse": "w, 'name', 'street', 'city', 0.1, 30000" + _numbers(w=WAREHOUSES),
    "district": f"w, d, 'name', 'street', 'city', 0.1, 3000, {CUSTOMERS + 1}"
    + _numbers(w=WAREHOUSES, d=DISTRICTS),
    "customer": f"w, d, c, md5(c::text), 'OE', c % {NAMES}, 'GC', 0.1, -10, 10, 1, 0, repeat(md5(c::text), 12)"
    + _numbers(w=WAREHOUSES, d=DISTRICTS, c=CUSTOMERS),
    "history": "c, d, w, d, w, now(), 10, 'data'" + _numbers(w=WAREHOUSES, d=DISTRICTS, c=CUSTOMERS),
    "item": "i, 'item', 1 + i % 99, md5(i::text)" + _numbers(i=ITEMS),
    "stock": "w, i, 10 + i % 91, md5(i::text), 0, 0, md5(i::text)" + _numbers(w=WAREHOUSES, i=ITEMS),
    "orders": f"w, d, o, o * 7 % {CUSTOMERS} + 1, now(), CASE WHEN o <= {UNDELIVERED} THEN 1 END, {LINES}"
    + _numbers(w=WAREHOUSES, d=DISTRICTS, o=CUSTOMERS),
    "new_order": f"w, d, o + {UNDELIVERED}" + _numbers(w=WAREHOUSES, d=DISTRICTS, o=CUSTOMERS - UNDELIVERED),
    "order_line": f"w, d, o, n, (o * 37 + n * 101) % {ITEMS} + 1, CASE WHEN o <= {UNDELIVERED} THEN now() END, "
    "5, 10, 'info'" + _numbers(w=WAREHOUSES, d=DISTRICTS, o=CUSTOMERS, n=LINES),
}

SCHEMA = [
    statement
    for name, columns in TABLES.items()
    for statement in (
        f"DROP TABLE IF EXISTS {name}",
        f"CREATE TABLE {name} ({columns})",
        f"INSERT INTO {name} SELECT {ROWS[name]}",
        f"ANALYZE {name}",
    )
]

READS = {
    "warehouse by key": "SELECT w_name, w_street_1, w_city, w_tax FROM warehouse WHERE w_id = :w",
    "district by key": "SELECT d_name, d_street_1, d_city, d_tax FROM district WHERE d_w_id = :w AND d_id = :d",
    "district's next order": "SELECT d_next_o_id FROM district WHERE d_w_id = :w AND d_id = :d",
    "customer's discount by key": "SELECT c_discount, c_last, c_credit FROM customer "
    "WHERE c_w_id = :w AND c_d_id = :d AND c_id = :c",
    "customer's balance by key": "SELECT c_first, c_middle, c_last, c_credit, c_balance FROM customer "
    "WHERE c_w_id = :w AND c_d_id = :d AND c_id = :c",
    "customer's balance by name": "SELECT c_id AS c, c_first, c_middle, c_credit, c_balance FROM customer "
    "WHERE c_w_id = :w AND c_d_id = :d AND c_last = :name ORDER BY c_first LIMIT 1 OFFSET 1",
    "item by key": "SELECT i_price AS price, i_name, i_data FROM item WHERE i_id = :i",
    "stock by key": "SELECT s_quantity, s_data, s_dist_01 FROM stock WHERE s_w_id = :w AND s_i_id = :i",
    "customer's last order": "SELECT o_id AS o, o_carrier_id, o_entry_d FROM orders "
    "WHERE o_w_id = :w AND o_d_id = :d AND o_c_id = :c ORDER BY o_id DESC LIMIT 1",
    "an order's lines": "SELECT ol_i_id, ol_quantity, ol_amount, ol_delivery_d FROM order_line "
    "WHERE ol_w_id = :w AND ol_d_id = :d AND ol_o_id = :o",
    "low stock of recent orders": "SELECT count(DISTINCT s_i_id) FROM order_line, stock "
    "WHERE ol_w_id = :w AND ol_d_id = :d AND ol_o_id < :next AND ol_o_id >= :first "
    "AND s_w_id = :w AND s_i_id = ol_i_id AND s_quantity < :threshold",
    "oldest new order": "SELECT coalesce(min(no_o_id), 0) AS o FROM new_order WHERE no_w_id = :w AND no_d_id = :d",
    "an order's customer": "SELECT o_c_id AS c FROM orders WHERE o_w_id = :w AND o_d_id = :d AND o_id = :o",
    "an order's amount": "SELECT sum(ol_amount) AS total FROM order_line "
    "WHERE ol_w_id = :w AND ol_d_id = :d AND ol_o_id = :o",
}
# Reads that name a row by its whole key.
BY_KEY = [name for name in READS if name.endswith("by key")] + ["district's next order", "an order's customer"]

WAREHOUSE = f"\\set w random(1, {WAREHOUSES})\n\\set d random(1, {DISTRICTS})\n"
# The standard's NURand, its ranges a tenth as well.
CUSTOMER = f"\\set c (random(0, 127) | random(1, {CUSTOMERS})) % {CUSTOMERS} + 1\n"
NAME = f"\\set name (random(0, 31) | random(0, {NAMES - 1})) % {NAMES}\n"


def _read(name, keep=False):
    return READS[name] + (" \\gset\n" if keep else ";\n")


def _by_name_or_key():
    """A customer: 60 % by name."""
    return (
        WAREHOUSE + CUSTOMER + NAME + "\\set way random(1, 100)\n\\if :way <= 60\n"
        + _read("customer's balance by name", keep=True)
        + "\\else\n" + _read("customer's balance by key") + "\\endif\n"
    )


def _new_order():
    tenth = ITEMS // LINES
    lines = [WAREHOUSE, CUSTOMER]
    lines += [_read(name) for name in ("customer's discount by key", "warehouse by key", "district by key")]
    for n in range(LINES):
        lines.append(f"\\set i{n} {n * tenth} + (random(0, 127) | random(1, {tenth})) % {tenth} + 1\n")
        lines.append(f"\\set q{n} random(1, 10)\n")
        lines.append(_read("item by key", keep=True).replace(":i ", f":i{n} ").replace("AS price", f"AS price{n}"))
        lines.append(_read("stock by key").replace(":i;", f":i{n};"))
    lines.append("BEGIN;\nUPDATE district SET d_next_o_id = d_next_o_id + 1 WHERE d_w_id = :w AND d_id = :d "
                 "RETURNING d_next_o_id - 1 AS o \\gset\n")
    lines.append(f"INSERT INTO orders VALUES (:w, :d, :o, :c, now(), NULL, {LINES});\n")
    lines.append("INSERT INTO new_order VALUES (:w, :d, :o);\n")
    for n in range(LINES):
        lines.append(
            f"UPDATE stock SET s_quantity = CASE WHEN s_quantity >= :q{n} + 10 THEN s_quantity - :q{n} "
            f"ELSE s_quantity - :q{n} + 91 END, s_ytd = s_ytd + :q{n}, s_order_cnt = s_order_cnt + 1 "
            f"WHERE s_w_id = :w AND s_i_id = :i{n};\n"
            f"INSERT INTO order_line VALUES (:w, :d, :o, {n + 1}, :i{n}, NULL, :q{n}, "
            f":q{n}::int * :price{n}::numeric, 'info');\n"
        )
    return "".join(lines) + "COMMIT;\n"


def _payment():
    return (
        _by_name_or_key() + "\\set amount random(1, 5000)\n"
        + _read("warehouse by key") + _read("district by key")
        + "BEGIN;\n"
        "UPDATE warehouse SET w_ytd = w_ytd + :amount WHERE w_id = :w;\n"
        "UPDATE district SET d_ytd = d_ytd + :amount WHERE d_w_id = :w AND d_id = :d;\n"
        "UPDATE customer SET c_balance = c_balance - :amount, c_ytd_payment = c_ytd_payment + :amount, "
        "c_payment_cnt = c_payment_cnt + 1 WHERE c_w_id = :w AND c_d_id = :d AND c_id = :c;\n"
        "INSERT INTO history VALUES (:c, :d, :w, :d, :w, now(), :amount, 'data');\n"
        "COMMIT;\n"
    )


def _order_status():
    return _by_name_or_key() + _read("customer's last order", keep=True) + _read("an order's lines")


def _delivery():
    lines = [WAREHOUSE, "\\set carrier random(1, 10)\n"]
    for d in range(1, DISTRICTS + 1):
        lines.append(f"\\set d {d}\n" + _read("oldest new order", keep=True) + "\\if :o > 0\n")
        lines.append(_read("an order's customer", keep=True) + _read("an order's amount", keep=True))
        lines.append(
            "BEGIN;\nDELETE FROM new_order WHERE no_w_id = :w AND no_d_id = :d AND no_o_id = :o;\n"
            "UPDATE orders SET o_carrier_id = :carrier WHERE o_w_id = :w AND o_d_id = :d AND o_id = :o;\n"
            "UPDATE order_line SET ol_delivery_d = now() WHERE ol_w_id = :w AND ol_d_id = :d AND ol_o_id = :o;\n"
            "UPDATE customer SET c_balance = c_balance + :total, c_delivery_cnt = c_delivery_cnt + 1 "
            "WHERE c_w_id = :w AND c_d_id = :d AND c_id = :c;\nCOMMIT;\n\\endif\n"
        )
    return "".join(lines)


def _stock_level():
    return (
        WAREHOUSE + "\\set threshold random(10, 20)\n"
        + READS["district's next order"].replace("d_next_o_id", "d_next_o_id AS next", 1) + " \\gset\n"
        + "\\set first :next - 20\n" + _read("low stock of recent orders")
    )


def _new_order_block():
    """As the standard has it: one transaction, which reads a line's item and stock when it has written the lines before."""
    tenth = ITEMS // LINES
    lines = [WAREHOUSE, CUSTOMER, "BEGIN;\n"]
    lines += [_read(name) for name in ("customer's discount by key", "warehouse by key")]
    lines.append("UPDATE district SET d_next_o_id = d_next_o_id + 1 WHERE d_w_id = :w AND d_id = :d "
                 "RETURNING d_next_o_id - 1 AS o \\gset\n")
    lines.append(f"INSERT INTO orders VALUES (:w, :d, :o, :c, now(), NULL, {LINES});\n")
    lines.append("INSERT INTO new_order VALUES (:w, :d, :o);\n")
    for n in range(LINES):
        lines.append(f"\\set i {n * tenth} + (random(0, 127) | random(1, {tenth})) % {tenth} + 1\n")
        lines.append("\\set q random(1, 10)\n" + _read("item by key", keep=True) + _read("stock by key"))
        lines.append(
            "UPDATE stock SET s_quantity = CASE WHEN s_quantity >= :q + 10 THEN s_quantity - :q "
            "ELSE s_quantity - :q + 91 END, s_ytd = s_ytd + :q, s_order_cnt = s_order_cnt + 1 "
            "WHERE s_w_id = :w AND s_i_id = :i;\n"
            f"INSERT INTO order_line VALUES (:w, :d, :o, {n + 1}, :i, NULL, :q, :q::int * :price::numeric, 'info');\n"
        )
    return "".join(lines) + "COMMIT;\n"


def _payment_block():
    """As the standard has it: it reads the warehouse and the district that it has written."""
    return (
        WAREHOUSE + CUSTOMER + "\\set amount random(1, 5000)\nBEGIN;\n"
        "UPDATE warehouse SET w_ytd = w_ytd + :amount WHERE w_id = :w;\n" + _read("warehouse by key")
        + "UPDATE district SET d_ytd = d_ytd + :amount WHERE d_w_id = :w AND d_id = :d;\n" + _read("district by key")
        + _read("customer's balance by key")
        + "UPDATE customer SET c_balance = c_balance - :amount, c_ytd_payment = c_ytd_payment + :amount, "
        "c_payment_cnt = c_payment_cnt + 1 WHERE c_w_id = :w AND c_d_id = :d AND c_id = :c;\n"
        "INSERT INTO history VALUES (:c, :d, :w, :d, :w, now(), :amount, 'data');\nCOMMIT;\n"
    )


# The same in transaction blocks.
BLOCKS = {
    "new_order": _new_order_block(),
    "payment": _payment_block(),
    "order_status": "BEGIN;\n" + _order_status() + "COMMIT;\n",
    "stock_level": "BEGIN;\n" + _stock_level() + "COMMIT;\n",
}
SCRIPTS = {
    "new_order": _new_order(),
    "payment": _payment(),
    "order_status": _order_status(),
    "delivery": _delivery(),
    "stock_level": _stock_level(),
}
# The first four are the paper's table 6, the last is the standard's.
MIXES = {
    "TPC-C read-only": {"order_status": 50, "stock_level": 50},
    "TPC-C read-heavy": {"payment": 3, "order_status": 50, "stock_level": 47},
    "TPC-C balanced": {"new_order": 2, "payment": 3, "order_status": 85, "stock_level": 10},
    "TPC-C write-heavy": {"new_order": 7, "payment": 5, "order_status": 73, "stock_level": 15},
    "TPC-C standard": {"new_order": 45, "payment": 43, "order_status": 4, "delivery": 4, "stock_level": 4},
}
_CUSTOMER_READS = ["customer's balance by name", "customer's balance by key"]
SHAPES = {
    "new_order": [
        "customer's discount by key", "warehouse by key", "district by key", "item by key", "stock by key",
    ],
    "payment": [*_CUSTOMER_READS, "warehouse by key", "district by key"],
    "order_status": [*_CUSTOMER_READS, "customer's last order", "an order's lines"],
    "delivery": ["oldest new order", "an order's customer", "an order's amount"],
    "stock_level": ["district's next order", "low stock of recent orders"],
}


# What a sampled read's first value tells the reads after it.
LEARN = {
    "district's next order": lambda value: {"next": int(value), "first": int(value) - 20},
    "customer's last order": lambda value: {"o": int(value)},
    "oldest new order": lambda value: {"o": int(value)},
    "customer's balance by name": lambda value: {"c": int(value)},
}


def values():
    """Values for the sampled reads of one transaction, spread as the scripts' are."""
    pick = random.randint
    return {
        "w": pick(1, WAREHOUSES),
        "d": pick(1, DISTRICTS),
        "c": (pick(0, 127) | pick(1, CUSTOMERS)) % CUSTOMERS + 1,
        "name": (pick(0, 31) | pick(0, NAMES - 1)) % NAMES,
        "i": pick(0, LINES - 1) * (ITEMS // LINES) + (pick(0, 127) | pick(1, 1000)) % 1000 + 1,
        "o": pick(UNDELIVERED, CUSTOMERS),
        "threshold": pick(10, 20),
    }
