package own

import (
	"context"
	"testing"
)

func TestTheRunner(t *testing.T) {
	s := newSettings("account", "0123456789abcdef0123456789abcdef")
	if token, err := s.tokens.Get(); err != nil || token == "" {
		t.Fatal(err)
	}
	m := &memory{answers: map[string]string{}}
	if err := run(context.Background(), m, s, nil); err != nil {
		t.Fatal(err)
	}
}
