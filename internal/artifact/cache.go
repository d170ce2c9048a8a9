// Package artifact keeps what delegates download: programs that tasks and steps
// name by URL, and folders that are made once. A cache is a folder that any number
// of processes share; whatever is in it under its own name is whole, so that neither
// a broken download nor a crash leaves a hit (SPEC D4, D8).
//
//	file, err := artifact.New(dir, "plugin").Fetch(ctx, executable, "", say)
//
// Start reading at cache.go.
package artifact

import (
	"context"
	"crypto/sha256"
	"encoding/hex"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"math/rand/v2"
	"net"
	"net/http"
	"net/url"
	"os"
	"path/filepath"
	"runtime"
	"strings"
	"sync/atomic"
	"time"

	"github.com/klauspost/compress/zstd"

	"github.com/delegate-io/dlite/task/stage"
)

// Cache is a folder of programs. A program gets its name only when it is whole and,
// where there is a checksum, verified, so that whatever is there may be used. A
// Cache is safe for concurrent use, and several may have the same folder.
type Cache struct {
	dir string
	// what a program is called in messages.
	what string
	// Bounds of what is served and of what it becomes, in bytes.
	maxServed, maxProgram int64
	// whole bounds an attempt, stall the time without a byte.
	whole, stall time.Duration
	// pauses are between attempts: there is one attempt more than pauses.
	pauses []time.Duration
	// made counts what was put there.
	made atomic.Uint64
}

// New makes a cache in dir, an absolute path, which is made when something is put
// there. Its messages say "the <what>".
func New(dir, what string) *Cache {
	return &Cache{
		dir: dir, what: what, maxServed: 512 << 20, maxProgram: 1 << 30,
		whole: 15 * time.Minute, stall: 30 * time.Second,
		pauses: []time.Duration{300 * time.Millisecond, time.Second, 3 * time.Second, 6 * time.Second},
	}
}

// Fetch gives the path of a program, which it downloads when nobody has yet.
// Who else wants it meanwhile, in this process or another one, waits for that.
// What it says while it downloads shows no credentials of the URL.
//
// A program without a checksum is kept under its URL and version, which has no
// meaning of its own, for as long as the folder lasts. That it is whole is then the
// transport's word, so a server that marks no end of what it serves is refused.
//
// It is for a cache that is never trimmed; [Cache.Program] is for one that is.
func (c *Cache) Fetch(ctx context.Context, exe *stage.Executable, version string, say func(string, ...any)) (string, error) {
	held, err := c.Program(ctx, exe, version, say)
	if err != nil {
		return "", err
	}
	held.Release()
	return held.Path, nil
}

// Program is [Cache.Fetch], and keeps the program there until it is released.
func (c *Cache) Program(ctx context.Context, exe *stage.Executable, version string, say func(string, ...any)) (*Held, error) {
	name := strings.ToLower(exe.SHA256)
	if name == "" {
		name = Key("url", exe.URL, version)
	}
	if exe.Compressed {
		name += "-unpacked" // the same bytes may be a program themselves
	}
	if runtime.GOOS == "windows" {
		name += ".exe"
	}
	return c.hold(ctx, name, isProgram, func(file string) error {
		return c.Download(ctx, exe, file, say)
	})
}

// Download puts what the URL serves into file, which is there afterwards whole and
// verified or not at all. It is for what [Cache.Dir] fills its folder with.
func (c *Cache) Download(ctx context.Context, exe *stage.Executable, file string, say func(string, ...any)) error {
	say("Fetching the %s from %s", c.what, ShortURL(exe.URL))
	if err := c.download(ctx, exe, file, say); err != nil {
		return fmt.Errorf("fetch from %s: %w", ShortURL(exe.URL), err)
	}
	return nil
}

// Dir gives a folder of that name, which fill fills when nobody has yet, and keeps it
// there until it is released. The name is a [Key]. A fill that fails leaves
// nothing; what a process that died left behind is removed.
func (c *Cache) Dir(ctx context.Context, name string, fill func(dir string) error) (*Held, error) {
	return c.hold(ctx, name, isDir, func(final string) (err error) {
		dir, err := os.MkdirTemp(c.dir, name+".part-*")
		if err != nil {
			return err
		}
		defer func() { _ = os.RemoveAll(dir) }() // of what has been renamed nothing is left to remove
		if err := fill(dir); err != nil {
			return err
		}
		// Synced before it has its name: a crash must not leave the name alone.
		if err := syncTree(dir); err != nil {
			return err
		}
		return os.Rename(dir, final)
	})
}

// Key makes a file's name of what tells one artifact from another.
func Key(parts ...string) string {
	h := sha256.New()
	for _, p := range parts {
		_, _ = fmt.Fprintf(h, "%d:%s,", len(p), p) // a hash takes everything
	}
	return hex.EncodeToString(h.Sum(nil))
}

// syncTree brings every file of a folder to the disk.
func syncTree(dir string) error {
	return filepath.WalkDir(dir, func(path string, entry fs.DirEntry, err error) error {
		if err != nil || !entry.Type().IsRegular() {
			return err
		}
		f, err := os.Open(path)
		if err != nil {
			return err
		}
		return errors.Join(f.Sync(), f.Close())
	})
}

func isDir(file string) bool {
	info, err := os.Lstat(file)
	return err == nil && info.IsDir()
}

func isProgram(file string) bool {
	info, err := os.Lstat(file)
	return err == nil && info.Mode().IsRegular()
}

// ShortURL leaves out what may be a credential.
func ShortURL(s string) string {
	u, err := url.Parse(s)
	if err != nil {
		return "its URL"
	}
	return u.Scheme + "://" + u.Host + u.EscapedPath()
}

// errTransient marks what another attempt may get past.
var errTransient = errors.New("gave up")

func (c *Cache) download(ctx context.Context, exe *stage.Executable, file string, say func(string, ...any)) error {
	for i := 0; ; i++ {
		err := c.attempt(ctx, exe, file)
		if err == nil || ctx.Err() != nil || !errors.Is(err, errTransient) || i == len(c.pauses) {
			return err
		}
		pause := c.pauses[i]
		pause += rand.N(pause/4 + 1)
		say("That failed and is tried again in %v: %v", pause.Round(100*time.Millisecond), err)
		select {
		case <-time.After(pause):
		case <-ctx.Done():
			return err
		}
	}
}

// attempt downloads, verifies and unpacks, in this order, and leaves the program
// or nothing.
func (c *Cache) attempt(ctx context.Context, exe *stage.Executable, file string) (err error) {
	served, err := os.CreateTemp(filepath.Dir(file), filepath.Base(file)+".part-*")
	if err != nil {
		return err
	}
	program := served
	defer func() {
		for _, f := range []*os.File{served, program} {
			_ = f.Close()
			_ = os.Remove(f.Name()) // of what has been renamed nothing is left to remove
		}
	}()
	sum, err := c.serve(ctx, exe, served)
	if err != nil {
		return err
	}
	if exe.SHA256 != "" && !strings.EqualFold(sum, exe.SHA256) {
		return fmt.Errorf("the checksum is %s and should be %s", sum, strings.ToLower(exe.SHA256))
	}
	if exe.Compressed {
		if program, err = os.CreateTemp(filepath.Dir(file), filepath.Base(file)+".part-*"); err != nil {
			program = served
			return err
		}
		if err := c.unpack(program, served); err != nil {
			return fmt.Errorf("decompress: %w", err)
		}
	}
	// Synced before it has its name: a crash must not leave the name alone.
	if err := errors.Join(program.Chmod(0o755), program.Sync(), program.Close()); err != nil {
		return err
	}
	return os.Rename(program.Name(), file)
}

// serve writes what the URL serves to w and gives its checksum.
func (c *Cache) serve(ctx context.Context, exe *stage.Executable, w io.Writer) (string, error) {
	whole, cancel := context.WithTimeout(ctx, c.whole)
	defer cancel()
	watched, stalled := context.WithCancelCause(whole)
	defer stalled(nil)
	watch := time.AfterFunc(c.stall, func() { stalled(fmt.Errorf("nothing came for %v", c.stall)) })
	defer watch.Stop()

	transport := &http.Transport{
		Proxy: http.ProxyFromEnvironment, DisableKeepAlives: true, DisableCompression: true,
		DialContext:         (&net.Dialer{Timeout: c.stall}).DialContext,
		TLSHandshakeTimeout: c.stall,
	}
	req, err := http.NewRequestWithContext(watched, http.MethodGet, exe.URL, http.NoBody)
	if err != nil {
		return "", withoutURL(err)
	}
	resp, err := (&http.Client{Transport: transport}).Do(req)
	if err != nil {
		return "", transient(watched, withoutURL(err))
	}
	defer func() { _ = resp.Body.Close() }()
	switch code := resp.StatusCode; {
	case code == http.StatusOK:
	case code == http.StatusRequestTimeout, code == http.StatusTooManyRequests, code >= 500:
		return "", transient(watched, fmt.Errorf("the server answers %d", code))
	default:
		return "", fmt.Errorf("the server answers %d", code)
	}
	if resp.ContentLength > c.maxServed {
		return "", fmt.Errorf("it has %d bytes, more than %d", resp.ContentLength, c.maxServed)
	}
	if exe.SHA256 == "" && !hasEnd(resp) {
		return "", errors.New("the server does not tell where it ends, and there is no checksum")
	}
	hash := sha256.New()
	body := &watchedReader{r: io.LimitReader(resp.Body, c.maxServed+1), watch: watch, stall: c.stall}
	n, err := io.Copy(io.MultiWriter(w, hash), body)
	switch {
	case body.err != nil:
		return "", transient(watched, fmt.Errorf("the download broke off: %w", body.err))
	case err != nil:
		return "", err // a full disk
	case n > c.maxServed:
		return "", fmt.Errorf("it has more than %d bytes", c.maxServed)
	}
	return hex.EncodeToString(hash.Sum(nil)), nil
}

// hasEnd reports whether an answer that breaks off can be told from a whole one.
func hasEnd(resp *http.Response) bool {
	return resp.ContentLength >= 0 || resp.ProtoMajor > 1 || len(resp.TransferEncoding) > 0
}

// withoutURL keeps a URL, which may hold credentials, out of an error.
func withoutURL(err error) error {
	var e *url.Error
	if errors.As(err, &e) {
		return e.Err
	}
	return err
}

// transient marks err, and says why when it was us who gave up.
func transient(ctx context.Context, err error) error {
	if cause := context.Cause(ctx); cause != nil && !errors.Is(err, cause) {
		err = fmt.Errorf("%w (%w)", err, cause)
	}
	return fmt.Errorf("%w: %w", errTransient, err)
}

// watchedReader puts the watch off with every byte, and tells its own errors
// from those of who writes.
type watchedReader struct {
	r     io.Reader
	watch *time.Timer
	stall time.Duration
	err   error
}

func (r *watchedReader) Read(p []byte) (int, error) {
	n, err := r.r.Read(p)
	if n > 0 {
		r.watch.Reset(r.stall)
	}
	if err != nil && !errors.Is(err, io.EOF) {
		r.err = err
	}
	return n, err
}

// unpack decompresses what has been verified. It is bounded nevertheless: a
// checksum says who made it, not that he was careful.
func (c *Cache) unpack(to io.Writer, from *os.File) error {
	if _, err := from.Seek(0, io.SeekStart); err != nil {
		return err
	}
	z, err := zstd.NewReader(from, zstd.WithDecoderConcurrency(1), zstd.WithDecoderMaxWindow(128<<20))
	if err != nil {
		return err
	}
	defer z.Close()
	n, err := io.Copy(to, io.LimitReader(z, c.maxProgram+1))
	if err != nil {
		return err
	}
	if n > c.maxProgram {
		return fmt.Errorf("it has more than %d bytes", c.maxProgram)
	}
	return nil
}
