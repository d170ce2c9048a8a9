package drivertest

import (
	"context"
	"encoding/json"
	"errors"
	"slices"
	"sync"

	"github.com/delegate-io/dlite/driver"
)

var errRefused = errors.New("the ledger is full")

// ledger stores records as JSON, like a ledger on disk.
type ledger struct {
	// before, if set, runs before a record is stored; n is the number of earlier
	// calls. Record returns its error. If stored is true, Record stores the record
	// in spite of the error.
	before func(n int, r driver.Resource) (stored bool, err error)

	mu      sync.Mutex
	calls   int               // guarded by mu
	order   []string          // guarded by mu
	records map[string][]byte // guarded by mu
}

func (l *ledger) Record(_ context.Context, r driver.Resource) error {
	l.mu.Lock()
	n := l.calls
	l.calls++
	l.mu.Unlock()
	if l.before != nil {
		if stored, err := l.before(n, r); err != nil {
			if stored {
				err = errors.Join(err, l.store(r))
			}
			return err
		}
	}
	return l.store(r)
}

func (l *ledger) store(r driver.Resource) error {
	b, err := json.Marshal(r)
	if err != nil {
		return err
	}
	l.mu.Lock()
	defer l.mu.Unlock()
	if l.records == nil {
		l.records = map[string][]byte{}
	}
	key := r.Kind + " " + r.ID
	if _, ok := l.records[key]; !ok {
		l.order = append(l.order, key)
	}
	l.records[key] = b
	return nil
}

// known reports whether r has been recorded.
func (l *ledger) known(r driver.Resource) bool {
	l.mu.Lock()
	defer l.mu.Unlock()
	return slices.Contains(l.order, r.Kind+" "+r.ID)
}

func (l *ledger) count() int {
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.calls
}

// resources decodes the records, like a delegate after a restart.
func (l *ledger) resources() ([]driver.Resource, error) {
	l.mu.Lock()
	defer l.mu.Unlock()
	var rs []driver.Resource
	for _, key := range l.order {
		var r driver.Resource
		if err := json.Unmarshal(l.records[key], &r); err != nil {
			return nil, err
		}
		rs = append(rs, r)
	}
	return rs, nil
}

// text returns all records as text.
func (l *ledger) text() string {
	l.mu.Lock()
	defer l.mu.Unlock()
	var b []byte
	for _, key := range l.order {
		b = append(b, l.records[key]...)
	}
	return string(b)
}
