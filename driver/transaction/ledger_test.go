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

// crashed leaves a ledger as a killed process does: with a transaction open. It
// returns the ledger's folder and the record's file.
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
	longAgo := time.Now().Add(-time.Hour) // nothing is in flight any more
	require.NoError(t, os.Chtimes(record, longAgo, longAgo))
	// The first process's own copy must not clean up the world at the test's end.
	require.NoError(t, os.Remove(s.records()[0]))
	return dir, record
}

// T2: a process that starts removes everything that the record of a killed one
// names.
func TestRecoverRemovesWhatAKilledProcessLeft(t *testing.T) {
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

// T2: an entry that is torn or damaged is passed over, and so is nothing else.
func TestADamagedRecordStillTellsWhatIsWhole(t *testing.T) {
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
			// What cannot be removed yet makes Recover write into the damaged file.
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

// T2: two processes that share a ledger would clean up each other's stages.
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

// T2: what a killed process was just starting may have its lock for a moment.
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

// T2: what cannot be recorded is not created.
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

// T2: a resource is on the disk when Record returns, not later.
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

// T2, T3: a process that dies between the file of a record and its first entry has
// begun nothing, and the same init may come again at once.
func TestAnEmptyRecordIsInNobodysWay(t *testing.T) {
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
