//go:build !linux

package process

import (
	"strconv"
	"syscall"

	"github.com/shirou/gopsutil/v4/process"
)

// startTime identifies the process that has an id now.
func startTime(pid int) (string, error) {
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

// signalMarked does nothing: a process cannot read the environment of other processes.
func signalMarked(map[string]bool, syscall.Signal, int) int { return 0 }

// KillMarked does nothing: a process cannot read the environment of other processes.
func KillMarked(<-chan struct{}, map[string]bool) error { return nil }
