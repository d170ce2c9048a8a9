package secrets

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"time"

	"github.com/delegate-io/dlite/internal/jsonscan"
)

const (
	// maxValue is the largest size of a value, in bytes. The memory for masking
	// grows with the size of a value. Cloud secret managers have the same limit.
	maxValue = 64 << 10
	// maxDerived is the largest text that a template makes of a secret, in bytes.
	maxDerived = 2 * maxValue
	// maxDepth bounds how deep templates nest, and how many functions apply to a text.
	maxDepth = 16
	// maxFetches is the number of different provider references in a task.
	maxFetches = 256

	defaultTimeout = 30 * time.Second
	defaultMaxSize = 32 << 20
)

// ResolverConfig configures a [Resolver].
type ResolverConfig struct {
	// Providers resolve the references that are URLs. The default is none.
	Providers Providers
	// Timeout bounds each call of a provider. 0 means 30 seconds.
	Timeout time.Duration
	// MaxSize bounds the text that one call of Resolve makes, in bytes: its result
	// and all intermediate texts together. 0 means 32 MiB.
	MaxSize int
	// Masks configures the set of a task, which package router/secrets makes.
	Masks Config
}

// Resolver replaces references and templates in the payload of one task (rules S1
// and S2). The package documentation describes them. Make a Resolver for each task:
// it remembers fetched values, so that a task sees one value for a reference. It is
// not safe for concurrent use.
type Resolver struct {
	set     *Set
	cfg     ResolverConfig
	defined map[string]string
	fetched map[string]string
}

// NewResolver returns a resolver. It adds every value that it fetches or derives to
// set, before it uses the value. NewResolver panics if set is nil.
func NewResolver(set *Set, cfg ResolverConfig) *Resolver {
	if set == nil {
		panic("secrets: NewResolver without a set")
	}
	if cfg.Timeout <= 0 {
		cfg.Timeout = defaultTimeout
	}
	if cfg.MaxSize <= 0 {
		cfg.MaxSize = defaultMaxSize
	}
	return &Resolver{set: set, cfg: cfg, defined: map[string]string{}, fetched: map[string]string{}}
}

// Define sets the value of ${{secrets.<id>}}. It takes precedence over a provider
// reference with the same text. Defining an id again with another value is an error,
// because the meaning of a reference would be ambiguous.
func (r *Resolver) Define(id, value string) error {
	r.set.Add(value)
	if err := checkSize(value); err != nil {
		return r.referenceError(id, err)
	}
	if old, ok := r.defined[id]; ok && old != value {
		return r.referenceError(id, errors.New("two secrets have this id"))
	}
	r.defined[id] = value
	return nil
}

// Defined reports whether Define has set a value for id.
func (r *Resolver) Defined(id string) bool {
	_, ok := r.defined[id]
	return ok
}

// Resolve returns data, a JSON text, with its references and templates replaced. All
// other text stays byte for byte. If there is nothing to replace, the result is data
// itself. An error names a reference that cannot be resolved or an invalid template; it
// shows no value.
func (r *Resolver) Resolve(ctx context.Context, data []byte) ([]byte, error) {
	if !mayHaveExpression(data) {
		return data, nil
	}
	if !jsonscan.Valid(data) {
		return nil, errors.New("resolving secrets: the text is not JSON")
	}
	doc := document{resolver: r, remaining: r.cfg.MaxSize}
	return doc.resolve(ctx, data)
}

// mayHaveExpression reports whether a JSON text may have an expression. The escape
// \u may hide one.
func mayHaveExpression(text []byte) bool {
	return bytes.Contains(text, []byte("secrets.")) || bytes.Contains(text, []byte(base64Func)) ||
		bytes.Contains(text, []byte(`\u`))
}

// lookup returns the value of a reference.
func (r *Resolver) lookup(ctx context.Context, name string) (string, error) {
	if v, ok := r.defined[name]; ok {
		return v, nil
	}
	if v, ok := r.fetched[name]; ok {
		return v, nil
	}
	if !isURL(name) {
		return "", r.referenceError(name, ErrNotFound)
	}
	u, err := parseReference(name)
	if err != nil {
		return "", r.referenceError(name, err)
	}
	p := r.cfg.Providers[u.Scheme]
	if p == nil {
		return "", r.referenceError(name, fmt.Errorf("this delegate has no secret provider %q", u.Scheme))
	}
	if len(r.fetched) >= maxFetches {
		return "", r.referenceError(name, fmt.Errorf("a task may refer to at most %d secrets of providers", maxFetches))
	}
	ctx, cancel := context.WithTimeout(ctx, r.cfg.Timeout)
	defer cancel()
	v, err := p.Fetch(ctx, u)
	r.set.Add(v)
	if err == nil {
		err = checkSize(v)
	}
	if err != nil {
		return "", r.referenceError(name, err)
	}
	r.fetched[name] = v
	return v, nil
}

// referenceError returns the error for a reference. It masks the text, because a
// provider may quote an answer although it must not.
func (r *Resolver) referenceError(name string, err error) error {
	return &unresolvedError{r.set.Mask(fmt.Sprintf("secret reference %s%s%s: %v", referenceBegin, name, referenceEnd, err)), err}
}
