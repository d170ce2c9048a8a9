// Package sealed keeps values that must not be written to a disk for the next process: in files in
// memory, encrypted with a key on the disk. Neither shows a value without the other (rules T5, S5).
//
//	c, err := sealed.Open(filepath.Join(dir, "notes.key"))
//	line := c.Seal(value, "name of the file in memory")
package sealed

import (
	"crypto/aes"
	"crypto/cipher"
	"crypto/rand"
	"encoding/base64"
	"errors"
	"fmt"
	"io/fs"
	"os"

	"github.com/delegate-io/dlite/internal/atomicfile"
)

// keyLength is the length of a key in bytes, for AES-256.
const keyLength = 32

// Cipher encrypts values. It is safe for concurrent use. The zero value has no key.
type Cipher struct{ aead cipher.AEAD }

// Open reads the key from a file on the disk. It replaces a missing key, or one of another length:
// values that were encrypted with another key are lost.
func Open(path string) (Cipher, error) {
	key, err := os.ReadFile(path)
	if err != nil && !errors.Is(err, fs.ErrNotExist) {
		return Cipher{}, fmt.Errorf("reading a key: %w", err)
	}
	if len(key) != keyLength {
		key = make([]byte, keyLength)
		_, _ = rand.Read(key) // documented to never fail
		// The key need not outlive the machine: the files in memory do not.
		if err := atomicfile.ReplaceFile(path, key); err != nil {
			return Cipher{}, fmt.Errorf("writing a key: %w", err)
		}
	}
	block, err := aes.NewCipher(key)
	if err != nil {
		return Cipher{}, err
	}
	aead, err := cipher.NewGCMWithRandomNonce(block)
	return Cipher{aead}, err
}

// HasKey reports whether the cipher is not the zero value.
func (c Cipher) HasKey() bool { return c.aead != nil }

// Seal encrypts a value for the file with that name as one line.
func (c Cipher) Seal(value []byte, file string) []byte {
	sealed := c.aead.Seal(nil, nil, value, []byte(file))
	line := make([]byte, base64.StdEncoding.EncodedLen(len(sealed)), base64.StdEncoding.EncodedLen(len(sealed))+1)
	base64.StdEncoding.Encode(line, sealed)
	return append(line, '\n')
}

// Unseal decrypts a line without its newline. It fails if the line was not encrypted with this key for
// the file with that name.
func (c Cipher) Unseal(line []byte, file string) ([]byte, error) {
	sealed := make([]byte, base64.StdEncoding.DecodedLen(len(line)))
	n, err := base64.StdEncoding.Decode(sealed, line)
	if err != nil {
		return nil, err
	}
	return c.aead.Open(sealed[:0], nil, sealed[:n], []byte(file))
}
