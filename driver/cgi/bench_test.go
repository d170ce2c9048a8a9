//go:build unix

package cgi_test

import (
	"bytes"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/delegate-io/dlite/driver/cgi"
	"github.com/delegate-io/dlite/task"
)

// goProgram is a CGI program that uses net/http/cgi.
const goProgram = `package main

import (
	"net/http"
	"net/http/cgi"
)

func main() {
	_ = cgi.Serve(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) { _, _ = w.Write([]byte("ok")) }))
}
`

func compile(b *testing.B) []byte {
	b.Helper()
	dir := b.TempDir()
	require.NoError(b, os.WriteFile(filepath.Join(dir, "main.go"), []byte(goProgram), 0o600))
	out, err := exec.CommandContext(b.Context(), "go", "build", "-o", filepath.Join(dir, "program"), filepath.Join(dir, "main.go")).CombinedOutput()
	require.NoError(b, err, string(out))
	program, err := os.ReadFile(filepath.Join(dir, "program"))
	require.NoError(b, err)
	return program
}

// BenchmarkCall compares, in turns, a CGI call with a fork and exec of the same program
// with the same variables. Goal: a ratio of at most 1.3. The third measurement is os/exec
// with the three pipes that a call needs.
func BenchmarkCall(b *testing.B) {
	for name, program := range map[string]func(*testing.B) []byte{
		"go":    compile,
		"shell": func(*testing.B) []byte { return []byte("#!/bin/sh\nprintf 'A: b\\n\\nok'\n") },
	} {
		b.Run(name, func(b *testing.B) {
			r := newRig(b, func(c *cgi.Config) { c.OpenLog = nil })
			w := r.program(program(b))
			tk := r.task(w, `{"id":1}`)
			r.answer(w, `{"id":1}`) // it is in the cache now
			file := filepath.Join(r.cache, w.Executable.Executables[1].SHA256)
			env := []string{"PATH=" + os.Getenv("PATH"), "REQUEST_METHOD=GET", "SERVER_PROTOCOL=HTTP/1.1", "HTTP_HOST=x", "SCRIPT_NAME=/"}
			var bare, piped, ours []time.Duration
			b.ReportAllocs()
			for b.Loop() {
				start := time.Now()
				cmd := exec.CommandContext(b.Context(), file)
				cmd.Env = env
				if err := cmd.Run(); err != nil {
					b.Fatal(err)
				}
				bare = append(bare, time.Since(start))
				start = time.Now()
				cmd = exec.CommandContext(b.Context(), file)
				var out, errs bytes.Buffer
				cmd.Env, cmd.Stdin, cmd.Stdout, cmd.Stderr = env, strings.NewReader(`{"id":1}`), &out, &errs
				if err := cmd.Run(); err != nil {
					b.Fatal(err)
				}
				piped = append(piped, time.Since(start))
				start = time.Now()
				if resp, _ := task.Serve(b.Context(), r.h, tk); resp.Code != task.OK {
					b.Fatal(resp.Error)
				}
				ours = append(ours, time.Since(start))
			}
			slices.Sort(bare)
			slices.Sort(piped)
			slices.Sort(ours)
			m := len(bare) / 2
			b.ReportMetric(float64(bare[m].Microseconds()), "bare-µs")
			b.ReportMetric(float64(ours[m].Microseconds()), "ours-µs")
			b.ReportMetric(float64(ours[m])/float64(bare[m]), "ratio")
			b.ReportMetric(float64(piped[m])/float64(bare[m]), "piped-ratio")
			b.Logf("%d turns", len(bare))
		})
	}
}
