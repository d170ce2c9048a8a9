//go:build unix

package docs_test

import (
	"bytes"
	"context"
	"fmt"
	"io"
	"net"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"slices"
	"strconv"
	"strings"
	"sync"
	"syscall"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
	"go.uber.org/goleak"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

// The HTML comment on the line before a fence marks a shell block as runnable:
//
//	<!-- runnable -->                              the block must exit with 0
//	<!-- runnable, prints: TEXT -->                and its output must contain TEXT
//	<!-- runnable in the background, prints: TEXT -->
//
// A block in the background has a terminal of its own. The next block starts when
// the output contains TEXT. The test interrupts the block after the last one.
//
// The other blocks of a page run in one shell, in the order of the page. A page with
// the line <!-- runnable after NAME.md --> continues the shell of that page.
var runnable = regexp.MustCompile(`^runnable( in the background)?(?:, prints: (.+))?$`)

var continues = regexp.MustCompile(`(?m)^<!-- runnable after (\S+\.md) -->$`)

const (
	managerPort = "3460" // that the pages use; a run replaces it by a free one
	patience    = 2 * time.Minute
)

func TestRunnableBlocksSucceed(t *testing.T) {
	t.Parallel()
	byPage := map[string][]block{}
	follows := map[string]string{} // page to the page before it
	var starts, programs []string
	for _, page := range pages(t) {
		found, prose := blocks(t, page)
		found = slices.DeleteFunc(found, func(b block) bool { return !strings.HasPrefix(b.marker, "runnable") })
		if len(found) == 0 {
			continue
		}
		byPage[page] = found
		for _, b := range found {
			require.Regexp(t, runnable, b.marker, b.name())
			require.Equal(t, "sh", b.lang, b.name())
			for _, m := range regexp.MustCompile(`go run (\./examples/\w+)`).FindAllStringSubmatch(b.text, -1) {
				programs = append(programs, m[1])
			}
		}
		if m := continues.FindStringSubmatch(prose); m != nil {
			follows[page] = filepath.Join("docs", m[1])
		} else {
			starts = append(starts, page)
		}
	}
	require.NotEmpty(t, starts)
	bin := buildPrograms(t, programs)
	for _, start := range starts {
		list := byPage[start]
		for _, page := range pages(t) {
			if follows[page] == start {
				list = append(list, byPage[page]...)
				delete(follows, page)
			}
		}
		t.Run(filepath.Base(start), func(t *testing.T) {
			t.Parallel()
			runBlocks(t, bin, list)
		})
	}
	require.Empty(t, follows, "a page continues one that has no runnable blocks, or that continues another one")
}

// buildPrograms builds the programs, and makes a command "go" that runs them in place
// of "go run". It returns the directory with that command. The programs themselves stay
// in the cache of the repository: linking them anew takes longer than the test.
func buildPrograms(t *testing.T, programs []string) string {
	t.Helper()
	repository, err := filepath.Abs(root)
	require.NoError(t, err)
	cache := filepath.Join(repository, ".cache", "docs")
	slices.Sort(programs)
	args := append([]string{"build", "-ldflags=-s -w", "-o", cache + "/"}, slices.Compact(programs)...)
	build := exec.CommandContext(t.Context(), "go", args...)
	build.Dir = root
	out, err := build.CombinedOutput()
	require.NoError(t, err, "%s", out)
	real, err := exec.LookPath("go")
	require.NoError(t, err)
	script := fmt.Sprintf(`#!/bin/sh
case "$1 $2" in
"run ./examples/"*) program=${2#./examples/}; shift 2; exec %q/"$program" "$@" ;;
esac
cd %q && exec %q "$@"
`, cache, repository, real)
	bin := t.TempDir()
	require.NoError(t, os.WriteFile(filepath.Join(bin, "go"), []byte(script), 0o700)) //nolint:gosec // it is a program
	return bin
}

// session is the machine of a reader: a directory that looks like the repository, a
// home, and free ports.
type session struct {
	dir  string
	env  []string
	port string
}

func newSession(t *testing.T, bin string) *session {
	t.Helper()
	repository, err := filepath.Abs(root)
	require.NoError(t, err)
	s := &session{dir: t.TempDir(), port: freePort(t)}
	for _, name := range []string{"docs", "deploy", "examples"} {
		require.NoError(t, os.Symlink(filepath.Join(repository, name), filepath.Join(s.dir, name)))
	}
	home := t.TempDir()
	s.env = []string{
		"PATH=" + bin + ":" + os.Getenv("PATH"), "HOME=" + home, "TMPDIR=" + t.TempDir(),
		"LISTEN=127.0.0.1:" + s.port, "HTTP_BIND=off",
	}
	for _, name := range []string{"GOCACHE", "GOMODCACHE", "GOPROXY", "DOCKER_HOST"} {
		if v := os.Getenv(name); v != "" {
			s.env = append(s.env, name+"="+v)
		}
	}
	return s
}

func freePort(t *testing.T) string {
	t.Helper()
	l, err := new(net.ListenConfig).Listen(t.Context(), "tcp", "127.0.0.1:0")
	require.NoError(t, err)
	defer func() { _ = l.Close() }()
	return strconv.Itoa(l.Addr().(*net.TCPAddr).Port)
}

// start starts bash in a process group of its own. Its output goes to out. The test
// interrupts the group at its end, and kills the remaining processes a while later.
func (s *session) start(t *testing.T, out io.Writer, args ...string) (stdin io.Writer, ended <-chan struct{}) {
	t.Helper()
	cmd := exec.Command("bash", args...) //nolint:noctx // the cleanup ends it in an orderly way
	cmd.Dir, cmd.Env, cmd.Stdout, cmd.Stderr = s.dir, s.env, out, out
	cmd.SysProcAttr = &syscall.SysProcAttr{Setpgid: true}
	in, err := cmd.StdinPipe()
	require.NoError(t, err)
	require.NoError(t, cmd.Start())
	done := make(chan struct{})
	go func() {
		_ = cmd.Wait()
		close(done)
	}()
	t.Cleanup(func() {
		_ = in.Close()
		_ = syscall.Kill(-cmd.Process.Pid, syscall.SIGINT)
		stuck := time.AfterFunc(30*time.Second, func() { _ = syscall.Kill(-cmd.Process.Pid, syscall.SIGKILL) })
		defer stuck.Stop()
		<-done
	})
	return in, done
}

func runBlocks(t *testing.T, bin string, list []block) {
	t.Helper()
	s := newSession(t, bin)
	out := newOutput()
	stdin, ended := s.start(t, out, "-euo", "pipefail")
	for i, b := range list {
		m := runnable.FindStringSubmatch(b.marker)
		text := strings.ReplaceAll(b.text, managerPort, s.port)
		if m[1] != "" {
			own := newOutput()
			_, ended := s.start(t, own, "-euo", "pipefail", "-c", text)
			require.True(t, own.await(t.Context(), m[2], ended), "%s does not print %q:\n%s", b.name(), m[2], own)
			continue
		}
		file := filepath.Join(t.TempDir(), "block.sh")
		require.NoError(t, os.WriteFile(file, []byte(text), 0o600))
		out.reset()
		end := fmt.Sprintf("== end of block %d ==", i)
		_, err := fmt.Fprintf(stdin, "source %q < /dev/null\necho; echo %q\n", file, end)
		require.NoError(t, err, "%s: the shell has ended:\n%s", b.name(), out)
		require.True(t, out.await(t.Context(), end, ended), "%s fails:\n%s\n%s", b.name(), text, out)
		require.Contains(t, out.String(), m[2], b.name())
	}
}

// output collects the output of a process, and signals each change.
type output struct {
	mu      sync.Mutex
	text    bytes.Buffer  // guarded by mu
	changed chan struct{} // guarded by mu; closed by each change
}

func newOutput() *output { return &output{changed: make(chan struct{})} }

// Write implements [io.Writer].
func (o *output) Write(p []byte) (int, error) {
	o.mu.Lock()
	defer o.mu.Unlock()
	close(o.changed)
	o.changed = make(chan struct{})
	return o.text.Write(p)
}

func (o *output) String() string {
	o.mu.Lock()
	defer o.mu.Unlock()
	return o.text.String()
}

func (o *output) reset() {
	o.mu.Lock()
	defer o.mu.Unlock()
	o.text.Reset()
}

// await waits until the output contains a text. It reports false if the process ends
// without it, or takes longer than patience.
func (o *output) await(ctx context.Context, text string, ended <-chan struct{}) bool {
	ctx, cancel := context.WithTimeout(ctx, patience)
	defer cancel()
	for over := false; ; {
		o.mu.Lock()
		found, changed := strings.Contains(o.text.String(), text), o.changed
		o.mu.Unlock()
		switch {
		case found:
			return true
		case over:
			return false
		}
		select {
		case <-changed:
		case <-ended:
			over = true // with one more look at the output
		case <-ctx.Done():
			return false
		}
	}
}
