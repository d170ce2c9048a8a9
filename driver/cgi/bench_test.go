//go:build unix

package cgi_test

import (
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/delegate-io/dlite/task"
)

// goProgram is a CGI program as net/http/cgi makes one.
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

// BenchmarkCall is a CGI call next to a bare fork and exec of the same program with
// the same variables, in turns. Goal: at most 1.3.
func BenchmarkCall(b *testing.B) {
	for name, program := range map[string]func(*testing.B) []byte{
		"go":    compile,
		"shell": func(*testing.B) []byte { return []byte("#!/bin/sh\nprintf 'A: b\\n\\nok'\n") },
	} {
		b.Run(name, func(b *testing.B) {
			r := newRig(b)
			w := r.program(program(b))
			tk := r.task(w, `{"id":1}`)
			r.answer(w, `{"id":1}`) // it is in the cache now
			file := filepath.Join(r.cache, w.Executable.Executables[1].SHA256)
			env := []string{"PATH=" + os.Getenv("PATH"), "REQUEST_METHOD=GET", "SERVER_PROTOCOL=HTTP/1.1", "HTTP_HOST=x", "SCRIPT_NAME=/"}
			var bare, ours []time.Duration
			b.ReportAllocs()
			for b.Loop() {
				start := time.Now()
				cmd := exec.CommandContext(b.Context(), file)
				cmd.Env = env
				if err := cmd.Run(); err != nil {
					b.Fatal(err)
				}
				middle := time.Now()
				if resp, _ := task.Serve(b.Context(), r.h, tk); resp.Code != task.OK {
					b.Fatal(resp.Error)
				}
				bare, ours = append(bare, middle.Sub(start)), append(ours, time.Since(middle))
			}
			slices.Sort(bare)
			slices.Sort(ours)
			m := len(bare) / 2
			b.ReportMetric(float64(bare[m].Microseconds()), "bare-µs")
			b.ReportMetric(float64(ours[m].Microseconds()), "ours-µs")
			b.ReportMetric(float64(ours[m])/float64(bare[m]), "ratio")
			b.Logf("%d turns", len(bare))
		})
	}
}
