package transaction

import (
	"crypto/aes"
	"crypto/cipher"
	"crypto/rand"
	"encoding/base64"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"

	"github.com/delegate-io/dlite/internal/atomicfile"
)

// keyName is the file in the ledger's directory with the key of the notes, for AES-256.
const (
	keyName   = "notes.key"
	keyLength = 32
)

// noteCipher encrypts the notes of a ledger. The key is on the disk and the notes are in memory: neither
// shows a secret without the other.
type noteCipher struct{ aead cipher.AEAD }

// noteCipher returns the cipher of the ledger, which must be open.
func (l *ledger) noteCipher() (noteCipher, error) {
	l.mu.Lock()
	defer l.mu.Unlock()
	if l.notes.aead != nil {
		return l.notes, nil
	}
	aead, err := openNoteKey(l.dir)
	if err != nil {
		return noteCipher{}, fmt.Errorf("the key of the notes: %w", err)
	}
	l.notes.aead = aead
	return l.notes, nil
}

// openNoteKey reads the key. It replaces a missing key, or one of another length: the notes of an
// unknown key are lost.
func openNoteKey(dir string) (cipher.AEAD, error) {
	path := filepath.Join(dir, keyName)
	key, err := os.ReadFile(path)
	if err != nil && !errors.Is(err, fs.ErrNotExist) {
		return nil, err
	}
	if len(key) != keyLength {
		key = make([]byte, keyLength)
		_, _ = rand.Read(key) // documented to never fail
		// The key need not outlive the machine: the notes do not.
		if err := atomicfile.ReplaceFile(path, key); err != nil {
			return nil, err
		}
	}
	block, err := aes.NewCipher(key)
	if err != nil {
		return nil, err
	}
	return cipher.NewGCMWithRandomNonce(block)
}

// seal encrypts a note of the file with that name as one line.
func (c noteCipher) seal(note []byte, file string) []byte {
	sealed := c.aead.Seal(nil, nil, note, []byte(file))
	line := make([]byte, base64.StdEncoding.EncodedLen(len(sealed)), base64.StdEncoding.EncodedLen(len(sealed))+1)
	base64.StdEncoding.Encode(line, sealed)
	return append(line, '\n')
}

// open decrypts a line without its newline.
func (c noteCipher) open(line []byte, file string) ([]byte, error) {
	sealed := make([]byte, base64.StdEncoding.DecodedLen(len(line)))
	n, err := base64.StdEncoding.Decode(sealed, line)
	if err != nil {
		return nil, err
	}
	return c.aead.Open(sealed[:0], nil, sealed[:n], []byte(file))
}
