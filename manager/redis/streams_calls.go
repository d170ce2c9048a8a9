package redis

import (
	"bytes"
	"context"
	"crypto/rand"
	_ "embed" // the scripts
	"errors"
	"fmt"
	"iter"
	"slices"
	"strconv"
	"strings"
	"sync"
	"time"

	goredis "github.com/redis/go-redis/v9"

	"github.com/delegate-io/dlite/manager/internal/livelog"
)

// The scripts. Redis forgets them when it restarts; the client then sends them again.
var (
	//go:embed streams/common.lua
	common string
	//go:embed streams/start.lua
	start string
	//go:embed streams/append.lua
	appending string
	//go:embed streams/finish.lua
	finish string
	//go:embed streams/archived.lua
	archived string
	//go:embed streams/remove.lua
	remove string
	//go:embed streams/read.lua
	read string

	startScript       = goredis.NewScript(common + start)
	appendLinesScript = goredis.NewScript(common + appending)
	finishScript      = goredis.NewScript(common + finish)
	archivedScript    = goredis.NewScript(common + archived)
	removeScript      = goredis.NewScript(common + remove)
	readScript        = goredis.NewScript(common + read)
)

// Approximate overhead of records in Redis, in bytes.
const (
	streamSize = 256
	writerSize = 96
	chunkSize  = 48
)

const (
	// maxWriters bounds the writers of one stream. Each is a field of its record, which
	// has eight others.
	maxWriters = 1000
	maxFields  = maxWriters + 8
	// maxChunk is the size above which an entry accepts no more lines, in bytes.
	maxChunk = 64 << 10
	// maxRead is the approximate size of one read, in bytes.
	maxRead = 256 << 10
)

var uploaded = strconv.FormatInt(livelog.Uploaded, 10)

// run runs a script that answers with a status and an additional value.
func (s *Streams) run(ctx context.Context, script *goredis.Script, p place, args ...any) (status, extra string, err error) {
	if s.isClosed() {
		return "", "", livelog.ErrClosed
	}
	answer, err := script.Run(ctx, s.client, s.keys(p), append([]any{p.id}, args...)...).StringSlice()
	if err != nil {
		return "", "", s.explain(ctx, err)
	}
	if len(answer) != 8 {
		return "", "", fmt.Errorf("%w: an answer of %d parts", livelog.ErrUnavailable, len(answer))
	}
	s.count(p.shard, answer[2:])
	return answer[0], answer[1], nil
}

// Start opens the stream of the log.
func (s *Streams) Start(ctx context.Context, id livelog.ID, writer string) error {
	size := headSize(id)
	if writer != "" {
		size += writerSize + int64(len(writer))
	}
	if err := s.reserve(id.Account, size); err != nil {
		return err
	}
	_, _, err := s.run(ctx, startScript, placeOfLog(id), id.Account, id.Key, writer, size)
	return err
}

func headSize(id livelog.ID) int64 { return streamSize + int64(len(id.Account)+len(id.Key)) }

// reserve fails with ErrFull if there is no room for size bytes of an account.
func (s *Streams) reserve(account string, size int64) error {
	if own, all := s.Usage(account); own.Size+size > s.cfg.MaxTotal-all.Size {
		return fmt.Errorf("%w: all live streams may take %d bytes, and one account as much as the others leave free",
			livelog.ErrFull, s.cfg.MaxTotal)
	}
	return nil
}

// Append adds lines to the stream.
func (s *Streams) Append(ctx context.Context, id livelog.ID, b livelog.Batch) error {
	// Only Redis knows the next pos of the writer. This is its value if no lines were
	// lost or repeated. Otherwise the answer contains the value.
	next := max(b.Next, 0)
	if b.Next <= 0 && len(b.Lines) > 0 {
		next = b.Lines[0].Pos
	}
	once := ""
	if b.Writer == "" {
		once, next = rand.Text(), 0
	}
	for {
		lines := b.Lines
		if b.Writer != "" {
			lines = fresh(lines, next)
		}
		status, known, err := s.append(ctx, id, &b, lines, next, once)
		if err != nil {
			return err
		}
		switch status {
		case "next":
			at, err := strconv.ParseInt(known, 10, 64)
			if err != nil {
				return fmt.Errorf("%w: the writer is at %q", livelog.ErrUnavailable, known)
			}
			if b.Next > at {
				return &livelog.BehindError{Next: at}
			}
			if len(b.Lines) > 0 && len(fresh(b.Lines, at)) == 0 {
				return nil // the stream may be complete and must stay complete
			}
			next = at
		case "writers":
			return fmt.Errorf("%w of %d writers", livelog.ErrTooLong, maxWriters)
		case "long":
			return fmt.Errorf("%w of %d bytes", livelog.ErrTooLong, min(b.MaxStream, s.cfg.MaxStream))
		default:
			return nil
		}
	}
}

// append sends lines. They are valid if Redis has next as the next pos of the writer.
func (s *Streams) append(
	ctx context.Context, id livelog.ID, b *livelog.Batch, lines []livelog.Line, next int64, once string,
) (status, known string, err error) {
	buf := buffers.Get().(*[]byte)
	defer func() {
		if cap(*buf) <= 2<<20 {
			buffers.Put(buf)
		}
	}()
	size, after := int64(0), next
	for _, l := range lines {
		size += int64(len(l.Raw)) + 1
		after = l.Pos + 1
	}
	*buf = slices.Grow((*buf)[:0], int(size)) // a reallocation would move the chunks
	var chunks []any
	for rest := lines; len(rest) > 0; {
		from, n := len(*buf), 0
		for n < len(rest) && len(*buf)-from < maxChunk {
			*buf = append(append(*buf, rest[n].Raw...), '\n')
			n++
		}
		chunks = append(chunks, n, (*buf)[from:])
		rest = rest[n:]
		size += chunkSize
	}
	if err := s.reserve(id.Account, size); err != nil {
		return "", "", err
	}
	args := append([]any{
		id.Account, id.Key, b.Writer, next, after, once,
		headSize(id), writerSize + len(b.Writer), size, min(b.MaxStream, s.cfg.MaxStream),
		maxFields,
	}, chunks...)
	return s.run(ctx, appendLinesScript, placeOfLog(id), args...)
}

// buffers contains buffers for requests to Redis.
var buffers = sync.Pool{New: func() any { return new([]byte) }}

// fresh returns the lines whose pos is at least next and above the pos of the previous
// lines.
func fresh(lines []livelog.Line, next int64) []livelog.Line {
	for i, l := range lines {
		if l.Pos < next {
			out := slices.Clip(lines[:i])
			for _, l := range lines[i:] {
				if l.Pos >= next {
					out = append(out, l)
					next = l.Pos + 1
				}
			}
			return out
		}
		next = l.Pos + 1
	}
	return lines
}

// Finish completes the stream.
func (s *Streams) Finish(ctx context.Context, id livelog.ID, snapshot bool) error {
	status, _, err := s.run(ctx, finishScript, placeOfLog(id), snapshot, uploaded)
	if err == nil && status == "unknown" {
		return livelog.ErrUnknown
	}
	return err
}

// SetArchived sets the number of lines that the archive covers.
func (s *Streams) SetArchived(ctx context.Context, id livelog.ID, run, lines int64) error {
	_, _, err := s.run(ctx, archivedScript, placeOfLog(id), run, lines)
	return err
}

// Remove deletes a run.
func (s *Streams) Remove(ctx context.Context, id livelog.ID, run int64) error {
	_, _, err := s.run(ctx, removeScript, placeOfLog(id), run)
	return err
}

// stateFields are the fields of a stream that stateOf reads.
var stateFields = []string{"run", "open", "lines", "size", "archived", "touched", "account", "key"}

// State describes the stream.
func (s *Streams) State(ctx context.Context, id livelog.ID) (livelog.State, error) {
	if s.isClosed() {
		return livelog.State{}, livelog.ErrClosed
	}
	p := placeOfLog(id)
	fields, err := s.client.HMGet(ctx, s.key(p.shard, "s", p.id), stateFields...).Result()
	if err != nil {
		return livelog.State{}, s.explain(ctx, err)
	}
	_, st, ok := stateOf(fields)
	if !ok {
		return livelog.State{}, livelog.ErrUnknown
	}
	return st, nil
}

// stateOf converts stateFields. ok is false if there is no stream.
func stateOf(fields []any) (id livelog.ID, st livelog.State, ok bool) {
	text := func(i int) string { t, _ := fields[i].(string); return t }
	number := func(i int) int64 { n, _ := strconv.ParseInt(text(i), 10, 64); return n }
	if text(0) == "" {
		return id, st, false
	}
	return livelog.ID{Account: text(6), Key: text(7)}, livelog.State{
		Run: number(0), Open: text(1) == "1", Lines: number(2), Size: number(3), Archived: number(4),
		Touched: time.UnixMicro(number(5)),
	}, true
}

// Read returns lines of a run.
func (s *Streams) Read(ctx context.Context, id livelog.ID, run, from int64) ([]livelog.Line, error) {
	if s.isClosed() {
		return nil, livelog.ErrClosed
	}
	p := placeOfLog(id)
	// Entry ids begin with 1.
	chunks, err := readScript.Run(ctx, s.client, s.keys(p), p.id, run, uint64(from)+1, maxRead).StringSlice()
	if errors.Is(err, goredis.Nil) {
		return nil, livelog.ErrUnknown
	}
	if err != nil {
		return nil, s.explain(ctx, err)
	}
	var out []livelog.Line
	for i := 0; i+1 < len(chunks); i += 2 {
		first, _, _ := strings.Cut(chunks[i], "-")
		n, err := strconv.ParseInt(first, 10, 64)
		if err != nil {
			return nil, fmt.Errorf("%w: lines at %q", livelog.ErrUnavailable, chunks[i])
		}
		text := []byte(chunks[i+1])
		for raw := range bytes.Lines(text) {
			n++
			if pos := n - 2; pos >= from {
				raw = raw[:len(raw)-1]
				out = append(out, livelog.Line{Raw: slices.Clip(raw), Pos: pos})
			}
		}
	}
	return out, nil
}

// All iterates over the streams of an account, or over all streams. It ends early if
// Redis does not answer.
func (s *Streams) All(ctx context.Context, account string) iter.Seq2[livelog.ID, livelog.State] {
	return func(yield func(livelog.ID, livelog.State) bool) {
		for shard := range shards {
			if account != "" && !s.hasStreams(shard, account) {
				continue
			}
			more, err := s.some(ctx, shard, func(id livelog.ID, st livelog.State) bool {
				return account != "" && id.Account != account || yield(id, st)
			})
			if err != nil && ctx.Err() == nil && !s.isClosed() {
				s.cfg.Logger.Warn().Err(err).Msg("log streams: looking through them")
			}
			if !more || err != nil {
				return
			}
		}
	}
}

// some iterates over the streams of a shard. It returns false if yield did.
func (s *Streams) some(ctx context.Context, shard int, yield func(livelog.ID, livelog.State) bool) (bool, error) {
	const page = 500
	var cursor uint64
	seen := map[string]struct{}{} // a scan may return an id twice
	for {
		ids, next, err := s.client.SScan(ctx, s.key(shard, "i"), cursor, "", page).Result()
		if err != nil {
			return false, err
		}
		pipe := s.client.Pipeline()
		var states []*goredis.SliceCmd
		for _, id := range ids {
			if _, twice := seen[id]; !twice {
				seen[id] = struct{}{}
				states = append(states, pipe.HMGet(ctx, s.key(shard, "s", id), stateFields...))
			}
		}
		if len(states) > 0 {
			if _, err := pipe.Exec(ctx); err != nil {
				return false, err
			}
		}
		for _, cmd := range states {
			if id, st, ok := stateOf(cmd.Val()); ok && !yield(id, st) {
				return false, nil
			}
		}
		if cursor = next; cursor == 0 {
			return true, nil
		}
	}
}

// Usage returns the room that the streams of an account use, and that of all streams, as
// last reported to this process.
func (s *Streams) Usage(account string) (own, all livelog.Usage) {
	s.mu.Lock()
	defer s.mu.Unlock()
	for shard, t := range s.totals {
		all.Logs += int(t.streams)
		all.Size += t.size
		o := s.owned[shard][account]
		own.Logs += int(o.streams)
		own.Size += o.size
	}
	return own, all
}

func (s *Streams) hasStreams(shard int, account string) bool {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.owned[shard][account].streams > 0
}

// count records the totals of a shard and of one of its accounts, from a script or from
// the news: the values that count of common.lua returns.
func (s *Streams) count(shard int, values []string) {
	t := totalOf(values[0], values[1], values[2])
	own := totalOf(values[4], values[5], values[2])
	account := values[3]
	s.mu.Lock()
	defer s.mu.Unlock()
	if t.version >= s.totals[shard].version {
		s.totals[shard] = t
	}
	if account == "" || own.version < s.owned[shard][account].version {
		return
	}
	if s.owned[shard] == nil {
		s.owned[shard] = map[string]total{}
	}
	s.owned[shard][account] = own
}

func totalOf(streams, size, version string) total {
	number := func(text string) int64 { n, _ := strconv.ParseInt(text, 10, 64); return n }
	return total{number(streams), number(size), number(version)}
}

// Sync does nothing: the durability of acknowledged changes depends on Redis.
func (s *Streams) Sync() error { return nil }
