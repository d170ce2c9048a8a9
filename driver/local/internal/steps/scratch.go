package steps

import (
	"errors"
	"io"
	"io/fs"
	"os"
	"path/filepath"
	"sync"

	"github.com/delegate-io/dlite/internal/recorded"
)

// ScratchPool keeps unused scratch directories of host steps that have ended, for the next steps of
// their transactions. To create and remove a directory on a disk costs more than to start a process.
// The zero value is ready. It is safe for concurrent use.
type ScratchPool struct {
	mu   sync.Mutex
	free map[string][]scratch // by the transaction's directory; guarded by mu
}

// scratch is a scratch directory. The zero value is no directory.
type scratch struct {
	owner string // the transaction's directory
	path  string
	info  fs.FileInfo // from the creation
}

// take returns an empty directory that any user can write to and that no other step uses.
func (s *ScratchPool) take(owner string) (scratch, error) {
	for {
		one, ok := s.pop(owner)
		if !ok {
			break
		}
		if one.pristine() {
			return one, nil
		}
		one.remove()
	}
	one := scratch{owner: owner, path: filepath.Join(owner, "steps", "scratch-"+recorded.RandomHex(8))}
	err := MakeDir(one.path, 0o777)
	if err == nil {
		one.info, err = os.Lstat(one.path)
	}
	return one, err
}

func (s *ScratchPool) pop(owner string) (scratch, bool) {
	s.mu.Lock()
	defer s.mu.Unlock()
	list := s.free[owner]
	if len(list) == 0 {
		return scratch{}, false
	}
	last := len(list) - 1
	s.free[owner] = list[:last]
	return list[last], true
}

// put returns a directory after its step, and all processes of the step, have ended.
func (s *ScratchPool) put(one scratch) {
	if one.path == "" {
		return
	}
	if !one.pristine() {
		one.remove()
		return
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.free == nil {
		s.free = map[string][]scratch{}
	}
	s.free[one.owner] = append(s.free[one.owner], one)
}

// forget drops the directories of a transaction. The caller removes them.
func (s *ScratchPool) forget(owner string) {
	s.mu.Lock()
	defer s.mu.Unlock()
	delete(s.free, owner)
}

// pristine reports whether the directory is empty, and is the one that was created, with the same
// owner and mode.
func (s scratch) pristine() bool {
	info, err := os.Lstat(s.path)
	if err != nil || s.info == nil || !os.SameFile(info, s.info) || info.Mode() != s.info.Mode() || !sameOwner(info, s.info) {
		return false
	}
	dir, err := os.Open(s.path)
	if err != nil {
		return false
	}
	names, err := dir.Readdirnames(1)
	_ = dir.Close()
	return len(names) == 0 && errors.Is(err, io.EOF)
}

func (s scratch) remove() { _ = RemoveTree(s.path) } // the rest is removed with the transaction
