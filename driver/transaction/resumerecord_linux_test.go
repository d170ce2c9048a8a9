package transaction_test

import (
	"context"
	"io"
	"os"
	"path/filepath"
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/delegate-io/dlite/driver"
	"github.com/delegate-io/dlite/task/stage"
)

// The record of an open transaction contains no secret.
func TestTheRecordOfAnOpenTransactionHoldsNoSecret(t *testing.T) {
	t.Parallel()
	l := newLife(t)
	s := l.process()
	give(s, "t1", "local_init", stage.InitRequest{GroupID: "tx", Envs: map[string]string{"TOKEN": hidden}, Secrets: []string{hidden}})
	require.Len(t, s.records(), 1)
	b, err := os.ReadFile(s.records()[0])
	require.NoError(t, err)
	assert.NotContains(t, string(b), hidden)
	require.Len(t, l.notes(), 1)
	info, err := os.Stat(l.notes()[0])
	require.NoError(t, err)
	assert.Equal(t, os.FileMode(0o600), info.Mode().Perm())
	b, err = os.ReadFile(l.notes()[0])
	require.NoError(t, err)
	assert.NotContains(t, string(b), hidden)
	assert.NotContains(t, string(b), "TOKEN", "the notes are encrypted")
}

// Rule S5: a process that may write to the notes of one transaction cannot give it those of another one.
func TestNotesOfAnotherTransactionAreNotRead(t *testing.T) {
	t.Parallel()
	l := newLife(t)
	s := l.process()
	for _, id := range []string{"a", "b"} {
		give(s, "t"+id, "local_init", stage.InitRequest{GroupID: id, Envs: map[string]string{"OF": id}})
	}
	require.Len(t, l.notes(), 2)
	b, err := os.ReadFile(l.notes()[0])
	require.NoError(t, err)
	require.NoError(t, os.WriteFile(l.notes()[1], b, 0o600))
	l.kill(s)
	second := l.process()
	var seen []string
	l.w.onExecute = func(_ context.Context, env *driver.Environment, _ *driver.Step, _ io.Writer) (*driver.Result, error) {
		seen = append(seen, env.ID+env.Envs["OF"])
		return &driver.Result{}, nil
	}
	for _, id := range []string{"a", "b"} {
		e := step("s" + id)
		e.GroupID = id
		give(second, "e"+id, "local_execute", e)
		require.Equal(t, stage.Success, statusOf(second.cleanup(id)))
	}
	assert.NotContains(t, seen, "ab")
	assert.NotContains(t, seen, "ba")
	assert.Len(t, seen, 2)
}

// Rule S5: a directory on a disk is not used as one in memory.
func TestNothingIsKeptOnADisk(t *testing.T) {
	t.Parallel()
	l := newLife(t)
	l.memory = "/etc" // the file system of t.TempDir may be in memory
	first := l.process()
	give(first, "t1", "local_init", stage.InitRequest{GroupID: "tx"})
	paths, err := filepath.Glob("/etc/dlite-*")
	require.NoError(t, err)
	assert.Empty(t, paths)
	l.kill(first)
	assert.Zero(t, l.process().Open())
	assert.Empty(t, l.w.left())
}

// The content of a directory that another user has created is not trusted.
func TestNotesOfAnotherUserAreNotTrusted(t *testing.T) {
	t.Parallel()
	l := newLife(t)
	first := l.process()
	give(first, "t1", "local_init", stage.InitRequest{GroupID: "tx"})
	l.kill(first)
	dirs, err := filepath.Glob(filepath.Join(l.memory, "*"))
	require.NoError(t, err)
	require.Len(t, dirs, 1)
	require.NoError(t, os.Rename(dirs[0], dirs[0]+"-moved"))
	require.NoError(t, os.Symlink(dirs[0]+"-moved", dirs[0]))
	assert.Zero(t, l.process().Open())
	assert.Empty(t, l.w.left())
}
