package transaction_test

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"io"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/delegate-io/dlite/driver"
	"github.com/delegate-io/dlite/driver/transaction"
	"github.com/delegate-io/dlite/internal/testbed"
	"github.com/delegate-io/dlite/task"
	"github.com/delegate-io/dlite/task/stage"
	"github.com/rs/zerolog"
	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
	"golang.org/x/sys/unix"
)

// disk is a small file system in memory, whose free space is counted in pages.
type disk struct {
	t   *testing.T
	dir string
}

const page = 4096

func newDisk(t *testing.T) *disk {
	t.Helper()
	d := &disk{t: t, dir: t.TempDir()}
	if err := unix.Mount("tmpfs", d.dir, "tmpfs", 0, fmt.Sprint("size=", 16*page)); err != nil {
		testbed.Unavailable(t, "root", "no small disk can be made: %v", err)
	}
	t.Cleanup(func() { require.NoError(t, unix.Unmount(d.dir, 0)) })
	return d
}

func (d *disk) filler() string { return filepath.Join(d.dir, "filler") }

// fill leaves that many pages free.
func (d *disk) fill(free int) {
	d.t.Helper()
	f, err := os.OpenFile(d.filler(), os.O_CREATE|os.O_WRONLY|os.O_APPEND, 0o600)
	require.NoError(d.t, err)
	for err == nil {
		_, err = f.Write(make([]byte, page))
	}
	require.ErrorIs(d.t, err, unix.ENOSPC)
	info, err := f.Stat()
	require.NoError(d.t, err)
	require.NoError(d.t, f.Truncate(info.Size()-int64(free*page)))
	require.NoError(d.t, f.Close())
}

func (d *disk) clear() { require.NoError(d.t, os.Remove(d.filler())) }

// newFullDiskStages returns stages whose ledger is on a small disk.
func newFullDiskStages(t *testing.T, w *fakeDriver) (*stages, *disk) {
	t.Helper()
	d := newDisk(t)
	s := unmanagedStages(t, w, filepath.Join(d.dir, "ledger"))
	t.Cleanup(func() { require.NoError(t, s.Close(t.Context())) }) // before the disk is removed
	return s, d
}

func (s *stages) requireFull(r *task.Response) {
	s.t.Helper()
	require.Equal(s.t, stage.Failure, statusOf(r))
	require.Contains(s.t, string(r.Data), "ledger")
	require.Contains(s.t, string(r.Data), s.ledger)
	require.Contains(s.t, string(r.Data), "no space left on device")
}

// Rule T2: with a full disk an init is refused with the reason and creates nothing, wherever
// it fails. With free space the delegate works again.
func TestWithAFullDiskNothingIsCreated(t *testing.T) {
	t.Parallel()
	w := newFakeDriver()
	s, d := newFullDiskStages(t, w)
	initBig := func(id string) *task.Response { // its entry, which has the labels twice, fills most of a page
		return s.run(t.Context(), "local_init", stage.InitRequest{
			Network: stage.Network{ID: id, Labels: map[string]string{"big": strings.Repeat("x", page/2-400)}},
		})
	}
	d.fill(0) // not even the ledger can be created
	s.requireFull(s.init("before the ledger"))
	d.clear()
	require.Equal(t, stage.Success, statusOf(s.init("fits")))
	require.Equal(t, stage.Success, statusOf(s.cleanup("fits")))
	id, err := os.ReadFile(filepath.Join(s.ledger, "id"))
	require.NoError(t, err)
	require.NotEmpty(t, id, "the label of the resources survives")

	for free := range 2 {
		d.fill(free)
		id := fmt.Sprint("tx-", free)
		r := initBig(id)
		s.requireFull(r)
		require.Equal(t, free == 0, strings.Contains(string(r.Data), "nothing was started"))
		require.Empty(t, w.left())
		require.Empty(t, s.records(), "a transaction that was not started is not on record")
		require.Zero(t, s.slots.Used())
		require.Equal(t, stage.Success, statusOf(s.cleanup(id)))
		d.clear()
	}
	require.Len(t, w.cleaned, 2, "with one page the init got as far as its network, which was removed")

	require.Equal(t, stage.Success, statusOf(initBig("room")))
	require.Equal(t, []string{"network room"}, w.left())
	require.Equal(t, stage.Success, statusOf(s.cleanup("room")))
	require.Empty(t, w.left())
}

// Rules T2, T3: when the disk fills up during a stage, steps fail and create no unrecorded
// resource. The cleanup needs no space.
func TestADiskThatBecomesFullStopsStepsAndNoCleanup(t *testing.T) {
	t.Parallel()
	w := newFakeDriver()
	s, d := newFullDiskStages(t, w)
	require.Equal(t, stage.Success, statusOf(s.init("tx")))
	d.fill(0)
	ran, failed := 0, ""
	for failed == "" { // the record's last page has space for some entries
		require.Less(t, ran, page/10)
		id := fmt.Sprint("step-", ran)
		if r := s.execute("tx", id); statusOf(r) == stage.Success {
			ran++
		} else {
			s.requireFull(r)
			failed = id
		}
	}
	require.NotZero(t, ran)
	require.Len(t, w.left(), 1+ran, "the network, and a process of each step that ran")
	text, _ := s.logs.get(failed)
	require.Contains(t, text, "no space left on device")

	record, err := os.ReadFile(s.records()[0])
	require.NoError(t, err)
	require.True(t, bytes.HasSuffix(record, []byte("\n")), "the record has no incomplete entry")
	require.Equal(t, 1+ran, bytes.Count(record, []byte(`{"resource":`)))

	// One free page lets steps continue.
	require.NoError(t, os.Truncate(d.filler(), 0))
	require.Equal(t, stage.Success, statusOf(s.execute("tx", failed)))
	d.fill(0)

	// The removal of a resource cannot be recorded either. The resource is removed again
	// nevertheless.
	w.stubborn = func(r driver.Resource) error {
		if r.Kind == "network" {
			return errors.New("busy")
		}
		return nil
	}
	require.Equal(t, stage.Failure, statusOf(s.cleanup("tx")))
	require.Equal(t, []string{"network tx"}, w.left())
	require.Len(t, s.records(), 1)
	w.stubborn = nil
	require.Equal(t, stage.Success, statusOf(s.cleanup("tx")))
	require.Empty(t, w.left())
	require.Empty(t, s.records())
	require.Zero(t, s.slots.Used())
	d.clear()
	require.Equal(t, stage.Success, statusOf(s.init("room")))
	require.Equal(t, stage.Success, statusOf(s.cleanup("room")))
}

// Rule T2: on a full disk a new process removes the resources of a killed one, and its record.
func TestRecoverNeedsNoRoomOnTheDisk(t *testing.T) {
	t.Parallel()
	w := newFakeDriver()
	_, record := crashed(t, w)
	content, err := os.ReadFile(record)
	require.NoError(t, err)
	s, d := newFullDiskStages(t, w)
	require.NoError(t, os.Mkdir(s.ledger, 0o700))
	require.NoError(t, os.WriteFile(filepath.Join(s.ledger, "id"), []byte("AN-ID"), 0o600))
	recordedLongAgo(t, filepath.Join(s.ledger, "left.ledger"), content)
	d.fill(0)
	require.NoError(t, s.Recover(t.Context()))
	assert.Empty(t, w.left())
	assert.Empty(t, s.records())
}

// Rule T5: without space for notes steps continue. A log event warns that the transaction will
// not survive the process, and it does not.
func TestWithoutRoomForNotesATransactionDoesNotSurvive(t *testing.T) {
	t.Parallel()
	l, d := newLife(t), newDisk(t)
	l.memory = d.dir
	l.w.onExecute = func(context.Context, *driver.Environment, *driver.Step, io.Writer) (*driver.Result, error) {
		return &driver.Result{Outputs: map[string]string{"long": strings.Repeat("x", os.Getpagesize())}}, nil
	}
	var log bytes.Buffer
	first := l.process(transaction.WithLogger(zerolog.New(&log)))
	give(first, "t1", "local_init", stage.InitRequest{GroupID: "tx"})
	require.Len(t, l.notes(), 1)
	d.fill(0)
	require.Equal(t, stage.Success, statusOf(give(first, "t2", "local_execute", step("one"))))
	require.Equal(t, stage.Success, statusOf(give(first, "t3", "local_execute", step("two"))))
	require.Equal(t, 1, strings.Count(log.String(), "cannot be resumed after a restart"), log.String())
	require.Empty(t, l.notes())
	l.kill(first)
	require.Zero(t, l.process().Open())
	require.Empty(t, l.w.left())
}
