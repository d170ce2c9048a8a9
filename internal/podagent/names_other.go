//go:build !linux

package podagent

import (
	"context"
	"io"
)

// guard only waits: pods run on Linux.
func (n *names) guard(ctx context.Context, _ io.Writer) { <-ctx.Done() }
