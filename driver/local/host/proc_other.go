//go:build !linux

package host

import (
	"strconv"
	"syscall"

	"github.com/shirou/gopsutil/v4/process"
)

// processStart identifies the process that has an id now.
func processStart(pid int) (string, error) {
	p, err := process.NewProcess(int32(pid))
	if err != nil {
		return "", err
	}
	ms, err := p.CreateTime()
	if err != nil {
		return "", err
	}
	return strconv.FormatInt(ms, 10), nil
}

// signalMarked does nothing: the environment of other processes cannot be read.
func signalMarked(map[string]bool, syscall.Signal, int) int { return 0 }

// killMarked does nothing, like signalMarked.
func killMarked(<-chan struct{}, map[string]bool) error { return nil }
