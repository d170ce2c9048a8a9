package service

import (
	"context"
	"fmt"
	"os"
	"path/filepath"
	"strconv"
	"strings"
	"time"
)

// A service manager restarts a program that fails. systemd has back-off only from version 254 on, and launchd and
// Windows have none, so the program itself spaces its starts. It counts those that did not lead to work, in a file that
// vanishes when the service is stopped.

const (
	// longestPause is the longest pause before a start.
	longestPause = 5 * time.Minute
	// settled is how long a program must work until the next failure is the first one again.
	settled = time.Minute
)

// Pause waits if earlier starts of the service have failed: 1 s after the first failure, twice as long after each
// further one, at most 5 minutes. It returns the error of ctx. Outside of a service it does nothing. A file that cannot
// be written means no pause.
func (h *Host) Pause(ctx context.Context) error {
	if h.starts == "" {
		return nil
	}
	n := countStarts(h.starts)
	if err := os.WriteFile(h.starts, []byte(strconv.Itoa(n+1)+"\n"), 0o600); err != nil {
		h.cfg.Log.Warn().Err(err).Msg("cannot count the starts of the service: a failed start is repeated without a pause")
		return nil
	}
	pause := startPause(n)
	if pause == 0 {
		return nil
	}
	text := fmt.Sprintf("%d starts have failed: waiting %s before the next one", n, pause)
	h.paused.Store(&text)
	defer h.paused.Store(nil)
	h.cfg.Log.Warn().Int("failed", n).Stringer("pause", pause).Msg("earlier starts have failed: waiting before this one")
	select {
	case <-ctx.Done():
		return ctx.Err()
	case <-time.After(pause):
		return nil
	}
}

// forgetStarts makes the next failure the first one.
func (h *Host) forgetStarts() {
	if h.starts != "" {
		_ = os.Remove(h.starts) // it may be gone
	}
}

func countStarts(file string) int {
	b, _ := os.ReadFile(file) // none is 0
	n, err := strconv.Atoi(strings.TrimSpace(string(b)))
	if err != nil || n < 0 {
		return 0
	}
	return n
}

func startPause(failed int) time.Duration {
	if failed <= 0 {
		return 0
	}
	return min(time.Second<<min(failed-1, 10), longestPause)
}

// startsFile returns the file of the count of the service that this process is, or "".
func startsFile() string {
	own := DefaultSocket()
	if own == "" {
		return ""
	}
	return filepath.Join(filepath.Dir(own), "starts")
}
