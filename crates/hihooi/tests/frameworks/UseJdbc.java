import java.sql.Connection;
import java.sql.DriverManager;
import java.util.List;

/** pgjdbc, autocommit off. */
final class UseJdbc {
    static Connection connection;

    static String value(int row) throws Exception {
        try (var statement = connection.prepareStatement("SELECT text FROM notes WHERE id = ?")) {
            statement.setInt(1, row);
            var rows = statement.executeQuery();
            rows.next();
            return rows.getString(1);
        }
    }

    static List<Object> read(int first, int second, int third) throws Exception {
        List<Object> found = List.of(value(first), value(second), value(third));
        connection.commit();
        return found;
    }

    static List<Object> write(int first, int second, int third) throws Exception {
        String one = value(first), two = value(second);
        int changed;
        try (var statement = connection.prepareStatement("UPDATE notes SET text = text || '!' WHERE id = ?")) {
            statement.setInt(1, first);
            changed = statement.executeUpdate();
        }
        List<Object> found = List.of(one, two, changed, value(third), value(first));
        connection.commit();
        return found;
    }

    public static void main(String[] words) throws Exception {
        connection = DriverManager.getConnection(Phases.URL);
        connection.setAutoCommit(false);
        Phases.run(UseJdbc::read, UseJdbc::write);
    }
}
