package serving

import (
	"errors"
	"fmt"
	"strings"

	"github.com/delegate-io/dlite/internal/token"
)

// List splits a setting at its commas.
func List(text string) []string {
	var out []string
	for part := range strings.SplitSeq(text, ",") {
		if part = strings.TrimSpace(part); part != "" {
			out = append(out, part)
		}
	}
	return out
}

// ParseAccounts reads "id=secret,id=secret". Its errors show no secret.
func ParseAccounts(text string) (map[string]string, error) {
	accounts := map[string]string{}
	for i, part := range strings.Split(text, ",") {
		if part = strings.TrimSpace(part); part == "" {
			continue
		}
		id, secret, ok := strings.Cut(part, "=")
		if id = strings.TrimSpace(id); !ok || id == "" {
			return nil, fmt.Errorf(`ACCOUNTS: entry %d is not of the form id=secret`, i+1)
		}
		if _, err := token.ParseSecret(strings.TrimSpace(secret)); err != nil {
			return nil, fmt.Errorf("ACCOUNTS: the secret of %q: %w", id, err)
		}
		if _, dup := accounts[id]; dup {
			return nil, fmt.Errorf("ACCOUNTS: %q is there twice", id)
		}
		accounts[id] = strings.TrimSpace(secret)
	}
	return accounts, nil
}

// ParseKeys reads STORE_KEY, which may hold several keys, the newest first: NEW,OLD.
func ParseKeys(text string) ([][]byte, error) {
	var keys [][]byte
	for _, key := range List(text) {
		if len(key) < 16 {
			return nil, errors.New("STORE_KEY is too short: it needs 16 characters or more, like those that `openssl rand -hex 16` prints")
		}
		keys = append(keys, []byte(key))
	}
	return keys, nil
}
