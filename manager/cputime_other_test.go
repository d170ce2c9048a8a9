//go:build !unix

package manager_test

import "time"

func cpuTime() time.Duration { return 0 }
