package storage

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"net/url"
	"time"
)

// layout begins the names of all objects of caches. Its version changes with their form.
const layout = "dlite-cache/v1/"

// index is the object of a key.
type index struct {
	Version int       `json:"version"`
	Key     string    `json:"key"`
	Format  string    `json:"format"`
	Files   int       `json:"files"`
	Bytes   int64     `json:"bytes"` // of the files
	Saved   time.Time `json:"saved"`
	Parts   []*part   `json:"parts"`
}

const (
	indexVersion = 1
	maxIndex     = 4 << 20
	// maxKey bounds a key after escaping; names of objects may have 1024 bytes.
	maxKey = 512
)

// indexObject returns the name of the object of a key.
func indexObject(key string) (string, error) {
	name := url.PathEscape(key)
	if key == "" || len(name) > maxKey {
		return "", wrong("the key %.100q is empty or too long: it may have %d bytes, escaped as in a URL", key, maxKey)
	}
	return layout + "keys/" + name, nil
}

func (w *work) readIndex(ctx context.Context, name string) (*index, error) {
	data, err := w.bucket.get(ctx, name, maxIndex)
	if err != nil {
		return nil, err
	}
	x := &index{}
	if err := json.Unmarshal(data, x); err != nil || x.Version != indexVersion {
		return nil, errors.New("its object is not an index of this version")
	}
	if len(x.Parts) == 0 || len(x.Parts) > maxParts {
		return nil, fmt.Errorf("it has %d parts; it may have 1 to %d", len(x.Parts), maxParts)
	}
	for _, p := range x.Parts {
		if p == nil {
			return nil, errors.New("a part of it is null")
		}
		if err := p.check(); err != nil {
			return nil, err
		}
	}
	return x, nil
}

func (x *index) size() (n int64) {
	for _, p := range x.Parts {
		n += p.Size
	}
	return n
}
