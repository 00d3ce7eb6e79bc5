import java.io.BufferedReader;
import java.io.InputStreamReader;
import java.util.List;

/** The same as phases.py. */
final class Phases {
    /** One request, of these rows: what it found. */
    interface Request {
        List<Object> run(int first, int second, int third) throws Exception;
    }

    static final String URL = "jdbc:postgresql://" + System.getenv("PGHOST") + ":" + System.getenv("PGPORT") + "/"
            + System.getenv("PGDATABASE") + "?user=" + System.getenv("PGUSER");

    static void run(Request read, Request write) throws Exception {
        var lines = new BufferedReader(new InputStreamReader(System.in));
        System.out.println("ready");
        for (String phase; (phase = lines.readLine()) != null;) {
            boolean reads = phase.equals("read");
            for (int n = 1; n <= (reads ? 30 : 10); n++) {
                int step = reads ? 30 : 10;
                System.out.println((reads ? read : write).run(n, n + step, n + 2 * step));
            }
            System.out.println("done");
        }
    }
}
