package logservice

import (
	"fmt"
	"net/http"

	"github.com/delegate-io/dlite/internal/logheader"
)

// Maximal lengths of the texts that name or authorize, in bytes.
const (
	maxAccount = 256
	maxKey     = 1024
	maxToken   = 8 << 10
	maxWriter  = 128
)

// maxWriters bounds the writers of one stream. The stream remembers each of them.
const maxWriters = 1000

// checkFields refuses a request with a text that is too long. The error names the field.
func checkFields(r *http.Request) error {
	id := idOf(r)
	for _, f := range []struct {
		name, value string
		most        int
	}{
		{"accountID", id.Account, maxAccount},
		{"key", id.Key, maxKey},
		{logheader.Token, r.Header.Get(logheader.Token), maxToken},
		{logheader.Writer, r.Header.Get(logheader.Writer), maxWriter},
	} {
		if n := len(f.value); n > f.most {
			return &httpError{http.StatusBadRequest, fmt.Sprintf("%s has %d bytes: it may have at most %d", f.name, n, f.most)}
		}
	}
	if id.Account == "" || id.Key == "" {
		return &httpError{http.StatusBadRequest, "accountID and key are required"}
	}
	return nil
}
