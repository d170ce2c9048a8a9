package transaction_test

import (
	"bytes"
	"context"
	"errors"
	"io"
	"os"
	"path/filepath"
	"testing"
	"time"

	"github.com/delegate-io/dlite/driver"
	"github.com/delegate-io/dlite/driver/transaction"
	"github.com/delegate-io/dlite/task/stage"
	"github.com/gofrs/flock"
	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
)

// crashed leaves a ledger with an open transaction, as a killed process does. It returns the
// ledger's directory and the record's file.
func crashed(t *testing.T, w *fakeDriver) (dir, record string) {
	t.Helper()
	s := newStages(t, w)
	s.init("tx")
	s.execute("tx", "one")
	dir = t.TempDir()
	record = s.records()[0]
	b, err := os.ReadFile(record)
	require.NoError(t, err)
	record = dir + "/copy.ledger"
	require.NoError(t, os.WriteFile(record, b, 0o600))
	longAgo := time.Now().Add(-time.Hour) // an engine creates no more resources by now
	require.NoError(t, os.Chtimes(record, longAgo, longAgo))
	// The first process must not remove the resources at the end of the test.
	require.NoError(t, os.Remove(s.records()[0]))
	return dir, record
}

// Rule T2: a process that starts removes every resource in the record of a killed one.
func TestRecoverRemovesResourcesOfAKilledProcess(t *testing.T) {
	t.Parallel()
	w := newFakeDriver()
	dir, _ := crashed(t, w)
	require.NotEmpty(t, w.left())
	s := reopenStages(t, w, dir)
	require.NoError(t, s.Recover(t.Context()))
	assert.Empty(t, w.left())
	assert.Empty(t, s.records())
	assert.Zero(t, s.slots.Used())
	require.NoError(t, s.Recover(t.Context()), "there is nothing to do any more")
}

// Rule T2: a torn or damaged entry is skipped; all other entries are read.
func TestTheIntactEntriesOfADamagedRecordAreRead(t *testing.T) {
	t.Parallel()
	for name, damage := range map[string]func([]byte) []byte{
		"torn tail":        func(b []byte) []byte { return append(b, `1 0000`...) },
		"last line cut":    func(b []byte) []byte { return append(b, b[:len(b)/4]...) },
		"a line of zeroes": func(b []byte) []byte { return append(append(b, make([]byte, 100)...), '\n') },
		"a flipped bit": func(b []byte) []byte {
			last := bytes.LastIndexByte(b[:len(b)-1], '\n') + 1
			line := bytes.Clone(b[last:])
			line[len(line)-4] ^= 1
			return append(b, line...)
		},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			w := newFakeDriver()
			dir, record := crashed(t, w)
			b, err := os.ReadFile(record)
			require.NoError(t, err)
			require.NoError(t, os.WriteFile(record, damage(b), 0o600))
			// A resource that cannot be removed makes Recover write to the damaged file.
			w.stubborn = func(r driver.Resource) error {
				if r.Kind == "network" {
					return errors.New("busy")
				}
				return nil
			}
			s := reopenStages(t, w, dir)
			require.Error(t, s.Recover(t.Context()))
			assert.Equal(t, []string{"network tx"}, w.left())
			require.NoError(t, s.Close(t.Context()))
			w.stubborn = nil
			require.NoError(t, reopenStages(t, w, dir).Recover(t.Context()))
			assert.Empty(t, w.left())
			last := w.cleaned[len(w.cleaned)-1]
			assert.Equal(t, []driver.Resource{{Kind: "network", ID: "tx"}}, last)
		})
	}
}

// Rule T2: only one process can use a ledger. Otherwise each would clean up the stages of the
// other.
func TestALedgerHasOneOwner(t *testing.T) {
	t.Parallel()
	w := newFakeDriver()
	s := newStages(t, w)
	s.init("tx")
	other := reopenStages(t, w, s.ledger)
	err := other.Recover(t.Context())
	require.ErrorIs(t, err, transaction.ErrLedger)
	require.ErrorContains(t, err, "in use by another delegate")
	r := other.init("tx2")
	assert.Equal(t, stage.Failure, statusOf(r))
	assert.Contains(t, string(r.Data), "in use by another delegate")
	assert.Equal(t, []string{"network tx"}, w.left())
	assert.Zero(t, other.slots.Used())
}

// Rule T2: a process that a killed delegate was just starting may hold its lock for a moment.
func TestALedgerIsWaitedForAMoment(t *testing.T) {
	t.Parallel()
	dir := t.TempDir()
	lock := flock.New(filepath.Join(dir, "lock"))
	ok, err := lock.TryLock()
	require.NoError(t, err)
	require.True(t, ok)
	released := make(chan error, 1)
	time.AfterFunc(100*time.Millisecond, func() { released <- lock.Close() })
	s := reopenStages(t, newFakeDriver(), dir)
	require.NoError(t, s.Recover(t.Context()))
	require.NoError(t, <-released)
}

// Rule T2: a resource that cannot be recorded is not created.
func TestWithoutARecordNothingIsCreated(t *testing.T) {
	t.Parallel()
	w := newFakeDriver()
	dir := t.TempDir() + "/file"
	require.NoError(t, os.WriteFile(dir, nil, 0o600))
	s := reopenStages(t, w, dir)
	r := s.init("tx")
	assert.Equal(t, stage.Failure, statusOf(r))
	assert.Contains(t, string(r.Data), "nothing was started")
	assert.Empty(t, w.left())
	assert.Zero(t, s.slots.Used())
}

// Rule T2: a resource is on the disk before Record returns.
func TestAResourceIsRecordedBeforeItExists(t *testing.T) {
	t.Parallel()
	w := newFakeDriver()
	var s *stages
	w.onExecute = func(context.Context, *driver.Environment, *driver.Step, io.Writer) (*driver.Result, error) {
		b, err := os.ReadFile(s.records()[0])
		if err == nil && !bytes.Contains(b, []byte(`"tx/one"`)) {
			err = errors.New("the process is not on record")
		}
		return &driver.Result{}, err
	}
	s = newStages(t, w)
	s.init("tx")
	assert.Equal(t, stage.Success, statusOf(s.execute("tx", "one")))
}

func TestNewWithoutADriverPanics(t *testing.T) {
	t.Parallel()
	assert.Panics(t, func() { transaction.New(nil) })
}

// Rules T2, T3: a process may die between creating a record and writing its first entry. It
// has created nothing, and the same init may come again at once.
func TestAnInitMayFollowAnEmptyRecord(t *testing.T) {
	t.Parallel()
	for name, content := range map[string]string{"empty": "", "torn": `1 00000000 {"open":{"id":"t`} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			w := newFakeDriver()
			s := newStages(t, w)
			require.Equal(t, stage.Success, statusOf(s.init("tx")))
			path := s.records()[0]
			require.Equal(t, stage.Success, statusOf(s.cleanup("tx")))
			require.NoError(t, s.Close(t.Context()))
			require.NoError(t, os.WriteFile(path, []byte(content), 0o600))

			again := reopenStages(t, w, s.ledger)
			require.NoError(t, again.Recover(t.Context()))
			r := again.init("tx")
			require.Equal(t, stage.Success, statusOf(r), string(r.Data))
		})
	}
}
