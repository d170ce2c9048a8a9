package main

import (
	"bytes"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/creack/pty"
	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/delegate-io/dlite/internal/testbed"
)

// screen collects what a terminal shows.
type screen struct {
	mu   sync.Mutex
	text bytes.Buffer
	more chan struct{}
}

func (s *screen) Write(b []byte) (int, error) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.text.Write(b)
	select {
	case s.more <- struct{}{}:
	default:
	}
	return len(b), nil
}

var escapes = regexp.MustCompile(`\x1b(\[[0-9;?>=]*[a-zA-Z]|\][^\x07\x1b]*(\x07|\x1b\\)|[=>()][A-Z0-9]?)|[\r\x07\x08]`)

// seen returns the text since an offset, without control sequences.
func (s *screen) seen(from int) string {
	s.mu.Lock()
	defer s.mu.Unlock()
	return escapes.ReplaceAllString(string(s.text.Bytes()[from:]), "")
}

func (s *screen) len() int {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.text.Len()
}

// wait waits until a text is on the screen.
func (s *screen) wait(t *testing.T, from int, text string) {
	t.Helper()
	for late := time.After(30 * time.Second); !strings.Contains(s.seen(from), text); {
		select {
		case <-s.more:
		case <-late:
			require.FailNow(t, "the shell does not show "+text, s.seen(0))
		}
	}
}

// shells returns the ways to start each shell without the settings of the user.
var shells = map[string][]string{"bash": {"--norc", "--noprofile", "-i"}, "zsh": {"-f", "-i"}, "fish": {"--no-config", "-i"}}

// bin returns a folder with the program.
func bin(t *testing.T) string {
	t.Helper()
	dir := t.TempDir()
	require.NoError(t, os.WriteFile(filepath.Join(dir, "dlite"), []byte("#!/bin/sh\n"+asProgram+"=1 exec '"+os.Args[0]+"' \"$@\"\n"), 0o700)) //nolint:gosec // a program
	return dir
}

func TestShellsCompleteCommands(t *testing.T) {
	t.Parallel()
	for shell, args := range shells {
		t.Run(shell, func(t *testing.T) {
			t.Parallel()
			path, err := exec.LookPath(shell)
			if err != nil {
				testbed.Unavailable(t, shell, "%v", err)
			}
			s := alone(t)
			cmd := exec.CommandContext(t.Context(), path, args...)
			cmd.Dir, cmd.Env = s.dir, []string{"PATH=" + bin(t) + ":" + os.Getenv("PATH"), "HOME=" + s.dir, "TERM=xterm", "PS1=ready> ", "INPUTRC=/dev/null"}
			terminal, err := pty.StartWithSize(cmd, &pty.Winsize{Rows: 40, Cols: 120})
			require.NoError(t, err)
			shown := &screen{more: make(chan struct{}, 1)}
			copied := make(chan struct{})
			go func() {
				defer close(copied)
				b := make([]byte, 4096)
				for {
					n, err := terminal.Read(b)
					_, _ = shown.Write(b[:n])
					if err != nil {
						return // the shell has ended
					}
					if bytes.Contains(b[:n], []byte("\x1b[c")) || bytes.Contains(b[:n], []byte("\x1b[0c")) { // fish asks what the terminal is
						_, _ = terminal.WriteString("\x1b[?6c")
					}
				}
			}()
			t.Cleanup(func() {
				_ = cmd.Process.Kill()
				_ = cmd.Wait()
				_ = terminal.Close()
				<-copied
			})
			typed := func(text, want string) {
				t.Helper()
				from := shown.len()
				_, err := terminal.WriteString(text)
				require.NoError(t, err)
				shown.wait(t, from, want)
			}
			load := "source <(dlite completion " + shell + "); echo lo''aded\r"
			if shell == "fish" {
				load = "dlite completion fish | source; echo lo''aded\r"
			}
			typed(load, "loaded")
			typed("dlite subm\t", "dlite submit ")
			typed("\x15dlite completion z\t", "dlite completion zsh")
			typed("\x15dlite ls pip\t", "dlite ls pipelines")
			typed("\x15dlite run --skip-o\t", "dlite run --skip-other-stages")
			typed("\x15dlite lint fail\t", "dlite lint failing.yaml")
		})
	}
}

// A script for a shell is valid, also if the texts of the help contain special characters.
func TestTheScriptsHaveNoOtherQuotes(t *testing.T) {
	t.Parallel()
	assert.Equal(t, `'it'\''s $HOME'`, quoted("it's $HOME"))
}
