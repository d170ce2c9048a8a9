package main

import (
	"bytes"
	"errors"
	"fmt"
	"io"
	"os"
	"strings"

	"aead.dev/minisign"
	"golang.org/x/term"
)

// passwordVariable is the environment variable with the password of the signing key. Every user of the machine could
// read a password on the command line.
const passwordVariable = "DLITE_RELEASE_PASSWORD"

// largestKey is the maximum size of a key file in bytes. A minisign key has about 300.
const largestKey = 4096

// readKey reads a minisign secret key. It decrypts the key with the password in the environment, or else it asks for
// the password in the terminal.
func readKey(file string) (minisign.PrivateKey, error) {
	var key minisign.PrivateKey
	info, err := os.Stat(file)
	if err != nil {
		return key, fmt.Errorf("signing key: %w", err)
	}
	if info.Size() > largestKey {
		return key, fmt.Errorf("signing key %s has %d bytes, more than %d: name the secret key that minisign -G wrote", file, info.Size(), largestKey)
	}
	text, err := os.ReadFile(file)
	if err != nil {
		return key, fmt.Errorf("signing key: %w", err)
	}
	if !minisign.IsEncrypted(text) {
		if err := key.UnmarshalText(text); err != nil {
			return key, fmt.Errorf("signing key %s: %w: name the secret key that minisign -G wrote", file, err)
		}
		return key, nil
	}
	password, given := os.LookupEnv(passwordVariable)
	if !given {
		if password, err = askPassword(file); err != nil {
			return key, err
		}
	}
	if key, err = minisign.DecryptKey(password, text); err != nil {
		return key, fmt.Errorf("signing key %s: %w: is the password right?", file, err)
	}
	return key, nil
}

func askPassword(file string) (string, error) {
	terminal := int(os.Stdin.Fd())
	if !term.IsTerminal(terminal) {
		return "", fmt.Errorf("signing key %s has a password: set %s, or run the command in a terminal", file, passwordVariable)
	}
	fmt.Fprintf(os.Stderr, "Password of %s: ", file)
	password, err := term.ReadPassword(terminal)
	fmt.Fprintln(os.Stderr)
	return string(password), err
}

// sign writes FILE.minisig, a prehashed Ed25519 signature. Two signatures of one file with one key are identical.
func sign(file string, key minisign.PrivateKey, trusted string) error {
	text, err := os.ReadFile(file)
	if err != nil {
		return err
	}
	// A Reader makes prehashed signatures, the function of the same name the old kind.
	hashed := minisign.NewReader(bytes.NewReader(text))
	if _, err := io.Copy(io.Discard, hashed); err != nil {
		return err
	}
	signature := hashed.SignWithComments(key, trusted, "signature from the dlite release key")
	public, ok := key.Public().(minisign.PublicKey)
	if !ok || !minisign.Verify(public, text, signature) {
		return errors.New("the new signature of " + file + " is not valid: the signing key is damaged")
	}
	return create(file+".minisig", func(w io.Writer) error {
		_, err := io.WriteString(w, strings.TrimRight(string(signature), "\n")+"\n")
		return err
	})
}
