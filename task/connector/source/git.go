package source

import (
	"context"
	"crypto/rand"
	"crypto/sha256"
	"encoding/hex"
	"encoding/json"
	"errors"
	"fmt"
	"net/url"
	"regexp"
	"slices"
	"strconv"
	"strings"
	"unicode"

	"github.com/delegate-io/dlite/internal/source"
	"github.com/delegate-io/dlite/task"
)

const (
	// mostEvents bounds the events of a run. The next run has the others.
	mostEvents = 50
	// mostEventBytes bounds their size. An event is far smaller than the rest of the manager's bound.
	mostEventBytes = task.MaxPerpetualEventBytes - 16<<10
	// mostState bounds the state, in bytes.
	mostState = task.MaxPerpetualState - 1<<10
	maxRef    = 1024 // bytes of a name

	headPrefix, tagPrefix = "refs/heads/", "refs/tags/"
)

// gitState is the state of a Git source.
type gitState struct {
	seen
	Refs map[string]string `json:"refs,omitempty"` // name without refs/ to commit
}

// seen is the part of a state that gives events their ids.
type seen struct {
	// Address identifies the repository.
	Address string `json:"address"`
	// Source is random: a source that is made again must not repeat the ids of events.
	Source string `json:"source"`
	// Events counts the events.
	Events int64 `json:"events,omitempty"`
	// Patterns identifies the patterns for which the rest of the state is. Names that only other patterns select are noted
	// without an event.
	Patterns string `json:"patterns"`
}

// begin prepares the state for a poll, and reports whether names that it does not have are new. Otherwise the patterns
// are new.
func (s *seen) begin(patterns any) (same bool) {
	if s.Source == "" {
		s.Source = rand.Text()[:12]
	}
	data, _ := json.Marshal(patterns) // lists of texts
	sum := sha256.Sum256(data)
	now := hex.EncodeToString(sum[:8])
	same = s.Patterns == now
	s.Patterns = now
	return same
}

// nextID returns the id of the next event.
func (s *seen) nextID() string {
	s.Events++
	return s.Source + "-" + strconv.FormatInt(s.Events, 10)
}

// addressID returns an id of the address of a repository.
func addressID(address string) string {
	sum := sha256.Sum256([]byte(address))
	return hex.EncodeToString(sum[:8])
}

func (s *Sources) pollGit(ctx context.Context, cfg *source.GitConfig, state *gitState) (*task.PerpetualResult, error) {
	refs, err := s.listRefs(ctx, cfg)
	if err != nil {
		return nil, err
	}
	if of := addressID(cfg.URL); state.Address != of {
		*state = gitState{seen: seen{Address: of}} // another repository: its commits are not news
	}
	return state.advance(cfg, refs)
}

// listRefs returns the refs that the patterns select, with their commits.
func (s *Sources) listRefs(ctx context.Context, cfg *source.GitConfig) (map[string]string, error) {
	address, err := gitAddress(cfg.URL)
	if err != nil {
		return nil, err
	}
	keep, prefixes := selection(cfg)
	if address.Scheme == "ssh" {
		return s.listSSH(ctx, cfg, address, prefixes, keep)
	}
	return s.listHTTP(ctx, cfg, strings.TrimSuffix(address.String(), "/"), prefixes, keep)
}

// selection returns the refs that the patterns select, and the prefixes of their names.
func selection(cfg *source.GitConfig) (keep func(string) bool, prefixes []string) {
	branches, tags := source.Compile(cfg.Branches), source.Compile(cfg.Tags)
	add := func(kind string, patterns []string) {
		if len(patterns) == 0 {
			return
		}
		for _, p := range source.Prefixes(patterns) {
			prefixes = append(prefixes, kind+p)
		}
	}
	add(headPrefix, cfg.Branches)
	add(tagPrefix, cfg.Tags)
	slices.Sort(prefixes)
	return func(name string) bool {
		if len(name) > maxRef || strings.ContainsFunc(name, func(r rune) bool { return !unicode.IsPrint(r) }) {
			return false
		}
		if branch, ok := strings.CutPrefix(name, headPrefix); ok {
			return len(cfg.Branches) > 0 && branches.Match(branch)
		}
		tag, ok := strings.CutPrefix(name, tagPrefix)
		return ok && len(cfg.Tags) > 0 && tags.Match(tag)
	}, slices.Compact(prefixes)
}

// advance returns the events and the state after a poll. If there are too many events, the state leaves out what they
// report, so that the next run has them.
func (s *gitState) advance(cfg *source.GitConfig, refs map[string]string) (*task.PerpetualResult, error) {
	first := s.Source == ""
	same := s.begin([][]string{cfg.Branches, cfg.Tags})
	repository := shownURL(cfg.URL)
	next := make(map[string]string, len(refs))
	names := make([]string, 0, len(refs))
	for name := range refs {
		names = append(names, name)
	}
	slices.Sort(names)
	var events []json.RawMessage
	size := 0
	for _, name := range names {
		short := strings.TrimPrefix(name, "refs/")
		old, known := s.Refs[short]
		if first || old == refs[name] || !known && !same {
			next[short] = refs[name]
			continue
		}
		if len(events) < mostEvents && size < mostEventBytes {
			data, err := json.Marshal(source.GitEvent{ID: s.nextID(), Repository: repository, Ref: name, Old: old, New: refs[name]})
			if err != nil {
				return nil, err
			}
			events, size = append(events, data), size+len(data)
			next[short] = refs[name]
		} else if known {
			next[short] = old
		}
	}
	s.Refs = next
	return result(s, events, fmt.Sprintf("the patterns select %d branches and tags", len(refs)))
}

// result returns the result of a run.
func result(state any, events []json.RawMessage, selected string) (*task.PerpetualResult, error) {
	data, err := json.Marshal(state)
	if err != nil {
		return nil, err
	}
	if len(data) > mostState {
		return nil, fmt.Errorf("%s, whose names need %d bytes of state: at most %d are allowed: use patterns that select fewer", selected, len(data), mostState)
	}
	return &task.PerpetualResult{State: data, Events: events}, nil
}

var scpForm = regexp.MustCompile(`^([A-Za-z0-9._-]+@)?([A-Za-z0-9._-]+|\[[0-9A-Fa-f:.]+\]):([^/:].*|/.+)$`)

// gitAddress returns the address of a repository. Errors do not show it, because it may have credentials.
func gitAddress(text string) (*url.URL, error) {
	if !strings.Contains(text, "://") {
		m := scpForm.FindStringSubmatch(text)
		if m == nil {
			return nil, errors.New("the url is not an address of a Git repository: use https://, ssh:// or user@host:path")
		}
		u := &url.URL{Scheme: "ssh", Host: m[2], Path: "/~/" + m[3]}
		if strings.HasPrefix(m[3], "/") {
			u.Path = m[3]
		}
		if user := strings.TrimSuffix(m[1], "@"); user != "" {
			u.User = url.User(user)
		}
		return u, nil
	}
	u, err := url.Parse(text)
	switch {
	case err != nil:
		return nil, errors.New("the url is not valid") // err quotes it
	case u.Scheme != "https" && u.Scheme != "http" && u.Scheme != "ssh":
		return nil, fmt.Errorf("the url has the scheme %q: use https, http or ssh", printable(u.Scheme))
	case u.Host == "":
		return nil, errors.New("the url has no host")
	case u.RawQuery != "" || u.Fragment != "":
		return nil, errors.New("the url has a query or a fragment: remove it")
	}
	if _, has := u.User.Password(); has || u.Scheme != "ssh" && u.User != nil {
		return nil, errors.New("the url has credentials: put them into secrets")
	}
	return u, nil
}

// shownURL returns an address without its user for events.
func shownURL(text string) string {
	if u, err := url.Parse(text); err == nil && u.Scheme != "ssh" {
		u.User = nil
		return u.String()
	}
	return text
}
