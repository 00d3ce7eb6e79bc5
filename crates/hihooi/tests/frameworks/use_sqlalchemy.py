"""SQLAlchemy's sessions and objects, over psycopg2."""

import phases
from sqlalchemy import Column, Integer, Text, create_engine
from sqlalchemy.orm import Session, declarative_base

Base = declarative_base()
engine = create_engine(f"postgresql+psycopg2://{phases.URL}")


class Note(Base):
    __tablename__ = "notes"
    id = Column(Integer, primary_key=True)
    text = Column(Text)


def read(*rows):
    with Session(engine) as session:
        return [session.get(Note, row).text for row in rows]


def write(first, second, third):
    with Session(engine) as session:
        found = [session.get(Note, first).text, session.get(Note, second).text]
        session.get(Note, first).text += "!"
        session.flush()
        found.append(session.get(Note, third).text)
        session.commit()
        return found + [session.get(Note, first).text]


engine.connect().close()
phases.run(read, write)
