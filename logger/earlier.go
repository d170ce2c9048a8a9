package logger

import (
	"context"
	"crypto/sha256"
	"encoding/hex"
	"errors"
	"io/fs"
	"os"
	"path/filepath"
	"strings"
	"time"

	"github.com/gofrs/flock"

	"github.com/delegate-io/dlite/internal/sealed"
)

// open locks the directory and opens the directory of the targets.
func (d *Deliverer) open() error {
	if err := os.MkdirAll(d.cfg.Dir, 0o700); err != nil {
		return err
	}
	d.lock = flock.New(filepath.Join(d.cfg.Dir, "lock"))
	ctx, cancel := context.WithTimeout(context.Background(), delivererLockWait)
	defer cancel()
	if _, err := d.lock.TryLockContext(ctx, delivererLockWait/100); err != nil {
		if ctx.Err() != nil {
			return errors.New("another delegate uses it: give each delegate its own")
		}
		return err
	}
	err := d.openMemory()
	if err != nil {
		err = errors.Join(err, d.lock.Close())
	}
	return err
}

// openMemory opens the directory of the targets.
func (d *Deliverer) openMemory() (err error) {
	if d.durable = sealed.InMemory(d.cfg.Memory); !d.durable {
		return nil
	}
	keyFile := filepath.Join(d.cfg.Dir, "targets.key")
	if d.cipher, err = sealed.Open(keyFile); err != nil {
		return err
	}
	key, err := os.ReadFile(keyFile)
	if err != nil {
		return err
	}
	sum := sha256.Sum256(append([]byte("the name of the directory of "), key...))
	d.memory = filepath.Join(d.cfg.Memory, "dlite-logs-"+hex.EncodeToString(sum[:16]))
	if _, err := os.Lstat(d.memory); errors.Is(err, fs.ErrNotExist) {
		return nil
	}
	return sealed.MakePrivate(d.memory) // refuses a directory of another user
}

// findEarlier continues with the logs of an earlier process, and removes files that belong to
// none.
func (d *Deliverer) findEarlier() {
	targets, _ := filepath.Glob(filepath.Join(d.memory, "*"+targetSuffix)) // the pattern is valid
	known := map[string]bool{}
	for _, path := range targets {
		if !d.durable {
			break
		}
		k := &keptLog{d: d, name: strings.TrimSuffix(filepath.Base(path), targetSuffix)}
		var err error
		if k.target, err = readTarget(path, k.name, d.cipher); err != nil {
			_ = os.Remove(path)
			continue // the process died before it kept the log
		}
		known[k.name] = true
		d.adopt(k)
	}
	d.removeStrays(known)
}

// adopt queues a log of an earlier process.
func (d *Deliverer) adopt(k *keptLog) {
	size := int64(keptSize)
	for _, f := range k.files() {
		size += f.size
	}
	var due time.Time
	d.mu.Lock()
	d.kept[k], k.size = struct{}{}, size
	d.bytes += size
	d.mu.Unlock()
	if k.target.Ended.IsZero() {
		due = time.Now().Add(holdTime)
	}
	d.log.Info().Str("account", k.target.Account).Str("log", k.target.Key).Int64("bytes", size).
		Msg("a log of an earlier process waits for its log service")
	d.enqueue(k, due)
}

// removeStrays removes the files of logs without a target.
func (d *Deliverer) removeStrays(known map[string]bool) {
	paths, _ := filepath.Glob(filepath.Join(d.cfg.Dir, "*-*"+linesSuffix))
	parts, _ := filepath.Glob(filepath.Join(d.cfg.Dir, "*-*"+partSuffix))
	lost, bytes := map[string]bool{}, int64(0)
	for _, path := range append(paths, parts...) {
		name, _, _ := strings.Cut(filepath.Base(path), "-")
		if known[name] {
			continue
		}
		if info, err := os.Stat(path); err == nil && strings.HasSuffix(path, linesSuffix) {
			lost[name] = true
			bytes += info.Size()
		}
		_ = os.Remove(path)
	}
	if len(lost) > 0 {
		d.dropped += int64(len(lost)) // no other goroutine has the deliverer yet
		d.log.Warn().Int("logs", len(lost)).Int64("bytes", bytes).
			Msg("logs of an earlier process are dropped: their tokens were in memory and are lost")
	}
}
