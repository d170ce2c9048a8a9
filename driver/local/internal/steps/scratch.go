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

// ScratchPool keeps the scratch folders of host steps that have ended for the next
// steps of their transactions, if they are as good as new: making and removing
// one on a disk costs more than starting a process. The zero value is ready.
type ScratchPool struct {
	mu   sync.Mutex
	free map[string][]scratch // by the transaction's folder; guarded by mu
}

// scratch is such a folder. The zero value is none.
type scratch struct {
	owner string // the transaction's folder
	path  string
	info  fs.FileInfo // of when it was made
}

// take gives an empty folder that anybody may write to and that no other step
// has.
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

// giveBack takes a folder whose step has ended, with all that it started.
func (s *ScratchPool) giveBack(one scratch) {
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

// forget drops the folders of a transaction, which go with it.
func (s *ScratchPool) forget(owner string) {
	s.mu.Lock()
	defer s.mu.Unlock()
	delete(s.free, owner)
}

// pristine reports whether the folder is empty and still the one that was made,
// with the owner and mode that it had.
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

func (s scratch) remove() { _ = RemoveTree(s.path) } // what is left goes with the transaction
