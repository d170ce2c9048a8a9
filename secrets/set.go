package secrets

import (
	"fmt"
	"strings"
	"sync"
	"sync/atomic"
	"unicode/utf8"
)

// Replacement is what stands in the place of a secret. It is the same for all
// of them, so that it tells nothing about their length.
const Replacement = "******"

// Config says what counts as a secret.
type Config struct {
	// MinLength is the length in characters below which a value is not masked.
	// 0 means 3. A lower minimum makes logs unreadable and, because everything
	// else is shown, guessable: masking every "1" tells where they are. Values
	// that are shorter stay visible.
	MinLength int

	// MinLine is the same for the single lines of a multi-line value. 0 means 8.
	// Lines such as "{" of a JSON value are no secrets by themselves; the value
	// as a whole is masked whatever its lines are.
	MinLine int
}

// Set is a set of secret values. It is safe for concurrent use, and never prints
// them. The zero value is an empty set with the defaults of [Config].
type Set struct {
	cfg   Config
	plain bool // the values by themselves, for comparison

	current atomic.Pointer[index] // of all values; nil until somebody asks after an addition

	mu    sync.Mutex // guards what follows, and changes of current
	last  *index     // of all values but the fresh ones' needles; nil if there are none
	known map[string]struct{}
	fresh texts
}

// NewSet makes a set that holds values.
func NewSet(cfg Config, values ...string) *Set {
	s := &Set{cfg: cfg}
	s.Add(values...)
	return s
}

// Add adds values. Maskers that work with the set mask them in everything that
// they have not passed on yet. Newlines at the end of a value do not belong to
// it. Values that are too short, empty or white space are ignored.
//
// Add makes a value's forms, in a few microseconds for one of 40 characters. They
// are entered when a text is masked next, all that have come together by then at
// once; nothing is rebuilt for it but what was added in portions of a similar
// size. Where a text is masked after each addition, 1,000 values take about ten
// times as long as all at once, some 100 microseconds each.
func (s *Set) Add(values ...string) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.known == nil {
		s.known = make(map[string]struct{}, len(values))
	}
	m := formMaker{minLine: s.cfg.MinLine, plain: s.plain, out: s.fresh}
	m.grow(values)
	for _, v := range values {
		v = strings.TrimRight(v, "\r\n")
		if _, ok := s.known[v]; ok || !longEnough(v, s.cfg.MinLength, 3) {
			continue
		}
		s.known[v] = struct{}{}
		m.forms(v)
	}
	s.fresh = m.out
	if s.fresh.len() > 0 {
		s.current.Store(nil)
	}
}

// longEnough tells whether a text is worth masking.
func longEnough(text string, minimum, def int) bool {
	if minimum <= 0 {
		minimum = def
	}
	return utf8.RuneCountInString(text) >= minimum && strings.TrimSpace(text) != ""
}

// Mask replaces the secrets in a whole text: an error message, an output, a log
// event. For text that arrives in pieces use a [Masker].
func (s *Set) Mask(text string) string {
	x := s.index()
	if len(x.finders) == 0 {
		return text
	}
	c := newCoverer(x)
	masked := c.write([]byte(text))
	if !c.found {
		return text
	}
	whole := string(masked) // flush writes where this is
	return whole + string(c.flush())
}

// Len is the number of values.
func (s *Set) Len() int {
	s.mu.Lock()
	defer s.mu.Unlock()
	return len(s.known)
}

// String says how many values there are, not which.
func (s *Set) String() string { return fmt.Sprintf("secrets.Set(%d values)", s.Len()) }

// GoString is String, for %#v.
func (s *Set) GoString() string { return s.String() }

// Format is String for every verb, so that none looks inside.
func (s *Set) Format(f fmt.State, _ rune) { _, _ = fmt.Fprint(f, s.String()) }

// MarshalText is String, for JSON and whatever else encodes by reflection.
func (s *Set) MarshalText() ([]byte, error) { return []byte(s.String()), nil }

// index is what to look for now.
func (s *Set) index() *index {
	if x := s.current.Load(); x != nil {
		return x
	}
	return s.renew()
}

// renew enters the fresh needles.
func (s *Set) renew() *index {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.last == nil {
		s.last = newIndex(nil)
	}
	if s.fresh.len() > 0 {
		s.last = s.last.with(&s.fresh)
		s.fresh = texts{}
	}
	s.current.Store(s.last)
	return s.last
}
