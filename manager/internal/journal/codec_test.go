package journal

import (
	"bufio"
	"bytes"
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
)

// splitCommands splits every body into its commands or refuses it.
func FuzzSplitCommands(f *testing.F) {
	f.Add([]byte{})
	f.Add([]byte("\x03abc\x00\x01x"))
	f.Add([]byte("\xff\xff\xff\xff\xff\xff\xff\xff\xff\x01"))
	f.Fuzz(func(t *testing.T, body []byte) {
		commands, err := splitCommands(body)
		if err != nil {
			require.ErrorIs(t, err, ErrDamaged)
			return
		}
		var again []byte
		for _, c := range commands {
			again = appendCommand(again, c)
		}
		all, err := splitCommands(again)
		require.NoError(t, err)
		assert.Equal(t, commands, all)
	})
}

// nextHeader refuses a header, or returns one that it accepts.
func FuzzHeader(f *testing.F) {
	key := bytes.Repeat([]byte("k"), minKey)
	_, h, err := nextHeader(Header{}, [][]byte{key}, false)
	require.NoError(f, err)
	f.Add(h.ID, h.Body, false)
	_, h, err = nextHeader(Header{}, nil, true)
	require.NoError(f, err)
	f.Add(h.ID, h.Body, true)
	f.Add("x", []byte(`{"format":2}`), true)
	f.Fuzz(func(t *testing.T, id string, body []byte, unsealed bool) {
		s, next, err := nextHeader(Header{ID: id, Body: body}, [][]byte{key}, unsealed)
		if err != nil || unsealed {
			return
		}
		again, _, err := nextHeader(next, [][]byte{key}, false)
		require.NoError(t, err)
		assert.Equal(t, s.key, again.key)
	})
}

// readSeen terminates for every input.
func FuzzSeen(f *testing.F) {
	r := newReplica[int](nil, 0, nil, nil)
	r.seen["a"], r.seen["b"] = mark{counter: 5}, mark{counter: 7}
	f.Add(r.appendSeen(nil))
	f.Add([]byte("\xff\xff\xff\xff\x01"))
	f.Fuzz(func(_ *testing.T, b []byte) {
		_, _ = readSeen(bufio.NewReader(bytes.NewReader(b)))
	})
}

// Each place has a distinct nonce, key or additional data.
func TestSealedOpensInItsPlaceOnly(t *testing.T) {
	t.Parallel()
	for _, s := range []*sealer{{log: "l", key: bytes.Repeat([]byte("k"), 32)}, {log: "l"}} {
		p := place{"p", 1, []uint64{2, 3}}
		sealed, err := s.seal(p, []byte("plain"))
		require.NoError(t, err)
		plain, err := s.open(p, bytes.Clone(sealed))
		require.NoError(t, err)
		assert.Equal(t, "plain", string(plain))
		for _, q := range []place{{"q", 1, []uint64{2, 3}}, {"p", 2, []uint64{2, 3}}, {"p", 1, []uint64{2, 4}}, {"p", 1, nil}} {
			_, err := s.open(q, bytes.Clone(sealed))
			require.ErrorIs(t, err, ErrDamaged)
		}
		other := &sealer{log: "m", key: s.key}
		_, err = other.open(p, bytes.Clone(sealed))
		require.ErrorIs(t, err, ErrDamaged, "of another log")
		for i := range sealed {
			torn := bytes.Clone(sealed)
			torn[i] ^= 1
			_, err := s.open(p, torn)
			require.ErrorIs(t, err, ErrDamaged)
			_, err = s.open(p, sealed[:i])
			require.ErrorIs(t, err, ErrDamaged)
		}
	}
}
