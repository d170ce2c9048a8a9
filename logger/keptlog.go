package logger

import (
	"bytes"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"os"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"time"

	"github.com/delegate-io/dlite/internal/atomicfile"
	"github.com/delegate-io/dlite/internal/sealed"
)

// The files of a log with the name N:
//
//	DIR/N-<offset>.part   lines from that offset, of a log that is not kept
//	DIR/N-<offset>.log    the same of a kept log
//	MEMORY/N.sealed       its target, encrypted because it has a token
//
// Lines are masked before they are stored, so they may be on a disk.
const (
	partSuffix   = ".part"
	linesSuffix  = ".log"
	targetSuffix = ".sealed"
)

// keptSize is what a kept log counts in addition to its lines, in bytes.
const keptSize = 4 << 10

// keptTarget is the content of the file in memory.
type keptTarget struct {
	URL               string
	Token             string
	Account           string
	Key               string
	Writer            string
	IndirectUpload    bool
	SkipOpeningStream bool
	SkipClosingStream bool
	TrimNewLineSuffix bool

	// Ended is the time at which the last line was stored. All following fields are zero
	// before.
	Ended time.Time
	// Size is the offset after the last line.
	Size   int64
	Stored tally
	// Sent, Next and Delivered are the progress of the sender.
	Sent, Next int64
	Delivered  tally
}

// keptLog is a log that a [Deliverer] keeps if its log service is away.
type keptLog struct {
	d       *Deliverer
	name    string
	target  keptTarget
	refused bool // guarded by the spool: there is no space for the log

	// Guarded by the deliverer.
	size    int64     // 0 if the log is not kept
	busy    bool      // it is being delivered
	waiting bool      // it is in a queue, or busy
	due     time.Time // no attempt before
	attempt *attempt  // the present or the last one

	failures int // consecutive refusals; only of the worker
}

func (d *Deliverer) newLog(cfg *StreamConfig, name string) *keptLog {
	return &keptLog{d: d, name: name, target: keptTarget{
		URL: cfg.URL, Token: cfg.Token, Account: cfg.Account, Key: cfg.Key, Writer: cfg.Writer,
		IndirectUpload: cfg.IndirectUpload, SkipOpeningStream: cfg.SkipOpeningStream,
		SkipClosingStream: cfg.SkipClosingStream, TrimNewLineSuffix: cfg.TrimNewLineSuffix,
	}}
}

// config returns the configuration of a stream to the target.
func (k *keptLog) config() StreamConfig {
	t := k.target
	cfg := StreamConfig{
		URL: t.URL, Token: t.Token, Account: t.Account, Key: t.Key, Writer: t.Writer,
		IndirectUpload: t.IndirectUpload, SkipOpeningStream: t.SkipOpeningStream,
		SkipClosingStream: t.SkipClosingStream, TrimNewLineSuffix: t.TrimNewLineSuffix,
		HTTPClient: k.d.cfg.HTTPClient,
	}
	cfg.setDefaults()
	return cfg
}

// namedFile is a file of a spool with its current name.
type namedFile struct {
	*os.File
	path string
}

func (f *namedFile) Name() string { return f.path }

func (k *keptLog) path(from int64, suffix string) string {
	return filepath.Join(k.d.cfg.Dir, fmt.Sprintf("%s-%016x%s", k.name, from, suffix))
}

// attach makes the log the one of a spool.
func (k *keptLog) attach(s *spool) {
	unnamed := s.create
	s.log = k
	s.create = func(from int64) (spoolFile, error) {
		if k.refused {
			return unnamed(from)
		}
		return k.create(from, s.kept)
	}
}

// create creates a file for the lines from an offset on.
func (k *keptLog) create(from int64, kept bool) (spoolFile, error) {
	suffix := partSuffix
	if kept {
		suffix = linesSuffix
	}
	path := k.path(from, suffix)
	f, err := os.OpenFile(path, os.O_CREATE|os.O_EXCL|os.O_RDWR, 0o600)
	if err != nil {
		return nil, err
	}
	return &namedFile{f, path}, nil
}

// begin makes the log a kept one of that size.
func (k *keptLog) begin(size int64) error {
	err := k.d.reserve(k, size+keptSize)
	if err == nil {
		err = k.save()
	}
	if err != nil {
		k.refuse(err)
	}
	return err
}

// publish gives a file the name of a kept one.
func (k *keptLog) publish(f spoolFile) error {
	n, ok := f.(*namedFile)
	if !ok || !k.d.durable {
		return nil // this process knows its files
	}
	path := strings.TrimSuffix(n.path, partSuffix) + linesSuffix
	if err := os.Rename(n.path, path); err != nil {
		return err
	}
	n.path = path
	return nil
}

func (k *keptLog) grow(n int64) error { return k.d.reserve(k, n) }

// refuse makes the log one that ends with this process.
func (k *keptLog) refuse(err error) {
	k.refused = true
	k.remove()
	k.d.log.Warn().Str("account", k.target.Account).Str("log", k.target.Key).Err(err).
		Msg("a log cannot be kept for a later delivery: it is lost if the log service does not return in time")
}

// release removes everything of a log that has arrived or is given up.
func (k *keptLog) release() { k.remove() }

// remove removes the files and gives the space back. Open files stay usable.
func (k *keptLog) remove() {
	if !k.d.forget(k) {
		return // there are no files with a name
	}
	if k.d.durable {
		_ = os.Remove(k.targetPath())
	}
	for _, f := range k.files() {
		_ = os.Remove(f.path)
	}
}

func (k *keptLog) targetPath() string { return filepath.Join(k.d.memory, k.name+targetSuffix) }

// save writes the target.
func (k *keptLog) save() error {
	if !k.d.durable {
		return nil
	}
	b, err := json.Marshal(k.target)
	if err == nil {
		err = sealed.MakePrivate(k.d.memory)
	}
	if err != nil {
		return err
	}
	return atomicfile.ReplaceFile(k.targetPath(), k.d.cipher.Seal(b, k.name))
}

// readTarget reads the target of a log of an earlier process.
func readTarget(path, name string, c sealed.Cipher) (t keptTarget, err error) {
	line, err := os.ReadFile(path)
	if err != nil {
		return t, err
	}
	b, err := c.Unseal(bytes.TrimSuffix(line, []byte("\n")), name)
	if err != nil {
		return t, err
	}
	return t, json.Unmarshal(b, &t)
}

// handOver makes the deliverer continue with a log whose stream has ended.
func (k *keptLog) handOver(s *Stream) {
	size := s.spool.size()
	k.target.Ended, k.target.Size = time.Now(), size
	k.target.Stored, _, _ = s.spool.counts()
	k.setProgress(&s.sender)
	if err := k.save(); err != nil {
		k.d.log.Warn().Err(err).Str("log", k.target.Key).Msg("cannot record the end of a log: a later process delivers it with a delay")
	}
	k.d.log.Info().Str("account", k.target.Account).Str("log", k.target.Key).Int64("bytes", size).
		Msg("the log service is away: a log is kept and delivered later")
	k.d.enqueue(k, time.Time{})
}

// setProgress records which lines the next attempt need not send.
func (k *keptLog) setProgress(s *sender) {
	if s.gaps {
		return // the service has refused lines in between
	}
	k.target.Sent, k.target.Next, k.target.Delivered = s.sent, s.next, s.delivered
}

// progress is the opposite of setProgress.
func (k *keptLog) progress() sender {
	t := &k.target
	return sender{batch: maxBatch, sent: t.Sent, next: t.Next, delivered: t.Delivered}
}

// keptFile is a file with lines.
type keptFile struct {
	path string
	from int64
	size int64
}

// files returns the files of the log in the order of their lines.
func (k *keptLog) files() (all []keptFile) {
	paths, _ := filepath.Glob(filepath.Join(k.d.cfg.Dir, k.name+"-*")) // a name has no pattern
	for _, path := range paths {
		text, _, _ := strings.Cut(strings.TrimPrefix(filepath.Base(path), k.name+"-"), ".")
		from, err := strconv.ParseInt(text, 16, 64)
		info, statErr := os.Stat(path)
		if err == nil && statErr == nil {
			all = append(all, keptFile{path, from, info.Size()})
		}
	}
	slices.SortFunc(all, func(a, b keptFile) int { return int(a.from - b.from) })
	return all
}

var errDamaged = errors.New("its files are damaged")

// load opens the files as a spool. It removes an incomplete last line.
func (k *keptLog) load(cfg *StreamConfig) (_ *spool, err error) {
	s := newSpool(cfg)
	k.attach(s)
	s.kept = true
	defer func() {
		if err != nil {
			for _, seg := range s.files {
				_ = seg.f.Close()
			}
		}
	}()
	for i, part := range k.files() {
		if i == 0 {
			s.base, s.memStart = part.from, part.from
		}
		if part.from != s.memStart {
			return nil, errDamaged
		}
		f, err := os.OpenFile(part.path, os.O_RDWR, 0)
		if err != nil {
			return nil, err
		}
		s.files = append(s.files, segment{f: &namedFile{f, part.path}, from: part.from})
		if err := s.scan(&s.files[i], part.size); err != nil {
			return nil, err
		}
		s.memStart += s.files[i].size
	}
	if s.memStart < k.target.Size {
		return nil, errDamaged
	}
	if k.target.Stored.Lines > 0 {
		s.stored = k.target.Stored // with lines that were removed
	}
	s.acked = k.target.Sent
	return s, nil
}

// scan counts the lines of a file and sets its size to the end of the last complete one.
func (s *spool) scan(seg *segment, size int64) error {
	buf := make([]byte, 0, maxBatch)
	for seg.size < size {
		n, err := seg.f.ReadAt(buf[:min(maxBatch, size-seg.size)], seg.size)
		if err != nil && !errors.Is(err, io.EOF) {
			return err
		}
		lines := buf[:bytes.LastIndexByte(buf[:n], '\n')+1]
		if len(lines) == 0 {
			return nil // the last line is incomplete
		}
		for line := range bytes.Lines(lines) {
			pos, ok := parsePos(line)
			if !ok || pos < s.pos {
				return errDamaged
			}
			s.pos = pos + 1
			s.stored.Lines++
		}
		s.stored.Bytes += int64(len(lines))
		seg.size += int64(len(lines))
	}
	return nil
}
