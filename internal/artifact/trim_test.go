//go:build unix

package artifact

import (
	"bufio"
	"context"
	"fmt"
	"math/rand/v2"
	"os"
	"os/exec"
	"path/filepath"
	"sync"
	"testing"
	"time"

	"github.com/gofrs/flock"
	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
)

// testCache is a cache with directories of a known size and age.
type testCache struct {
	*Cache
	t   *testing.T
	now time.Time
}

func newTestCache(t *testing.T) *testCache {
	t.Helper()
	return &testCache{Cache: New(filepath.Join(t.TempDir(), "cache"), "task"), t: t, now: time.Now()}
}

// put creates a directory of 1,000 bytes with the given age and holds it.
func (s *testCache) put(name string, ago time.Duration) *Held {
	s.t.Helper()
	held, err := s.Dir(s.t.Context(), name, fillWith(1000))
	require.NoError(s.t, err)
	used := s.now.Add(-ago)
	require.NoError(s.t, os.Chtimes(filepath.Join(s.dir, name+".lock"), used, used))
	return held
}

func fillWith(n int) func(string) error {
	return func(dir string) error {
		if err := os.Mkdir(filepath.Join(dir, "sub"), 0o700); err != nil {
			return err
		}
		return os.WriteFile(filepath.Join(dir, "sub", "file"), make([]byte, n), 0o600)
	}
}

func (s *testCache) names() []string {
	s.t.Helper()
	entries, err := os.ReadDir(s.dir)
	require.NoError(s.t, err)
	var names []string
	for _, e := range entries {
		names = append(names, e.Name())
	}
	return names
}

// Rule D8: the entries with the oldest use are removed first, with their locks, until the rest fits.
func TestACacheIsTrimmedToItsSize(t *testing.T) {
	t.Parallel()
	s := newTestCache(t)
	s.put("a", 3*time.Hour).Release()
	s.put("b", 5*time.Hour).Release()
	s.put("c", time.Hour).Release()
	require.NoError(t, os.WriteFile(filepath.Join(s.dir, "foreign"), make([]byte, 9000), 0o600))
	require.NoError(t, os.Mkdir(filepath.Join(s.dir, "go-build"), 0o700))
	require.NoError(t, s.Trim(s.now, Limits{Size: 3000}))
	assert.Len(t, s.names(), 8, "all entries fit, and foreign files stay")
	require.NoError(t, s.Trim(s.now, Limits{Size: 2999}))
	assert.Equal(t, []string{"a", "a.lock", "c", "c.lock", "foreign", "go-build"}, s.names())
	require.NoError(t, s.Trim(s.now, Limits{Size: 1}))
	assert.Equal(t, []string{"foreign", "go-build"}, s.names())
	require.NoError(t, New(filepath.Join(s.dir, "missing"), "task").Trim(s.now, Limits{Size: 1}))
	// The entry is created again.
	made := s.Made()
	s.put("b", 0).Release()
	assert.Equal(t, made+1, s.Made())
}

func TestACacheIsTrimmedByAge(t *testing.T) {
	t.Parallel()
	s := newTestCache(t)
	s.put("a", 59*time.Minute).Release()
	s.put("b", 61*time.Minute).Release()
	require.NoError(t, s.Trim(s.now, Limits{}))
	assert.Len(t, s.names(), 4, "unbounded")
	require.NoError(t, s.Trim(s.now, Limits{Age: time.Hour}))
	assert.Equal(t, []string{"a", "a.lock"}, s.names())
}

// A use renews the age of an entry.
func TestAUseRenewsTheAge(t *testing.T) {
	t.Parallel()
	s := newTestCache(t)
	s.put("a", 3*time.Hour).Release()
	s.put("b", 2*time.Hour).Release()
	held, err := New(s.dir, "task").Dir(t.Context(), "a", fillWith(1))
	require.NoError(t, err)
	held.Release()
	require.NoError(t, s.Trim(s.now, Limits{Size: 1500}))
	assert.Equal(t, []string{"a", "a.lock"}, s.names())
}

// A held entry stays, however old it is. After its release it is removed.
func TestAHeldEntryIsNotTrimmed(t *testing.T) {
	t.Parallel()
	s := newTestCache(t)
	held := s.put("a", 5*time.Hour)
	s.put("b", time.Hour).Release()
	require.NoError(t, New(s.dir, "task").Trim(s.now, Limits{Size: 1, Age: time.Minute}))
	assert.Equal(t, []string{"a", "a.lock"}, s.names())
	assert.FileExists(t, filepath.Join(held.Path, "sub", "file"))
	held.Release()
	held.Release()
	require.NoError(t, New(s.dir, "task").Trim(s.now, Limits{Size: 1}))
	assert.Empty(t, s.names())
}

const holderVariable = "DLITE_TEST_HOLD_IN"

// TestHoldHelper is another process that holds an entry.
func TestHoldHelper(t *testing.T) {
	dir := os.Getenv(holderVariable)
	if dir == "" {
		return
	}
	held, err := New(dir, "task").Dir(context.Background(), "a", fillWith(1000))
	require.NoError(t, err)
	defer held.Release()
	fmt.Println("held")
	_, _ = bufio.NewReader(os.Stdin).ReadByte()
}

// Entries that another process holds stay until that process dies.
func TestAnEntryThatAnotherProcessHoldsIsNotTrimmed(t *testing.T) {
	t.Parallel()
	s := newTestCache(t)
	cmd := exec.CommandContext(t.Context(), os.Args[0], "-test.run=^TestHoldHelper$")
	cmd.Env = append(os.Environ(), holderVariable+"="+s.dir)
	_, err := cmd.StdinPipe() // the process waits for the end of its input
	require.NoError(t, err)
	out, err := cmd.StdoutPipe()
	require.NoError(t, err)
	require.NoError(t, cmd.Start())
	line, err := bufio.NewReader(out).ReadString('\n')
	require.NoError(t, err)
	require.Equal(t, "held\n", line)
	require.NoError(t, s.Trim(s.now, Limits{Size: 1}))
	assert.Equal(t, []string{"a", "a.lock"}, s.names())
	require.NoError(t, cmd.Process.Kill())
	_ = cmd.Wait()
	require.NoError(t, s.Trim(s.now, Limits{Size: 1}))
	assert.Empty(t, s.names())
}

// An entry that is used between the scan and the removal stays. A lock whose file was removed
// meanwhile does not count.
func TestTrimKeepsEntriesThatAreUsedMeanwhile(t *testing.T) {
	t.Parallel()
	s := newTestCache(t)
	s.put("a", time.Hour).Release()
	gone, err := s.remove(item{name: "a", used: s.now.Add(-2 * time.Hour)})
	require.NoError(t, err)
	assert.False(t, gone)
	assert.Equal(t, []string{"a", "a.lock"}, s.names())

	lock := flock.New(filepath.Join(s.dir, "a.lock"))
	require.NoError(t, lock.Lock())
	_, ok := stands(lock)
	assert.True(t, ok)
	require.NoError(t, os.Remove(lock.Path()))
	_, ok = stands(lock)
	assert.False(t, ok)
	require.NoError(t, os.WriteFile(lock.Path(), nil, 0o600))
	_, ok = stands(lock)
	assert.False(t, ok, "another one")
	require.NoError(t, lock.Unlock())
}

// Trim removes the remains of processes that died.
func TestLeftoversAreTrimmed(t *testing.T) {
	t.Parallel()
	s := newTestCache(t)
	s.put("a", 0).Release()
	long := s.now.Add(-2 * time.Hour)
	for name, when := range map[string]time.Time{"new": s.now, "long": long} {
		require.NoError(t, os.WriteFile(filepath.Join(s.dir, name+".lock"), nil, 0o600))
		require.NoError(t, os.MkdirAll(filepath.Join(s.dir, name+".part-123", "deep"), 0o700))
		require.NoError(t, os.Chtimes(filepath.Join(s.dir, name+".lock"), when, when))
	}
	require.NoError(t, os.MkdirAll(filepath.Join(s.dir, "a.part-old", "deep"), 0o700))
	require.NoError(t, s.Trim(s.now, Limits{}))
	assert.Equal(t, []string{"a", "a.lock", "a.part-old", "new.lock", "new.part-123"}, s.names())
	require.NoError(t, s.Trim(s.now, Limits{Size: 1}))
	assert.Equal(t, []string{"new.lock", "new.part-123"}, s.names())
}

// An entry that a caller holds is complete, however trims and uses overlap.
func TestTrimAndUseAtOnce(t *testing.T) {
	t.Parallel()
	s := newTestCache(t)
	ctx, cancel := context.WithCancel(t.Context())
	var users, trimmers sync.WaitGroup
	for range 2 {
		trimmers.Go(func() {
			c := New(s.dir, "task")
			for ctx.Err() == nil {
				assert.NoError(t, c.Trim(time.Now(), Limits{Size: 2500}))
			}
		})
	}
	for range 8 {
		users.Go(func() {
			c := New(s.dir, "task")
			for range 60 {
				held, err := c.Dir(t.Context(), fmt.Sprint("n", rand.N(5)), fillWith(1000))
				if !assert.NoError(t, err) {
					return
				}
				info, err := os.Stat(filepath.Join(held.Path, "sub", "file"))
				if assert.NoError(t, err) {
					assert.EqualValues(t, 1000, info.Size())
				}
				held.Release()
			}
		})
	}
	users.Wait()
	cancel()
	trimmers.Wait()
	// A process that waited for the lock of a removed entry may have left a new lock file.
	require.NoError(t, s.Trim(time.Now().Add(2*leftoverAge), Limits{Size: 1}))
	assert.Empty(t, s.names())
}
