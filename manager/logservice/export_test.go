package logservice

import (
	"fmt"
	"time"

	"github.com/delegate-io/dlite/manager/internal/livelog"
)

// FrameOfVersion returns the header frame of a journal of version v.
func FrameOfVersion(v int) []byte {
	return appendFrame(nil, frameHeader, func(b []byte) []byte { return fmt.Appendf(b, `{"v":%d,"account":"a"}`, v) })
}

// SignerAt returns a signer with a clock.
func SignerAt(key []byte, now func() time.Time) *Signer { return newSigner(key, now) }

// UploadWatchers returns the number of logs whose uploads are watched.
func (s *Server) UploadWatchers() int {
	s.store.mu.Lock()
	defer s.store.mu.Unlock()
	return len(s.store.uploads)
}

// NewStreams returns an empty store of streams in memory.
func NewStreams() livelog.Streams { return newStreams() }

// OpenStreams opens a store of streams in a folder.
func OpenStreams(dir string) (livelog.Streams, error) { return openStreams(dir) }
