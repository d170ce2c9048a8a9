package main

import (
	"errors"
	"time"

	"github.com/zalando/go-keyring"
)

const (
	// keyringService names the tokens of this program in the keyring of the system.
	keyringService = "dlite"
	// keyringPatience bounds a call of the keyring. A person may have to type its password.
	keyringPatience = time.Minute
)

var errKeyringSilent = errors.New("it has not answered for a minute: it may be locked, and have no window to ask for its password")

// keyringCall makes a call of the keyring. A call that does not answer goes on until the program ends.
func keyringCall(call func() (string, error)) (string, error) {
	type answer struct {
		text string
		err  error
	}
	answered := make(chan answer, 1)
	go func() {
		text, err := call()
		answered <- answer{text, err}
	}()
	select {
	case a := <-answered:
		return a.text, a.err
	case <-time.After(keyringPatience):
		return "", errKeyringSilent
	}
}

// keyringGet returns the token of a context.
func keyringGet(name string) (string, error) {
	return keyringCall(func() (string, error) { return keyring.Get(keyringService, name) })
}

// keyringSet stores the token of a context.
func keyringSet(name, token string) error {
	_, err := keyringCall(func() (string, error) { return "", keyring.Set(keyringService, name, token) })
	return err
}

// keyringDelete removes the token of a context. A token that is not there is no error.
func keyringDelete(name string) error {
	_, err := keyringCall(func() (string, error) { return "", keyring.Delete(keyringService, name) })
	if errors.Is(err, keyring.ErrNotFound) {
		return nil
	}
	return err
}
