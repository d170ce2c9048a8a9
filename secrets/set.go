package secrets

import (
	"fmt"
	"strings"
	"sync"
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
	cfg Config

	mu      sync.Mutex // guards what follows
	known   map[string]struct{}
	needles []string
	machine *machine // of needles; nil when they have changed
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
func (s *Set) Add(values ...string) {
	s.mu.Lock()
	defer s.mu.Unlock()
	for _, v := range values {
		v = strings.TrimRight(v, "\r\n")
		if _, ok := s.known[v]; ok || !longEnough(v, s.cfg.MinLength, 3) {
			continue
		}
		if s.known == nil {
			s.known = map[string]struct{}{}
		}
		s.known[v] = struct{}{}
		s.needles = append(s.needles, forms(v, s.cfg.MinLine)...)
		s.machine = nil
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
	m := s.compiled()
	if m.empty() {
		return text
	}
	c := coverer{machine: m}
	out := c.write(nil, []byte(text))
	if !c.found {
		return text
	}
	return string(c.flush(out))
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

// compiled is the machine for the values of now. It is immutable.
func (s *Set) compiled() *machine {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.machine == nil {
		s.machine = compile(s.needles)
	}
	return s.machine
}
