package secrets

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"time"

	"github.com/delegate-io/dlite/internal/jsonscan"
)

// Limits of a [Resolver]. What exceeds them is an error.
const (
	// MaxValue is the size of one value, in bytes. Masking a value costs memory in
	// proportion to its size, and the secret managers of clouds take no more.
	MaxValue = 64 << 10
	// MaxDerived is the size of what a template makes of a secret, in bytes.
	MaxDerived = 2 * MaxValue
	// MaxDepth is how many templates may lie within each other, and how many
	// functions may be applied to one text.
	MaxDepth = 16
	// MaxFetches is how many different provider references a task may have.
	MaxFetches = 256

	defaultTimeout = 30 * time.Second
	defaultMaxSize = 32 << 20
)

// ResolverConfig configures a [Resolver].
type ResolverConfig struct {
	// Providers serve the references that are URLs. None by default.
	Providers Providers
	// Timeout bounds each call of a provider. 0 means 30 seconds.
	Timeout time.Duration
	// MaxSize bounds what one call of Resolve makes, in bytes: its result, and
	// all that was derived on the way, together. 0 means 32 MiB.
	MaxSize int
}

// Resolver replaces the references and templates in one task's payload (SPEC S1,
// S2); the package documentation says what they look like. Make one for each
// task: it remembers what it has fetched, so that a task sees one value for one
// reference. It is not safe for concurrent use.
type Resolver struct {
	set     *Set
	cfg     ResolverConfig
	defined map[string]string
	fetched map[string]string
}

// NewResolver makes a resolver that tells set every value that it learns or
// derives, before anybody else sees it. It panics without a set.
func NewResolver(set *Set, cfg ResolverConfig) *Resolver {
	if set == nil {
		panic("secrets: a resolver without a set")
	}
	if cfg.Timeout <= 0 {
		cfg.Timeout = defaultTimeout
	}
	if cfg.MaxSize <= 0 {
		cfg.MaxSize = defaultMaxSize
	}
	return &Resolver{set: set, cfg: cfg, defined: map[string]string{}, fetched: map[string]string{}}
}

// Define gives the task's own secret id a value: ${{secrets.<id>}}. It goes
// before a provider's reference of the same text. Defining an id again with
// another value is an error: which one a reference means would be a guess.
func (r *Resolver) Define(id, value string) error {
	r.set.Add(value)
	if err := validValue(value); err != nil {
		return r.failed(id, err)
	}
	if old, ok := r.defined[id]; ok && old != value {
		return r.failed(id, errors.New("two secrets have this id"))
	}
	r.defined[id] = value
	return nil
}

// Defined tells whether Define was called with id.
func (r *Resolver) Defined(id string) bool {
	_, ok := r.defined[id]
	return ok
}

// Resolve returns data, a JSON text, with its references and templates replaced.
// What it does not replace stays as it is, byte for byte; without anything to
// replace the result is data itself. An error is a [*ReferenceError], or says
// what is wrong with a template; it shows no value.
func (r *Resolver) Resolve(ctx context.Context, data []byte) ([]byte, error) {
	if !promising(data) {
		return data, nil
	}
	if !jsonscan.Valid(data) {
		return nil, errors.New("resolving secrets: the text is not JSON")
	}
	doc := document{resolver: r, left: r.cfg.MaxSize}
	return doc.resolve(ctx, data)
}

// promising tells whether a JSON text may hold something to replace: an escape
// may hide it.
func promising(text []byte) bool {
	return bytes.Contains(text, []byte("secrets.")) || bytes.Contains(text, []byte(base64Func)) ||
		bytes.Contains(text, []byte(`\u`))
}

// lookup finds the value of a reference.
func (r *Resolver) lookup(ctx context.Context, name string) (string, error) {
	if v, ok := r.defined[name]; ok {
		return v, nil
	}
	if v, ok := r.fetched[name]; ok {
		return v, nil
	}
	if !isURL(name) {
		return "", r.failed(name, ErrNotFound)
	}
	u, err := parseReference(name)
	if err != nil {
		return "", r.failed(name, err)
	}
	p := r.cfg.Providers[u.Scheme]
	if p == nil {
		return "", r.failed(name, fmt.Errorf("this delegate has no secret provider %q", u.Scheme))
	}
	if len(r.fetched) >= MaxFetches {
		return "", r.failed(name, fmt.Errorf("a task may refer to %d secrets of providers", MaxFetches))
	}
	ctx, cancel := context.WithTimeout(ctx, r.cfg.Timeout)
	defer cancel()
	v, err := p.Fetch(ctx, u)
	r.set.Add(v)
	if err == nil {
		err = validValue(v)
	}
	if err != nil {
		return "", r.failed(name, err)
	}
	r.fetched[name] = v
	return v, nil
}

// failed makes the error for a reference. A provider may quote an answer in its
// reason although it must not, so the known secrets in it are masked.
func (r *Resolver) failed(name string, err error) error {
	return &ReferenceError{
		Reference: name, Err: err,
		text: r.set.Mask(fmt.Sprintf("secret reference %s%s%s: %v", referenceBegin, name, referenceEnd, err)),
	}
}
