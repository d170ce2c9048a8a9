package main

import (
	"crypto/sha256"
	"encoding/hex"
	"errors"
	"fmt"
	"io"
	"os"
	"path/filepath"
	"strings"
)

// sumsFile lists the SHA-256 of every file of a release, in the format of sha256sum.
const sumsFile = "SHA256SUMS"

// writeSums writes the sums of all files in a directory. The names are sorted.
func writeSums(dir string) error {
	entries, err := os.ReadDir(dir)
	if err != nil {
		return err
	}
	var lines strings.Builder
	for _, e := range entries {
		sum, err := sumOf(filepath.Join(dir, e.Name()))
		if err != nil {
			return err
		}
		fmt.Fprintf(&lines, "%s  %s\n", sum, e.Name())
	}
	return create(filepath.Join(dir, sumsFile), func(w io.Writer) error {
		_, err := io.WriteString(w, lines.String())
		return err
	})
}

// sumOf returns the SHA-256 of a file in hexadecimal.
func sumOf(file string) (string, error) {
	f, err := os.Open(file)
	if err != nil {
		return "", err
	}
	sum := sha256.New()
	_, err = io.Copy(sum, f)
	return hex.EncodeToString(sum.Sum(nil)), errors.Join(err, f.Close())
}
