// Package artifact caches downloads of delegates: programs that tasks and steps name by URL, and
// directories that are filled once. A cache is a directory that any number of processes share. An
// entry gets its name only when it is complete, so neither a failed download nor a crash leaves a bad
// entry (rules D4 and D8).
//
//	file, err := artifact.New(dir, "plugin").Fetch(ctx, executable, "", report)
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

// Cache is a directory of programs. A program gets its name when it is complete and, if it has a
// checksum, verified. A Cache is safe for concurrent use. Several caches may have the same directory.
type Cache struct {
	dir string
	// what is the noun for an entry in messages.
	what string
	// Limits for the size of a download and of the unpacked program, in bytes.
	maxServed, maxProgram int64
	// attemptTimeout limits an attempt. idleTimeout limits the time without a byte.
	attemptTimeout, idleTimeout time.Duration
	// pauses are the times between attempts. There is one attempt more than pauses.
	pauses []time.Duration
	// transport makes the requests, if it is set.
	transport http.RoundTripper
	// made counts the new entries.
	made atomic.Uint64
}

// New returns a cache in dir, which must be an absolute path. The first entry creates the directory.
// Messages call an entry "the <what>".
func New(dir, what string) *Cache {
	return &Cache{
		dir: dir, what: what, maxServed: 512 << 20, maxProgram: 1 << 30,
		attemptTimeout: 15 * time.Minute, idleTimeout: 30 * time.Second,
		pauses: []time.Duration{300 * time.Millisecond, time.Second, 3 * time.Second, 6 * time.Second},
	}
}

// With sets the client whose transport makes the requests. Nil means a transport that obeys
// HTTP_PROXY. It returns the cache.
func (c *Cache) With(hc *http.Client) *Cache {
	if hc != nil {
		c.transport = hc.Transport
	}
	return c
}

// Fetch returns the path of a program. It downloads the program if the cache does not have it. Other
// callers for the same program, in any process, wait for the download. The messages to report show no
// credentials of the URL.
//
// A program without a checksum is stored under its URL and version for as long as the directory
// exists. The version has no other meaning. Then only the transport shows that the download is
// complete, so Fetch rejects a response without a marked end.
//
// Use it for a cache that is never trimmed, and [Cache.Program] for one that is.
func (c *Cache) Fetch(ctx context.Context, exe *stage.Executable, version string, report func(string, ...any)) (string, error) {
	held, err := c.Program(ctx, exe, version, report)
	if err != nil {
		return "", err
	}
	held.Release()
	return held.Path, nil
}

// Program is [Cache.Fetch]. No trim removes the program before the caller releases it.
func (c *Cache) Program(ctx context.Context, exe *stage.Executable, version string, report func(string, ...any)) (*Held, error) {
	name := strings.ToLower(exe.SHA256)
	if name == "" {
		name = Key("url", exe.URL, version)
	}
	if exe.Compressed {
		name += "-unpacked" // the packed bytes may be a program too
	}
	if runtime.GOOS == "windows" {
		name += ".exe"
	}
	return c.hold(ctx, name, isProgram, func(file string) error {
		return c.Download(ctx, exe, file, report)
	})
}

// Download writes the response for the URL to file. Afterwards file is complete and verified, or does
// not exist. Use it to fill a directory of [Cache.Dir].
func (c *Cache) Download(ctx context.Context, exe *stage.Executable, file string, report func(string, ...any)) error {
	report("Fetching the %s from %s", c.what, ShortURL(exe.URL))
	if err := c.download(ctx, exe, file, report); err != nil {
		return fmt.Errorf("fetch from %s: %w", ShortURL(exe.URL), err)
	}
	return nil
}

// Dir returns a directory with that name, which is a [Key]. If it does not exist, fill fills it. No
// trim removes it before the caller releases it. A failed fill leaves nothing. Dir also removes the
// remains of a process that died.
func (c *Cache) Dir(ctx context.Context, name string, fill func(dir string) error) (*Held, error) {
	return c.hold(ctx, name, isDir, func(final string) (err error) {
		dir, err := os.MkdirTemp(c.dir, name+".part-*")
		if err != nil {
			return err
		}
		defer func() { _ = os.RemoveAll(dir) }() // after the rename there is nothing to remove
		if err := fill(dir); err != nil {
			return err
		}
		// Sync before the rename: after a crash the name must not exist without the content.
		if err := syncTree(dir); err != nil {
			return err
		}
		return os.Rename(dir, final)
	})
}

// Key returns a file name for the parts that identify an entry.
func Key(parts ...string) string {
	h := sha256.New()
	for _, p := range parts {
		_, _ = fmt.Fprintf(h, "%d:%s,", len(p), p) // a hash never fails
	}
	return hex.EncodeToString(h.Sum(nil))
}

// syncTree syncs every file below a directory to the disk.
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

// ShortURL removes the parts of a URL that may be credentials.
func ShortURL(s string) string {
	u, err := url.Parse(s)
	if err != nil {
		return "its URL"
	}
	return u.Scheme + "://" + u.Host + u.EscapedPath()
}

// errTransient marks an error that another attempt may not have.
var errTransient = errors.New("gave up")

func (c *Cache) download(ctx context.Context, exe *stage.Executable, file string, report func(string, ...any)) error {
	for i := 0; ; i++ {
		err := c.attempt(ctx, exe, file)
		if err == nil || ctx.Err() != nil || !errors.Is(err, errTransient) || i == len(c.pauses) {
			return err
		}
		pause := c.pauses[i]
		pause += rand.N(pause/4 + 1)
		report("That failed and is tried again in %v: %v", pause.Round(100*time.Millisecond), err)
		select {
		case <-time.After(pause):
		case <-ctx.Done():
			return err
		}
	}
}

// attempt downloads, verifies and unpacks a program, in this order. A failed attempt leaves nothing.
func (c *Cache) attempt(ctx context.Context, exe *stage.Executable, file string) (err error) {
	served, err := os.CreateTemp(filepath.Dir(file), filepath.Base(file)+".part-*")
	if err != nil {
		return err
	}
	program := served
	defer func() {
		for _, f := range []*os.File{served, program} {
			_ = f.Close()
			_ = os.Remove(f.Name()) // after the rename there is nothing to remove
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
	// Sync before the rename: after a crash the name must not exist without the content.
	if err := errors.Join(program.Chmod(0o755), program.Sync(), program.Close()); err != nil {
		return err
	}
	return os.Rename(program.Name(), file)
}

// serve copies the response for the URL to w and returns its checksum.
func (c *Cache) serve(ctx context.Context, exe *stage.Executable, w io.Writer) (string, error) {
	limited, cancel := context.WithTimeout(ctx, c.attemptTimeout)
	defer cancel()
	watched, giveUp := context.WithCancelCause(limited)
	defer giveUp(nil)
	watch := time.AfterFunc(c.idleTimeout, func() { giveUp(fmt.Errorf("no data for %v", c.idleTimeout)) })
	defer watch.Stop()

	var transport http.RoundTripper = &http.Transport{
		Proxy: http.ProxyFromEnvironment, DisableKeepAlives: true, DisableCompression: true,
		DialContext:         (&net.Dialer{Timeout: c.idleTimeout}).DialContext,
		TLSHandshakeTimeout: c.idleTimeout,
	}
	if c.transport != nil {
		transport = c.transport
	}
	req, err := http.NewRequestWithContext(watched, http.MethodGet, exe.URL, http.NoBody)
	if err != nil {
		return "", withoutURL(err)
	}
	req.Header.Set("Accept-Encoding", "identity") // the length and the checksum are of the file
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
		return "", errors.New("the response has no marked end, and there is no checksum")
	}
	hash := sha256.New()
	body := &watchedReader{r: io.LimitReader(resp.Body, c.maxServed+1), watch: watch, idle: c.idleTimeout}
	n, err := io.Copy(io.MultiWriter(w, hash), body)
	switch {
	case body.err != nil:
		return "", transient(watched, fmt.Errorf("the download broke off: %w", body.err))
	case err != nil:
		return "", err // for example a full disk
	case n > c.maxServed:
		return "", fmt.Errorf("it has more than %d bytes", c.maxServed)
	}
	return hex.EncodeToString(hash.Sum(nil)), nil
}

// hasEnd reports whether an incomplete response can be recognized.
func hasEnd(resp *http.Response) bool {
	return resp.ContentLength >= 0 || resp.ProtoMajor > 1 || len(resp.TransferEncoding) > 0
}

// withoutURL removes the URL, which may hold credentials, from an error.
func withoutURL(err error) error {
	var e *url.Error
	if errors.As(err, &e) {
		return e.Err
	}
	return err
}

// transient marks err. If this package ended the attempt, it adds the reason.
func transient(ctx context.Context, err error) error {
	if cause := context.Cause(ctx); cause != nil && !errors.Is(err, cause) {
		err = fmt.Errorf("%w (%w)", err, cause)
	}
	return fmt.Errorf("%w: %w", errTransient, err)
}

// watchedReader resets the watchdog with every byte, and distinguishes read errors from write errors.
type watchedReader struct {
	r     io.Reader
	watch *time.Timer
	idle  time.Duration
	err   error
}

func (r *watchedReader) Read(p []byte) (int, error) {
	n, err := r.r.Read(p)
	if n > 0 {
		r.watch.Reset(r.idle)
	}
	if err != nil && !errors.Is(err, io.EOF) {
		r.err = err
	}
	return n, err
}

// unpack decompresses a verified download. It limits the size all the same: a checksum identifies the
// author, and the author may be careless.
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
