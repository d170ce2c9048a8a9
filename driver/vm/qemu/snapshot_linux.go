package qemu

import (
	"context"
	"crypto/sha256"
	"encoding/hex"
	"encoding/json"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"runtime"
	"strings"
	"syscall"
	"time"

	"github.com/gofrs/flock"

	"github.com/delegate-io/dlite/internal/atomicfile"
)

// snapshot is the memory, the disk and the device state of a guest whose agent is ready.
type snapshot struct{ dir string }

func (s *snapshot) memory() string { return filepath.Join(s.dir, memoryFile) }
func (s *snapshot) disk() string   { return filepath.Join(s.dir, diskFile) }
func (s *snapshot) state() string  { return filepath.Join(s.dir, "state") }

// unfinished is the suffix of the directory of an incomplete snapshot.
const unfinished = ".making"

// maker returns the name of the QEMU process that makes the snapshot.
func maker(dir string) string {
	return "dlite-snapshot-" + strings.TrimSuffix(filepath.Base(dir), unfinished)
}

// unusedFor is the time after which an unused snapshot is removed.
const unusedFor = 7 * 24 * time.Hour

// snapshot returns the configuration's snapshot, and makes it if necessary. A lock lets only one
// process make it.
func (c Config) snapshot(ctx context.Context) (*snapshot, error) {
	key, err := c.key()
	if err != nil {
		return nil, err
	}
	parent := filepath.Join(c.StateDir, "snapshots")
	s := &snapshot{dir: filepath.Join(parent, key)}
	if s.use() {
		return s, nil
	}
	if err := os.MkdirAll(parent, 0o700); err != nil {
		return nil, err
	}
	lock := flock.New(filepath.Join(parent, "lock"))
	const interval = 100 * time.Millisecond // the maker may be another process
	if _, err := lock.TryLockContext(ctx, interval); err != nil {
		return nil, fmt.Errorf("wait for the process that makes it: %w", err)
	}
	defer lock.Close() //nolint:errcheck // it only releases the lock
	if s.use() {
		return s, nil
	}
	removeUnused(parent, time.Now())
	if err := removeUnfinished(ctx, parent); err != nil {
		return nil, fmt.Errorf("remove an incomplete snapshot: %w", err)
	}
	making := s.dir + unfinished
	if err := os.Mkdir(making, 0o700); err != nil {
		return nil, err
	}
	if err := c.makeSnapshot(ctx, &snapshot{dir: making}); err != nil {
		return nil, errors.Join(err, os.RemoveAll(making))
	}
	if err := os.Rename(making, s.dir); err != nil {
		return nil, err
	}
	return s, atomicfile.SyncDir(parent)
}

// use reports whether the snapshot exists, and marks it as used.
func (s *snapshot) use() bool {
	now := time.Now()
	return os.Chtimes(s.dir, now, now) == nil
}

// key identifies the configuration and its files, by their sizes and times: they may be too large
// to read each time.
func (c Config) key() (string, error) {
	about := []any{c.arguments("", memory{}, false)}
	for _, path := range c.files() {
		info, err := os.Stat(path)
		if err != nil {
			return "", err
		}
		inode := uint64(0)
		if st, ok := info.Sys().(*syscall.Stat_t); ok {
			inode = st.Ino
		}
		about = append(about, path, info.Size(), info.ModTime().UnixNano(), inode)
	}
	b, err := json.Marshal(about)
	if err != nil {
		return "", err
	}
	sum := sha256.Sum256(b)
	return hex.EncodeToString(sum[:])[:24], nil
}

// makeSnapshot starts a guest and saves it when its agent is ready.
func (c Config) makeSnapshot(ctx context.Context, s *snapshot) error {
	// The QEMU process dies with the thread that started it.
	runtime.LockOSThread()
	defer runtime.UnlockOSThread()
	m, err := c.start(ctx, s.dir, maker(s.dir), memory{file: s.memory(), shared: true}, nil)
	if err != nil {
		return err
	}
	defer m.kill()
	if err := m.ready(ctx, c.BootTimeout, false); err != nil {
		return err
	}
	if err := m.save(ctx, s); err != nil {
		return err
	}
	if err := m.monitor.execute(ctx, "quit", nil, nil); err != nil {
		return err
	}
	select {
	case <-m.gone:
	case <-ctx.Done():
		return context.Cause(ctx)
	}
	files := []string{s.memory(), s.state(), s.dir}
	if c.Image != "" {
		files = append(files, s.disk())
	}
	for _, f := range files {
		if err := syncFile(f); err != nil {
			return err
		}
	}
	return nil
}

// prepareMigration excludes shared memory files from the state, and enables events that report the
// end of a migration.
func (m *machine) prepareMigration(ctx context.Context) error {
	return m.monitor.execute(ctx, "migrate-set-capabilities", map[string]any{"capabilities": []map[string]any{
		{"capability": "x-ignore-shared", "state": true}, {"capability": "events", "state": true},
	}}, nil)
}

// save stops the machine and saves its state.
func (m *machine) save(ctx context.Context, s *snapshot) error {
	if err := m.prepareMigration(ctx); err != nil {
		return err
	}
	if err := m.monitor.execute(ctx, "stop", nil, nil); err != nil {
		return err
	}
	return m.migrate(ctx, s.state(), os.O_CREATE|os.O_WRONLY, "migrate")
}

// restore restores the machine from a snapshot.
func (m *machine) restore(ctx context.Context, s *snapshot) error {
	if err := m.prepareMigration(ctx); err != nil {
		return m.explain(err)
	}
	if err := m.migrate(ctx, s.state(), os.O_RDONLY, "migrate-incoming"); err != nil {
		return m.explain(fmt.Errorf("restore the snapshot %s: %w", s.dir, err))
	}
	return m.monitor.execute(ctx, "cont", nil, nil)
}

// migrate saves the state to a file or loads it from there.
func (m *machine) migrate(ctx context.Context, path string, how int, command string) error {
	f, err := os.OpenFile(path, how, 0o600)
	if err != nil {
		return err
	}
	defer f.Close() //nolint:errcheck // QEMU has its own
	if err := m.monitor.executeWith(ctx, f, "getfd", map[string]any{"fdname": "state"}, nil); err != nil {
		return err
	}
	if err := m.monitor.execute(ctx, command, map[string]any{"uri": "fd:state"}, nil); err != nil {
		return err
	}
	err = m.monitor.migrated(ctx)
	if errors.Is(err, errMigration) {
		return fmt.Errorf("%w: %s", err, m.log())
	}
	return err
}

// removeUnused removes snapshots that were not used for long. Running machines continue, because
// they have the files open.
func removeUnused(parent string, now time.Time) {
	entries, _ := os.ReadDir(parent)
	for _, e := range entries {
		info, err := e.Info()
		if err == nil && e.IsDir() && !strings.HasSuffix(e.Name(), unfinished) && now.Sub(info.ModTime()) > unusedFor {
			_ = os.RemoveAll(filepath.Join(parent, e.Name()))
		}
	}
}

// removeUnfinished removes incomplete snapshots of dead processes and ends their emulators. An
// emulator that switched its user does not die with its parent. The caller holds the lock.
func removeUnfinished(ctx context.Context, parent string) error {
	entries, err := os.ReadDir(parent)
	if err != nil {
		return err
	}
	for _, e := range entries {
		if !strings.HasSuffix(e.Name(), unfinished) {
			continue
		}
		dir := filepath.Join(parent, e.Name())
		if err := endProcess(ctx, maker(dir), dir); err != nil {
			return err
		}
		if err := os.RemoveAll(dir); err != nil {
			return err
		}
	}
	return nil
}

func syncFile(path string) error {
	f, err := os.Open(path)
	if err != nil {
		return err
	}
	err = f.Sync()
	if closed := f.Close(); err == nil {
		err = closed
	}
	if errors.Is(err, fs.ErrInvalid) {
		return nil
	}
	return err
}
