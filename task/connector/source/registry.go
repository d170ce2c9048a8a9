package source

import (
	"context"
	"encoding/json"
	"fmt"
	"slices"
	"strings"

	"github.com/delegate-io/dlite/internal/source"
	"github.com/delegate-io/dlite/task"
)

// registryState is the state of a registry source.
type registryState struct {
	seen
	Tags    []string          `json:"tags,omitempty"`    // that the patterns select, sorted
	Digests map[string]string `json:"digests,omitempty"` // by tag
	// ListETag is of a list of tags that has one page.
	ListETag string `json:"list_etag,omitempty"`
	// ETags are the ETags of the manifests, by tag.
	ETags map[string]string `json:"etags,omitempty"`
}

// mostDigests bounds the tags whose digests a source watches.
const mostDigests = 50

func (s *Sources) pollRegistry(ctx context.Context, cfg *source.RegistryConfig, state *registryState) (*task.PerpetualResult, error) {
	if len(cfg.Digests) > mostDigests {
		return nil, fmt.Errorf("digests has %d tags: at most %d are watched", len(cfg.Digests), mostDigests)
	}
	r, err := s.repository(ctx, cfg)
	if err != nil {
		return nil, err
	}
	if of := addressID(cfg.Repository); state.Address != of {
		*state = registryState{seen: seen{Address: of}}
	}
	turn := registryTurn{cfg: cfg, state: state, repository: r, first: state.Source == "", reported: map[string]bool{}}
	turn.same = state.begin([][]string{cfg.Tags, cfg.Digests})
	if !turn.same {
		state.ListETag = "" // the same list has other tags for other patterns
	}
	if err := turn.tags(ctx); err != nil {
		s.forget(cfg, err)
		return nil, err
	}
	if err := turn.digests(ctx); err != nil {
		s.forget(cfg, err)
		return nil, err
	}
	return result(state, turn.events, fmt.Sprintf("the patterns select %d tags", len(state.Tags)))
}

// registryTurn is one poll of a registry.
type registryTurn struct {
	cfg         *source.RegistryConfig
	state       *registryState
	repository  *repository
	first, same bool
	events      []json.RawMessage
	reported    map[string]bool // tags that have an event
}

// tags makes events of new tags.
func (t *registryTurn) tags(ctx context.Context) error {
	if len(t.cfg.Tags) == 0 {
		t.state.Tags, t.state.ListETag = nil, ""
		return nil
	}
	patterns := source.Compile(t.cfg.Tags)
	tags, etag, unchanged, err := t.repository.list(ctx, t.state.ListETag, patterns.Match)
	if err != nil || unchanged {
		return err
	}
	slices.Sort(tags)
	tags = slices.Compact(tags)
	var next []string
	complete := true
	for _, tag := range tags {
		_, known := slices.BinarySearch(t.state.Tags, tag)
		if known || t.first || !t.same {
			next = append(next, tag)
			continue
		}
		if len(t.events) >= mostEvents {
			complete = false
			continue
		}
		digest, _, _, err := t.repository.digest(ctx, tag, "")
		if err != nil {
			return err
		}
		if digest == "" {
			continue // it was removed after the listing
		}
		if err := t.event(tag, "", digest); err != nil {
			return err
		}
		next = append(next, tag)
	}
	t.state.Tags, t.state.ListETag = next, etag
	if !complete { // the next poll must read the list again
		t.state.ListETag = ""
	}
	return nil
}

// digests makes events of tags with another digest.
func (t *registryTurn) digests(ctx context.Context) error {
	digests, etags := map[string]string{}, map[string]string{}
	for _, tag := range t.cfg.Digests {
		old, known := t.state.Digests[tag]
		now, etag, unchanged, err := t.repository.digest(ctx, tag, t.state.ETags[tag])
		switch {
		case err != nil:
			return err
		case unchanged:
			now, etag = old, t.state.ETags[tag]
		case now != old && !t.first && (known || t.same) && now != "" && !t.reported[tag]:
			if len(t.events) >= mostEvents {
				now, etag = old, ""
			} else if err := t.event(tag, old, now); err != nil {
				return err
			}
		}
		if now == "" && !known {
			continue
		}
		if digests[tag] = now; now == "" { // removed: the old digest is not news when it comes back
			digests[tag] = old
		}
		if etag != "" {
			etags[tag] = etag
		}
	}
	t.state.Digests, t.state.ETags = digests, etags
	return nil
}

func (t *registryTurn) event(tag, old, digest string) error {
	data, err := json.Marshal(source.RegistryEvent{ID: t.state.nextID(), Repository: t.cfg.Repository, Tag: tag, Digest: digest, Old: old})
	if err == nil {
		t.events, t.reported[tag] = append(t.events, data), true
	}
	return err
}

// validTag reports whether a text has the form of a tag.
func validTag(text string) bool {
	const most = 128
	return text != "" && len(text) <= most && text[0] != '.' && text[0] != '-' && !strings.ContainsFunc(text, func(r rune) bool {
		return (r < 'a' || r > 'z') && (r < 'A' || r > 'Z') && (r < '0' || r > '9') && r != '_' && r != '.' && r != '-'
	})
}
