package endtoend_test

import (
	"bytes"
	"crypto/rand"
	"os"
	"os/exec"
	"strconv"
	"strings"
	"sync"
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
)

// huntVariable is in the environment of each program and each step of a hunt. Its
// value is different in each hunt.
const huntVariable = "LEAK_HUNT"

// processes finds the processes that belong to a hunt: descendants of the test,
// processes whose environment has the hunt's marker, and the engine's processes that
// name a container of the hunt. It ignores all other processes of the machine. It is
// safe for concurrent use.
type processes struct {
	marker string

	mu sync.Mutex
	// known are the processes of the last reading, by id.
	known map[string]*process
	// containers are the ids of the hunt's containers.
	containers map[string]struct{}
	// unowned are command lines of other processes. The engine may start a process
	// for a container before its id is known, so they are checked at the end again.
	unowned map[string]struct{}
}

// process is one process of the machine.
type process struct {
	owned bool
	line  string // the command line when owned was determined
}

func newProcesses() *processes {
	return &processes{
		marker: rand.Text(), known: map[string]*process{}, containers: map[string]struct{}{}, unowned: map[string]struct{}{},
	}
}

// environment is the entry that marks a process.
func (p *processes) environment() string { return huntVariable + "=" + p.marker }

// addContainer makes the processes that name this container processes of the hunt.
func (p *processes) addContainer(id string) {
	p.mu.Lock()
	defer p.mu.Unlock()
	p.containers[id] = struct{}{}
}

// commandLines returns the command lines of the hunt's processes that are new or have
// changed since the last call.
func (p *processes) commandLines() [][]byte {
	p.mu.Lock()
	defer p.mu.Unlock()
	dir, err := os.Open("/proc")
	if err != nil {
		return nil
	}
	names, _ := dir.Readdirnames(-1)
	_ = dir.Close()
	var lines [][]byte
	current := make(map[string]*process, len(names))
	for _, id := range names {
		if id[0] < '0' || id[0] > '9' {
			continue
		}
		entry := p.known[id]
		if entry == nil {
			// The parent is read first, because a short process may end before its command
			// line is read.
			entry = &process{owned: p.hasOwnedParent(id, current)}
		}
		current[id] = entry
		line, err := os.ReadFile("/proc/" + id + "/cmdline")
		if err != nil || len(line) == 0 || string(line) == entry.line {
			continue
		}
		entry.line = string(line)
		if !entry.owned {
			entry.owned = p.hasMarker(id) || p.namesContainer(entry.line)
		}
		if entry.owned {
			lines = append(lines, line)
		} else {
			p.unowned[entry.line] = struct{}{}
		}
	}
	p.known = current
	return lines
}

// late returns the command lines of processes that named a container of the hunt
// before its id was known.
func (p *processes) late() [][]byte {
	p.mu.Lock()
	defer p.mu.Unlock()
	var lines [][]byte
	for line := range p.unowned {
		if p.namesContainer(line) {
			lines = append(lines, []byte(line))
		}
	}
	return lines
}

// hasOwnedParent reports whether a process descends from this one.
func (p *processes) hasOwnedParent(id string, current map[string]*process) bool {
	self := strconv.Itoa(os.Getpid())
	const deepest = 64
	for range deepest {
		if id == self {
			return true
		}
		if entry := current[id]; entry != nil && entry.owned {
			return true
		}
		if entry := p.known[id]; entry != nil && entry.owned {
			return true
		}
		stat, err := os.ReadFile("/proc/" + id + "/stat")
		if err != nil {
			return false
		}
		// pid (name) state ppid: the name may hold spaces and parentheses.
		_, rest, _ := bytes.Cut(stat[bytes.LastIndexByte(stat, ')')+1:], []byte(" "))
		fields := bytes.Fields(rest)
		if len(fields) < 2 {
			return false
		}
		if id = string(fields[1]); id == "0" || id == "1" {
			return false
		}
	}
	return false
}

func (p *processes) hasMarker(id string) bool {
	environ, err := os.ReadFile("/proc/" + id + "/environ")
	return err == nil && bytes.Contains(environ, []byte(p.environment()))
}

func (p *processes) namesContainer(line string) bool {
	for id := range p.containers {
		if strings.Contains(line, id) {
			return true
		}
	}
	return false
}

// A hunt finds the processes that it started, and no others.
func TestAHuntSeesItsOwnProcesses(t *testing.T) {
	t.Parallel()
	start := func(script string, environ ...string) {
		ready, err := os.CreateTemp(t.TempDir(), "ready")
		require.NoError(t, err)
		require.NoError(t, ready.Close())
		require.NoError(t, os.Remove(ready.Name()))
		// The child outlives the shell and then does not descend from this test. It ends when
		// the directory of the file is removed.
		cmd := exec.CommandContext(t.Context(), "sh", "-c", script, "sh", ready.Name())
		cmd.Env = append([]string{"PATH=" + os.Getenv("PATH")}, environ...)
		out, err := cmd.CombinedOutput()
		require.NoError(t, err, "%s", out)
	}
	const daemon = `setsid sh -c 'trap "" HUP; echo $$ > "$1"; while [ -e "$1" ]; do sleep 0.05; done' NAME "$1" >/dev/null 2>&1 & until [ -s "$1" ]; do sleep 0.01; done`
	seen := func(p *processes, text string) bool {
		for _, line := range p.commandLines() {
			if bytes.Contains(line, []byte(text)) {
				return true
			}
		}
		return false
	}
	name := func() string { return "hunted-" + rand.Text() }

	p, marked, other, child := newProcesses(), name(), name(), name()
	start(strings.ReplaceAll(daemon, "NAME", marked), p.environment())
	assert.True(t, seen(p, marked), "a process with the marker")
	start(strings.ReplaceAll(daemon, "NAME", other))
	assert.False(t, seen(p, other), "a process without the marker")

	cmd := exec.CommandContext(t.Context(), "sh", "-c", "echo up; read -r line", child)
	in, err := cmd.StdinPipe()
	require.NoError(t, err)
	out, err := cmd.StdoutPipe()
	require.NoError(t, err)
	cmd.Env = []string{}
	require.NoError(t, cmd.Start())
	_, err = out.Read(make([]byte, 3))
	require.NoError(t, err)
	assert.True(t, seen(p, child), "a descendant")
	assert.False(t, seen(p, child), "a command line that is known")
	require.NoError(t, in.Close())
	_ = cmd.Wait()

	assert.Empty(t, p.late())
	p.addContainer(other)
	require.Len(t, p.late(), 1, "a process that names a container")
	assert.Contains(t, string(p.late()[0]), other)
}
