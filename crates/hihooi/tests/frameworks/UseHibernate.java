import jakarta.persistence.Entity;
import jakarta.persistence.Id;
import jakarta.persistence.Table;
import java.util.List;
import org.hibernate.SessionFactory;
import org.hibernate.cfg.Configuration;

/** Hibernate's sessions and entities, a transaction each. */
public final class UseHibernate {
    @Entity(name = "Note")
    @Table(name = "notes")
    public static class Note {
        @Id
        public int id;
        public String text;
    }

    static SessionFactory factory;

    static List<Object> read(int first, int second, int third) {
        return factory.fromTransaction(session -> List.of(session.find(Note.class, first).text,
                session.find(Note.class, second).text, session.find(Note.class, third).text));
    }

    static List<Object> write(int first, int second, int third) {
        return factory.fromTransaction(session -> {
            Note note = session.find(Note.class, first);
            String one = note.text, two = session.find(Note.class, second).text;
            note.text += "!";
            session.flush();
            return List.of(one, two, session.find(Note.class, third).text, note.text);
        });
    }

    public static void main(String[] words) throws Exception {
        factory = new Configuration().addAnnotatedClass(Note.class).setProperty("hibernate.connection.url", Phases.URL)
                .setProperty("hibernate.connection.pool_size", "1").buildSessionFactory();
        Phases.run(UseHibernate::read, UseHibernate::write);
    }
}
