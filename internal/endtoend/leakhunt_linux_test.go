package endtoend_test

import (
	"bytes"
	"compress/gzip"
	"context"
	"crypto/sha256"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"sync"
	"syscall"
	"testing"
	"time"

	"github.com/docker/docker/api/types/container"
	"github.com/docker/docker/api/types/filters"
	"github.com/docker/docker/api/types/network"
	"github.com/klauspost/compress/zstd"
	"github.com/stretchr/testify/require"

	"github.com/delegate-io/dlite/driver"
	"github.com/delegate-io/dlite/internal/testbed"
)

// hunt looks for secrets in places that must not contain any. It is safe for concurrent use.
type hunt struct {
	needles   needles
	engine    *testbed.Engine
	processes *processes
	// delegate is the label's value of the containers that the hunt searches.
	delegate string
	// folders are searched, both files and names, except for files that a step writes: see
	// skipped.
	folders []string
	// works are the work directories below them.
	works []string
	// held is called once for each step that waits to be searched, with the name that the step
	// prints.
	held func(name string)

	mu       sync.Mutex
	finds    map[string]string              // places with a secret, and an excerpt
	searched map[string]int64               // bytes, by kind of place
	seen     map[[sha256.Size]byte]struct{} // hashes of searched texts
	files    map[string]read                // searched part of each file
	stages   map[string]struct{}            // the names of the transactions' directories
	shared   map[string]struct{}            // entries of /dev/shm that existed before the hunt
}

// read is the part of a file that was searched. The file may have grown since.
type read struct {
	inode    uint64
	size     int64
	modified time.Time
}

func newHunt(values map[string]string) *hunt {
	h := &hunt{
		finds: map[string]string{}, searched: map[string]int64{}, seen: map[[sha256.Size]byte]struct{}{}, files: map[string]read{},
		stages: map[string]struct{}{}, held: func(string) {}, processes: newProcesses(), shared: map[string]struct{}{},
	}
	older, _ := os.ReadDir("/dev/shm")
	for _, e := range older {
		h.shared[e.Name()] = struct{}{}
	}
	for name, v := range values {
		h.needles.add(name, v)
	}
	return h
}

// search searches a text. The counts are per kind of place.
func (h *hunt) search(kind, place string, text []byte) {
	sum := sha256.Sum256(text)
	h.mu.Lock()
	_, known := h.seen[sum]
	h.seen[sum] = struct{}{}
	h.mu.Unlock()
	if known {
		return
	}
	found := h.needles.find(text)
	h.mu.Lock()
	defer h.mu.Unlock()
	h.searched[kind] += int64(len(text))
	for _, f := range found {
		h.finds[kind+": "+place+": "+f.name] = f.text
	}
	delete(h.seen, sum)
	if len(found) == 0 {
		h.seen[sum] = struct{}{}
	}
}

// searchDecoded searches JSON, and the strings in it.
func (h *hunt) searchDecoded(kind, place string, text []byte) {
	h.search(kind, place, text)
	var plain strings.Builder
	var walk func(v any)
	walk = func(v any) {
		switch v := v.(type) {
		case string:
			plain.WriteString(v + "\n")
		case []any:
			for _, e := range v {
				walk(e)
			}
		case map[string]any:
			for k, e := range v {
				plain.WriteString(k + "\n")
				walk(e)
			}
		}
	}
	for d := json.NewDecoder(bytes.NewReader(text)); ; {
		var v any
		if d.Decode(&v) != nil {
			break
		}
		walk(v)
	}
	h.search(kind, place+" (its strings)", []byte(plain.String()))
}

// watch searches every place repeatedly until ctx ends, and the command lines of processes all
// the time.
func (h *hunt) watch(ctx context.Context, t *testing.T) {
	var wg sync.WaitGroup
	wg.Go(func() {
		tick := time.NewTicker(2 * time.Millisecond)
		defer tick.Stop()
		for ctx.Err() == nil {
			h.commandLines()
			<-tick.C
		}
	})
	wg.Go(func() {
		tick := time.NewTicker(50 * time.Millisecond)
		defer tick.Stop()
		for ctx.Err() == nil {
			h.round(ctx, t)
			<-tick.C
		}
	})
	wg.Wait()
}

// round searches every place once. A step that has waited since before the round may continue
// afterwards, so all places are searched while each such step runs.
func (h *hunt) round(ctx context.Context, t *testing.T) {
	var waiting []string
	for _, folder := range h.works {
		found, _ := filepath.Glob(filepath.Join(folder, "dlite-*", "workspace", "own", "wait-*"))
		waiting = append(waiting, found...)
	}
	h.commandLines()
	h.containers(ctx, t)
	for _, folder := range h.folders {
		h.folder(folder)
	}
	for _, w := range waiting {
		dir, name := filepath.Split(w)
		name = strings.TrimPrefix(name, "wait-")
		h.held(name)
		_ = os.Rename(w, filepath.Join(dir, "go-"+name))
	}
}

// commandLines searches the command lines of the hunt's processes.
func (h *hunt) commandLines() { h.searchCommandLines(h.processes.commandLines()) }

func (h *hunt) searchCommandLines(lines [][]byte) {
	for _, line := range lines {
		h.search("command lines", string(bytes.ReplaceAll(line[:min(len(line), 60)], []byte{0}, []byte{' '})), line)
	}
}

// containers searches the engine's data about our containers, except the environment, and about
// our networks.
func (h *hunt) containers(ctx context.Context, t *testing.T) {
	list, err := h.engine.Client.ContainerList(ctx, container.ListOptions{
		All: true, Filters: filters.NewArgs(filters.Arg("label", driver.LabelDelegate+"="+h.delegate)),
	})
	if err != nil {
		if ctx.Err() == nil {
			t.Errorf("list containers: %v", err)
		}
		return
	}
	for _, c := range list {
		h.processes.addContainer(c.ID)
		_, text, err := h.engine.Client.ContainerInspectWithRaw(ctx, c.ID, false)
		if err != nil {
			continue // the container is gone
		}
		var all map[string]any
		if err := json.Unmarshal(text, &all); err != nil {
			t.Errorf("inspect: %v", err)
			continue
		}
		if config, ok := all["Config"].(map[string]any); ok {
			delete(config, "Env")
		}
		text, _ = json.Marshal(all) // it was decoded from JSON
		h.searchDecoded("containers", strings.Join(c.Names, " "), text)
	}
	networks, err := h.engine.Client.NetworkList(ctx, network.ListOptions{
		Filters: filters.NewArgs(filters.Arg("label", driver.LabelDelegate+"="+h.delegate)),
	})
	if err != nil && ctx.Err() == nil {
		t.Errorf("list networks: %v", err)
	}
	for _, n := range networks {
		text, _ := json.Marshal(n) // it was decoded from JSON
		h.searchDecoded("containers", "network "+n.Name, text)
	}
}

// skipped reports whether a path is a file that a step itself wrote to its workspace. Such a
// file may hold secrets. All other files below a work directory, also in the workspace, must
// not.
func skipped(path string) bool {
	return strings.HasSuffix(filepath.Dir(path), "/workspace") && filepath.Base(path) == "own"
}

// folder searches the files below a directory, and their names.
func (h *hunt) folder(folder string) {
	_ = filepath.WalkDir(folder, func(path string, d fs.DirEntry, err error) error {
		if err != nil {
			return nil // the file is gone
		}
		if d.IsDir() && skipped(path) {
			return fs.SkipDir
		}
		if d.IsDir() && strings.HasPrefix(d.Name(), "dlite-") {
			h.mu.Lock()
			h.stages[d.Name()] = struct{}{}
			h.mu.Unlock()
		}
		h.search("names of files", path, []byte(path))
		if d.Type()&fs.ModeSymlink != 0 {
			target, _ := os.Readlink(path)
			h.search("names of files", path, []byte(target))
		}
		if d.Type().IsRegular() {
			h.file(path)
		}
		return nil
	})
}

// file searches the new part of a file.
func (h *hunt) file(path string) {
	info, err := os.Stat(path)
	if err != nil {
		return // the file is gone
	}
	stat, _ := info.Sys().(*syscall.Stat_t)
	now := read{stat.Ino, info.Size(), info.ModTime()}
	h.mu.Lock()
	before := h.files[path]
	h.files[path] = now
	h.mu.Unlock()
	if before == now {
		return
	}
	f, err := os.Open(path)
	if err != nil {
		return
	}
	defer func() { _ = f.Close() }()
	head := make([]byte, 18)
	n, _ := f.ReadAt(head, 0)
	if head = head[:n]; isProgram(head) {
		return
	}
	const overlap = 8 << 10 // longer than any needle
	from := int64(0)
	if before.inode == now.inode && before.size < now.size {
		from = max(0, before.size-overlap)
	}
	text, err := io.ReadAll(io.NewSectionReader(f, from, now.size-from))
	if err != nil {
		return
	}
	h.search("files", path, text)
	if from > 0 && len(head) > 2 && head[0] < 0x80 && head[0] != 0x1f {
		return // a text file that has grown
	}
	switch {
	case bytes.HasPrefix(text, []byte{0x1f, 0x8b}):
		if z, err := gzip.NewReader(bytes.NewReader(text)); err == nil {
			plain, _ := io.ReadAll(z) // a truncated file has a readable part
			h.searchDecoded("files", path, plain)
		}
	case bytes.HasPrefix(text, []byte{0x28, 0xb5, 0x2f, 0xfd}):
		if z, err := zstd.NewReader(bytes.NewReader(text)); err == nil {
			plain, _ := io.ReadAll(z)
			z.Close()
			h.searchDecoded("files", path, plain)
		}
	case json.Valid(text), bytes.HasPrefix(text, []byte("{")):
		h.searchDecoded("files", path, text)
	}
}

// isProgram distinguishes our programs, which hold no secrets, from core dumps.
func isProgram(head []byte) bool {
	return len(head) == 18 && bytes.HasPrefix(head, []byte("\x7fELF")) && (head[16] == 2 || head[16] == 3)
}

// memory checks that the files in memory are gone.
func (h *hunt) memory(t *testing.T) {
	t.Helper()
	entries, err := os.ReadDir("/dev/shm")
	if errors.Is(err, fs.ErrNotExist) {
		return
	}
	require.NoError(t, err)
	h.mu.Lock()
	stages := h.stages
	h.mu.Unlock()
	for _, e := range entries {
		if _, older := h.shared[e.Name()]; older {
			continue
		}
		if _, ours := stages[e.Name()]; ours {
			t.Errorf("/dev/shm/%s is left", e.Name())
		}
		_ = filepath.WalkDir(filepath.Join("/dev/shm", e.Name()), func(path string, d fs.DirEntry, err error) error {
			if err != nil {
				return nil // of another test, and gone by now
			}
			if info, err := d.Info(); err == nil && info.Mode().IsRegular() && info.Size() < 16<<20 {
				if text, err := os.ReadFile(path); err == nil {
					h.search("memory", path, text)
				}
			}
			return nil
		})
	}
}

// report lists the findings. The test fails if there are any.
func (h *hunt) report(t *testing.T) {
	t.Helper()
	h.mu.Lock()
	defer h.mu.Unlock()
	var finds []string
	for where, what := range h.finds {
		finds = append(finds, fmt.Sprintf("%s: %q", where, what))
	}
	slices.Sort(finds)
	const most = 60
	for i, f := range finds {
		if i == most {
			t.Errorf("and %d more", len(finds)-most)
			break
		}
		t.Error(f)
	}
	t.Logf("bytes searched: %v", h.searched)
}
