package logservice

import (
	"fmt"
	"time"
)

// FrameOfVersion is a journal's header of some version.
func FrameOfVersion(v int) []byte {
	return appendFrame(nil, frameHeader, func(b []byte) []byte { return fmt.Appendf(b, `{"v":%d,"account":"a"}`, v) })
}

// SignerAt is a signer with a clock.
func SignerAt(key []byte, now func() time.Time) *Signer { return newSigner(key, now) }
