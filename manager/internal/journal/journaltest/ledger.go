package journaltest

import (
	"bytes"
	"encoding/binary"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"slices"
	"sync"
	"time"

	"github.com/delegate-io/dlite/manager/internal/journal"
)

// Command adds to an account of a [Ledger]. Each command has a unique ID.
type Command struct {
	ID      string
	Account string
	Add     int64
	Pad     []byte
}

// Receipt is the result of a command.
type Receipt struct {
	Place   int // position in the order of all commands, from 0
	Balance int64
	At      time.Time
}

// Ledger is a small machine that detects violations of the contract of
// [journal.Machine]. It is safe for concurrent use.
type Ledger struct {
	mu    sync.Mutex
	state ledgerState
	own   int
	seen  map[string]bool
}

type ledgerState struct {
	IDs      []string
	Accounts map[string]int64
	Last     time.Time
	Faults   []string
}

// NewLedger returns a ledger without state.
func NewLedger() *Ledger {
	return &Ledger{state: ledgerState{Accounts: map[string]int64{}}, seen: map[string]bool{}}
}

// NewMachine is a function for a journal's Config.New.
func NewMachine() journal.Machine[Command] { return NewLedger() }

// Apply applies a command and records violations.
func (l *Ledger) Apply(at time.Time, c Command, own bool) any {
	l.mu.Lock()
	defer l.mu.Unlock()
	s := &l.state
	if l.seen[c.ID] {
		s.Faults = append(s.Faults, "twice: "+c.ID)
	}
	if at.Before(s.Last) {
		s.Faults = append(s.Faults, fmt.Sprintf("%s at %s, after %s", c.ID, at, s.Last))
	}
	if own {
		l.own++
	}
	l.seen[c.ID], s.Last = true, at
	s.IDs = append(s.IDs, c.ID)
	s.Accounts[c.Account] += c.Add
	return Receipt{len(s.IDs) - 1, s.Accounts[c.Account], at}
}

// ErrNotEncodable is the error of Encode for a command without an ID.
var ErrNotEncodable = errors.New("the command has no ID")

// Encode encodes a command.
func (l *Ledger) Encode(c Command) ([]byte, error) {
	if c.ID == "" {
		return nil, ErrNotEncodable
	}
	b := binary.AppendVarint(nil, c.Add)
	for _, part := range []string{c.ID, c.Account, string(c.Pad)} {
		b = binary.AppendUvarint(b, uint64(len(part)))
		b = append(b, part...)
	}
	return b, nil
}

// Decode decodes a command.
func (l *Ledger) Decode(b []byte) (Command, error) {
	r := bytes.NewReader(b)
	var c Command
	var err error
	if c.Add, err = binary.ReadVarint(r); err != nil {
		return c, err
	}
	parts := make([][]byte, 3)
	for i := range parts {
		n, err := binary.ReadUvarint(r)
		if err != nil || n > uint64(r.Len()) { //nolint:gosec // a length
			return c, io.ErrUnexpectedEOF
		}
		parts[i] = make([]byte, n)
		_, _ = io.ReadFull(r, parts[i]) // n bytes are available
	}
	c.ID, c.Account, c.Pad = string(parts[0]), string(parts[1]), parts[2]
	return c, nil
}

// Save writes the state.
func (l *Ledger) Save(w io.Writer) error {
	l.mu.Lock()
	defer l.mu.Unlock()
	return json.NewEncoder(w).Encode(l.state)
}

// Load reads the state.
func (l *Ledger) Load(r io.Reader) error {
	var s ledgerState
	if err := json.NewDecoder(r).Decode(&s); err != nil {
		return err
	}
	l.mu.Lock()
	defer l.mu.Unlock()
	l.state, l.seen = s, map[string]bool{}
	for _, id := range s.IDs {
		l.seen[id] = true
	}
	return nil
}

// IDs returns the IDs of all commands in their order.
func (l *Ledger) IDs() []string {
	l.mu.Lock()
	defer l.mu.Unlock()
	return slices.Clone(l.state.IDs)
}

// Faults returns the violations that the ledger has detected.
func (l *Ledger) Faults() []string {
	l.mu.Lock()
	defer l.mu.Unlock()
	return slices.Clone(l.state.Faults)
}

// Own returns the number of commands that came from Do of this process.
func (l *Ledger) Own() int {
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.own
}

// Saved returns the output of Save.
func (l *Ledger) Saved() string {
	var b bytes.Buffer
	_ = l.Save(&b) // a buffer never fails
	return b.String()
}
