package main

import (
	"bufio"
	"net/http/httptest"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"strconv"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/delegate-io/dlite/manager"
)

// idleFor is how long the idle delegate is measured.
const idleFor = 30 * time.Second

// BenchmarkIdle measures an idle delegate: the size of its stripped program, the time from its
// start to its registration, and the processor time and memory while it waits.
func BenchmarkIdle(b *testing.B) {
	program := filepath.Join(b.TempDir(), "minimal")
	build := exec.CommandContext(b.Context(), "go", "build", "-trimpath", "-ldflags=-s -w", "-o", program, ".")
	build.Env = append(os.Environ(), "CGO_ENABLED=0")
	out, err := build.CombinedOutput()
	require.NoError(b, err, "%s", out)
	info, err := os.Stat(program)
	require.NoError(b, err)

	const account, secret = "demo", "00000000000000000000000000000000"
	m, err := manager.New(manager.Config{Accounts: map[string]string{account: secret}})
	require.NoError(b, err)
	srv := httptest.NewServer(m)
	defer srv.Close()
	defer m.Close() //nolint:errcheck // a benchmark

	for b.Loop() {
		delegate := exec.CommandContext(b.Context(), program, "-url", srv.URL, "-account", account)
		delegate.Env = append(os.Environ(), "TOKEN="+secret)
		log, err := delegate.StderrPipe()
		require.NoError(b, err)
		begin := time.Now()
		require.NoError(b, delegate.Start())
		for lines := bufio.NewScanner(log); lines.Scan() && !strings.Contains(lines.Text(), "registered"); {
		}
		b.ReportMetric(float64(time.Since(begin).Microseconds())/1000, "ms-to-registered")
		before := cpuTime(b, delegate.Process.Pid)
		<-time.After(idleFor)
		b.ReportMetric(float64((cpuTime(b, delegate.Process.Pid) - before).Milliseconds()), "ms-CPU/30s")
		b.ReportMetric(residentMiB(b, delegate.Process.Pid), "MiB-resident")
		require.NoError(b, delegate.Process.Signal(syscall.SIGTERM))
		require.NoError(b, delegate.Wait())
	}
	b.ReportMetric(float64(info.Size())/1e6, "MB-program")
}

// cpuTime returns the processor time of a process. Its resolution is a clock tick of 10 ms.
func cpuTime(b *testing.B, pid int) time.Duration {
	b.Helper()
	text, err := os.ReadFile(filepath.Join("/proc", strconv.Itoa(pid), "stat"))
	require.NoError(b, err)
	fields := strings.Fields(string(text[strings.LastIndexByte(string(text), ')')+1:]))
	user, err := strconv.Atoi(fields[11])
	require.NoError(b, err)
	system, err := strconv.Atoi(fields[12])
	require.NoError(b, err)
	return time.Duration(user+system) * 10 * time.Millisecond
}

func residentMiB(b *testing.B, pid int) float64 {
	b.Helper()
	text, err := os.ReadFile(filepath.Join("/proc", strconv.Itoa(pid), "status"))
	require.NoError(b, err)
	kib := regexp.MustCompile(`VmRSS:\s+(\d+) kB`).FindSubmatch(text)
	require.NotNil(b, kib)
	n, err := strconv.Atoi(string(kib[1]))
	require.NoError(b, err)
	return float64(n) / 1024
}
