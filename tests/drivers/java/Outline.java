import com.zaxxer.hikari.HikariConfig;
import com.zaxxer.hikari.HikariDataSource;
import java.net.URLEncoder;
import java.nio.charset.StandardCharsets;
import java.sql.SQLException;
import java.util.ArrayList;
import java.util.List;
import java.util.Map;
import java.util.Objects;
import java.util.concurrent.ExecutorService;
import java.util.concurrent.Executors;
import java.util.concurrent.Future;

/** What the programs in Java share: phases in their order, and expectations. */
final class Outline {
    /** A part of a program; it may return what it found worth telling. */
    interface Phase {
        String run() throws Exception;
    }

    /** What must fail, or is done at the same time as others. */
    interface Work {
        void run() throws Exception;
    }

    interface NumberedWork {
        void run(int number) throws Exception;
    }

    static final List<String> PHASES = List.of("login", "migration", "crud", "prepared", "batch", "copy", "retry",
            "cancel", "pool", "together");
    /** Workers that change one row, and how often each does. */
    static final int WORKERS = 8, ROUNDS = 10;
    static final int POOL_SIZE = 4;

    /** The server, checked by its certificate; pgjdbc takes nothing from libpq's environment variables. */
    static String url(String password, String mode, String authority) {
        var environment = System.getenv();
        return "jdbc:postgresql://" + environment.get("PGHOST") + ":" + environment.get("PGPORT") + "/"
                + environment.get("PGDATABASE") + "?user=" + environment.get("PGUSER") + "&sslmode=" + mode
                + "&sslrootcert=" + environment.get(authority) + "&password="
                + URLEncoder.encode(password, StandardCharsets.UTF_8);
    }

    static final String PASSWORD = System.getenv("PGPASSWORD");
    static final String URL = url(PASSWORD, "verify-full", "PGSSLROOTCERT");
    static final Map<String, String> REFUSED = Map.of(
            url("wrong", "verify-full", "PGSSLROOTCERT"), "28P01",
            url(PASSWORD, "disable", "PGSSLROOTCERT"), "28000",
            // The handshake fails: a failure of the connection.
            url(PASSWORD, "verify-full", "OTHER_SSLROOTCERT"), "08006");

    static HikariDataSource pool() {
        var config = new HikariConfig();
        config.setJdbcUrl(URL);
        config.setMaximumPoolSize(POOL_SIZE);
        return new HikariDataSource(config);
    }

    static void run(Map<String, Phase> phases) throws Exception {
        for (String name : PHASES) {
            String told = phases.get(name).run();
            System.out.println(name + ": " + (told == null ? "as expected" : told));
        }
    }

    static void equal(Object found, Object expected) {
        if (!Objects.equals(found, expected)) {
            throw new AssertionError("found " + found + ", expected " + expected);
        }
    }

    /** The SQLSTATE of a failure, also if it is the cause of another. */
    static String state(Throwable failure) {
        for (; failure != null; failure = failure.getCause()) {
            if (failure instanceof SQLException error) {
                return error.getSQLState();
            }
        }
        return null;
    }

    static void refused(Work work, String state) throws Exception {
        try {
            work.run();
        } catch (Exception failure) {
            if (!state.equals(state(failure))) {
                throw failure;
            }
            return;
        }
        throw new AssertionError("not refused: SQLSTATE " + state + " was expected");
    }

    /** Runs work 0, 1, … at the same time. */
    static void together(int number, NumberedWork work) throws Exception {
        try (var threads = new Threads(number)) {
            List<Future<?>> all = new ArrayList<>();
            for (int n = 0; n < number; n++) {
                int own = n;
                all.add(threads.start(() -> work.run(own)));
            }
            for (Future<?> one : all) {
                one.get();
            }
        }
    }

    /** Threads that end with what they are used in. */
    record Threads(ExecutorService service) implements AutoCloseable {
        Threads(int number) {
            this(Executors.newFixedThreadPool(number));
        }

        Future<?> start(Work work) {
            return service.submit(() -> {
                work.run();
                return null;
            });
        }

        @Override
        public void close() {
            service.shutdownNow();
        }
    }
}
