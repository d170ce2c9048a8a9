package logservice

import (
	"fmt"
	"time"
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
