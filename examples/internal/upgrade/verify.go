package upgrade

import (
	"bufio"
	"bytes"
	"encoding/hex"
	"errors"
	"fmt"
	"runtime"
	"strings"

	"aead.dev/minisign"
)

// parseKey reads a public key of minisign: its base64 text, or the content of its file.
func parseKey(text string) (minisign.PublicKey, error) {
	var key minisign.PublicKey
	if strings.TrimSpace(text) == "" {
		return key, errors.New("it is not set: set it to the public key of the releases, which begins with RW")
	}
	if err := key.UnmarshalText([]byte(strings.TrimSpace(text))); err != nil {
		return key, errors.New("it is not a public key of minisign: it must be the second line of the file minisign.pub, which begins with RW")
	}
	return key, nil
}

// verify returns the trusted comment of a signature of a message. Only prehashed signatures count.
func verify(key minisign.PublicKey, message, signature []byte) (comment string, err error) {
	var s minisign.Signature
	if err := s.UnmarshalText(signature); err != nil {
		return "", errors.New("its signature is not one of minisign")
	}
	switch {
	case s.KeyID != key.ID():
		return "", fmt.Errorf("it is signed with the key %016X and not with the configured one, %016X", s.KeyID, key.ID())
	case s.Algorithm != minisign.HashEdDSA:
		return "", errors.New("its signature is not a prehashed one: sign it with a current minisign")
	case !minisign.Verify(key, message, signature):
		return "", errors.New("its signature is wrong: the file or the signature was changed")
	}
	return s.TrustedComment, nil
}

// commentOf is the trusted comment of the checksums of a version.
func commentOf(version string) string { return "dlite " + version }

// archiveName returns the name of the archive with a program for this machine.
func archiveName(program, version string) string {
	suffix := "tar.gz"
	if runtime.GOOS == "windows" {
		suffix = "zip"
	}
	return fmt.Sprintf("dlite-%s_%s_%s_%s.%s", program, version, runtime.GOOS, runtime.GOARCH, suffix)
}

// checksum returns the SHA-256 of a file, from the text that sha256sum prints.
func checksum(sums []byte, name string) (sum []byte, err error) {
	for lines := bufio.NewScanner(bytes.NewReader(sums)); lines.Scan(); {
		digest, rest, ok := strings.Cut(lines.Text(), " ")
		if !ok || len(rest) < 2 || (rest[0] != ' ' && rest[0] != '*') || rest[1:] != name {
			continue
		}
		if sum != nil {
			return nil, fmt.Errorf("SHA256SUMS lists %s twice", name)
		}
		if sum, err = hex.DecodeString(digest); err != nil || len(sum) != 32 {
			return nil, fmt.Errorf("SHA256SUMS has no valid checksum of %s", name)
		}
	}
	if sum == nil {
		return nil, fmt.Errorf("the release has no %s: it was not built for %s/%s", name, runtime.GOOS, runtime.GOARCH)
	}
	return sum, nil
}
