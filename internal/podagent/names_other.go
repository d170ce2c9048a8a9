//go:build !linux

package podagent

import (
	"context"
	"io"
)

// guard is for pods, which run on Linux.
func (n *names) guard(ctx context.Context, _ io.Writer) { <-ctx.Done() }
