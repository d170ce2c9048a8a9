package pipeline

import (
	"crypto/aes"
	"crypto/cipher"
	"crypto/hkdf"
	"crypto/rand"
	"crypto/sha256"
	"errors"
)

// minKey is the minimum length of a key, in bytes.
const minKey = 16

const saltLength = 32

// sealAEAD returns the cipher of a key and a salt. Each secret has a salt, and so a key that encrypts only this secret.
func sealAEAD(key, salt []byte) (cipher.AEAD, error) {
	derived, err := hkdf.Key(sha256.New, key, salt, "dlite secrets of webhooks", 32)
	if err != nil {
		return nil, err
	}
	block, err := aes.NewCipher(derived)
	if err != nil {
		return nil, err
	}
	return cipher.NewGCMWithRandomNonce(block)
}

var errNoKeys = errors.New("the service has no key for the secrets of webhooks")

// seal encrypts a secret for the trigger that owner identifies.
func seal(keys [][]byte, secret, owner string) ([]byte, error) {
	if len(keys) == 0 {
		return nil, errNoKeys
	}
	salt := make([]byte, saltLength)
	_, _ = rand.Read(salt) // documented to never fail
	aead, err := sealAEAD(keys[0], salt)
	if err != nil {
		return nil, err
	}
	return aead.Seal(salt, nil, []byte(secret), []byte(owner)), nil
}

// unseal decrypts a secret. A value that was sealed for another trigger does not open.
func unseal(keys [][]byte, sealed []byte, owner string) ([]byte, error) {
	if len(sealed) < saltLength {
		return nil, errors.New("the secret of the webhook is damaged: set it again")
	}
	for _, key := range keys {
		aead, err := sealAEAD(key, sealed[:saltLength])
		if err != nil {
			return nil, err
		}
		if secret, err := aead.Open(nil, nil, sealed[saltLength:], []byte(owner)); err == nil {
			return secret, nil
		}
	}
	return nil, errors.New("no key opens the secret of the webhook: give all services the same keys, or set the secret again")
}
