package logservice

import (
	"context"
	"crypto/sha256"
	"encoding/hex"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"maps"
	"os"
	"path/filepath"
	"strings"
	"sync"
	"sync/atomic"
	"time"

	"gocloud.dev/blob"
	"gocloud.dev/blob/fileblob"
	"gocloud.dev/blob/memblob"
	"gocloud.dev/gcerrors"

	"github.com/delegate-io/dlite/manager/internal/livelog"
)

// archive stores complete logs in a bucket, one object for each log.
type archive struct {
	bucket *blob.Bucket
	closed atomic.Bool

	mu    sync.Mutex               // guards the following fields
	total livelog.Usage            // of the objects, as last counted
	used  map[string]livelog.Usage // the same by folder
}

// openArchive opens the bucket at url. If url is empty, it opens the folder dir. If
// both are empty, it opens a bucket in memory.
func openArchive(ctx context.Context, url, dir string) (*archive, error) {
	a := &archive{used: map[string]livelog.Usage{}}
	var err error
	switch {
	case url != "":
		a.bucket, err = blob.OpenBucket(ctx, url)
	case dir == "":
		a.bucket = memblob.OpenBucket(nil)
		return a, nil
	default:
		if err = removeTemporary(dir); err == nil {
			a.bucket, err = fileblob.OpenBucket(dir, &fileblob.Options{
				CreateDir: true, DirFileMode: 0o700, NoTempDir: true, Metadata: fileblob.MetadataDontWrite,
			})
		}
	}
	if err != nil {
		return nil, fmt.Errorf("opening the archive: %w", err)
	}
	return a, nil
}

// removeTemporary removes the temporary files of uploads that a crash interrupted.
func removeTemporary(dir string) error {
	err := filepath.WalkDir(dir, func(path string, d fs.DirEntry, err error) error {
		if err == nil && d.Type().IsRegular() && strings.HasSuffix(path, ".tmp") {
			err = os.Remove(path)
		}
		return err
	})
	if errors.Is(err, fs.ErrNotExist) {
		return nil
	}
	return err
}

// objectOf returns the name of the object for a log. The name is readable for an
// operator who inspects the bucket. It contains a hash, so that two logs never share an
// object, even if the bucket ignores case or changes unusual characters.
func objectOf(id livelog.ID) string {
	sum := sha256.Sum256([]byte(fmt.Sprintf("%d:%s%s", len(id.Account), id.Account, id.Key)))
	return folderOf(id.Account) + "/" + plain(id.Key, 128) + "-" + hex.EncodeToString(sum[:12]) + ".ndjson"
}

// folderOf returns the folder of an account's objects. Two accounts never share one.
func folderOf(account string) string {
	name := plain(account, 64)
	if name == account {
		return name
	}
	sum := sha256.Sum256([]byte(account))
	return name + "-" + hex.EncodeToString(sum[:6])
}

func plain(s string, most int) string {
	s = strings.Map(func(r rune) rune {
		switch {
		case r >= 'a' && r <= 'z', r >= 'A' && r <= 'Z', r >= '0' && r <= '9', r == '-':
			return r
		}
		return '_'
	}, s)
	return s[:min(len(s), most)]
}

// put archives a log. The previous object stays until the new one is complete.
func (a *archive) put(ctx context.Context, id livelog.ID, r io.Reader) error {
	name := objectOf(id)
	before, had := int64(0), false
	switch attrs, err := a.bucket.Attributes(ctx, name); {
	case err == nil:
		before, had = attrs.Size, true
	case gcerrors.Code(err) != gcerrors.NotFound:
		return a.explain("looking into the archive", err)
	}
	// If ctx ends before Close, the bucket discards the incomplete object.
	ctx, cancel := context.WithCancel(ctx)
	defer cancel()
	w, err := a.bucket.NewWriter(ctx, name, &blob.WriterOptions{
		ContentType: contentType, DisableContentTypeDetection: true, MaxConcurrency: 2,
	})
	if err != nil {
		return a.explain("writing to the archive", err)
	}
	// Without its ReadFrom, which allocates 1 MiB: most logs are small.
	n, err := io.Copy(struct{ io.Writer }{w}, r)
	if err != nil {
		cancel()
		_ = w.Close()
		return err
	}
	if err := w.Close(); err != nil {
		return a.explain("writing to the archive", err)
	}
	change := livelog.Usage{Size: n - before}
	if !had {
		change.Logs = 1
	}
	a.add(name, change)
	return nil
}

// add changes the usage for an object.
func (a *archive) add(name string, change livelog.Usage) {
	folder, _, _ := strings.Cut(name, "/")
	a.mu.Lock()
	defer a.mu.Unlock()
	a.total = a.total.Plus(change)
	if a.used[folder] = a.used[folder].Plus(change); a.used[folder].Logs <= 0 {
		delete(a.used, folder)
	}
}

// open returns a reader of an archived log. It fails with ErrUnknown if the log has no
// archive.
func (a *archive) open(ctx context.Context, id livelog.ID) (*blob.Reader, error) {
	r, err := a.bucket.NewReader(ctx, objectOf(id), nil)
	if gcerrors.Code(err) == gcerrors.NotFound {
		return nil, livelog.ErrUnknown
	}
	if err != nil {
		return nil, a.explain("reading the archive", err)
	}
	return r, nil
}

// usage returns the room that all archives use.
func (a *archive) usage() livelog.Usage {
	a.mu.Lock()
	defer a.mu.Unlock()
	return a.total
}

// folders returns the room that the archives of each account use, by folder.
func (a *archive) folders() map[string]livelog.Usage {
	a.mu.Lock()
	defer a.mu.Unlock()
	return maps.Clone(a.used)
}

// object describes an archived log for retention.
type object struct {
	name string
	at   time.Time
	size int64
}

// listPage is the number of objects in one answer of the bucket. A bucket of files reads
// all folders again for each page.
const listPage = 100_000

// list calls each for every archived log in a folder, and counts the archives again. An
// empty folder means all folders.
func (a *archive) list(ctx context.Context, folder string, each func(object)) error {
	options := &blob.ListOptions{}
	if folder != "" {
		options.Prefix = folder + "/"
	}
	used := map[string]livelog.Usage{}
	for token := blob.FirstPageToken; len(token) > 0; {
		page, next, err := a.bucket.ListPage(ctx, token, listPage, options)
		if err != nil {
			return a.explain("listing the archive", err)
		}
		for _, o := range page {
			if !strings.HasSuffix(o.Key, ".ndjson") {
				continue
			}
			owner, _, _ := strings.Cut(o.Key, "/")
			used[owner] = used[owner].Plus(livelog.Usage{Logs: 1, Size: o.Size})
			each(object{o.Key, o.ModTime, o.Size})
		}
		token = next
	}
	a.mu.Lock()
	defer a.mu.Unlock()
	if folder == "" {
		a.used = map[string]livelog.Usage{}
		a.total = livelog.Usage{}
	}
	a.total = a.total.Plus(livelog.Usage{Logs: -a.used[folder].Logs, Size: -a.used[folder].Size})
	delete(a.used, folder)
	for owner, u := range used {
		a.used[owner] = u
		a.total = a.total.Plus(u)
	}
	return nil
}

func (a *archive) remove(ctx context.Context, o object) error {
	if err := a.bucket.Delete(ctx, o.name); err != nil && gcerrors.Code(err) != gcerrors.NotFound {
		return a.explain("removing from the archive", err)
	}
	a.add(o.name, livelog.Usage{Logs: -1, Size: -o.size})
	return nil
}

func (a *archive) close() error {
	a.closed.Store(true)
	return a.bucket.Close()
}

// explain adds to an error of the bucket what failed. After close, all calls fail with [livelog.ErrClosed].
func (a *archive) explain(what string, err error) error {
	if a.closed.Load() {
		return livelog.ErrClosed
	}
	return fmt.Errorf("%s: %w", what, err)
}
