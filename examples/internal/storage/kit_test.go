package storage

import (
	"bytes"
	"context"
	"encoding/json"
	"fmt"
	"io/fs"
	"maps"
	"net/http"
	"net/http/httptest"
	"os"
	"path/filepath"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	"github.com/johannesboyne/gofakes3"
	"github.com/johannesboyne/gofakes3/backend/s3mem"
	"github.com/stretchr/testify/require"
	"go.uber.org/goleak"
)

// TestMain makes the test binary the program if it is called like it.
func TestMain(m *testing.M) {
	if len(os.Args) > 1 && os.Args[1] == Name {
		if err := Command().Exec(context.Background(), os.Args[2:]); err != nil {
			fmt.Fprintln(os.Stderr, err)
			os.Exit(1)
		}
		return
	}
	goleak.VerifyTestMain(m)
}

// service is an S3 service in this process, with the bucket "caches".
type service struct {
	*httptest.Server

	backend *s3mem.Backend
	clock   *clock
	puts    atomic.Int64  // requests that write an object
	written chan struct{} // gets a value for each object that is written, up to its capacity
	// refuse answers a request itself; nil answers none.
	refuse atomic.Pointer[func(http.ResponseWriter, *http.Request) bool]
}

// clock is the time of the service.
type clock struct{ ahead atomic.Int64 }

func (c *clock) Now() time.Time                   { return time.Now().Add(time.Duration(c.ahead.Load())) }
func (c *clock) Since(at time.Time) time.Duration { return c.Now().Sub(at) }
func newClock() *clock                            { return &clock{} }

func newService(t testing.TB) *service {
	t.Helper()
	s := &service{clock: newClock(), written: make(chan struct{}, 100)}
	s.backend = s3mem.New(s3mem.WithTimeSource(s.clock))
	require.NoError(t, s.backend.CreateBucket("caches"))
	fake := gofakes3.New(s.backend, gofakes3.WithTimeSource(s.clock), gofakes3.WithTimeSkewLimit(0)).Server()
	s.Server = httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		if refuse := s.refuse.Load(); refuse != nil && (*refuse)(w, r) {
			return
		}
		if r.Method == http.MethodPut {
			s.puts.Add(1)
		}
		fake.ServeHTTP(w, r)
		if r.Method == http.MethodPut {
			select {
			case s.written <- struct{}{}:
			default:
			}
		}
	}))
	t.Cleanup(s.Close)
	return s
}

func (s *service) setRefuse(f func(http.ResponseWriter, *http.Request) bool) { s.refuse.Store(&f) }

// objects returns the names of all objects.
func (s *service) objects(t testing.TB) (names []string) {
	t.Helper()
	list, err := s.backend.ListBucket("caches", nil, gofakes3.ListBucketPage{})
	require.NoError(t, err)
	for _, o := range list.Contents {
		names = append(names, o.Key)
	}
	return names
}

func (s *service) write(t testing.TB, name string, data []byte) {
	t.Helper()
	meta := map[string]string{"Last-Modified": time.Now().UTC().Format(http.TimeFormat)}
	_, err := s.backend.PutObject("caches", name, meta, bytes.NewReader(data), int64(len(data)), nil)
	require.NoError(t, err)
}

// machine is a stage with a workspace, a home and a directory that its containers share as /go/pkg.
type machine struct {
	service                 *service
	workspace, home, shared string
}

func newMachine(t testing.TB, s *service) *machine {
	t.Helper()
	dir := t.TempDir()
	m := &machine{service: s, workspace: filepath.Join(dir, "workspace"), home: filepath.Join(dir, "home"), shared: filepath.Join(dir, "shared")}
	for _, d := range []string{m.workspace, m.home, m.shared} {
		require.NoError(t, os.Mkdir(d, 0o755))
	}
	return m
}

// do runs a step and returns its log.
func (m *machine) do(t testing.TB, args string, env map[string]string) (string, error) {
	t.Helper()
	all := m.environment(t, env)
	var out bytes.Buffer
	err := run(t.Context(), strings.Fields(args), func(name string) string { return all[name] }, &out)
	return out.String(), err
}

// environment returns the variables of a step.
func (m *machine) environment(t testing.TB, env map[string]string) map[string]string {
	t.Helper()
	mounts, err := json.Marshal(map[string]string{"/workspace": m.workspace, "/go/pkg": m.shared})
	require.NoError(t, err)
	all := map[string]string{
		"HOME": m.home, "DLITE_MOUNTS": string(mounts), "PLUGIN_BUCKET": "caches", "PLUGIN_ENDPOINT": m.service.URL, "PLUGIN_PATH_STYLE": "true",
		"PLUGIN_ACCESS_KEY": "not-a-real-access-key", "PLUGIN_SECRET_KEY": "not-a-real-secret-key",
	}
	maps.Copy(all, env)
	return all
}

// must is do without an error.
func (m *machine) must(t testing.TB, args string, env map[string]string) string {
	t.Helper()
	out, err := m.do(t, args, env)
	require.NoError(t, err, out)
	return out
}

// file writes a file below dir.
func file(t testing.TB, dir, name, content string) {
	t.Helper()
	p := filepath.Join(dir, name)
	require.NoError(t, os.MkdirAll(filepath.Dir(p), 0o755))
	require.NoError(t, os.WriteFile(p, []byte(content), 0o644))
}

// tree returns the names below dir with their kinds.
func tree(t testing.TB, dir string) map[string]string {
	t.Helper()
	all := map[string]string{}
	require.NoError(t, filepath.WalkDir(dir, func(p string, e fs.DirEntry, err error) error {
		require.NoError(t, err)
		name, err := filepath.Rel(dir, p)
		require.NoError(t, err)
		info, err := e.Info()
		require.NoError(t, err)
		text := info.Mode().String()
		switch {
		case info.Mode().IsRegular():
			content, err := os.ReadFile(p)
			require.NoError(t, err)
			text += " " + string(content) + " " + info.ModTime().UTC().Truncate(time.Second).Format(time.RFC3339)
		case info.Mode()&fs.ModeSymlink != 0:
			to, err := os.Readlink(p)
			require.NoError(t, err)
			text = "-> " + to
		}
		all[name] = text
		return nil
	}))
	delete(all, ".")
	return all
}
