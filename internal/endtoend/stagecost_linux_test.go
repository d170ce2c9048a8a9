package endtoend_test

import (
	"bytes"
	"context"
	"encoding/json"
	"fmt"
	"io"
	"io/fs"
	"net/http"
	"os"
	"path/filepath"
	"strconv"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"
	"golang.org/x/sync/errgroup"

	"github.com/delegate-io/dlite/manager/api"
)

// BenchmarkStage runs stages of one host step through the bundled manager, with SQLite,
// and the bundled delegate, 4 at a time. It reports the CPU time of each process for a
// stage. The time of the delegate includes that of its children: the supervisors of the
// transactions, and the steps. The memory and the data of the manager are those at the
// end: with -benchtime 20000x they show that ended stages are bounded.
func BenchmarkStage(b *testing.B) {
	p := startPrograms(b)
	client := &http.Client{Transport: &http.Transport{MaxIdleConnsPerHost: 8}}
	b.Cleanup(client.CloseIdleConnections)
	require.NoError(b, p.oneStep(b.Context(), client, "first"))
	servers, delegates := cpuTicks(b, p.manager.Process.Pid), cpuTicks(b, p.delegate.Process.Pid)
	var all errgroup.Group
	all.SetLimit(4)
	b.ResetTimer()
	for i := range b.N {
		all.Go(func() error { return p.oneStep(b.Context(), client, fmt.Sprint("stage-", i)) })
	}
	require.NoError(b, all.Wait())
	b.StopTimer()
	perStage := 10 / float64(b.N) // a tick is 10 ms
	b.ReportMetric(float64(cpuTicks(b, p.manager.Process.Pid)-servers)*perStage, "manager-cpu-ms/stage")
	b.ReportMetric(float64(cpuTicks(b, p.delegate.Process.Pid)-delegates)*perStage, "delegate-cpu-ms/stage")
	b.ReportMetric(float64(b.N)/b.Elapsed().Seconds(), "stages/s")
	b.ReportMetric(float64(residentMemory(b, p.manager.Process.Pid))/(1<<20), "manager-MiB")
	b.ReportMetric(float64(sizeOfFiles(b, p.data, "manager.db"))/(1<<20), "database-MiB")
	b.ReportMetric(float64(sizeOfFiles(b, p.data, ""))/(1<<20), "data-MiB")
}

// oneStep runs a stage of one host step to its end.
func (p *programs) oneStep(ctx context.Context, client *http.Client, id string) error {
	body := `{"id":"` + id + `","steps":[{"id":"build","data":{"run":{"entrypoint":["sh","-c"],"commands":["echo done"]}}}]}`
	for method, path := http.MethodPost, "/api/stages?accountId="+p.account; ; {
		req, err := http.NewRequestWithContext(ctx, method, p.url+path, strings.NewReader(body))
		if err != nil {
			return err
		}
		req.Header.Set("Authorization", "Bearer "+p.token)
		res, err := client.Do(req)
		if err != nil {
			return err
		}
		text, err := io.ReadAll(res.Body)
		_ = res.Body.Close()
		if err != nil {
			return err
		}
		var st api.Stage
		if err := json.Unmarshal(text, &st); err != nil || res.StatusCode >= http.StatusMultipleChoices {
			return fmt.Errorf("%s: %d: %s", id, res.StatusCode, text)
		}
		if st.Status.Ended() {
			if st.Status != api.Success {
				return fmt.Errorf("%s: %s: %s", id, st.Status, st.Error)
			}
			return nil
		}
		method, path, body = http.MethodGet, "/api/stages/"+id+"?wait=60&accountId="+p.account, ""
	}
}

// cpuTicks returns the CPU time of a process and of its children that it has waited for,
// in user and system mode, in ticks.
func cpuTicks(b *testing.B, pid int) (sum int) {
	b.Helper()
	text, err := os.ReadFile(fmt.Sprintf("/proc/%d/stat", pid))
	require.NoError(b, err)
	fields := strings.Fields(string(text[bytes.LastIndexByte(text, ')')+1:]))
	for _, field := range fields[11:15] {
		n, err := strconv.Atoi(field)
		require.NoError(b, err)
		sum += n
	}
	return sum
}

// residentMemory returns the resident memory of a process, in bytes.
func residentMemory(b testing.TB, pid int) int {
	b.Helper()
	text, err := os.ReadFile(fmt.Sprintf("/proc/%d/statm", pid))
	require.NoError(b, err)
	pages, err := strconv.Atoi(strings.Fields(string(text))[1])
	require.NoError(b, err)
	return pages * os.Getpagesize()
}

// sizeOfFiles returns the size of the files below a directory whose names have a prefix.
// Files may disappear meanwhile.
func sizeOfFiles(b testing.TB, dir, prefix string) (sum int64) {
	b.Helper()
	require.NoError(b, filepath.WalkDir(dir, func(_ string, d fs.DirEntry, err error) error {
		if err != nil || d.IsDir() || !strings.HasPrefix(d.Name(), prefix) {
			return nil //nolint:nilerr // it has disappeared
		}
		if info, err := d.Info(); err == nil {
			sum += info.Size()
		}
		return nil
	}))
	return sum
}
