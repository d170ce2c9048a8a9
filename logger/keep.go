package logger

import (
	"context"
	"time"
)

const (
	// keepAfter is the duration of a request after which the stream keeps its log on the
	// disk. It is below the time for which the answer of a step waits for the log.
	keepAfter = time.Second
	// handOverAfter is the time after which Close leaves a kept log to the deliverer
	// while requests fail.
	handOverAfter = 3 * time.Second
)

// patience limits the time of Close while requests fail.
type patience struct {
	until time.Time
	end   context.CancelFunc
}

// keepOnFailure makes a request. If the request fails or takes long, keepOnFailure keeps
// the log for a later process, because this one may end before the log service answers.
func (s *Stream) keepOnFailure(call func() error) error {
	if s.spool.log == nil {
		return call()
	}
	t := time.AfterFunc(keepAfter, s.spool.keep)
	defer t.Stop()
	err := call()
	if retryable(err) {
		s.spool.keep()
		if p := s.patience.Load(); p != nil && time.Now().After(p.until) && s.spool.isKept() {
			p.end()
		}
	}
	return err
}

// keep moves all lines to files that a later process finds. From then on every Write ends
// with all its lines in these files. If the deliverer has no space, the spool stays as it
// is.
func (s *spool) keep() {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.log == nil || s.kept || s.closed || s.log.refused {
		return
	}
	if s.log.begin(s.end()-s.base) != nil {
		return
	}
	for _, seg := range s.files {
		if err := s.log.publish(seg.f); err != nil {
			s.unkeep(err)
			return
		}
	}
	s.kept = true
	s.flushKept()
}

func (s *spool) isKept() bool {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.kept
}

// flush moves the lines in memory of a kept log to its files.
func (s *spool) flush() {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.flushKept()
}

func (s *spool) flushKept() {
	n := len(s.mem)
	if !s.kept || n == 0 {
		return
	}
	err := s.log.grow(int64(n))
	if err == nil {
		err = s.moveToFile(n)
	}
	if err != nil {
		s.unkeep(err)
	}
}

// unkeep removes the names of the files: the log ends with this process.
func (s *spool) unkeep(err error) {
	s.kept = false
	s.log.refuse(err)
}

// leave closes the files of a kept log and leaves them to the deliverer. It reports false
// if the log is not kept.
func (s *spool) leave() bool {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.flushKept()
	if !s.kept {
		return false
	}
	for _, seg := range s.files {
		_ = seg.f.Close() // a later process reads what the kernel has
	}
	s.closed, s.files, s.mem = true, nil, nil
	return true
}
