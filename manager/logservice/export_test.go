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
