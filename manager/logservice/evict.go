package logservice

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"net/http"
	"slices"
	"time"

	"github.com/delegate-io/dlite/manager/internal/livelog"
)

// An account whose logs do not fit loses its own oldest logs. Only an account that uses
// more than the account of a request makes room for it. So an account that uses less
// than an equal part never loses a log for another one.

// evictionPart is the part of an account's logs that one eviction removes at least: one
// eighth. The cost of looking at all logs of the account is thereby constant for each
// log that is removed.
const evictionPart = 8

// suspension is the time for which an account whose eviction did not help gets errFull
// without another one.
const suspension = 10 * time.Second

var errFull = &httpError{http.StatusInsufficientStorage, "the log service is full"}

// streamsFit reports whether the streams of an account may grow. They may use as much as
// the streams of other accounts leave.
func (s *store) streamsFit(account string, size int64, logs int) bool {
	own, all := s.streams.Usage(account)
	return own.Size+size <= s.cfg.MaxTotal-all.Size && own.Logs+logs <= s.cfg.MaxLogs-all.Logs
}

// missing returns the part of the bytes and logs for which there is no room.
func (s *store) missing(size int64, logs int) (u livelog.Usage) {
	_, inStreams := s.streams.Usage("")
	inArchive := s.archive.usage()
	u.Size = max(0, inStreams.Size+inArchive.Size+size-s.cfg.MaxTotal)
	u.Logs = max(0, inStreams.Logs+inArchive.Logs+logs-s.cfg.MaxLogs)
	return u
}

func (s *store) fits(size int64, logs int) bool { return s.missing(size, logs) == livelog.Usage{} }

// reserveStream makes room for a stream of an account that grows.
func (s *store) reserveStream(ctx context.Context, account string, size int64, logs int) error {
	if s.streamsFit(account, size, logs) && s.fits(size, logs) {
		return nil
	}
	return s.evictFor(ctx, account, func() error {
		for !s.streamsFit(account, size, logs) {
			if !s.evictStreams(ctx, account) {
				return s.errPartFull()
			}
		}
		return nil
	}, size, logs)
}

func (s *store) errPartFull() error {
	return &httpError{http.StatusInsufficientStorage, fmt.Sprintf(
		"the log service is full: the live logs of this account use its part of %d bytes and %d logs", s.cfg.MaxTotal, s.cfg.MaxLogs)}
}

// reserve makes room for an archive of an account.
func (s *store) reserve(ctx context.Context, account string, size int64, logs int) error {
	if s.fits(size, logs) {
		return nil
	}
	return s.evictFor(ctx, account, func() error { return nil }, size, logs)
}

// evictFor calls first and then evicts logs until there is room. Only one request at a
// time evicts.
func (s *store) evictFor(ctx context.Context, account string, first func() error, size int64, logs int) error {
	if s.isSuspended(account) {
		return errFull
	}
	select {
	case <-s.evicter:
	case <-ctx.Done():
		return ctx.Err()
	}
	defer func() { s.evicter <- struct{}{} }()
	err := first()
	if err == nil {
		err = s.evict(ctx, account, size, logs)
	}
	if err != nil && ctx.Err() == nil {
		s.suspend(account)
	}
	return err
}

func (s *store) isSuspended(account string) bool {
	s.mu.Lock()
	defer s.mu.Unlock()
	until, ok := s.suspended[account]
	if ok && !s.cfg.Now().Before(until) {
		delete(s.suspended, account)
		ok = false
	}
	return ok
}

// suspend suspends eviction for an account, because it did not help.
func (s *store) suspend(account string) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.suspended[account] = s.cfg.Now().Add(suspension)
}

// owner is an account in an eviction. After a restart, only the folder of its archives
// may be known.
type owner struct {
	account, folder string
	usage           livelog.Usage
}

// owners returns the usage of all accounts.
func (s *store) owners(account string) []owner {
	folders := s.archive.folders()
	s.mu.Lock()
	accounts := map[string]string{folderOf(account): account}
	for a := range s.accounts {
		accounts[folderOf(a)] = a
	}
	s.mu.Unlock()
	for folder := range accounts {
		if _, ok := folders[folder]; !ok {
			folders[folder] = livelog.Usage{}
		}
	}
	var out []owner
	for folder, u := range folders {
		o := owner{account: accounts[folder], folder: folder, usage: u}
		if o.account != "" {
			live, _ := s.streams.Usage(o.account)
			o.usage.Size += live.Size
			o.usage.Logs += live.Logs
		}
		out = append(out, o)
	}
	return out
}

// evict removes complete logs until there is room: those of the account that uses most,
// the oldest first. It never removes logs of an account that uses less than the account
// of the request.
func (s *store) evict(ctx context.Context, account string, size int64, logs int) error {
	exhausted := map[string]bool{}
	for {
		missing := s.missing(size, logs)
		if (missing == livelog.Usage{}) {
			return nil
		}
		amount := func(u livelog.Usage) int64 {
			if missing.Size > 0 {
				return u.Size
			}
			return int64(u.Logs)
		}
		own := folderOf(account)
		// The account of the request comes before another account with the same usage.
		order := func(a, b owner) int {
			return cmp.Or(cmp.Compare(amount(a.usage), amount(b.usage)), isOwn(a, own)-isOwn(b, own))
		}
		all := s.owners(account)
		mine := all[slices.IndexFunc(all, func(o owner) bool { return o.folder == own })]
		all = slices.DeleteFunc(all, func(o owner) bool { return exhausted[o.folder] || order(o, mine) < 0 })
		if len(all) == 0 {
			return errFull
		}
		victim := slices.MaxFunc(all, order)
		enough := max(amount(missing), amount(victim.usage)/evictionPart)
		if victim.folder == own {
			s.archivePending(ctx, account)
		}
		removed, err := s.evictOwner(ctx, victim, amount, enough)
		if err != nil {
			return err
		}
		exhausted[victim.folder] = removed < enough
	}
}

func isOwn(o owner, folder string) int {
	if o.folder == folder {
		return 1
	}
	return 0
}

// archivePending archives the complete streams of an account, which can then be evicted.
// Only the account itself waits for that.
func (s *store) archivePending(ctx context.Context, account string) {
	if s.lazy {
		return
	}
	for id, st := range s.streams.All(ctx, account) {
		if st.Pending() {
			s.logError("archiving a stream", s.archiveOne(ctx, id))
		}
	}
}

// candidate is a log that may be evicted.
type candidate struct {
	at     time.Time
	usage  livelog.Usage
	remove func() error
}

// evictOwner removes complete logs of an account: first streams that are archived, then
// the logs with the oldest change. It stops when it has removed enough, and returns the
// removed amount.
func (s *store) evictOwner(ctx context.Context, o owner, amount func(livelog.Usage) int64, enough int64) (removed int64, err error) {
	spare, last := s.streamCandidates(ctx, o.account)
	err = s.archive.list(ctx, o.folder, func(a object) {
		last = append(last, candidate{a.at, livelog.Usage{Logs: 1, Size: a.size}, func() error { return s.archive.remove(ctx, a) }})
		if len(last) >= 2*maxCandidates {
			last = slices.Clip(oldestFirst(last)[:maxCandidates])
		}
	})
	if err != nil {
		return 0, err
	}
	for _, c := range append(oldestFirst(spare), oldestFirst(last)...) {
		if removed >= enough {
			break
		}
		if err := c.remove(); err != nil {
			return removed, err
		}
		removed += amount(c.usage)
	}
	return removed, nil
}

// maxCandidates bounds the archives that one eviction remembers.
const maxCandidates = 50_000

func oldestFirst(all []candidate) []candidate {
	slices.SortFunc(all, func(a, b candidate) int { return a.at.Compare(b.at) })
	return all
}

// streamCandidates returns the streams of an account that may be evicted: those that are
// archived, and those that are their own archive.
func (s *store) streamCandidates(ctx context.Context, account string) (spare, last []candidate) {
	if account == "" {
		return nil, nil
	}
	for id, st := range s.streams.All(ctx, account) {
		c := candidate{st.Touched, livelog.Usage{Logs: 1, Size: st.Size}, func() error { return s.streams.Remove(ctx, id, st.Run) }}
		switch {
		case st.Open, st.Pending() && !s.lazy:
		case st.Pending():
			last = append(last, c)
		default:
			spare = append(spare, c)
		}
	}
	return spare, last
}

// evictStreams removes an eighth of the complete streams of an account, at least one.
// If none is archived, it archives them first. It reports whether it removed one.
func (s *store) evictStreams(ctx context.Context, account string) bool {
	spare, last := s.streamCandidates(ctx, account)
	if len(spare)+len(last) == 0 {
		s.archivePending(ctx, account)
		spare, last = s.streamCandidates(ctx, account)
	}
	all := append(oldestFirst(spare), oldestFirst(last)...)
	for i, c := range all {
		err := c.remove()
		s.logError("removing a stream", err)
		if err != nil {
			return false
		}
		if i >= len(all)/evictionPart {
			break
		}
	}
	return len(all) > 0
}

// withRoom calls call, which needs room in the store of streams. That store may have
// lower limits. If it is full, withRoom removes archived streams of the account early
// and repeats the call.
func (s *store) withRoom(ctx context.Context, account string, call func() error) error {
	err := call()
	if !errors.Is(err, livelog.ErrFull) || s.isSuspended(account) {
		return err
	}
	spare, last := s.streamCandidates(ctx, account)
	for _, c := range append(spare, last...) {
		if err := c.remove(); err != nil {
			return err
		}
	}
	if len(spare)+len(last) > 0 {
		if err = call(); !errors.Is(err, livelog.ErrFull) {
			return err
		}
	}
	s.suspend(account)
	return err
}
