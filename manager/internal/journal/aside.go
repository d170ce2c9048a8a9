package journal

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"runtime/debug"
	"slices"
	"sync"
	"time"

	"github.com/rs/zerolog"
)

// A command that panics would stop every process of the log, at every start. The journal
// therefore sets such a command aside: it reads the log again and leaves the command
// out. The command must panic in two states that were read independently, so that an
// accident in one process does not separate its state from the others. The header of the
// log lists the commands that are set aside, so that a later version, which may be able
// to execute them, leaves them out as well.

// ErrSetAside means that the command panicked, and that it has changed nothing.
var ErrSetAside = errors.New("the command failed inside of the program and was set aside; it has changed nothing: see the program's log")

// errPanicked means that a command panicked. The state must be read again.
var errPanicked = fmt.Errorf("%w: a command panicked", errGap)

// maxSetAside is the largest number of commands in the header. The oldest ones are
// usually not in the log any more.
const maxSetAside = 100

// commandID identifies a command. The position of its entry does not, in a log that can
// lose its end.
type commandID struct {
	Origin  string `json:"origin"`
	Counter uint64 `json:"counter"`
	Index   int    `json:"index"` // in the entry
}

// setAside describes a command that was set aside. It contains no part of a payload,
// because the header is not encrypted.
type setAside struct {
	commandID
	Seq     uint64    `json:"seq"`
	At      time.Time `json:"at"`
	Command string    `json:"command,omitempty"` // its String
}

// asides are the commands of a log that were set aside. A nil asides has none.
type asides struct {
	log    Log
	logger zerolog.Logger
	added  func() // is called for each new one

	mu       sync.Mutex
	panicked map[commandID]bool // once
	known    map[commandID]bool
}

func (a *asides) has(id commandID) bool {
	if a == nil {
		return false
	}
	a.mu.Lock()
	defer a.mu.Unlock()
	return a.known[id]
}

func (a *asides) count() int {
	if a == nil {
		return 0
	}
	a.mu.Lock()
	defer a.mu.Unlock()
	return len(a.known)
}

// read learns the commands that the header lists. It reports them in the program's log.
func (a *asides) read(ctx context.Context) error {
	h, err := retry(ctx, func() (Header, error) { return a.log.Header(ctx) })
	if err != nil {
		return fmt.Errorf("reading the log's header: %w", err)
	}
	var body headerBody
	if err := json.Unmarshal(h.Body, &body); err != nil {
		return fmt.Errorf("%w: its header cannot be read: %w", ErrDamaged, err)
	}
	a.mu.Lock()
	defer a.mu.Unlock()
	for _, s := range body.SetAside {
		if !a.known[s.commandID] {
			a.known[s.commandID] = true
			a.logger.Warn().Uint64("entry", s.Seq).Int("index", s.Index).Time("at", s.At).Str("command", s.Command).
				Msg("A command of the store was set aside because it panicked")
		}
	}
	return nil
}

// notePanic records that a command panicked. The second time it sets the command aside.
func (a *asides) notePanic(ctx context.Context, s setAside, why any) {
	a.logger.Error().Uint64("entry", s.Seq).Int("index", s.Index).Str("command", s.Command).
		Str("panic", fmt.Sprint(why)).Bytes("stack", debug.Stack()).Msg("A command of the store panicked; the journal reads the log again")
	a.mu.Lock()
	again := a.panicked[s.commandID]
	a.panicked[s.commandID] = true
	a.mu.Unlock()
	if again {
		a.add(ctx, s)
	}
}

// add sets a command aside.
func (a *asides) add(ctx context.Context, s setAside) {
	a.mu.Lock()
	a.known[s.commandID] = true
	a.mu.Unlock()
	if err := a.write(ctx, s); err != nil && !errors.Is(err, ErrReadOnly) {
		a.logger.Error().Err(err).Msg("Cannot record in the store that a command was set aside; the next start decides again")
	}
	a.logger.Error().Uint64("entry", s.Seq).Int("index", s.Index).Str("command", s.Command).
		Msg("A command of the store was set aside: it panics. Report this, with the stack above")
	a.added()
}

// write adds a command to the header.
func (a *asides) write(ctx context.Context, s setAside) error {
	for {
		h, err := retry(ctx, func() (Header, error) { return a.log.Header(ctx) })
		if err != nil {
			return err
		}
		var body headerBody
		if err := json.Unmarshal(h.Body, &body); err != nil {
			return err
		}
		if slices.ContainsFunc(body.SetAside, func(o setAside) bool { return o.commandID == s.commandID }) {
			return nil
		}
		body.SetAside = append(body.SetAside, s)
		body.SetAside = body.SetAside[max(0, len(body.SetAside)-maxSetAside):]
		b, err := json.Marshal(body)
		if err != nil {
			return err
		}
		if done, err := retry(ctx, func() (bool, error) { return a.log.SetHeader(ctx, h, Header{ID: h.ID, Body: b}) }); done || err != nil {
			return err
		}
	}
}

// execute executes one command of an entry. The result is [ErrSetAside] for a command
// that is set aside. It fails with errPanicked if the command panics.
func (r *replica[C]) execute(e Entry, i int, encoded []byte, own bool) (result any, err error) {
	id := commandID{e.Origin, e.Counter, i}
	if r.aside.has(id) {
		return ErrSetAside, nil
	}
	about := setAside{commandID: id, Seq: e.Seq, At: e.At}
	command, err := r.machine.Decode(encoded)
	if err != nil {
		if r.aside == nil {
			return nil, fmt.Errorf("%w: entry %d: command %d cannot be decoded: %w", ErrDamaged, e.Seq, i, err)
		}
		about.Command = "cannot be decoded: " + err.Error()
		r.aside.add(context.Background(), about)
		return ErrSetAside, nil
	}
	if r.aside == nil {
		return r.machine.Apply(e.At, command, own), nil
	}
	defer func() {
		if why := recover(); why != nil {
			if s, ok := any(command).(fmt.Stringer); ok {
				about.Command = s.String()
			}
			r.broken = true
			r.aside.notePanic(context.Background(), about, why)
			result, err = nil, errPanicked
		}
	}()
	return r.machine.Apply(e.At, command, own), nil
}
