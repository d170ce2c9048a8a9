package journal

import (
	"bytes"
	"context"
	"crypto/aes"
	"crypto/cipher"
	"crypto/hkdf"
	"crypto/rand"
	"crypto/sha256"
	"encoding/binary"
	"encoding/json"
	"errors"
	"fmt"
	"hash/crc32"
	"sync"
)

// Errors of a log that the journal refuses to open, for [errors.Is].
var (
	// ErrKeys means that none of Config.Keys opens the log.
	ErrKeys = errors.New("no key for the log")
	// ErrNewer means that a newer version of this program has written to the log.
	ErrNewer = errors.New("the log is of a newer version")
	// ErrDamaged means that the content of the log differs from the written content.
	ErrDamaged = errors.New("the log is damaged")
)

// format is the version of all data that the journal writes to a log.
const format = 1

// minKey is the minimum length of a key, in bytes. A key is not a password: it must be
// random.
const minKey = 16

// headerBody is the header's body.
type headerBody struct {
	Format int          `json:"format"`
	Sealed bool         `json:"sealed"`
	Keys   []wrappedKey `json:"keys,omitempty"`
	// SetAside are the newest commands that were set aside, see aside.go.
	SetAside []setAside `json:"set_aside,omitempty"`
}

// wrappedKey is the data key, encrypted with one of Config.Keys.
type wrappedKey struct {
	Salt []byte `json:"salt"`
	Box  []byte `json:"box"`
}

// sealer encrypts and authenticates the data in the log. Without a key it adds a
// checksum.
//
// Each origin and each snapshot has its own key, derived from the data key, and numbers
// its sealed data. A nonce is therefore never used twice, for any amount of data, and
// need not be stored.
type sealer struct {
	log string
	key []byte

	mu    sync.Mutex
	aeads map[string]cipher.AEAD
}

// maxAEADs bounds the cache, which has an entry for each process that wrote.
const maxAEADs = 256

func (s *sealer) aead(purpose string) (cipher.AEAD, error) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if a := s.aeads[purpose]; a != nil {
		return a, nil
	}
	a, err := newAEAD(s.key, []byte(s.log), purpose)
	if err != nil {
		return nil, err
	}
	if s.aeads == nil || len(s.aeads) >= maxAEADs {
		s.aeads = map[string]cipher.AEAD{}
	}
	s.aeads[purpose] = a
	return a, nil
}

func newAEAD(secret, salt []byte, purpose string) (cipher.AEAD, error) {
	key, err := hkdf.Key(sha256.New, secret, salt, "dlite journal 1: "+purpose, 32)
	if err != nil {
		return nil, err
	}
	block, err := aes.NewCipher(key)
	if err != nil {
		return nil, err
	}
	return cipher.NewGCM(block)
}

// place identifies the place of sealed data. The data opens only there.
type place struct {
	purpose string // selects the key
	n       uint64 // unique within a purpose
	about   []uint64
}

func (p place) nonce(size int) []byte {
	nonce := make([]byte, size)
	binary.BigEndian.PutUint64(nonce[size-8:], p.n)
	return nonce
}

func (p place) data() []byte {
	var b []byte
	for _, n := range p.about {
		b = binary.BigEndian.AppendUint64(b, n)
	}
	return b
}

// sum returns the checksum for a log without a key. It covers the place too.
func (s *sealer) sum(p place, plain []byte) uint32 {
	table := crc32.MakeTable(crc32.Castagnoli)
	sum := crc32.Checksum([]byte(s.log+p.purpose), table)
	sum = crc32.Update(sum, table, p.nonce(8))
	sum = crc32.Update(sum, table, p.data())
	return crc32.Update(sum, table, plain)
}

func (s *sealer) seal(p place, plain []byte) ([]byte, error) {
	if s.key == nil {
		return binary.BigEndian.AppendUint32(plain, s.sum(p, plain)), nil
	}
	a, err := s.aead(p.purpose)
	if err != nil {
		return nil, err
	}
	return a.Seal(plain[:0], p.nonce(a.NonceSize()), plain, p.data()), nil
}

func (s *sealer) open(p place, sealed []byte) ([]byte, error) {
	if s.key == nil {
		n := len(sealed) - 4
		if n < 0 || s.sum(p, sealed[:n]) != binary.BigEndian.Uint32(sealed[n:]) {
			return nil, fmt.Errorf("%w: a wrong checksum", ErrDamaged)
		}
		return sealed[:n], nil
	}
	a, err := s.aead(p.purpose)
	if err != nil {
		return nil, err
	}
	plain, err := a.Open(nil, p.nonce(a.NonceSize()), sealed, p.data())
	if err != nil {
		return nil, fmt.Errorf("%w: %w", ErrDamaged, err)
	}
	return plain, nil
}

func entryPlace(b Batch) place {
	return place{purpose: "entries of " + b.Origin, n: b.Counter, about: []uint64{uint64(b.Rules)}} //nolint:gosec // not negative
}

// openHeader creates the header of a new log. It opens the header of an existing log
// and adds the keys that the log does not know yet.
func openHeader(ctx context.Context, log Log, keys [][]byte, unsealed bool) (*sealer, error) {
	if len(keys) == 0 && !unsealed {
		return nil, fmt.Errorf("%w: the log may contain secrets and must be encrypted: set Config.Keys, or set Config.Unsealed to leave it readable", ErrKeys)
	}
	for _, k := range keys {
		if len(k) < minKey {
			return nil, fmt.Errorf("%w: each of Config.Keys needs %d random bytes or more", ErrKeys, minKey)
		}
	}
	for {
		h, err := retry(ctx, func() (Header, error) { return log.Header(ctx) })
		if err != nil {
			return nil, fmt.Errorf("reading the log's header: %w", err)
		}
		s, next, err := nextHeader(h, keys, unsealed)
		if err != nil || bytes.Equal(next.Body, h.Body) {
			return s, err
		}
		// Another process may do the same: the second one reads the header again.
		done, err := retry(ctx, func() (bool, error) { return log.SetHeader(ctx, h, next) })
		switch {
		case errors.Is(err, ErrReadOnly) && h.ID != "":
			return s, nil
		case err != nil:
			return nil, fmt.Errorf("writing the log's header: %w", err)
		case done:
			return s, nil
		}
	}
}

// nextHeader returns the sealer of the log and the header that the log should have.
func nextHeader(h Header, keys [][]byte, unsealed bool) (*sealer, Header, error) {
	if h.ID == "" {
		h.ID = rand.Text()
		s, body := &sealer{log: h.ID}, headerBody{Format: format, Sealed: !unsealed}
		if !unsealed {
			s.key = make([]byte, 32)
			_, _ = rand.Read(s.key) // never fails
		}
		next, err := addKeys(h, s, body, keys)
		return s, next, err
	}
	var body headerBody
	if err := json.Unmarshal(h.Body, &body); err != nil {
		return nil, h, fmt.Errorf("%w: its header cannot be read: %w", ErrDamaged, err)
	}
	if body.Format > format {
		return nil, h, fmt.Errorf("%w: its format is %d, this program knows %d: use a newer program", ErrNewer, body.Format, format)
	}
	s := &sealer{log: h.ID}
	if body.Sealed == unsealed {
		if unsealed {
			return nil, h, fmt.Errorf("%w: it is encrypted, Config.Unsealed cannot change that", ErrKeys)
		}
		return nil, h, fmt.Errorf("%w: it is not encrypted, Config.Keys cannot change that: set Config.Unsealed, or begin a new log", ErrKeys)
	}
	if unsealed {
		return s, h, nil
	}
	for _, k := range keys {
		if s.key = unwrap(h.ID, k, body.Keys); s.key != nil {
			break
		}
	}
	if s.key == nil {
		return nil, h, fmt.Errorf("%w: it was encrypted with other keys: add one of them to Config.Keys", ErrKeys)
	}
	next, err := addKeys(h, s, body, keys)
	return s, next, err
}

// addKeys adds the keys that do not open the log yet.
func addKeys(h Header, s *sealer, body headerBody, keys [][]byte) (Header, error) {
	added := len(h.Body) == 0
	for _, k := range keys {
		if !body.Sealed || unwrap(h.ID, k, body.Keys) != nil {
			continue
		}
		w := wrappedKey{Salt: make([]byte, 32)}
		_, _ = rand.Read(w.Salt) // never fails
		a, err := newAEAD(k, w.Salt, "key of "+h.ID)
		if err != nil {
			return h, err
		}
		// The random salt makes the derived key unique, and it seals only this data.
		w.Box = a.Seal(nil, make([]byte, a.NonceSize()), s.key, nil)
		body.Keys, added = append(body.Keys, w), true
	}
	if !added {
		return h, nil
	}
	b, err := json.Marshal(body)
	return Header{ID: h.ID, Body: b}, err
}

// unwrap returns the data key, or nil if key does not open it.
func unwrap(log string, key []byte, wrapped []wrappedKey) []byte {
	for _, w := range wrapped {
		a, err := newAEAD(key, w.Salt, "key of "+log)
		if err != nil {
			continue
		}
		if plain, err := a.Open(nil, make([]byte, a.NonceSize()), w.Box, nil); err == nil {
			return plain
		}
	}
	return nil
}
