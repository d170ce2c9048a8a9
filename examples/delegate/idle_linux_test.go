package main

import (
	"net/http/httptest"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"strconv"
	"syscall"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/delegate-io/dlite/manager"
)

// BenchmarkIdle measures the resident memory of the stripped program after a minute without
// work. Anonymous memory is the program's own; the rest are pages of its file.
func BenchmarkIdle(b *testing.B) {
	const account, secret = "demo", "00000000000000000000000000000000"
	dir := b.TempDir()
	program := filepath.Join(dir, "delegate")
	build := exec.CommandContext(b.Context(), "go", "build", "-trimpath", "-ldflags=-s -w", "-o", program, ".")
	build.Env = append(os.Environ(), "CGO_ENABLED=0")
	out, err := build.CombinedOutput()
	require.NoError(b, err, "%s", out)
	m, err := manager.New(manager.Config{Accounts: map[string]string{account: secret}})
	require.NoError(b, err)
	srv := httptest.NewServer(m)
	defer srv.Close()
	defer m.Close() //nolint:errcheck // a benchmark

	for b.Loop() {
		delegate := exec.CommandContext(b.Context(), program, "server")
		delegate.Env = append(os.Environ(), "ACCOUNT_ID="+account, "TOKEN="+secret, "URL="+srv.URL,
			"WORK_DIR="+dir, "LEDGER_DIR="+filepath.Join(dir, "ledger"), "HTTP_BIND=off")
		require.NoError(b, delegate.Start())
		<-time.After(time.Minute)
		status, err := os.ReadFile(filepath.Join("/proc", strconv.Itoa(delegate.Process.Pid), "status"))
		require.NoError(b, err)
		for unit, field := range map[string]string{"MiB-resident": "VmRSS", "MiB-anonymous": "RssAnon"} {
			found := regexp.MustCompile(field + `:\s+(\d+) kB`).FindSubmatch(status)
			require.NotNil(b, found, field)
			kib, err := strconv.Atoi(string(found[1]))
			require.NoError(b, err)
			b.ReportMetric(float64(kib)/1024, unit)
		}
		require.NoError(b, delegate.Process.Signal(syscall.SIGTERM))
		require.NoError(b, delegate.Wait())
	}
}
