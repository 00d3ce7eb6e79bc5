// GORM's migrations and models, over pgx.
package main

import (
	"context"
	"crypto/x509"
	"database/sql"
	"errors"
	"fmt"
	"time"

	. "hihooi/tests/drivers/outline"

	"gorm.io/driver/postgres"
	"gorm.io/gorm"
	"gorm.io/gorm/clause"
	"gorm.io/gorm/logger"
)

// Account as a first version of an application has it.
type Account struct {
	ID      int64
	Owner   string `gorm:"not null;uniqueIndex"`
	Balance int    `gorm:"not null;default:0;index"`
	Mood    string `gorm:"type:gorm_mood;default:'happy'"`
}

// TableName is what GORM asks for.
func (Account) TableName() string { return "gorm_accounts" }

// Noted is a later version.
type Noted struct {
	Account `gorm:"embedded"`
	Notes   map[string]int `gorm:"type:jsonb;serializer:json;default:'{}'"`
}

var db *gorm.DB

// Everything else is in libpq's environment variables, which pgx reads as well.
func open(words string) (*gorm.DB, error) {
	db, err := gorm.Open(postgres.Open(words), &gorm.Config{
		Logger: logger.Discard, PrepareStmt: true, SkipDefaultTransaction: false})
	if err == nil {
		pool := Got(db.DB())
		pool.SetMaxOpenConns(PoolSize)
		pool.SetMaxIdleConns(PoolSize)
	}
	return db, err
}

func failure[T any](_ T, err error) error { return err }

func balance(on *gorm.DB, owner string) int {
	var found Account
	Must(on.Where("owner = ?", owner).Take(&found).Error)
	return found.Balance
}

func sum(like string) (count, sum int) {
	Must(db.Model(&Account{}).Where("owner LIKE ?", like).Select("count(*), sum(balance)").Row().Scan(&count, &sum))
	return
}

func login() string {
	Refused(failure(open("password=wrong")), "28P01")
	Refused(failure(open("sslmode=disable")), "28000")
	var unknown x509.UnknownAuthorityError
	if err := failure(open("sslrootcert=" + OtherAuthority)); !errors.As(err, &unknown) {
		panic(fmt.Sprint("an unknown authority was expected: ", err))
	}
	db = Got(open(""))
	return ""
}

func migration() string {
	Must(db.Exec("DROP TABLE IF EXISTS gorm_accounts").Error)
	Must(db.Exec("DROP TYPE IF EXISTS gorm_mood").Error)
	Must(db.Exec("CREATE TYPE gorm_mood AS ENUM ('sad', 'happy')").Error)
	Must(db.AutoMigrate(&Account{}))
	// Compares the model with the catalogs, and adds a column.
	Must(db.AutoMigrate(&Noted{}))
	Equal(len(Got(db.Migrator().ColumnTypes(&Noted{}))), 5)
	Equal(db.Migrator().HasIndex(&Noted{}, "Balance"), true)
	return ""
}

func crud() string {
	for n, owner := range []string{"ada", "bob", "eve"} {
		made := Noted{Account: Account{Owner: owner, Balance: 10 * (n + 1), Mood: "happy"}, Notes: map[string]int{"n": n}}
		Must(db.Create(&made).Error)
		var found Noted
		Must(db.Take(&found, made.ID).Error)
		Equal(found, made)
	}
	var bob Noted
	Must(db.Where("owner = ?", "bob").Take(&bob).Error)
	bob.Balance = 25
	Must(db.Save(&bob).Error)
	Equal(db.Where("owner = ?", "eve").Delete(&Account{}).RowsAffected, 1)
	var owners []string
	Must(db.Model(&Account{}).Order("id").Pluck("owner", &owners).Error)
	Equal(owners, []string{"ada", "bob"})
	Equal(balance(db, "bob"), 25)
	return ""
}

func prepared() string {
	// PrepareStmt has it prepare every statement once, at each connection.
	Together(PoolSize, func(int) {
		for range 10 {
			Equal([]int{balance(db, "ada"), balance(db, "bob")}, []int{10, 25})
			Equal(db.Where("owner = ?", "nobody").Take(&Account{}).Error, gorm.ErrRecordNotFound)
		}
	})
	return ""
}

func batch() string {
	var made []Account
	for n := range 100 {
		made = append(made, Account{Owner: fmt.Sprint("batch ", n), Balance: n})
	}
	Must(db.CreateInBatches(&made, 30).Error)
	count, total := sum("batch%")
	Equal([]int{count, total}, []int{100, 4950})
	// With a key that is there it becomes an update.
	Must(db.Clauses(clause.OnConflict{Columns: []clause.Column{{Name: "owner"}},
		DoUpdates: clause.AssignmentColumns([]string{"balance"})}).Create(&Account{Owner: "batch 1", Balance: 1001}).Error)
	Equal(balance(db, "batch 1"), 1001)
	return ""
}

func copyRows() string { return "GORM has none" }

func retry() string {
	attempts := 0
	for done := false; !done; {
		attempts++
		err := db.Transaction(func(own *gorm.DB) error {
			found := balance(own, "ada")
			if attempts == 1 { // another session is faster
				Must(db.Model(&Account{}).Where("owner = ?", "ada").Update("balance", gorm.Expr("balance + 100")).Error)
			}
			return own.Model(&Account{}).Where("owner = ?", "ada").Update("balance", found+1).Error
		}, &sql.TxOptions{Isolation: sql.LevelRepeatableRead})
		if done = err == nil; !done {
			Refused(err, "40001")
		}
	}
	Must(db.Transaction(func(own *gorm.DB) error {
		// A transaction in one is a savepoint.
		Refused(own.Transaction(func(inner *gorm.DB) error { return inner.Create(&Account{Owner: "ada"}).Error }), "23505")
		return own.Create(&Account{Owner: "ada again"}).Error
	}))
	Equal(attempts, 2)
	Equal([]int{balance(db, "ada"), balance(db, "ada again")}, []int{111, 0})
	return ""
}

func cancel() string {
	began := time.Now()
	limited, stop := context.WithTimeout(context.Background(), 300*time.Millisecond)
	defer stop()
	// pgx, as database/sql has it, sends a request to cancel, and closes the connection.
	Equal(errors.Is(db.WithContext(limited).Exec("SELECT pg_sleep(30)").Error, context.DeadlineExceeded), true)
	Equal(time.Since(began) < 10*time.Second, true)
	Equal(balance(db, "bob"), 25)
	return ""
}

func pool() string {
	Together(20, func(int) { Equal(balance(db, "bob"), 25) })
	Equal(Got(db.DB()).Stats().OpenConnections <= PoolSize, true)
	// A transaction that failed leaves nothing to who gets the connection next.
	Refused(db.Transaction(func(own *gorm.DB) error {
		Must(own.Model(&Account{}).Where("owner = ?", "bob").Update("balance", 0).Error)
		return own.Exec("SELECT 1 / 0").Error
	}), "22012")
	Equal(balance(db, "bob"), 25)
	return ""
}

func together() string {
	Must(db.Create(&Account{Owner: "shared"}).Error)
	Together(Workers, func(int) {
		for range Rounds {
			written := Account{}
			Must(db.Model(&written).Clauses(clause.Returning{}).Where("owner = ?", "shared").
				Update("balance", gorm.Expr("balance + 1")).Error)
			if read := balance(db, "shared"); read < written.Balance || written.Balance == 0 {
				panic(fmt.Sprintf("read %d after having written %d", read, written.Balance))
			}
		}
	})
	Equal(balance(db, "shared"), Workers*Rounds)
	return ""
}

func main() {
	Run(map[string]Phase{"login": login, "migration": migration, "crud": crud, "prepared": prepared, "batch": batch,
		"copy": copyRows, "retry": retry, "cancel": cancel, "pool": pool, "together": together})
}
