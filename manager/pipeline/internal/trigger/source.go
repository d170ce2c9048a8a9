package trigger

import (
	"encoding/json"
	"errors"
	"strings"

	"github.com/delegate-io/dlite/internal/source"
)

const (
	maxSourceText = 2048 // bytes of a text of an event
	maxSourceID   = 128
)

// SourceID returns the id of an event of a source.
func SourceID(data json.RawMessage) (string, error) {
	var head struct{ ID string }
	if err := json.Unmarshal(data, &head); err != nil || head.ID == "" || len(head.ID) > maxSourceID || strings.ContainsFunc(head.ID, func(r rune) bool {
		return (r < 'a' || r > 'z') && (r < 'A' || r > 'Z') && (r < '0' || r > '9') && r != '-'
	}) {
		return "", errors.New("the event of the source has no id of letters, digits and -")
	}
	return head.ID, nil
}

// Git returns the event of a Git source, and the values of trigger.* for it.
func Git(data json.RawMessage) (*Event, map[string]any, error) {
	var g source.GitEvent
	payload, err := decodeSource(data, &g)
	if err != nil {
		return nil, nil, err
	}
	e := &Event{Commit: g.New, Base: g.Old, Repository: g.Repository}
	if e.clean(); !e.setRef(g.Ref) || e.Commit == "" {
		return nil, nil, errors.New("the event of the source names no branch or tag with a commit")
	}
	for _, text := range []string{g.Ref, g.Repository} {
		if len(text) > maxSourceText {
			return nil, nil, errors.New("a text of the event of the source is too long")
		}
	}
	values := e.Trigger("", payload, nil)
	values["sourceRepo"] = "Git"
	delete(values, "header")
	return e, values, nil
}

// Registry returns the values of trigger.* for the event of a registry source, and its tag.
func Registry(data json.RawMessage) (tag string, values map[string]any, err error) {
	var r source.RegistryEvent
	payload, err := decodeSource(data, &r)
	if err != nil {
		return "", nil, err
	}
	for _, text := range []string{r.Repository, r.Tag, r.Digest, r.Old} {
		if len(text) > maxSourceText {
			return "", nil, errors.New("a text of the event of the source is too long")
		}
	}
	if r.Tag == "" {
		return "", nil, errors.New("the event of the source names no tag")
	}
	artifact := map[string]any{}
	set(artifact, map[string]string{"build": r.Tag, "digest": r.Digest, "repository": r.Repository, "previousDigest": r.Old})
	return r.Tag, map[string]any{"type": "Artifact", "payload": payload, "artifact": artifact}, nil
}

func decodeSource(data json.RawMessage, event any) (payload map[string]any, err error) {
	if err := json.Unmarshal(data, event); err != nil {
		return nil, errors.New("the event of the source cannot be read: the delegate has another version")
	}
	return payload, json.Unmarshal(data, &payload)
}
