import com.zaxxer.hikari.HikariDataSource;
import jakarta.persistence.Column;
import jakarta.persistence.Entity;
import jakarta.persistence.GeneratedValue;
import jakarta.persistence.GenerationType;
import jakarta.persistence.Id;
import jakarta.persistence.Index;
import jakarta.persistence.LockModeType;
import jakarta.persistence.MappedSuperclass;
import jakarta.persistence.OptimisticLockException;
import jakarta.persistence.Table;
import jakarta.persistence.Version;
import java.sql.Connection;
import java.util.List;
import java.util.Map;
import org.hibernate.Session;
import org.hibernate.SessionFactory;
import org.hibernate.annotations.ColumnTransformer;
import org.hibernate.annotations.JdbcTypeCode;
import org.hibernate.cfg.Configuration;
import org.hibernate.type.SqlTypes;

/** Hibernate's schema, entities and queries, over pgjdbc and HikariCP. */
public final class UseHibernate {
    public enum HibernateMood {
        sad, happy
    }

    @MappedSuperclass
    public static class Account {
        @Id
        @GeneratedValue(strategy = GenerationType.SEQUENCE)
        public Long id;
        @Column(nullable = false, unique = true)
        public String owner;
        @Column(nullable = false)
        public int balance;
        @JdbcTypeCode(SqlTypes.NAMED_ENUM)
        public HibernateMood mood;
        /** Hibernate refuses to overwrite what another session has changed. */
        @Version
        public int version;
    }

    /** As a first version of an application has it. */
    @Entity(name = "Account")
    @Table(name = "hibernate_accounts", indexes = @Index(name = "hibernate_accounts_balance", columnList = "balance"))
    public static class First extends Account {
    }

    /** A later version. */
    @Entity(name = "Account")
    @Table(name = "hibernate_accounts", indexes = @Index(name = "hibernate_accounts_balance", columnList = "balance"))
    public static class Second extends Account {
        @Column(columnDefinition = "jsonb default '{}'")
        @ColumnTransformer(write = "?::jsonb")
        public String notes = "{}";

        public Second() {
        }

        Second(String owner, int balance) {
            this.owner = owner;
            this.balance = balance;
            this.mood = HibernateMood.happy;
        }
    }

    static SessionFactory factory;
    static HikariDataSource pool;

    static SessionFactory open(Class<?> entity, String schema) {
        var configuration = new Configuration().addAnnotatedClass(entity)
                .setProperty("hibernate.hbm2ddl.auto", schema).setProperty("hibernate.hbm2ddl.halt_on_error", "true")
                .setProperty("hibernate.jdbc.batch_size", "30");
        configuration.getProperties().put("hibernate.connection.datasource", pool);
        return configuration.buildSessionFactory();
    }

    static Second find(Session session, String owner) {
        return session.createQuery("from Account where owner = :owner", Second.class).setParameter("owner", owner)
                .uniqueResult();
    }

    static int balance(String owner) {
        return factory.fromTransaction(session -> find(session, owner).balance);
    }

    static List<Object> totals(String prefix) {
        return factory.fromTransaction(session -> {
            var query = "select count(*), sum(balance) from Account where owner like :like";
            var found = session.createQuery(query, Object[].class).setParameter("like", prefix + "%").uniqueResult();
            return List.of(found);
        });
    }

    static String login() throws Exception {
        for (var other : Outline.REFUSED.entrySet()) {
            Outline.refused(() -> new Configuration().setProperty("hibernate.connection.url", other.getKey())
                    .buildSessionFactory().openSession().doWork(Connection::getMetaData), other.getValue());
        }
        pool = Outline.pool();
        return null;
    }

    static String migration() {
        open(First.class, "create").close();
        // It reads the catalogs, and adds a column.
        factory = open(Second.class, "update");
        Outline.equal(factory.fromSession(session -> session.createNativeQuery("select column_name from"
                + " information_schema.columns where table_name = 'hibernate_accounts' order by column_name", String.class)
                .list()), List.of("balance", "id", "mood", "notes", "owner", "version"));
        return null;
    }

    static String crud() {
        factory.inTransaction(session -> {
            session.persist(new Second("ada", 10));
            session.persist(new Second("bob", 20));
            session.persist(new Second("eve", 30));
        });
        factory.inTransaction(session -> {
            Second bob = find(session, "bob");
            Outline.equal(List.of(bob.balance, bob.mood, bob.notes), List.of(20, HibernateMood.happy, "{}"));
            bob.balance = 25;
            session.remove(find(session, "eve"));
        });
        Outline.equal(factory.fromTransaction(session -> session.createQuery("select owner from Account order by id",
                String.class).list()), List.of("ada", "bob"));
        Outline.equal(balance("bob"), 25);
        return null;
    }

    static String prepared() {
        // pgjdbc names a statement that it executes for the fifth time.
        factory.inTransaction(session -> {
            for (int n = 0; n < 10; n++) {
                session.clear();
                Outline.equal(List.of(find(session, "ada").balance, find(session, "bob").balance), List.of(10, 25));
                Outline.equal(find(session, "nobody"), null);
            }
        });
        return null;
    }

    static String batch() {
        factory.inTransaction(session -> {
            for (int n = 0; n < 100; n++) {
                session.persist(new Second("batch " + n, n));
            }
        });
        Outline.equal(totals("batch"), List.of(100L, 4950L));
        return null;
    }

    static String copy() {
        return "Hibernate has none";
    }

    static String retry() throws Exception {
        int attempts = 0;
        for (boolean done = false; !done;) {
            boolean isFirst = ++attempts == 1;
            try {
                factory.inTransaction(session -> {
                    session.doWork(own -> own.setTransactionIsolation(Connection.TRANSACTION_REPEATABLE_READ));
                    Second ada = find(session, "ada");
                    if (isFirst) {
                        add(100);
                    }
                    ada.balance += 1;
                });
                done = true;
            } catch (RuntimeException failure) {
                Outline.equal(Outline.state(failure), "40001");
            }
        }
        Outline.equal(attempts, 2);
        // Without isolation it is the version that has changed meanwhile: an UPDATE changes no row.
        try {
            factory.inTransaction(session -> {
                Second ada = find(session, "ada");
                add(1000);
                ada.balance += 1;
            });
            throw new AssertionError("an update was lost");
        } catch (OptimisticLockException failure) {
            Outline.equal(balance("ada"), 1111);
        }
        Outline.refused(() -> factory.inTransaction(session -> session.persist(new Second("ada", 0))), "23505");
        factory.inTransaction(session -> session.persist(new Second("ada again", 0)));
        Outline.equal(balance("ada again"), 0);
        return null;
    }

    /** Another session is faster. */
    static void add(int amount) {
        factory.inTransaction(session -> find(session, "ada").balance += amount);
    }

    static String cancel() throws Exception {
        long began = System.nanoTime();
        try (var session = factory.openSession(); var threads = new Outline.Threads(1)) {
            var cancelled = threads.start(() -> {
                Thread.sleep(300);
                session.cancelQuery();
            });
            Outline.refused(() -> session.createNativeQuery("select 1 from pg_sleep(30)", Integer.class).list(), "57014");
            cancelled.get(); // its failure would be ours
            Outline.equal(session.createNativeQuery("select 1", Integer.class).list(), List.of(1));
        }
        Outline.equal(System.nanoTime() - began < 10_000_000_000L, true);
        return null;
    }

    static String pool() throws Exception {
        Outline.together(20, n -> Outline.equal(balance("bob"), 25));
        Outline.equal(pool.getHikariPoolMXBean().getTotalConnections() <= Outline.POOL_SIZE, true);
        // A transaction that failed leaves nothing to who gets the connection next.
        Outline.refused(() -> factory.inTransaction(session -> {
            find(session, "bob").balance = 0;
            session.flush();
            session.createNativeQuery("select 1 / 0", Integer.class).list();
        }), "22012");
        Outline.equal(balance("bob"), 25);
        return null;
    }

    static String together() throws Exception {
        factory.inTransaction(session -> session.persist(new Second("shared", 0)));
        Outline.together(Outline.WORKERS, worker -> {
            for (int n = 0; n < Outline.ROUNDS; n++) {
                int written = factory.fromTransaction(session -> {
                    Second shared = session.createQuery("from Account where owner = 'shared'", Second.class)
                            .setLockMode(LockModeType.PESSIMISTIC_WRITE).uniqueResult();
                    return ++shared.balance;
                });
                int read = balance("shared");
                if (read < written) {
                    throw new AssertionError("read " + read + " after having written " + written);
                }
            }
        });
        Outline.equal(balance("shared"), Outline.WORKERS * Outline.ROUNDS);
        return null;
    }

    public static void main(String[] words) throws Exception {
        java.util.logging.Logger.getLogger("").setLevel(java.util.logging.Level.OFF);
        Outline.run(Map.of("login", UseHibernate::login, "migration", UseHibernate::migration,
                "crud", UseHibernate::crud, "prepared", UseHibernate::prepared, "batch", UseHibernate::batch,
                "copy", UseHibernate::copy, "retry", UseHibernate::retry, "cancel", UseHibernate::cancel,
                "pool", UseHibernate::pool, "together", UseHibernate::together));
        factory.close();
        pool.close();
    }
}
