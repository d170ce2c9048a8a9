//go:build !unix

package source

import "time"

func cpuTime() time.Duration { return 0 }
