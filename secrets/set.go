package secrets

import (
	"fmt"
	"maps"
	"slices"
	"strings"
	"sync"
	"sync/atomic"
	"unicode/utf8"
)

// Replacement replaces a secret. It is the same for all secrets, so that it does not
// show their length.
const Replacement = "******"

// Config defines which values a [Set] masks. The zero value has the defaults.
type Config struct {
	// MinLength is the minimum length of a masked value, in characters. Shorter
	// values stay visible, and [Set.Values] has them. 0 means 3. With a lower minimum,
	// logs become unreadable. They also show more: if every "1" is masked, the
	// positions of all ones are known. With a higher minimum, more secrets are visible.
	MinLength int

	// MinLine is the minimum length of a line of a multi-line value, in characters.
	// Shorter lines are not masked alone: a line such as "{" of a JSON value is no
	// secret. The whole value is masked in any case. 0 means 8.
	MinLine int
}

// Set is a set of secret values. It is safe for concurrent use. It never prints the
// values. The zero value is an empty set with the defaults of [Config].
type Set struct {
	cfg   Config
	plain bool // make no encoded forms; benchmarks compare with it

	current atomic.Pointer[index] // of all values; nil after an addition

	mu      sync.Mutex // guards the fields below, and changes of current
	indexed *index     // without the pending patterns; nil if there are none
	known   map[string]struct{}
	pending patternList
}

// NewSet returns a set of values.
func NewSet(cfg Config, values ...string) *Set {
	s := &Set{cfg: cfg}
	s.Add(values...)
	return s
}

// Add adds values. Maskers of the set mask them in all text that they have not
// written yet. Add removes newlines at the end of a value. It ignores values that
// are empty or only white space. The set has values that are too short, and does not
// mask them. A nil set ignores all values, so a handler may call
// FromContext(ctx).Add without a check.
//
// Add makes the forms of a value, which takes a few microseconds for 40 characters.
// The next use of the set indexes the forms of all added values at once, and merges
// them with indexed forms of similar number only. If a text is masked after each
// addition, 1,000 values take about ten times as long as in one addition, some 100
// microseconds each.
func (s *Set) Add(values ...string) {
	if s == nil {
		return
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.known == nil {
		s.known = make(map[string]struct{}, len(values))
	}
	b := formBuilder{minLine: s.cfg.MinLine, plain: s.plain, out: s.pending}
	b.reserve(values)
	for _, v := range values {
		v = strings.TrimRight(v, "\r\n")
		if _, ok := s.known[v]; ok || !longEnough(v, 1, 1) {
			continue
		}
		s.known[v] = struct{}{}
		if longEnough(v, s.cfg.MinLength, 3) {
			b.addForms(v)
		}
	}
	s.pending = b.out
	if s.pending.len() > 0 {
		s.current.Store(nil)
	}
}

// Include adds the values of another set. The other set may be nil.
func (s *Set) Include(other *Set) {
	if other == nil || other == s {
		return
	}
	s.Add(other.Values()...)
}

// longEnough reports whether text has the minimum length and is not only white
// space. A minimum of 0 means def.
func longEnough(text string, minimum, def int) bool {
	if minimum <= 0 {
		minimum = def
	}
	return utf8.RuneCountInString(text) >= minimum && strings.TrimSpace(text) != ""
}

// Mask returns text with its secrets replaced. Text must be complete, such as an
// error message or a step's output value. For text that arrives in parts, use a
// [Masker].
func (s *Set) Mask(text string) string {
	x := s.index()
	if len(x.matchers) == 0 {
		return text
	}
	st := newStream(x)
	masked := st.write([]byte(text))
	if !st.matched {
		return text
	}
	decided := string(masked) // a copy: flush overwrites the buffer
	return decided + string(st.flush())
}

// Len returns the number of values, with those that are too short to be masked.
func (s *Set) Len() int {
	s.mu.Lock()
	defer s.mu.Unlock()
	return len(s.known)
}

// Values returns the values in no order, with those that are too short to be masked.
// Every other method hides the values: store the result only in a place that is safe
// for secrets.
func (s *Set) Values() []string {
	s.mu.Lock()
	defer s.mu.Unlock()
	return slices.Collect(maps.Keys(s.known))
}

// String returns the number of values, not the values.
func (s *Set) String() string { return fmt.Sprintf("secrets.Set(%d values)", s.Len()) }

// GoString returns the same text as String. The verb %#v uses it.
func (s *Set) GoString() string { return s.String() }

// Format writes the text of String for every verb, so that no verb prints a value.
func (s *Set) Format(f fmt.State, _ rune) { _, _ = fmt.Fprint(f, s.String()) }

// MarshalText returns the text of String. Encoders such as encoding/json use it.
func (s *Set) MarshalText() ([]byte, error) { return []byte(s.String()), nil }

// index returns the index of all values.
func (s *Set) index() *index {
	if x := s.current.Load(); x != nil {
		return x
	}
	return s.indexPending()
}

// indexPending makes the index of all values, with the pending patterns.
func (s *Set) indexPending() *index {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.indexed == nil {
		s.indexed = newIndex(nil)
	}
	if s.pending.len() > 0 {
		s.indexed = s.indexed.with(&s.pending)
		s.pending = patternList{}
	}
	s.current.Store(s.indexed)
	return s.indexed
}
