package endtoend_test

import (
	"bytes"
	"context"
	"encoding/json"
	"fmt"
	"io"
	"net/http"
	"os"
	"runtime"
	"runtime/debug"
	"runtime/metrics"
	"strconv"
	"strings"
	"sync"
	"time"

	"github.com/delegate-io/dlite/logger"
	"github.com/delegate-io/dlite/secrets"
)

// stormEnv, if set, makes the test binary a delegate whose steps write logs, see
// TestLogsOutlastAStorm. Its value is a storm as JSON.
const stormEnv = "DLITE_TEST_LOGSTORM_STEPS"

// storm describes the output of the steps and its destination.
type storm struct {
	URL          string
	Steps, Lines int
	Dir          string
}

// calm is the result of a storm.
type calm struct {
	Took time.Duration
	// Memory is the memory that Go's runtime has from the system, Resident the process's
	// memory in the system's count. Both are in bytes: before the first step, and the maximum.
	// Resident is 0 if the system does not report it.
	IdleMemory, PeakMemory, IdleResident, PeakResident int64
	// Lost holds the errors of Close.
	Lost []string
}

const (
	stormToken  = "fake-log-token"
	stormSecret = `fake"secret\of the storm`
	stormMask   = "******"
)

func stormKey(step int) string { return fmt.Sprintf("storm/step:%d", step) }

// stormLine returns the n-th line of a step. secret is the text in place of the step's secret,
// if the step has one.
func stormLine(dst []byte, step, n int, secret string) []byte {
	dst = fmt.Appendf(dst, "step %d line %d compiling ", step, n)
	for i := range (n*7 + step) % 12 {
		dst = fmt.Appendf(dst, "pkg/%x ", (n+i)*2654435761)
	}
	switch n % 100 {
	case 17:
		dst = append(append(dst, secret...), " is what it printed"...)
	case 42:
		dst = append(dst, "\"quoted\" \\ \ttab \x1b[31mcolour\x1b[0m é 😀"...)
	}
	return append(dst, '\n')
}

// runStorm writes the logs of all steps at the same time, closes them, and prints the result
// on standard output.
func runStorm() {
	var st storm
	if err := json.Unmarshal([]byte(os.Getenv(stormEnv)), &st); err != nil {
		panic(err)
	}
	var c calm
	set := secrets.NewSet(secrets.Config{}, stormSecret)
	client := &http.Client{Transport: &http.Transport{MaxIdleConnsPerHost: st.Steps}}
	runtime.GC()
	debug.FreeOSMemory()
	c.IdleMemory, c.IdleResident = memory(), resident("VmRSS")
	c.PeakMemory = c.IdleMemory
	sampled, done := make(chan struct{}), make(chan struct{})
	go func() {
		defer close(sampled)
		t := time.NewTicker(5 * time.Millisecond)
		defer t.Stop()
		for {
			c.PeakMemory = max(c.PeakMemory, memory())
			select {
			case <-t.C:
			case <-done:
				return
			}
		}
	}()

	began := time.Now()
	lost := make(chan error, st.Steps)
	var steps sync.WaitGroup
	for i := range st.Steps {
		steps.Go(func() { lost <- stormStep(&st, client, set, i) })
	}
	steps.Wait()
	close(lost)
	c.Took = time.Since(began)
	close(done)
	<-sampled
	c.PeakResident = resident("VmHWM")
	for err := range lost {
		if err != nil {
			c.Lost = append(c.Lost, err.Error())
		}
	}
	if err := json.NewEncoder(os.Stdout).Encode(c); err != nil {
		panic(err)
	}
	os.Exit(0)
}

// stormStep writes one log. Its writes end at any byte of a line.
func stormStep(st *storm, client *http.Client, set *secrets.Set, i int) error {
	s := logger.OpenStream(context.Background(), logger.StreamConfig{
		URL: st.URL, Token: stormToken, Account: "acc", Key: stormKey(i), HTTPClient: client, TempDir: st.Dir,
		IndirectUpload: i%2 == 0,
	})
	m := secrets.NewMasker(s, set)
	var pending []byte
	for n := range st.Lines {
		pending = stormLine(pending, i, n, stormSecret)
		for size := 1 + (n*31+i)%4096; len(pending) > size; size = 4096 {
			_, _ = m.Write(pending[:size])
			pending = append(pending[:0], pending[size:]...)
		}
	}
	_, _ = m.Write(bytes.TrimSuffix(pending, []byte("\n"))) // the last line has no newline
	_ = m.Close()
	return s.Close(context.Background())
}

// memory returns the memory that Go's runtime has from the system, in bytes.
func memory() int64 {
	s := []metrics.Sample{{Name: "/memory/classes/total:bytes"}, {Name: "/memory/classes/heap/released:bytes"}}
	metrics.Read(s)
	return int64(s[0].Value.Uint64() - s[1].Value.Uint64())
}

// resident returns a value of the process's memory in Linux's count, in bytes.
func resident(name string) int64 {
	f, err := os.Open("/proc/self/status")
	if err != nil {
		return 0
	}
	defer func() { _ = f.Close() }()
	text, _ := io.ReadAll(f)
	_, rest, _ := strings.Cut(string(text), name+":")
	if fields := strings.Fields(rest); len(fields) > 0 {
		kib, _ := strconv.ParseInt(fields[0], 10, 64)
		return kib << 10
	}
	return 0
}
