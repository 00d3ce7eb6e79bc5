// Package outline has what the programs in Go share: phases in their order, and expectations.
package outline

import (
	"errors"
	"fmt"
	"os"
	"reflect"
	"sync"
)

// Workers change one row, each so many times.
const (
	Workers  = 8
	Rounds   = 10
	PoolSize = 4
)

// OtherAuthority has not issued the server's certificate.
var OtherAuthority = os.Getenv("OTHER_SSLROOTCERT")

// Phase is a part of a program; it may return what it found worth telling.
type Phase func() string

var phases = []string{"login", "migration", "crud", "prepared", "batch", "copy", "retry", "cancel", "pool", "together"}

// Run runs the phases of a program.
func Run(functions map[string]Phase) {
	for _, name := range phases {
		told := functions[name]()
		if told == "" {
			told = "as expected"
		}
		fmt.Printf("%s: %s\n", name, told)
	}
}

// Must is for errors that no program expects.
func Must(err error) {
	if err != nil {
		panic(err)
	}
}

// Got is a value that comes with an error that no program expects.
func Got[T any](value T, err error) T {
	Must(err)
	return value
}

// Equal compares what was found with what is expected.
func Equal[T any](found, expected T) {
	if !reflect.DeepEqual(found, expected) {
		panic(fmt.Sprintf("found %#v, expected %#v", found, expected))
	}
}

// State is an error of pgx or lib/pq.
type State interface{ SQLState() string }

// Refused expects an error of this SQLSTATE.
func Refused(err error, code string) {
	var state State
	if !errors.As(err, &state) || state.SQLState() != code {
		panic(fmt.Sprintf("SQLSTATE %s was expected: %v", code, err))
	}
}

// Together runs work(0), work(1), … at the same time.
func Together(number int, work func(int)) {
	var all sync.WaitGroup
	for n := range number {
		all.Go(func() { work(n) })
	}
	all.Wait()
}
